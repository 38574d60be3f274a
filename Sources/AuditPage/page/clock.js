// The log's own time, in unix seconds, and since when it has not been silent: what is due is judged by these alone.

/** How long after its due time something may still be done. */
export const grace = 120;
/** Length of a key's epoch; also how much longer a start excuses the ratchet, which a leap of the clock may hold back. */
export const epochLength = 300;

export class Clock {
    at = 0;
    #before = 0;
    #resolution = 1;
    #ratchetExcusedTo = 0;
    // Those that may still excuse something, by both of their times. A start that a former one outdoes is not kept.
    #starts = [];

    /** The latest second at which an entry of this window can have happened. */
    get latest() {
        return this.at + this.#resolution - 1;
    }

    /** Opens a later window. */
    advance(at) {
        this.#before = this.at;
        this.at = at;
        const still = this.#starts.findIndex((start) => start.excusesTo >= at);
        if (still !== 0) this.#starts.splice(0, still < 0 ? this.#starts.length : still);
    }

    /** A broker has started in this window; its windows are that long from now on. */
    start(resolution) {
        this.#resolution = Math.max(resolution, 1);
        // How much so long a time can look like between two windows.
        const rounded = (duration) => Math.ceil(duration / this.#resolution) * this.#resolution;
        this.#ratchetExcusedTo = Math.max(this.#ratchetExcusedTo, this.at + rounded(grace + epochLength));
        const excusesTo = this.at + rounded(grace), last = this.#starts.at(-1);
        if (last && last.excusesTo >= excusesTo) return;
        if (last?.silentFrom === this.#before) this.#starts.pop();
        this.#starts.push({ silentFrom: this.#before, excusesTo });
    }

    /**
     * 'ontime', or 'late', or 'excused': late because no broker ran from the due time to a start not long before this window.
     * The latest start that the silence before due belongs to is also the one that excuses longest.
     */
    lateness(due) {
        if (this.at <= due + grace) return 'ontime';
        let low = 0, high = this.#starts.length;
        while (low < high) {
            const middle = low + high >> 1;
            if (this.#starts[middle].silentFrom < due) low = middle + 1; else high = middle;
        }
        return low > 0 && this.at <= this.#starts[low - 1].excusesTo ? 'excused' : 'late';
    }

    /** Whether a ratchet that was due then, and is not done yet, is late. Any start gives it its time anew. */
    isRatchetLate(due) {
        return this.at > due + grace && this.at > this.#ratchetExcusedTo;
    }
}
