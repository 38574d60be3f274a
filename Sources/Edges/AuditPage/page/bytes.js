// Bytes and their text forms. Parsers accept only the canonical form and return null for any other.

const strictUTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export const utf8 = (text) => new TextEncoder().encode(text);

export function textOf(bytes) {
    try {
        return strictUTF8.decode(bytes);
    } catch {
        return null;
    }
}

export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');

/** Parses standard base64 with padding. */
export function fromBase64(text) {
    if (text.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return null;
    const binary = atob(text);
    if (btoa(binary) !== text) return null;
    return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

export const toBase64 = (bytes) => btoa(String.fromCharCode(...bytes));

export function joined(...parts) {
    const all = new Uint8Array(parts.reduce((count, part) => count + part.length, 0));
    let at = 0;
    for (const part of parts) {
        all.set(part, at);
        at += part.length;
    }
    return all;
}

export const equal = (left, right) => left.length === right.length && left.every((byte, at) => byte === right[at]);

/** Returns whether `part` is in `bytes` at `at`. */
export function holds(bytes, at, part) {
    if (at + part.length > bytes.length) return false;
    for (let i = 0; i < part.length; i++) if (bytes[at + i] !== part[i]) return false;
    return true;
}
