// The log's own time in unix seconds: its windows, and the gaps without a running broker. Lateness depends only on these.

/** Tolerated delay after a due time. */
export const grace = 120;
/** Limit for a push until its outcome, in seconds. */
const jobGrace = 190;
/** The length of a key's epoch. */
export const epochLength = 300;
const longestResolution = 60, shortestGap = 60, utcDay = 86_400, mostGapsInADay = 3_600;

export class Clock {
    /** The window of the last entry. */
    at = null;
    /** The length of the windows; 0 before any start. */
    window = 0;
    /** Seconds of all gaps, and of the worst UTC day. */
    total = 0;
    mostInADay = 0;
    #gaps = [];
    #day = null;
    #inDay = 0;

    /** Records and returns the gap before a start at `at`. Returns null if there is none. */
    recordSilence(at) {
        const from = this.at + this.window;
        if (at - from < shortestGap) return null;
        const gap = { from, to: at };
        this.#gaps.push(gap);
        this.total += at - from;
        this.#addToDays(gap);
        return gap;
    }

    /** Only the first and the last day of a gap can have other gaps. */
    #addToDays({ from, to }) {
        const first = Math.floor(from / utcDay), last = Math.floor((to - 1) / utcDay);
        const add = (day, seconds) => {
            [this.#day, this.#inDay] = [day, (day === this.#day ? this.#inDay : 0) + seconds];
            this.mostInADay = Math.max(this.mostInADay, this.#inDay);
        };
        if (first === last) return add(first, to - from);
        add(first, (first + 1) * utcDay - from);
        if (last > first + 1) add(first + 1, utcDay);
        add(last, to - last * utcDay);
    }

    get hasTooManyGaps() {
        return this.mostInADay > mostGapsInADay;
    }

    /** Drops gaps that can't excuse anything due at `due` or later. */
    forgetBefore(due) {
        while (this.#gaps.length > 0 && this.#gaps[0].to + longestResolution < due) this.#gaps.shift();
    }

    /** Seconds of gaps between `due` and the present window. */
    gapsSince(due) {
        let seconds = 0;
        for (const { from, to } of this.#gaps) seconds += Math.max(0, Math.min(to, this.at) - Math.max(from, due));
        return seconds;
    }

    /** Returns whether something due at `due` is overdue in the present window. */
    isLate(due, allowed = grace) {
        return this.at > due + allowed + this.window && this.at > due + allowed + this.window + this.gapsSince(due);
    }

    /**
     * Returns whether a push that was opened at `opened` is overdue. A gap excuses its length and two windows: the entries next to it
     * may be dated up to one window late.
     */
    isJobLate(opened) {
        const slack = this.gapsSince(opened) > 0 ? 2 * this.window : 0;
        return this.isLate(opened, jobGrace + slack);
    }

    /** The same for the work of each epoch. A broker that didn't run when it was due has one more epoch. */
    isEpochLate(due) {
        const hasGap = this.#gaps.some(({ from, to }) => from <= due + grace && to >= due);
        return this.isLate(due, grace + (hasGap ? epochLength : 0));
    }

    /** Returns the end of the gap that excuses a missing entry at this moment, or null. */
    gapEnd(moment) {
        for (const { from, to } of this.#gaps) {
            if (from - this.window <= moment && moment <= to + this.window) return to + this.window;
        }
        return null;
    }
}
