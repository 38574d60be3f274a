// The entries of a bundle as columns of numbers, which are cheap to iterate and to send to another thread.

import { Op } from './vocabulary.js';

export class Columns {
    count = 0;
    /** The further values of rare entries: `{text, version, digest, sums}` by position in the bundle. */
    rare = new Map();
    templates = [];
    #templateNumbers = new Map();

    constructor(first, capacity) {
        this.first = first;
        this.at = new Float64Array(capacity);
        this.op = new Uint8Array(capacity);
        this.until = new Float64Array(capacity);
        /** Count, generation, resolution or status. */
        this.number = new Float64Array(capacity);
        this.choice = new Uint8Array(capacity);
        this.template = new Uint8Array(capacity);
        this.id = new Uint32Array(4 * capacity);
        this.job = new Uint32Array(4 * capacity);
    }

    /** `entry`: an EntryReader that has just read the bundle's next entry. */
    push(entry) {
        const place = this.count++, { op } = entry;
        this.at[place] = entry.at;
        this.op[place] = op;
        this.until[place] = entry.until;
        this.number[place] = entry.number;
        this.choice[place] = entry.choice;
        if (op === Op.opened || op === Op.sealed || op === Op.purged) this.id.set(entry.id, 4 * place);
        if (op >= Op.opened && op <= Op.failed) this.job.set(entry.job, 4 * place);
        if (op === Op.opened) this.template[place] = this.#templateNumber(entry.text);
        if (op < Op.opened || op > Op.purged) {
            const { text, version, digest, sums } = entry;
            this.rare.set(place, { text, version, digest, sums });
        }
    }

    #templateNumber(text) {
        let number = this.#templateNumbers.get(text);
        if (number === undefined) {
            number = this.templates.push(text) - 1;
            this.#templateNumbers.set(text, number);
        }
        return number;
    }

    /** Returns a message for another thread, which transfers the buffers. */
    sent() {
        const { first, count, at, op, until, number, choice, template, id, job, rare, templates } = this;
        const message = { first, count, at, op, until, number, choice, template, id, job, rare, templates };
        return { message, transfer: [at, op, until, number, choice, template, id, job].map((column) => column.buffer) };
    }
}
