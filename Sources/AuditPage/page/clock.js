// The log's own time, in unix seconds, and since when it has not been silent: what is due is judged by these alone.

/** How long after its due time something may still be done. */
export const grace = 120;
/** Length of a key's epoch; also how much longer a start excuses a ratchet, which a jump of the clock may hold back. */
export const epochLength = 300;

export class Clock {
    at = 0;
    #before = 0;
    #resolution = 60;
    // Those that may still excuse something, by both of their times. A start that a former one outdoes is not kept.
    #starts = [];
    /** Those before it excuse nothing any more. */
    #past = 0;

    /** The latest second at which an entry of this window can have happened. */
    get latest() {
        return this.at + this.#resolution - 1;
    }

    /** Opens a later window. */
    advance(at) {
        this.#before = this.at;
        this.at = at;
        while (this.#past < this.#starts.length && this.#starts[this.#past].excusesTo + epochLength < at) this.#past += 1;
        if (2 * this.#past > this.#starts.length) {
            this.#starts.splice(0, this.#past);
            this.#past = 0;
        }
    }

    /** A broker has started in this window; its windows are that long from now on. */
    start(resolution) {
        this.#resolution = Math.max(resolution, 1);
        const excusesTo = this.at + Math.ceil(grace / this.#resolution) * this.#resolution;
        const last = this.#past < this.#starts.length ? this.#starts.at(-1) : undefined;
        if (last && last.excusesTo >= excusesTo) return;
        if (last?.silentFrom === this.#before) this.#starts.pop();
        this.#starts.push({ silentFrom: this.#before, excusesTo });
    }

    /**
     * 'ontime', or 'late', or 'excused': late because no broker ran from the due time to a start not long before this window.
     * The latest start that the silence before due belongs to is also the one that excuses longest.
     */
    lateness(due, hold = 0) {
        if (this.at <= due + grace) return 'ontime';
        let low = this.#past, high = this.#starts.length;
        while (low < high) {
            const middle = low + high >> 1;
            if (this.#starts[middle].silentFrom < due) low = middle + 1; else high = middle;
        }
        return low > this.#past && this.at <= this.#starts[low - 1].excusesTo + hold ? 'excused' : 'late';
    }
}
