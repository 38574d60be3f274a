// The entries of one bundle as columns of numbers: cheap to hand from one thread to another, and to walk through.

import { Op } from './vocabulary.js';

export class Columns {
    count = 0;
    /** Texts of the few entries that have more than a template, by their place in the bundle. */
    rare = new Map();
    templates = [];
    #templateNumbers = new Map();

    constructor(first, capacity) {
        this.first = first;
        this.at = new Float64Array(capacity);
        this.op = new Uint8Array(capacity);
        /** `until` of a sealed token; count, epoch, generation, resolution or status of others. */
        this.number = new Float64Array(capacity);
        this.choice = new Uint8Array(capacity);
        this.template = new Uint8Array(capacity);
        this.ref = new Uint32Array(4 * capacity);
        this.job = new Uint32Array(4 * capacity);
    }

    /** `entry`: an EntryReader that has just read the bundle's next entry. */
    push(entry) {
        const place = this.count++;
        this.at[place] = entry.at;
        this.op[place] = entry.op;
        this.number[place] = entry.op === Op.sealed ? entry.until : entry.number;
        this.choice[place] = entry.choice;
        if (entry.op >= Op.sealed && entry.op <= Op.purged) this.ref.set(entry.ref, 4 * place);
        if (entry.op >= Op.opened && entry.op <= Op.failed) this.job.set(entry.job, 4 * place);
        if (entry.op === Op.opened) this.template[place] = this.#templateNumber(entry.text);
        if (entry.op <= Op.policyLoaded || entry.op === Op.closed) {
            const { text, version, policy } = entry;
            this.rare.set(place, { text, version, policy });
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

    /** As a message to another thread, which takes the buffers along. */
    sent() {
        const { first, count, at, op, number, choice, template, ref, job, rare, templates } = this;
        const message = { first, count, at, op, number, choice, template, ref, job, rare, templates };
        return { message, transfer: [at, op, number, choice, template, ref, job].map((column) => column.buffer) };
    }
}
