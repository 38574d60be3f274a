// The two errors that end a check. Only a Finding is a verdict.

/** An error in the log, and its place. `code` is the stable word that all of Mayfly's verifiers use. */
export class Finding extends Error {
    constructor(code, detail, place = {}) {
        super(detail);
        this.code = code;
        this.index = place.index ?? null;
        this.file = place.file ?? null;
    }
}

/** Something could not be read or computed. This isn't evidence against the log. */
export class Unable extends Error {}

/** Returns the error as a plain object, for messages between threads. */
export function told(error) {
    if (!(error instanceof Finding)) return { unable: true, detail: String(error.message ?? error) };
    const { code, message: detail, index, file } = error;
    return { code, detail, index, file };
}

/** Returns the error from the result of `told`. */
export function untold(message) {
    return message.unable ? new Unable(message.detail) : new Finding(message.code, message.detail, message);
}
