// Signed notes, checkpoints and verifier keys (C2SP signed-note, tlog-checkpoint, tlog-cosignature).

import { equal, fromBase64, hex, joined, textOf, utf8 } from './bytes.js';
import { Unable } from './findings.js';
import { sha256 } from './tree.js';

export const longestNote = 65_536;
const mostSignatures = 64;
const ed25519 = 1, cosignature = 4;
/** Sizes and times are limited to the integers that every language represents exactly. */
const tooLarge = 2n ** 63n;

// Not empty, no white space, no control character, no plus sign.
const isName = (text) => text.length > 0 && !/[\p{White_Space}\u0000-\u001f\u007f+]/u.test(text);

/** Parses `name+id+key`. Returns null if it is malformed or the id is another key's. */
export async function readKey(text) {
    // The base64 may contain a plus sign too.
    const [name, id, ...rest] = text.trim().split('+');
    const bytes = fromBase64(rest.join('+'));
    if (rest.length === 0 || !isName(name) || bytes?.length !== 33 || ![ed25519, cosignature].includes(bytes[0])) return null;
    const keyID = (await sha256(joined(utf8(name), [10], bytes))).subarray(0, 4);
    if (hex(keyID) !== id) return null;
    return { name, id: keyID, type: bytes[0], bytes: bytes.subarray(1), text: `${name}+${id}+${rest.join('+')}` };
}

/** Parses a note: its text with the last newline, and its signatures. Returns null if it is malformed. */
export function readNote(bytes) {
    const whole = bytes.length <= longestNote ? textOf(bytes) : null;
    if (whole === null || !whole.endsWith('\n') || /[\u0000-\u0009\u000b-\u001f]/.test(whole)) return null;
    const end = whole.lastIndexOf('\n\n');
    if (end < 0) return null;
    const lines = whole.slice(end + 2).split('\n').slice(0, -1);
    if (lines.length < 1 || lines.length > mostSignatures) return null;
    const signatures = [];
    for (const line of lines) {
        const [dash, name, encoded, ...more] = line.split(' ');
        const signature = encoded === undefined ? null : fromBase64(encoded);
        if (dash !== '—' || !isName(name) || more.length > 0 || signature === null || signature.length <= 4) return null;
        signatures.push({ name, id: signature.subarray(0, 4), bytes: signature.subarray(4) });
    }
    return { whole, text: whole.slice(0, end + 1), signatures };
}

/** Parses a checkpoint as `origin`, `size` and `root`. Returns null for other text. */
export function readCheckpoint(text) {
    const [origin, size, root, end, ...more] = text.split('\n');
    const hash = root === undefined ? null : fromBase64(root);
    if (end !== '' || more.length > 0 || !isName(origin) || !/^(0|[1-9][0-9]{0,19})$/.test(size) || hash?.length !== 32) return null;
    if (BigInt(size) >= tooLarge) return null;
    return { origin, size: Number(size), root: hash };
}

/** Returns the time of a cosignature in unix seconds as a BigInt, or null if these bytes aren't a cosignature. */
export function cosignedAt(signature) {
    if (signature.length !== 72) return null;
    const seconds = new DataView(signature.buffer, signature.byteOffset).getBigUint64(0);
    return seconds < tooLarge ? seconds : null;
}

async function isValid(key, signature, text) {
    let message = utf8(text), bytes = signature;
    if (key.type === cosignature) {
        const seconds = cosignedAt(signature);
        if (seconds === null) return false;
        message = utf8(`cosignature/v1\ntime ${seconds}\n${text}`);
        bytes = signature.subarray(8);
    }
    if (bytes.length !== 64) return false;
    let imported;
    try {
        imported = await crypto.subtle.importKey('raw', key.bytes, { name: 'Ed25519' }, false, ['verify']);
    } catch (error) {
        // A key that isn't a point of the curve can't have signed anything.
        if (error.name === 'DataError') return false;
        throw new Unable('This browser cannot check Ed25519 signatures. Chrome and Edge from 137, Firefox from 129 and Safari from 17 can.');
    }
    return crypto.subtle.verify({ name: 'Ed25519' }, imported, bytes, message);
}

/** Checks the signatures with a key's name and id: 'none', 'good', or 'bad' if one of them is invalid. */
export async function standing(note, key) {
    const own = note.signatures.filter((signature) => signature.name === key.name && equal(signature.id, key.id));
    const holds = await Promise.all(own.map((signature) => isValid(key, signature.bytes, note.text)));
    return own.length === 0 ? 'none' : holds.every(Boolean) ? 'good' : 'bad';
}

/** Returns the checkpoint of a note that the log's key has signed and whose origin is the key's name, otherwise null. */
export async function openCheckpoint(bytes, key) {
    const note = readNote(bytes);
    const checkpoint = note && readCheckpoint(note.text);
    if (!checkpoint || key.type !== ed25519 || checkpoint.origin !== key.name) return null;
    return await standing(note, key) === 'good' ? { ...checkpoint, note } : null;
}
