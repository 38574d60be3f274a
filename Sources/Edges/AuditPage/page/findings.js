// The two errors that end a check. Only a Finding is a verdict.

/** An error in the log, and its place. `code` is the stable word that all of Mayfly's verifiers use. */
export class Finding extends Error {
    constructor(code, detail, place = {}) {
        super(detail);
        this.code = code;
        this.index = place.index ?? null;
        this.file = place.file ?? null;
        /** The log is shorter than an earlier head, so nothing proves yet that its entries differ. */
        this.isCut = place.isCut ?? false;
    }
}

/** Something could not be read or computed. This isn't evidence against the log. */
export class Unable extends Error {}

/** Returns the error as a plain object, for messages between threads. */
export function told(error) {
    if (!(error instanceof Finding)) return { unable: true, detail: String(error.message ?? error) };
    const { code, message: detail, index, file, isCut } = error;
    return { code, detail, index, file, isCut };
}

/** Returns the error from the result of `told`. */
export function untold(message) {
    return message.unable ? new Unable(message.detail) : new Finding(message.code, message.detail, message);
}

const meanings = new Map(Object.entries({
    signature: 'The log is not signed by this key', missing: 'A file of the log is missing', damaged: 'A file of the log is damaged',
    tree: "The entries don't match what was signed", rewritten: 'Entries of an earlier checkpoint were changed or removed',
    cut: 'Entries of an earlier checkpoint are missing at the end: they were cut off, or this is an old copy',
    entry: 'An entry is malformed or out of order', time: 'An entry has an impossible time', after_closed: 'The log goes on after its end',
    policy_changed: 'The rules of the log changed', gaps: 'The broker was away for more than an hour in a day',
    ratchet_late: 'Keys were destroyed late, or not at all', ratchet_early: 'Keys are reported as destroyed too early',
    swept_late: 'Expired tokens were purged late, or not at all', swept_early: 'Purges are reported before they were due',
    template_unknown: 'A push used a text that no policy allows', job_twice: 'Two pushes have the same number',
    job_unknown: 'An outcome belongs to no push', outcome_late: 'The outcome of a push is late or missing',
    bucket_unknown: 'A token belongs to no day', life_too_long: 'A token lives longer than the policy allows',
    purged_early: 'A token expired before its time', unbalanced: "Tokens taken in and tokens purged don't balance",
    overbooked: 'More early purges were booked than published', carry: 'The balance of an earlier log was carried over wrongly',
    small_batch: 'Too few tokens were published together', batch_late: 'Seals and purges were published late',
    midnight_missing: 'A day was not closed at midnight',
}));

/** Returns what a Finding means, in words. */
export const meaningOf = ({ code, isCut }) => meanings.get(isCut ? 'cut' : code) ?? code;

/** Returns the headline for a log with this Finding. */
export function headlineOf({ code, isCut }) {
    if (code === 'signature') return 'Not signed with this key';
    if (code !== 'rewritten') return 'This log is wrong';
    return isCut ? 'This log is shorter than before' : 'This log was rewritten';
}
