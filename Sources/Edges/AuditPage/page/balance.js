// Counts seals and purges per `until`. Each count must balance.

import { grace } from './clock.js';
import { counted, time } from './format.js';
import { Finding } from './findings.js';

const mostShown = 60;

/** The ends of buckets as a binary heap: the soonest is first. */
class Ends {
    #heap = [];

    get first() {
        return this.#heap[0] ?? Infinity;
    }

    add(end) {
        const heap = this.#heap;
        let at = heap.push(end) - 1;
        for (let above; at > 0 && heap[above = at - 1 >> 1] > end; at = above) heap[at] = heap[above];
        heap[at] = end;
    }

    removeFirst() {
        const heap = this.#heap, end = heap.pop();
        if (heap.length === 0) return;
        let at = 0;
        for (let below; (below = 2 * at + 1) < heap.length; at = below) {
            if (heap[below + 1] < heap[below]) below += 1;
            if (heap[below] >= end) break;
            heap[at] = heap[below];
        }
        heap[at] = end;
    }
}

export class Balance {
    /** The counts of each open bucket, by `until`. */
    #buckets = new Map();
    /** The keys of `#buckets`, and perhaps ends of closed ones. */
    #ends = new Ends();
    #lastClosed = 0;
    #timing = null;
    /** Early purges, and how many of them closed buckets contain. */
    #early = 0;
    #booked = 0;
    /** Tokens in open buckets that did not expire. */
    #rest = 0;
    /** Counts of the present batch: seals, purges, closings at midnight, closings of a rotation. */
    #batch = null;
    #isRotating = false;
    counts = { batches: 0, closed: 0, sealed: 0, expired: 0, early: 0, carried: 0 };
    /** The minimum of seals in a batch that isn't at midnight. */
    smallest = null;
    /** The newest closings, as the page shows them. */
    closings = [];

    constructor(clock) {
        this.clock = clock;
    }

