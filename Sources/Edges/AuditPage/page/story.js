// Checks the rules of a log, entry by entry, up to the first error. Times are starts of windows in unix seconds.
// Memory depends on open pushes and on the longest life of tokens in days, but not on the length of the log.

import { Balance } from './balance.js';
import { Clock, epochLength } from './clock.js';
import { Finding } from './findings.js';
import { time } from './format.js';
import { Op, ops, purgeCauses } from './vocabulary.js';

const runRank = 0, batchRank = 3, closingRank = 5;
const expired = purgeCauses.indexOf('expired');

export class Story {
    clock = new Clock();
    balance = new Balance(this.clock);
    #isStarted = false;
    #isClosed = false;
    #last = { op: null, rank: 0 };
    #key = new Uint32Array(4);
    /** The policies since the last start, and those before this window's starts: openings from before a crash may sort after the start. */
    #inForce = new Set();
    #before = new Set();
    #longest = 0;
    /** Jobs without an outcome, with the time of their opening. */
    #jobs = new Map();
    #carried = { jobs: 0, at: 0, until: 0 };
    /** From the last `keys.ratcheted`: keys up to epoch `destroyed` are destroyed, and everything due before epoch `swept` is purged. */
    #destroyed = 0;
    #swept = null;
    /** When the next such entry is due. */
    #sweptDue = 0;
    #beforeWindow = null;
    size = 0;
    from = null;
    /** The origin of the next log, if this one is closed. */
    next = null;
    counts = { opened: 0, delivered: 0, failed: 0 };

    /** `allowsGaps`: accepts more than an hour of gaps per day. `seeGap(gap)` is called for each gap. */
    constructor(allowsGaps, seeGap) {
        this.allowsGaps = allowsGaps;
        this.seeGap = seeGap;
    }

