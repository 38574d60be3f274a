// Computes the ids of a token's entries from its ref.

import { KeyedHash } from './blake2b.js';
import { joined, utf8 } from './bytes.js';

const domain = 'mayfly/v1 ledger/';

/** Encodes a field for hashing: its length, then its bytes. */
function field(bytes) {
    const length = new Uint8Array(4);
    new DataView(length.buffer).setUint32(0, bytes.length);
    return joined(length, bytes);
}

function seconds(time) {
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setBigUint64(0, BigInt(time));
    return bytes;
}

/** Returns the bytes of 32-bit words, big-endian. */
export function bytesOf(words) {
    const view = new DataView(new ArrayBuffer(4 * words.length));
    words.forEach((word, place) => view.setUint32(4 * place, word));
    return new Uint8Array(view.buffer);
}

/** The ids of one token, each as four 32-bit words. */
export class TokenIDs {
    #hash;

    /** `ref`: 32 hexadecimal digits. */
    constructor(ref) {
        this.#hash = new KeyedHash(Uint8Array.from({ length: 16 }, (_, place) => parseInt(ref.slice(2 * place, 2 * place + 2), 16)));
    }

    #id(label, bytes) {
        const view = new DataView(this.#hash.digest(joined(utf8(`${domain}${label}\0`), field(bytes))).buffer);
        return Uint32Array.from({ length: 4 }, (_, word) => view.getUint32(4 * word));
    }

    /** `until`: the end of the day on which the token expires, in unix seconds. */
    sealed(until) {
        return this.#id('sealed', seconds(until));
    }

    purged(until) {
        return this.#id('purged', seconds(until));
    }

    /** `job`: four words. */
    opened(job) {
        return this.#id('opened', bytesOf(job));
    }
}
