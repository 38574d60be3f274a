// Every entry in 12 bytes, so that any ref's life can be told without asking the server for it.

import { idFrom } from './idtable.js';
import { kinds, Op, ops, purgeCauses, reasons } from './vocabulary.js';

const chunk = 65_536;
const mostTemplates = 10_000;

export class Lives {
    #chunks = [];
    #count = 0;
    #windows = [];
    #templates = new Map();
    #templateNames = [];

    #template(name) {
        let number = this.#templates.get(name);
        if (number !== undefined) return number;
        if (this.#templates.size === mostTemplates) return mostTemplates;
        number = this.#templateNames.push(name) - 1;
        this.#templates.set(name, number);
        return number;
    }

    /** Keeps the next entry of the log; `ref`: its ref's number, or -1. */
    admit(columns, place, ref) {
        const offset = this.#count % chunk;
        if (offset === 0) {
            this.#chunks.push({
                op: new Uint8Array(chunk), choice: new Uint8Array(chunk), ref: new Int32Array(chunk),
                window: new Uint32Array(chunk), more: new Uint16Array(chunk),
            });
        }
        const rows = this.#chunks.at(-1), op = columns.op[place], at = columns.at[place];
        if (this.#windows.at(-1) !== at) this.#windows.push(at);
        rows.op[offset] = op;
        rows.choice[offset] = columns.choice[place];
        rows.ref[offset] = ref;
        rows.window[offset] = this.#windows.length - 1;
        if (op === Op.opened) rows.more[offset] = this.#template(columns.templates[columns.template[place]]);
        if (op === Op.delivered || op === Op.failed) rows.more[offset] = columns.number[place];
        this.#count += 1;
    }

    /** The life of the ref with these 32 digits as `{index, at, op, what}` rows; null if the log, as far as it is read, has no such ref. */
    of(digits, story) {
        const words = idFrom(digits), number = words ? story.refs.number(words) : -1;
        if (number < 0) return null;
        const life = [];
        for (let index = 0; index < this.#count; index++) {
            const rows = this.#chunks[Math.floor(index / chunk)], offset = index % chunk;
            if (rows.ref[offset] !== number) continue;
            life.push({ index, at: this.#windows[rows.window[offset]], op: ops[rows.op[offset]].name, ...this.#what(rows, offset) });
            if (life.length === 1_000) break;
        }
        return { rows: life, until: story.until.values[number], isLive: story.isLive(number) };
    }

    #what(rows, offset) {
        const choice = rows.choice[offset], more = rows.more[offset];
        switch (rows.op[offset]) {
            case Op.sealed: return { kind: kinds[choice] };
            case Op.opened: return { template: this.#templateNames[more] ?? 'a further template' };
            case Op.delivered: return { status: more };
            case Op.failed: return { status: more, reason: reasons[choice] };
            case Op.purged: return { cause: purgeCauses[choice] };
            default: return {};
        }
    }
}
