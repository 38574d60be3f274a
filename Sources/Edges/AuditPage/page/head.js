// Checks that only need a log's head: signature, cosignatures, right edge, and consistency with an earlier head.

import { equal, hex } from './bytes.js';
import { Finding, Unable } from './findings.js';
import { cosignedAt, longestNote, openCheckpoint, standing } from './note.js';
import { rootOf, rootsOfProof } from './tree.js';

/** Reads the checkpoint and verifies its signature. */
export async function readHead(source, key) {
    const bytes = await source.read('checkpoint', longestNote + 1, true);
    if (!bytes) throw new Finding('missing', 'is missing', { file: 'checkpoint' });
    const head = await openCheckpoint(bytes, key);
    if (!head) throw new Finding('signature', `is not a checkpoint signed by ${key.name} with this key`, { file: 'checkpoint' });
    if (head.size > Number.MAX_SAFE_INTEGER) throw new Unable(`This log claims ${head.size} entries, more than this page can count.`);
    return head;
}

/** Returns a head's other signatures as `{name, at, state}`. `state` is 'good' or 'unknown'. `witnesses`: keys from the visitor. */
export async function readCosignatures(head, key, witnesses) {
    const list = [];
    for (const signature of head.note.signatures) {
        if (signature.name === key.name && equal(signature.id, key.id)) continue;
        const witness = witnesses.find((one) => one.name === signature.name && equal(one.id, signature.id));
        const verdict = witness ? await standing(head.note, witness) : 'unknown';
        if (verdict === 'bad') {
            throw new Finding('signature', `contains a false signature of the witness ${witness.name}`, { file: 'checkpoint' });
        }
        const at = cosignedAt(signature.bytes);
        list.push({ name: signature.name, id: hex(signature.id), at: at === null ? null : Number(at), state: verdict });
    }
    return list;
}

/** The tolerance for a cosignature's time: before the last entry, and ahead of now. */
const dateSlack = 600;

/** Returns whether a cosignature's time fits a log whose last entry has the time `last`. Both are unix seconds. */
export const isTimely = (at, last) => at >= last - dateSlack && at <= Date.now() / 1000 + dateSlack;

/** Throws unless the signed root follows from the tiles on the right edge. */
export async function checkEdge(tiles, head) {
    if (!equal(await rootOf(await tiles.edge()), head.root)) {
        throw new Finding('tree', 'signs a root that differs from the root of the newest tiles', { file: 'checkpoint' });
    }
}

/** Throws unless the log of `head` begins with the entries of the earlier head `old`. */
export async function checkContinues(tiles, head, old) {
    if (old.size > head.size) {
        throw new Finding('rewritten', `signs ${head.size} entries, where an earlier one has ${old.size}: the log was cut back, `
            + 'or an old copy is shown', { file: 'checkpoint', isCut: true });
    }
    const differs = new Finding('rewritten', `the first ${old.size} entries don't match an earlier checkpoint: history was rewritten`);
    if (old.size === head.size || old.size === 0) {
        const root = old.size === 0 ? await rootOf([]) : head.root;
        if (!equal(root, old.root)) throw differs;
        return;
    }
    const proof = await tiles.consistencyProof(old.size);
    const roots = await rootsOfProof(old.size, head.size, old.root, proof);
    if (!roots) throw new Unable('the proof of consistency that was made has the wrong length');
    // Both roots are checked, because hashes of another tree would prove nothing about this one.
    if (!equal(roots.root, head.root)) throw new Finding('tree', "signs a root that differs from the hash tiles' root", { file: 'checkpoint' });
    if (!equal(roots.old, old.root)) throw differs;
}
