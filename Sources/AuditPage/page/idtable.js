// Random 128-bit ids and a number for each, in the order in which they came: 24 to 48 bytes an id.

/** An array of numbers that grows. */
export class Growing {
    count = 0;

    constructor(kind, capacity = 1024) {
        this.values = new kind(capacity);
    }

    push(value) {
        if (this.count === this.values.length) {
            const wider = new this.values.constructor(2 * this.count);
            wider.set(this.values);
            this.values = wider;
        }
        this.values[this.count++] = value;
        return this.count - 1;
    }
}

export class IDTable {
    count = 0;
    #words = new Uint32Array(4 * 1024);
    #slots = new Int32Array(2048);
    // A random word for each value of each byte (simple tabulation): whoever writes a log can't choose ids that collide.
    #table = crypto.getRandomValues(new Uint32Array(16 * 256));

    #slot(ids, at) {
        const words = this.#words, slots = this.#slots, table = this.#table, mask = slots.length - 1;
        let mixed = 0;
        for (let i = 0; i < 4; i++) {
            const word = ids[at + i], row = 1024 * i;
            mixed ^= table[row | word & 255] ^ table[row | 256 | word >>> 8 & 255]
                ^ table[row | 512 | word >>> 16 & 255] ^ table[row | 768 | word >>> 24];
        }
        for (let slot = mixed & mask; ; slot = slot + 1 & mask) {
            const number = slots[slot] - 1, own = 4 * number;
            if (number < 0) return slot;
            if (words[own] === ids[at] && words[own + 1] === ids[at + 1] && words[own + 2] === ids[at + 2]
                && words[own + 3] === ids[at + 3]) return slot;
        }
    }

    /** The number of the id in the four words at `at`, -1 if it is not here. */
    number(ids, at = 0) {
        return this.#slots[this.#slot(ids, at)] - 1;
    }

    /** Takes an id in; false if it is here already. */
    insert(ids, at = 0) {
        const slot = this.#slot(ids, at);
        if (this.#slots[slot] !== 0) return false;
        if (4 * this.count === this.#words.length) {
            const wider = new Uint32Array(2 * this.#words.length);
            wider.set(this.#words);
            this.#words = wider;
        }
        for (let i = 0; i < 4; i++) this.#words[4 * this.count + i] = ids[at + i];
        this.#slots[slot] = ++this.count;
        if (2 * this.count > this.#slots.length) this.#widen();
        return true;
    }

    #widen() {
        this.#slots = new Int32Array(2 * this.#slots.length);
        for (let number = 0; number < this.count; number++) this.#slots[this.#slot(this.#words, 4 * number)] = number + 1;
    }

    /** The id as 32 digits. */
    text(number) {
        return idText(this.#words, 4 * number);
    }
}

export function idText(words, at = 0) {
    return Array.from(words.subarray(at, at + 4), (word) => word.toString(16).padStart(8, '0')).join('');
}

/** Four words from 32 lower-case digits, null for anything else. */
export function idFrom(text) {
    if (!/^[0-9a-f]{32}$/.test(text)) return null;
    return Uint32Array.from({ length: 4 }, (_, word) => parseInt(text.slice(8 * word, 8 * word + 8), 16));
}
