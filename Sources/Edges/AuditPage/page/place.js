// The place of this page's log: beside the page on its server, or inside the page (mayfly audit report --html).

import { byID } from './dom.js';
import { fromBase64, textOf } from './bytes.js';
import { WebSource } from './source.js';

const longestKey = 4_096;

/** Returns `{place, program, key(), isFile, about}`: the log's place, the program's address, the log's own key, and a file's description. */
export function findLog() {
    return byID('log') ? inFile() : onServer();
}

function onServer() {
    const base = new URL('.', document.baseURI).href;
    return {
        place: { base }, program: new URL('page/worker.js', base).href, isFile: false, about: '',
        async key() {
            const bytes = await new WebSource(base).read('ledger.vkey', longestKey);
            return bytes ? (textOf(bytes) ?? '').trim() : null;
        },
    };
}

/** Decodes the files, which are concatenated and stored as blocks of base64. */
function inFile() {
    const { files, vkey, about } = JSON.parse(byID('log').textContent);
    const parts = [...document.querySelectorAll('script.part')].map((block) => {
        const bytes = Uint8Array.fromBase64?.(block.textContent) ?? fromBase64(block.textContent);
        block.remove();
        return bytes;
    });
    let start = 0;
    const places = new Map(files.map(([path, length]) => [path, [(start += length) - length, length]]));
    // In a file, browsers start threads only with classic scripts. Strict mode makes the script behave like a module.
    const program = new Blob([`'use strict';\n${byID('program').textContent}`], { type: 'text/javascript' });
    return {
        place: { blob: new Blob(parts), places }, program: URL.createObjectURL(program), isFile: true, about,
        key: async () => vkey,
    };
}
