// The story that the entries tell, judged one entry at a time: the life of each ref, and that tokens and keys die on time.
// Times are starts of windows in unix seconds. What is due at d happened on time if its window is at most two minutes after d.

import { Clock, epochLength } from './clock.js';
import { time } from './format.js';
import { Growing, idText, IDTable } from './idtable.js';
import { Op } from './vocabulary.js';

const done = -1;

/** The codes that are about time; all others are about the order of a life. */
export const retentionCodes = new Set(['purged_late', 'never_purged', 'ratchet_late', 'ratchet_early']);

export class Story {
    clock = new Clock();
    refs = new IDTable();
    /** By a ref's number. Times are unix seconds. */
    until = new Growing(Float64Array);
    #isPurged = new Growing(Uint8Array);
    sealedAt = new Growing(Float64Array);
    sealedIn = new Growing(Float64Array);
    #jobs = new IDTable();
    #refOfJob = new Growing(Int32Array);
    /** All epochs up to this one have no key any more; null before the first entry. */
    #destroyed = null;
    #destroyedBefore = null;
    #toldOfRatchet = false;
    #isClosed = false;
    /** The ref of the entry before, if that has one and is of the same window. */
    #lastRef = new Uint32Array(4);
    #hasLast = false;
    size = 0;
    from = null;
    counts = { sealed: 0, opened: 0, delivered: 0, failed: 0, purged: 0, excused: 0 };

    /** `found(code, detail, index, ref)` hears of all that is wrong; `seen` of what happens (see Figures). */
    constructor(found, seen) {
        this.found = found;
        this.seen = seen;
    }

    /** Takes in the entry at `place` of a bundle's columns; returns the number of its ref, or -1. */
    admit(columns, place) {
        const index = columns.first + place, at = columns.at[place], op = columns.op[place];
        if (this.#isClosed) this.found('after_closed', 'stands after the entry that closed this log', index);
        if (this.from === null) this.from = at;
        if (at < this.clock.at) this.found('time', "has a time before its predecessor's", index);
        if (at > this.clock.at) {
            this.#closeWindow(index - 1);
            const named = op === Op.started ? columns.number[place] : null;
            // What lived in an earlier log comes first, in a window of that log: no entry here names its length.
            if ((this.size > 0 || named !== null) && !this.clock.allowsWindow(at, named)) {
                this.found('time', "begins its window at no multiple of the windows' length", index);
            }
            this.clock.advance(at);
            this.#destroyedBefore = this.#destroyed;
            this.#hasLast = false;
        }
        if (!this.clock.hasStarted && op !== Op.started && op !== Op.sealed && op !== Op.opened) {
            this.found('entry', 'comes before any broker.started', index);
        }
        this.size += 1;
        // A broker that keeps the rule begins a log without the keys of two epochs ago.
        this.#destroyed ??= Math.max(Math.floor(at / epochLength), 2) - 2;
        const ref = this.#take(columns, place, index);
        this.#checkOrder(columns, place, index);
        return ref;
    }

    /** What an entry does to its ref, whose number it returns, -1 for none, or to the keys. */
    #take(columns, place, index) {
        const op = columns.op[place], number = columns.number[place];
        switch (op) {
            case Op.started: this.clock.start(number); break;
            case Op.ratcheted: this.#ratchet(number, index); break;
            case Op.closed: this.#isClosed = true; break;
            case Op.sealed: return this.#seal(columns, place, index);
            case Op.opened: return this.#open(columns, place, index);
            case Op.delivered: case Op.failed: return this.#conclude(columns, place, index);
            case Op.purged: return this.#purge(columns, place, index);
        }
        return -1;
    }

