// The files of a log of a certain size (C2SP tlog-tiles).

import { Finding } from './findings.js';
import { consistencyRanges, hashesIn, isPowerOfTwo, nodeHash, split, treeHash } from './tree.js';

export const tileWidth = 256;
// 256 canonical entries take less than half of this. In a longer file, the error comes before this limit.
const longestBundle = 262_144;
const mostKeptTiles = 256;

/** 1234067 is `x001/x234/067`. */
function numberPath(index) {
    const groups = [String(index % 1000).padStart(3, '0')];
    for (let rest = Math.floor(index / 1000); rest > 0; rest = Math.floor(rest / 1000)) {
        groups.unshift(`x${String(rest % 1000).padStart(3, '0')}`);
    }
    return groups.join('/');
}

export const policyPath = (digest) => `policies/${digest}.json`;
export const bundlePath = (index, width) => pathOf('entries', index, width);
const pathOf = (kind, index, width) => `tile/${kind}/${numberPath(index)}${width < tileWidth ? `.p/${width}` : ''}`;

export class Tiles {
    #kept = new Map();

    constructor(source, size) {
        this.source = source;
        this.size = size;
    }

    /** The number of hashes in tile `index` of a level at this size. */
    width(level, index) {
        return Math.min(tileWidth, Math.floor(this.size / tileWidth ** level) - index * tileWidth);
    }

    path(level, index) {
        return pathOf(level, index, this.width(level, index));
    }

    async hashes(level, index) {
        const width = this.width(level, index), path = pathOf(level, index, width);
        const [bytes, isLonger] = await this.#partOrFull(level, index, width, tileWidth * 32, false);
        const isWhole = bytes.length === width * 32 || isLonger && bytes.length > width * 32;
        if (!isWhole) throw new Finding('damaged', `is not ${width * 32} bytes long`, { file: path });
        return hashesIn(bytes.subarray(0, width * 32));
    }

    /** Returns the bytes of a bundle, and whether they may contain entries beyond this size. */
    async bundle(index) {
        return this.#partOrFull('entries', index, this.width(0, index), longestBundle, true);
    }

    /** A growing log may replace a partial file by the full one, which begins with the same bytes. */
    async #partOrFull(kind, index, width, limit, isCut) {
        const path = pathOf(kind, index, width);
        const part = await this.source.read(path, limit, isCut);
        if (part) return [part, false];
        const full = width < tileWidth ? await this.source.read(pathOf(kind, index, tileWidth), limit, isCut) : null;
        if (!full) throw new Finding('missing', 'is missing', { file: path });
        return [full, true];
    }

    /** The right edge of the tree: per level, the hashes of its partial tile. */
    async edge() {
        const levels = [];
        for (let level = 0; tileWidth ** level <= this.size; level++) {
            const full = Math.floor(this.size / tileWidth ** (level + 1));
            levels.push(this.width(level, full) > 0 ? this.tile(level, full) : []);
        }
        return Promise.all(levels);
    }

    /** The same, read once. */
    tile(level, index) {
        const path = this.path(level, index);
        if (!this.#kept.has(path)) {
            if (this.#kept.size >= mostKeptTiles) this.#kept.clear();
            this.#kept.set(path, this.hashes(level, index));
        }
        return this.#kept.get(path);
    }

    /** Returns a consistency proof for the first `oldSize` entries. */
    async consistencyProof(oldSize) {
        return Promise.all(consistencyRanges(oldSize, this.size).map(([from, to]) => this.rangeHash(from, to)));
    }

    /** Returns the hash of the leaves [from, to), which must be a subtree. */
    async rangeHash(from, to) {
        const count = to - from;
        if (!isPowerOfTwo(count)) {
            const middle = from + split(count);
            return nodeHash(...await Promise.all([this.rangeHash(from, middle), this.rangeHash(middle, to)]));
        }
        let level = 0;
        while (count >= tileWidth ** (level + 1)) level += 1;
        const first = from / tileWidth ** level;
        const hashes = await this.tile(level, Math.floor(first / tileWidth));
        const offset = first % tileWidth;
        return treeHash(hashes.slice(offset, offset + count / tileWidth ** level));
    }
}
