// Finds the history of one token in the whole log: seals, openings and purges with the ids of its ref. The ref never leaves this thread.

import { equal, hex, toBase64, utf8 } from './bytes.js';
import { Unable } from './findings.js';
import { bytesOf, TokenIDs } from './tokenids.js';
import { inclusionRanges, sha256, treeHash } from './tree.js';
import { Op, ops, purgeCauses, reasons } from './vocabulary.js';

const mostRows = 1_000, mostUntils = 1_000;
/** The ops worth a proof, the least important first. */
const worth = [undefined, Op.sealed, Op.opened, Op.purged];

/** Writes an entry in canonical form. */
function spell(entry) {
    const sorted = Object.fromEntries(Object.entries(entry).sort(([left], [right]) => left < right ? -1 : 1));
    return utf8(JSON.stringify(sorted));
}

const spellTime = (seconds) => new Date(seconds * 1000).toISOString().replace('.000Z', 'Z');
const isSame = (ids, place, id) => ids[4 * place] === id[0] && ids[4 * place + 1] === id[1] && ids[4 * place + 2] === id[2]
    && ids[4 * place + 3] === id[3];
const wordsHex = (ids, place) => hex(bytesOf(ids.subarray(4 * place, 4 * place + 4)));

export class Search {
    #ids;
    /** A cache of the ids of seal and purge, by `until`. */
    #known = new Map();
    /** The possible `until` of the token's purge: from its seal, or from an earlier log. */
    #untils = new Set();
    /** Openings without an outcome, by job. */
    #pushes = new Map();
    #bundles = [];
    /** The entry to prove: the latest purge, else opening, else seal, as `{row, place, hashes}`. */
    #proved = null;
    rows = [];
    /** The number of the token's entries that aren't in `rows`. */
    skipped = 0;
    /** The number of entries read. */
    read = 0;

    constructor(ref) {
        this.ref = ref;
        this.#ids = new TokenIDs(ref);
    }

    #idsOf(until) {
        let ids = this.#known.get(until);
        if (!ids) {
            if (this.#known.size >= mostUntils) this.#known.clear();
            ids = { sealed: this.#ids.sealed(until), purged: this.#ids.purged(until) };
            this.#known.set(until, ids);
        }
        return ids;
    }

    /** Searches the next bundle's result, which must have its hashes. */
    async take({ columns, hash, hashes }) {
        for (let place = 0; place < (columns?.count ?? 0); place++) {
            const row = this.#row(columns, place);
            if (!row) continue;
            if (this.rows.length < (row.op === Op.opened ? mostRows : 2 * mostRows)) this.rows.push(row); else this.skipped += 1;
            if (worth.indexOf(row.op) >= worth.indexOf(this.#proved?.row.op)) this.#proved = { row, place, hashes };
        }
        if (!columns) return;
        this.read = columns.first + columns.count;
        this.#bundles.push(hash ?? await treeHash(hashes));
    }

    /** Returns the entry as a row if it is about the token, otherwise null. Adds outcomes to openings. */
    #row(columns, place) {
        const op = columns.op[place], until = columns.until[place], row = { index: columns.first + place, at: columns.at[place], op };
        const { id, job } = columns;
        switch (op) {
            case Op.carried:
                if (this.#untils.size < mostUntils) this.#untils.add(until);
                return null;
            case Op.sealed:
                if (!isSame(id, place, this.#idsOf(until).sealed)) return null;
                this.#untils.add(until);
                return { ...row, until, id: wordsHex(id, place) };
            case Op.purged: {
                const cause = purgeCauses[columns.choice[place]], candidates = cause === 'expired' ? [until] : [...this.#untils];
                const own = candidates.find((candidate) => isSame(id, place, this.#idsOf(candidate).purged));
                return own === undefined ? null : { ...row, cause, until: own, id: wordsHex(id, place) };
            }
            case Op.opened: {
                if (!isSame(id, place, this.#ids.opened(job.subarray(4 * place, 4 * place + 4)))) return null;
                const push = { ...row, id: wordsHex(id, place), job: wordsHex(job, place), template: columns.templates[columns.template[place]] };
                this.#pushes.set(push.job, push);
                return push;
            }
            case Op.delivered: case Op.failed: {
                const push = this.#pushes.size > 0 ? this.#pushes.get(wordsHex(job, place)) : null;
                if (!push) return null;
                this.#pushes.delete(push.job);
                push.outcome = { at: row.at, status: columns.number[place], reason: op === Op.failed ? reasons[columns.choice[place]] : null };
                return null;
            }
            default: return null;
        }
    }

    /** Returns a proof (C2SP tlog-proof) of the token's purge, else of its latest opening or seal. Returns null if there is none. */
    async proof(head) {
        if (!this.#proved) return null;
        const { row: { op, at, index, id, job, cause, template, until }, place, hashes } = this.#proved;
        const more = { [Op.opened]: { job, template }, [Op.sealed]: { until: spellTime(until) } }[op]
            ?? { cause, ...(cause === 'expired' ? { until: spellTime(until) } : {}) };
        const entry = spell({ at: spellTime(at), id, op: ops[op].name, ...more });
        if (!equal(await sha256(Uint8Array.of(0, ...entry)), hashes[place])) throw new Unable('the entry to prove is spelled in another way');
        const bundle = Math.floor(index / 256), first = 256 * bundle;
        const path = await Promise.all(inclusionRanges(index, head.size).map(([from, to]) =>
            treeHash(from >= first && to <= first + hashes.length ? hashes.slice(from - first, to - first)
                : this.#bundles.slice(from / 256, Math.ceil(to / 256)))));
        const lines = ['c2sp.org/tlog-proof@v1', `extra ${toBase64(entry)}`, `index ${index}`, ...path.map(toBase64), '', head.note.whole];
        return { index, op, text: lines.join('\n') };
    }
}