    #fail(code, detail, index) {
        throw new Finding(code, detail, { index });
    }

    get timing() {
        return this.#timing;
    }

    /** Everything due before this is closed. */
    get lastClosed() {
        return this.#lastClosed;
    }

    /** Called at the first start. `first`: the time of the log's first entry. */
    begin(timing, first, index) {
        this.#timing = timing;
        const { day } = timing;
        for (const until of this.#buckets.keys()) {
            if (until % day !== 0) this.#fail('carry', `follows a balance for ${time(until)}, which is not the end of a day of the policy`, index);
        }
        this.#lastClosed = Math.floor(first / day) * day;
        for (const until of this.#buckets.keys()) this.#lastClosed = Math.min(this.#lastClosed, until - day);
    }

    get isRotating() {
        return this.#isRotating;
    }

    /** The number of live tokens according to the log. */
    get live() {
        return this.#rest + this.#booked - this.#early;
    }

    carry(until, live, index) {
        if (this.#rest + live > Number.MAX_SAFE_INTEGER) this.#fail('carry', 'carries more tokens than can be counted', index);
        this.#open(until, { sealed: 0, carried: live, expired: 0 });
        this.counts.carried += live;
        this.#rest += live;
    }

    #open(until, bucket) {
        this.#buckets.set(until, bucket);
        this.#ends.add(until);
    }

    /** The end of the open bucket that ends first, or Infinity. */
    #soonest() {
        while (this.#ends.first !== Infinity && !this.#buckets.has(this.#ends.first)) this.#ends.removeFirst();
        return this.#ends.first;
    }

    #requireOpen(until, index) {
        if (until % this.#timing.day !== 0 || until <= this.#lastClosed) {
            this.#fail('bucket_unknown', `belongs to no bucket: ${time(until)} is not the end of a day, or its bucket is closed`, index);
        }
    }

    /** `longest`: the longest life that a policy of this log allows. */
    seal(until, longest, index) {
        const { day } = this.#timing, batch = this.#batched();
        this.#requireOpen(until, index);
        const last = (Math.floor((this.clock.at + this.clock.window + longest) / day) + 1) * day;
        if (until > last) this.#fail('life_too_long', `lives until ${time(until)}, longer than a policy allows (${time(last)})`, index);
        const bucket = this.#buckets.get(until);
        if (bucket) bucket.sealed += 1; else this.#open(until, { sealed: 1, carried: 0, expired: 0 });
        batch.seals += 1;
        this.counts.sealed += 1;
        this.#rest += 1;
    }

    expire(until, index) {
        this.#batched().purges += 1;
        this.#requireOpen(until, index);
        if (until - this.#timing.day > this.clock.at + this.clock.window) {
            this.#fail('purged_early', `expired before its day began: it lives until ${time(until)}`, index);
        }
        const bucket = this.#buckets.get(until);
        if (!bucket || bucket.sealed + bucket.carried <= bucket.expired) {
            this.#fail('unbalanced', `is one expired token more than the bucket of ${time(until)} has`, index);
        }
        bucket.expired += 1;
        this.counts.expired += 1;
        this.#rest -= 1;
    }

    endEarly() {
        this.#batched().purges += 1;
        this.#early += 1;
        this.counts.early += 1;
    }

    #batched() {
        return this.#batch ??= { seals: 0, purges: 0, closings: 0, rotated: 0 };
    }

    close(until, { sealed, expired, ended }, index) {
        const batch = this.#batched(), { clock } = this;
        this.#requireOpen(until, index);
        const bucket = this.#buckets.get(until) ?? { sealed: 0, carried: 0, expired: 0 };
        const wrong = (words) => this.#fail('unbalanced', `closes the bucket of ${time(until)}, ${words}`, index);
        if (sealed !== bucket.sealed || expired !== bucket.expired) {
            wrong(`which has ${bucket.sealed} sealed and ${bucket.expired} expired, with ${sealed} and ${expired}`);
        }
        this.#booked += ended;
        if (this.#booked > this.#early) this.#fail('overbooked', 'books more early purges than the log has', index);
        const all = sealed + bucket.carried, gone = expired + ended, isRotation = until > clock.at;
        if (isRotation ? all < gone : all !== gone) wrong(`where ${all} were sealed and ${gone} purged`);
        if (isRotation) {
            this.#isRotating = true;
            batch.rotated += 1;
        } else {
            const missed = this.#firstMissed(until);
            if (missed !== null) this.#fail('midnight_missing', `closes a bucket, but that of ${time(missed)} was not closed before`, index);
            if (clock.isLate(until)) this.#fail('batch_late', `closes the bucket of ${time(until)} too late`, index);
            this.#lastClosed = until;
            batch.closings += 1;
        }
        this.#buckets.delete(until);
        this.#rest -= all - expired;
        this.counts.closed += 1;
        this.closings.push({ until, at: clock.at, sealed, carried: bucket.carried, expired, ended, isRotation });
        if (this.closings.length > mostShown) this.closings.shift();
    }

    /** Returns the first end of a day before `end` whose bucket must be closed and isn't, or null. */
    #firstMissed(end) {
        const { day } = this.#timing;
        for (let moment = this.#lastClosed + day; moment < end;) {
            const passed = this.#buckets.has(moment) ? null : this.clock.gapEnd(moment);
            if (passed === null) return moment;
            // No open bucket ends before `moment`, since all end after the last closed one.
            moment = Math.min((Math.floor(passed / day) + 1) * day, this.#soonest());
        }
        return null;
    }

    /** Called at the entry after a batch, or at the log's end. `isCut`: the log's last entry is a seal or a purge. */
    endBatch(index, isCut = false) {
        const batch = this.#batch;
        this.#batch = null;
        if (!batch || isCut) return;
        const { hour, seals } = this.#timing, { clock } = this, { closings, rotated } = batch;
        this.counts.batches += 1;
        const hasTokens = batch.seals + batch.purges > 0;
        if (hasTokens && closings === 0) {
            this.smallest = Math.min(this.smallest ?? Infinity, batch.seals);
            if (batch.seals < seals) this.#fail('small_batch', `ends a batch of ${counted(batch.seals, 'seal')}; the policy requires ${seals}`, index);
        }
        if ((closings > 0 || hasTokens) && hour > clock.window + grace && clock.isLate(Math.floor(clock.at / hour) * hour)) {
            this.#fail('batch_late', 'ends a batch that is published too late after its hour', index);
        }
        if (rotated === 0 && this.live < 0) this.#fail('overbooked', 'ends a batch after which more tokens are purged than sealed', index);
    }

    /** Called at the end of a window. Checks that no midnight is overdue. */
    endWindow(index) {
        if (!this.#timing || this.clock.at < this.#lastClosed + this.#timing.day) return;
        const missed = this.#firstMissed(this.clock.at + 1);
        if (missed !== null && this.clock.isLate(missed)) {
            this.#fail('midnight_missing', `is after ${time(missed)}, but the bucket of that midnight is not closed`, index);
        }
    }

    /** Called at `ledger.closed`, and in a log that ends during a rotation. */
    requireEmpty(index) {
        for (const until of this.#buckets.keys()) this.#fail('unbalanced', `closes the log, but the bucket of ${time(until)} is open`, index);
        if (this.#booked < this.#early) this.#fail('overbooked', 'closes the log, but some early purges belong to no bucket', index);
    }

    /** The open buckets, soonest first, and the newest closed ones. */
    told() {
        const open = [...this.#buckets].sort(([left], [right]) => left - right);
        return {
            open: open.slice(0, mostShown).map(([until, bucket]) => ({ until, ...bucket })), openCount: open.length,
            closings: this.closings.slice().reverse(),
        };
    }
}
