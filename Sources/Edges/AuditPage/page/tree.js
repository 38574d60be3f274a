// The Merkle tree of RFC 9162 over SHA-256. Sizes are numbers below 2^53, so no bit operations on them.

const digest = (bytes) => crypto.subtle.digest('SHA-256', bytes);

export const sha256 = async (bytes) => new Uint8Array(await digest(bytes));

/** Hashes many inputs at once, which is faster than awaiting each. */
export async function sha256All(inputs) {
    const digests = await Promise.all(inputs.map(digest));
    return digests.map((bytes) => new Uint8Array(bytes));
}

function node(left, right) {
    const bytes = new Uint8Array(65);
    bytes[0] = 1;
    bytes.set(left, 1);
    bytes.set(right, 33);
    return bytes;
}

export const nodeHash = (left, right) => sha256(node(left, right));

/**
 * Returns the root of a tree from the hashes of its parts: complete subtrees of one size, the last one possibly smaller.
 * Joining neighbours and promoting an odd last one results in the RFC's split at the largest power of two.
 */
export async function treeHash(hashes) {
    if (hashes.length === 0) return sha256(new Uint8Array(0));
    let row = hashes;
    while (row.length > 1) {
        const nodes = [];
        for (let i = 0; i + 1 < row.length; i += 2) nodes.push(node(row[i], row[i + 1]));
        const odd = row.length % 2 === 1 ? [row[row.length - 1]] : [];
        row = [...await sha256All(nodes), ...odd];
    }
    return row[0];
}

/** Returns the root of a log. `levels`: per level, the hashes of its partial tile. */
export async function rootOf(levels) {
    let below = null;
    for (const hashes of levels) {
        const row = below ? [...hashes, below] : hashes;
        if (row.length > 0) below = await treeHash(row);
    }
    return below ?? treeHash([]);
}

/** Splits a tile's bytes into hashes. */
export function hashesIn(tile) {
    const hashes = [];
    for (let at = 0; at < tile.length; at += 32) hashes.push(tile.subarray(at, at + 32));
    return hashes;
}

/** The number of leaves in the left part of a tree: the largest power of two below `size`. */
export function split(size) {
    let part = 1;
    while (part * 2 < size) part *= 2;
    return part;
}

export const isPowerOfTwo = (size) => size === 1 || split(size) * 2 === size;

/** Returns the subtrees [from, to) of a consistency proof from `oldSize` to `size`. */
export function consistencyRanges(oldSize, size) {
    const ranges = [];
    let from = 0, to = size, isWhole = true;
    while (to !== oldSize) {
        const middle = from + split(to - from);
        if (oldSize <= middle) {
            ranges.push([middle, to]);
            to = middle;
        } else {
            ranges.push([from, middle]);
            from = middle;
            isWhole = false;
        }
    }
    if (!isWhole) ranges.push([from, to]);
    return ranges.reverse();
}

/** Returns the subtrees [from, to) of an inclusion proof of leaf `index` in a tree of `size`, the sibling first. */
export function inclusionRanges(index, size) {
    const ranges = [];
    let from = 0, to = size;
    while (to - from > 1) {
        const middle = from + split(to - from);
        ranges.push(index < middle ? [middle, to] : [from, middle]);
        if (index < middle) to = middle; else from = middle;
    }
    return ranges.reverse();
}

/**
 * Computes the old and the new root from a consistency proof (RFC 9162, section 2.1.4.2), for 0 < oldSize < size.
 * Returns null if the proof is too long or too short.
 */
export async function rootsOfProof(oldSize, size, oldRoot, proof) {
    const half = (number) => Math.floor(number / 2);
    let path = proof;
    if (isPowerOfTwo(oldSize)) path = [oldRoot, ...proof];
    let place = oldSize - 1, last = size - 1;
    while (place % 2 === 1) [place, last] = [half(place), half(last)];
    if (path.length === 0) return null;
    let old = path[0], root = path[0];
    for (const hash of path.slice(1)) {
        if (last === 0) return null;
        if (place % 2 === 1 || place === last) {
            [old, root] = await Promise.all([nodeHash(hash, old), nodeHash(hash, root)]);
            while (place % 2 === 0 && place !== 0) [place, last] = [half(place), half(last)];
        } else {
            root = await nodeHash(root, hash);
        }
        [place, last] = [half(place), half(last)];
    }
    return last === 0 ? { old, root } : null;
}
