// The two ways in which a check ends early. Only a Finding is a verdict.

/** The log is wrong, and where. `code` is the stable word that all of Mayfly's verifiers use. */
export class Finding extends Error {
    constructor(code, detail, place = {}) {
        super(detail);
        this.code = code;
        this.index = place.index ?? null;
        this.file = place.file ?? null;
    }
}

/** Something could not be read or computed: says nothing about the log. */
export class Unable extends Error {}

/** A plain object with what an error says, for messages between threads. */
export function told(error) {
    if (!(error instanceof Finding)) return { unable: true, detail: String(error.message ?? error) };
    const { code, message: detail, index, file } = error;
    return { code, detail, index, file };
}

/** The error that `told` told of. */
export function untold(message) {
    return message.unable ? new Unable(message.detail) : new Finding(message.code, message.detail, message);
}
