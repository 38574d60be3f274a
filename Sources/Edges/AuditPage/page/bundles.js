// Checks one bundle: its framing, the hashes of its entries against the hash tile, and their canonical form.

import { equal } from './bytes.js';
import { Columns } from './columns.js';
import { EntryReader } from './entry.js';
import { Finding, told } from './findings.js';
import { bundlePath } from './tiles.js';
import { sha256All, treeHash } from './tree.js';

/**
 * Returns the complete entries of a bundle, at most `width`. Each has a zero byte before it, as its hash needs. That byte replaces the
 * second one of the entry's length, so `bytes` can be read only once.
 */
function framed(bytes, width) {
    const leaves = [];
    let at = 0;
    while (leaves.length < width && at + 2 <= bytes.length) {
        const end = at + 2 + (bytes[at] << 8 | bytes[at + 1]);
        if (end > bytes.length) break;
        bytes[at + 1] = 0;
        leaves.push(bytes.subarray(at + 1, end));
        at = end;
    }
    return { leaves, end: at };
}

/**
 * Checks bundle `index`. Returns `{columns, hash, hashes, failure}`: the entries before the first invalid one, and its error. `hash`: the
 * root of the bundle's tree. `hashes`: the hashes of the entries, for a partial bundle or if `keepsHashes`.
 * @throws Finding if a file is missing or too short, Unable if it can't be read.
 */
export async function checkBundle(tiles, index, keepsHashes = false) {
    const first = index * 256, width = tiles.width(0, index), path = bundlePath(index, width);
    const [expected, [bytes, isLonger]] = await Promise.all([tiles.hashes(0, index), tiles.bundle(index)]);
    const { leaves, end } = framed(bytes, width);
    const hashes = await sha256All(leaves);
    const columns = new Columns(first, width), reader = new EntryReader();
    let failure = null;
    try {
        for (let place = 0; place < width; place++) {
            const where = { index: first + place, file: path };
            if (place >= leaves.length) throw new Finding('damaged', 'ends before this entry does', where);
            if (!equal(hashes[place], expected[place])) throw new Finding('tree', "doesn't match its hash in the tile", where);
            columns.push(reader.read(leaves[place].subarray(1), first + place));
        }
        if (end < bytes.length && !isLonger) throw new Finding('damaged', 'has bytes after its last entry', { file: path });
    } catch (error) {
        if (!(error instanceof Finding)) throw error;
        error.file = path;
        failure = told(error);
    }
    const isWhole = failure === null && width === 256;
    return { columns, failure, hash: isWhole ? await treeHash(hashes) : null, hashes: isWhole && !keepsHashes ? null : hashes };
}
