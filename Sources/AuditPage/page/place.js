// Where this page's log is: beside the page on its server, or inside the page itself (mayfly audit report --html).

import { byID } from './dom.js';
import { fromBase64, textOf } from './bytes.js';
import { WebSource } from './source.js';

const longestKey = 4_096;

/** `{place, program, key(), isFile, about}`: for the auditor, its program's address, the key that came along, and what a file says of itself. */
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

/** The files lie in base64, end to end, in as many blocks as it took. */
function inFile() {
    const { files, vkey, about } = JSON.parse(byID('log').textContent);
    const parts = [...document.querySelectorAll('script.part')].map((block) => {
        const bytes = Uint8Array.fromBase64?.(block.textContent) ?? fromBase64(block.textContent);
        block.remove();
        return bytes;
    });
    let start = 0;
    const places = new Map(files.map(([path, length]) => [path, [(start += length) - length, length]]));
    // From a file a browser starts threads of classic scripts only. Modules are strict, and so is this.
    const program = new Blob([`'use strict';\n${byID('program').textContent}`], { type: 'text/javascript' });
    return {
        place: { blob: new Blob(parts), places }, program: URL.createObjectURL(program), isFile: true, about,
        key: async () => vkey,
    };
}