    #fail(code, detail, index) {
        throw new Finding(code, detail, { index });
    }

    /** The number of pushes without an outcome. */
    get pending() {
        return this.#jobs.size + this.#carried.jobs;
    }

    /** True if no entry may follow. */
    get isClosed() {
        return this.#isClosed;
    }

    /** Checks the entry at `place` of a bundle's columns. After an entry that names a policy, `name` must be called. */
    admit(columns, place) {
        const index = columns.first + place, at = columns.at[place], op = columns.op[place], { rank } = ops[op];
        if (this.#isClosed) this.#fail('after_closed', 'comes after the entry that closed this log', index);
        this.from ??= at;
        if (this.clock.at !== null && at < this.clock.at) this.#fail('time', "is earlier than its predecessor", index);
        const isLater = at !== this.clock.at;
        if (isLater || rank < batchRank || rank > closingRank) this.balance.endBatch(index - 1);
        if (isLater) this.#openWindow(at, op === Op.started ? columns.number[place] : 0, index);
        if (!this.#isStarted || op === Op.ledgerOpened || op === Op.carried) this.#checkBeginning(op, columns.until[place], index);
        this.#checkOrder(columns, place, isLater, index);
        if (this.balance.isRotating && op !== Op.bucketClosed && op !== Op.ledgerClosed) {
            this.#fail('unbalanced', 'follows a bucket that was closed before its time, but does not close the log', index);
        }
        this.#take(columns, place, index);
        this.#last = { op, rank };
        this.size += 1;
    }

    /** Checks the end of the log. */
    finish() {
        const { rank } = this.#last, index = this.size - 1;
        if (this.size === 0) return;
        this.balance.endBatch(index, rank === batchRank || rank === closingRank - 1);
        if (this.balance.isRotating && !this.#isClosed) {
            this.#fail('unbalanced', 'ends a log in which a bucket was closed before its time, and which is not closed', index);
        }
        this.#endWindow(index);
    }

    /** `resolution`: the resolution of a start, else 0. */
    #openWindow(at, resolution, index) {
        const { clock } = this, isFirst = clock.at === null;
        if (!isFirst) this.#endWindow(index - 1);
        if (isFirst) {
            // A correct broker starts a log without the keys of two epochs ago.
            this.#destroyed = Math.max(Math.floor(at / epochLength), 2) - 2;
            this.#sweptDue = (Math.floor(at / epochLength) + 2) * epochLength;
        }
        const lengths = [clock.window, resolution].filter((length) => length > 0);
        if (lengths.length > 0 && lengths.every((length) => at % length !== 0)) {
            this.#fail('time', "begins its window at a time that is not a multiple of the window length", index);
        }
        if (resolution > 0 && !isFirst) {
            const gap = clock.recordSilence(at);
            if (gap) this.seeGap(gap);
            if (clock.hasTooManyGaps && !this.allowsGaps) {
                this.#fail('gaps', 'begins after a gap that makes more than an hour without a broker in one day', index);
            }
        }
        clock.at = at;
        this.#before = new Set();
        clock.forgetBefore(this.#oldestDue());
        this.#beforeWindow = { destroyed: this.#destroyed, sweptDue: this.#sweptDue };
    }

    /** Returns the earliest due time that can still be checked. */
    #oldestDue() {
        const { timing, lastClosed } = this.balance, { at } = this.clock;
        if (!timing) return 0;
        const [oldest = at] = this.#jobs.values();
        return Math.min(
            oldest, this.#carried.jobs > 0 ? this.#carried.at : at, lastClosed, Math.floor(at / timing.hour) * timing.hour,
            this.#destroyed * epochLength, this.#swept === null ? at : this.#swept * epochLength, this.#sweptDue);
    }

    /** Called when all entries of the window are known. Everything that was due before the window must be done. */
    #endWindow(index) {
        const { clock } = this, { destroyed, sweptDue } = this.#beforeWindow;
        if (clock.isEpochLate((destroyed + 4) * epochLength)) {
            this.#fail('ratchet_late', `by ${time(clock.at)} the keys of epoch ${destroyed + 1} should be destroyed`, index);
        }
        if (clock.isEpochLate(sweptDue)) {
            this.#fail('swept_late', `by ${time(clock.at)} the log should say that what was due before ${time(sweptDue - epochLength)} is purged`, index);
        }
        const [oldest] = this.#jobs.values();
        if (oldest !== undefined && clock.isJobLate(oldest)) {
            this.#fail('outcome_late', `by ${time(clock.at)} a push of ${time(oldest)} should have an outcome`, index);
        }
        if (this.#carried.jobs > 0 && clock.isJobLate(this.#carried.at)) {
            this.#fail('outcome_late', `by ${time(clock.at)} the pushes of the earlier log should have outcomes`, index);
        }
        this.balance.endWindow(index);
    }

    /** A log begins with a start, or with the balances of an earlier log. */
    #checkBeginning(op, until, index) {
        if (op === Op.ledgerOpened && this.size === 0) return;
        if (op === Op.ledgerOpened) this.#fail('carry', 'continues an earlier log, but is not the first entry', index);
        if (op === Op.carried) {
            if (this.#last.op !== Op.ledgerOpened && this.#last.op !== Op.carried) {
                this.#fail('carry', 'carries a balance over, but not at the beginning of the log', index);
            }
            if (this.#last.op === Op.carried && until <= this.#carried.until) {
                this.#fail('carry', "carries a balance over whose day is not later than its predecessor's", index);
            }
        } else if (op !== Op.started) {
            this.#fail('entry', 'comes before any broker.started', index);
        }
    }

    /** Entries of a window are sorted. A stop publishes its window early. A start may continue that window with a new sorted sequence. */
    #checkOrder(columns, place, isLater, index) {
        const op = columns.op[place], { rank } = ops[op], last = isLater ? runRank : this.#last.rank, key = this.#key;
        if (rank === runRank) return;
        if (rank < last) this.#fail('entry', 'is out of order within its window', index);
        const until = columns.until[place];
        const words = rank === closingRank ? Uint32Array.of(0, 0, Math.floor(until / 2 ** 32), until % 2 ** 32)
            : (rank === 2 ? columns.job : columns.id).subarray(4 * place, 4 * place + 4);
        if (rank === last) {
            let word = 0;
            while (word < 3 && words[word] === key[word]) word += 1;
            if (words[word] <= key[word]) this.#fail('entry', 'has an id that is not larger than the one before it in its window', index);
        }
        key.set(words);
    }

    #take(columns, place, index) {
        const { balance } = this, until = columns.until[place], { sums, text } = columns.rare.get(place) ?? {};
        switch (columns.op[place]) {
            case Op.ratcheted: this.#ratchet(sums, index); break;
            case Op.ledgerOpened: Object.assign(this.#carried, { jobs: sums.jobs, at: this.clock.at }); break;
            case Op.carried:
                this.#carried.until = until;
                balance.carry(until, sums.live, index);
                break;
            case Op.opened: this.#open(jobOf(columns, place), columns.templates[columns.template[place]], index); break;
            case Op.delivered: case Op.failed: this.#conclude(columns, place, index); break;
            case Op.sealed: balance.seal(until, this.#longest, index); break;
            case Op.purged: if (columns.choice[place] === expired) balance.expire(until, index); else balance.endEarly(); break;
            case Op.bucketClosed: balance.close(until, sums, index); break;
            case Op.ledgerClosed:
                balance.requireEmpty(index);
                this.#isClosed = true;
                this.next = text;
        }
    }

    /** Handles the policy that the last entry names. */
    name(columns, place, policy) {
        if (columns.op[place] === Op.started) this.#start(columns.number[place], policy.timing, columns.first + place);
        this.#inForce.add(policy);
        this.#longest = Math.max(this.#longest, policy.longest);
    }

    #start(resolution, timing, index) {
        const known = this.balance.timing;
        if (timing.hour % resolution !== 0) this.#fail('policy_changed', "names windows that do not divide the policy's hour", index);
        if (known && ['hour', 'day', 'seals'].some((name) => known[name] !== timing[name])) {
            this.#fail('policy_changed', 'names a policy with another timing of the log', index);
        }
        if (!known) this.balance.begin(timing, this.from, index);
        this.clock.window = resolution;
        this.#isStarted = true;
        for (const policy of this.#inForce) this.#before.add(policy);
        this.#inForce = new Set();
    }

    #ratchet({ epoch, swept }, index) {
        const end = this.clock.at + this.clock.window;
        // The present epoch's key is in use. A claim that it is destroyed would disable the check.
        if ((epoch + 1) * epochLength > end) this.#fail('ratchet_early', 'reports destroyed keys of an epoch that has not ended', index);
        this.#destroyed = Math.max(this.#destroyed, epoch);
        if (swept * epochLength > end) this.#fail('swept_early', 'reports purges of tokens that are not due yet', index);
        if (this.#swept !== null && swept < this.#swept) this.#fail('swept_early', 'contradicts an earlier report of what is purged', index);
        this.#swept = swept;
        this.#sweptDue = Math.max(swept + 2, Math.floor(this.clock.at / epochLength) + 1) * epochLength;
        if (this.clock.isLate((swept + 1) * epochLength)) {
            this.#fail('swept_late', `says that what was due at ${time(swept * epochLength)} is not all purged`, index);
        }
    }

    #open(job, template, index) {
        if (this.#jobs.has(job)) this.#fail('job_twice', 'is opened for a push that is under way', index);
        if (![...this.#inForce, ...this.#before].some(({ templates }) => templates.has(template))) {
            this.#fail('template_unknown', `is opened by the template ${template}, which is in no policy in force`, index);
        }
        this.#jobs.set(job, this.clock.at);
        this.counts.opened += 1;
    }

    #conclude(columns, place, index) {
        const job = jobOf(columns, place), carried = this.#carried, opened = this.#jobs.get(job);
        if (opened !== undefined) {
            this.#jobs.delete(job);
            if (this.clock.isJobLate(opened)) this.#fail('outcome_late', `has an outcome too late after ${time(opened)}`, index);
        } else if (carried.jobs > 0 && !this.clock.isJobLate(carried.at)) {
            carried.jobs -= 1;
        } else {
            this.#fail('job_unknown', 'has an outcome of a push that is not under way', index);
        }
        this.counts[columns.op[place] === Op.delivered ? 'delivered' : 'failed'] += 1;
    }
}

/** A job's 16 bytes as the key of a Map. */
function jobOf({ job }, place) {
    const at = 4 * place;
    return String.fromCharCode(
        job[at] >>> 16, job[at] & 0xffff, job[at + 1] >>> 16, job[at + 1] & 0xffff,
        job[at + 2] >>> 16, job[at + 2] & 0xffff, job[at + 3] >>> 16, job[at + 3] & 0xffff);
}
