// Reads a log's files from this page's server or from the page itself. All reads are bounded.

import { Finding, Unable } from './findings.js';

const pausesMs = [500, 2_000];
const timeoutMs = 60_000;
/** The size of the largest possible file: 256 entries of 65,535 bytes. */
const longestFile = 256 * (2 + 65_535);

/** Files beside the page on a static server, or on the broker. */
export class WebSource {
    constructor(base) {
        this.base = base;
    }

    /**
     * Returns the file's bytes, or null if there is none. For a file of more than `limit` bytes: its start if `isCut`, else throws a Finding.
     */
    async read(path, limit, isCut = false) {
        for (const pause of [...pausesMs, null]) {
            try {
                return await this.#once(path, limit, isCut);
            } catch (error) {
                if (error instanceof Finding || error instanceof Unable) throw error;
                if (pause === null) throw new Unable(`${path} could not be read: ${error.message}`);
                await new Promise((resolve) => setTimeout(resolve, pause));
            }
        }
    }

    async #once(path, limit, isCut) {
        const abort = new AbortController();
        const timer = setTimeout(() => abort.abort(new Error('it took longer than a minute')), timeoutMs);
        try {
            // Files never change, but the check is about what the server shows now, not about the cache.
            const answer = await fetch(new URL(path, this.base), { cache: 'no-store', redirect: 'error', signal: abort.signal });
            if (answer.status === 404 || answer.status === 410) return null;
            if (answer.status !== 200) throw new Error(`the server answered ${answer.status}`);
            return await bounded(answer.body.getReader(), path, limit, isCut);
        } finally {
            clearTimeout(timer);
            abort.abort();
        }
    }
}

async function bounded(reader, path, limit, isCut) {
    const parts = [];
    let count = 0;
    while (count <= longestFile) {
        const { done, value } = await reader.read();
        if (done) break;
        if (count <= limit) parts.push(value);
        count += value.length;
    }
    if (count > longestFile) throw new Unable(`${path} is larger than any file of a log.`);
    if (count > limit && !isCut) throw new Finding('damaged', `is longer than ${limit} bytes`, { file: path });
    if (parts.length === 1) return parts[0].subarray(0, limit);
    const all = new Uint8Array(Math.min(count, limit));
    let at = 0;
    for (const part of parts) {
        all.set(part.subarray(0, all.length - at), at);
        at += part.length;
    }
    return all;
}

/** Files concatenated in a Blob. `places` maps each path to its start and length. */
export class BlobSource {
    constructor(blob, places) {
        this.blob = blob;
        this.places = places;
    }

    async read(path, limit, isCut = false) {
        const place = this.places.get(path);
        if (!place) return null;
        const [start, count] = place;
        if (count > longestFile) throw new Unable(`${path} is larger than any file of a log.`);
        if (count > limit && !isCut) throw new Finding('damaged', `is longer than ${limit} bytes`, { file: path });
        return new Uint8Array(await this.blob.slice(start, start + Math.min(count, limit)).arrayBuffer());
    }
}

/** Makes a source from a value that can be sent to another thread. */
export const sourceOf = (place) => place.blob ? new BlobSource(place.blob, place.places) : new WebSource(place.base);