    /** Refs are sorted in their window; after an entry without one anew, for a stop publishes its window early and a start goes on with it. */
    #checkOrder(columns, place, index) {
        const op = columns.op[place], { ref } = columns, from = 4 * place, last = this.#lastRef;
        const hasRef = op >= Op.sealed && op <= Op.purged;
        if (hasRef && this.#hasLast) {
            let word = 0;
            while (word < 3 && ref[from + word] === last[word]) word += 1;
            if (ref[from + word] < last[word]) {
                this.found('entry', 'stands behind a larger ref of its window: they are not sorted', index, idText(ref, from));
            }
        }
        this.#hasLast = hasRef;
        for (let word = 0; hasRef && word < 4; word++) last[word] = ref[from + word];
    }

    /** Checks what the end of the log leaves open: the last window's ratchet, and refs that should be gone. */
    finish() {
        this.#closeWindow(this.size - 1);
        for (let ref = 0; ref < this.refs.count; ref++) {
            const until = this.until.values[ref];
            if (!this.isLive(ref) || this.clock.lateness(until) !== 'late') continue;
            this.found('never_purged', `was sealed until ${time(until)} and is still not purged at the end of the log`,
                this.sealedIn.values[ref], this.refs.text(ref));
        }
    }

    isLive(ref) {
        return this.#isPurged.values[ref] === 0;
    }

    #seal(columns, place, index) {
        if (!this.refs.insert(columns.ref, 4 * place)) {
            const ref = this.refs.number(columns.ref, 4 * place);
            this.found('sealed_twice', 'is sealed a second time', index, this.refs.text(ref));
            return ref;
        }
        this.until.push(columns.number[place]);
        this.#isPurged.push(0);
        this.sealedAt.push(columns.at[place]);
        this.sealedIn.push(index);
        this.counts.sealed += 1;
        return this.refs.count - 1;
    }

    #open(columns, place, index) {
        const ref = this.#known(columns, place, index, 'is opened');
        if (ref < 0) return ref;
        const until = this.until.values[ref], text = () => this.refs.text(ref);
        if (!this.isLive(ref)) this.found('after_purge', 'is opened after it was purged', index, text());
        else if (this.clock.at >= until) this.found('opened_late', `is opened when it had ended, at ${time(until)}`, index, text());
        if (!this.#jobs.insert(columns.job, 4 * place)) {
            this.found('job_twice', 'is opened for a job that was opened before', index, text());
            return ref;
        }
        this.#refOfJob.push(ref);
        this.counts.opened += 1;
        return ref;
    }

    #conclude(columns, place, index) {
        const ref = this.refs.number(columns.ref, 4 * place), job = this.#jobs.number(columns.job, 4 * place);
        this.counts[columns.op[place] === Op.delivered ? 'delivered' : 'failed'] += 1;
        const text = () => ref < 0 ? null : this.refs.text(ref);
        if (job < 0) this.found('job_unknown', 'has an outcome of a job that was not opened', index, text());
        else if (this.#refOfJob.values[job] === done) this.found('outcome_twice', 'has a second outcome of one job', index, text());
        else if (this.#refOfJob.values[job] !== ref) this.found('job_unknown', 'has an outcome of a job that opened another ref', index, text());
        else this.#refOfJob.values[job] = done;
        return ref;
    }

    #purge(columns, place, index) {
        const ref = this.#known(columns, place, index, 'is purged');
        if (ref < 0) return ref;
        const until = this.until.values[ref];
        if (!this.isLive(ref)) {
            this.found('purged_twice', 'is purged a second time', index, this.refs.text(ref));
            return ref;
        }
        const lateness = this.clock.lateness(until);
        if (lateness === 'late') {
            this.found('purged_late', `is purged at ${time(this.clock.at)}, more than 2 minutes after ${time(until)}`, index,
                this.refs.text(ref));
        }
        if (lateness === 'excused') this.counts.excused += 1;
        this.counts.purged += 1;
        this.seen.purgedAfter(this.clock.at - until, { ref, index, until, lateness, choice: columns.choice[place] });
        this.#isPurged.values[ref] = 1;
        return ref;
    }

    #known(columns, place, index, what) {
        const ref = this.refs.number(columns.ref, 4 * place);
        if (ref < 0) this.found('never_sealed', `${what}, and was never sealed`, index);
        return ref;
    }

    #ratchet(epoch, index) {
        // The key of the epoch that runs is in use: who says it is destroyed only wants to be rid of the check below.
        if (epoch >= Math.floor(this.clock.latest / epochLength)) {
            this.found('ratchet_early', 'claims that the keys of an epoch are destroyed that is not over', index);
            return;
        }
        this.#destroyed = Math.max(this.#destroyed, epoch);
        this.#toldOfRatchet = false;
    }

    /** At the end of a window all of its entries are known: a ratchet that was due before it must have come before it. */
    #closeWindow(index) {
        if (this.#destroyedBefore === null || this.#toldOfRatchet) return;
        const due = (this.#destroyedBefore + 4) * epochLength;
        if (!this.clock.isRatchetLate(due)) return;
        this.found('ratchet_late', `by ${time(this.clock.at)} the keys of epoch ${this.#destroyedBefore + 1} should be destroyed`, index);
        this.#toldOfRatchet = true;
    }
}
