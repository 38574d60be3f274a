// Counts over time in a bounded number of buckets. When they run out, neighbours are merged.

const mostBuckets = 120;
// Each is a multiple of the previous one, so that whole buckets merge.
const widths = [1, 5, 15, 60, 300, 900, 3_600, 10_800, 21_600, 86_400, 604_800, 2_419_200, 9_676_800];

export class Timeline {
    #step = 0;
    #first = null;

    /** `series`: the names of the counters. */
    constructor(series) {
        this.counts = new Map(series.map((name) => [name, new Uint32Array(mostBuckets)]));
    }

    /** The length of a bucket in seconds. */
    get width() {
        return widths[this.#step] ?? widths.at(-1) * 4 ** (this.#step - widths.length + 1);
    }

    add(name, at) {
        this.#first ??= Math.floor(at / this.width);
        let bucket = Math.floor(at / this.width) - this.#first;
        while (bucket >= mostBuckets) {
            this.#widen();
            bucket = Math.floor(at / this.width) - this.#first;
        }
        // Decreasing times are a finding elsewhere. Here they aren't counted.
        if (bucket >= 0) this.counts.get(name)[bucket] += 1;
    }

    #widen() {
        const from = this.#first * this.width, old = this.width;
        this.#step += 1;
        this.#first = Math.floor(from / this.width);
        for (const [name, counts] of this.counts) {
            const joined = new Uint32Array(mostBuckets);
            counts.forEach((count, bucket) => { joined[Math.floor((from + bucket * old) / this.width) - this.#first] += count; });
            this.counts.set(name, joined);
        }
    }

    /** Returns `{width, from, series: [[name, counts]]}` up to the last bucket with a count. */
    told() {
        const series = [...this.counts];
        const used = Math.max(0, ...series.map(([, counts]) => counts.findLastIndex((count) => count > 0) + 1));
        return { width: this.width, from: (this.#first ?? 0) * this.width, series: series.map(([name, counts]) => [name, [...counts.subarray(0, used)]]) };
    }
}
