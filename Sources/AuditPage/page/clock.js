// The log's own time, in unix seconds, and since when it has not been silent: what is due is judged by these alone.

/** How long after its due time something may still be done. */
export const grace = 120;
/** Length of a key's epoch; also how much longer a start excuses the ratchet, which a leap of the clock may hold back. */
export const epochLength = 300;

export class Clock {
    at = 0;
    #before = 0;
    /** Length of the windows; null before any start. */
    #resolution = null;
    #ratchetExcusedTo = 0;
    // Those that may still excuse something: each silent from later on than the one before it, and excusing to a later time.
    #starts = [];

    get hasStarted() {
        return this.#resolution !== null;
    }

    /**
     * The latest second at which an entry of this window can have happened. A window goes on past a start that names longer ones, to the
     * first multiple of those.
     */
    get latest() {
        return this.#rounded(0) + (this.#resolution ?? 1) - 1;
    }

    /** Whether a window may begin at `at`: a multiple of the length in force or of `named`, null unless its first entry is a start. */
    allowsWindow(at, named) {
        return [this.#resolution, named].some((length) => length !== null && at % length === 0);
    }

    /** The latest window that what happens up to so long after an event of this window can come into. */
    #rounded(duration) {
        const length = this.#resolution ?? 1;
        return (Math.floor(this.at / length) + Math.ceil(duration / length)) * length;
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
        this.#resolution = resolution;
        this.#ratchetExcusedTo = this.#rounded(grace + epochLength);
        const excusesTo = this.#rounded(grace);
        let silentFrom = this.#before;
        // An earlier one came earlier, whatever lengths of windows they name: it excuses nothing for longer.
        for (let last; (last = this.#starts.at(-1)) && (last.excusesTo >= excusesTo || last.silentFrom === silentFrom);) {
            silentFrom = last.silentFrom;
            this.#starts.pop();
        }
        this.#starts.push({ silentFrom, excusesTo });
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
