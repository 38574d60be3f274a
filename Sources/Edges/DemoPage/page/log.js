// The public log: its new entries in words, and its check, with the auditor's own modules.

import { hex, textOf } from '../../audit/page/bytes.js';
import { byID, element } from '../../audit/page/dom.js';
import { startThread } from '../../audit/page/pool.js';
import { WebSource } from '../../audit/page/source.js';
import { Tiles } from '../../audit/page/tiles.js';
import { bytesOf, TokenIDs } from '../../audit/page/tokenids.js';
import { outcomeWords } from '../../audit/page/vocabulary.js';
import { clock } from './broker.js';

const base = new URL('../audit/', document.baseURI).href;
const shownAtFirst = 6, mostShown = 80, longestNote = 65_536, longestKey = 4_096;

const words = {
    'broker.started': () => 'The broker started.',
    'broker.stopped': () => 'The broker stopped.',
    'policy.loaded': ({ name }) => `The policy “${name}” is in force.`,
    'keys.generated': () => "The day's chain of keys began.",
    'keys.ratcheted': () => 'The keys of an earlier five minutes were destroyed.',
    'request.refused': ({ count }) => `Requests were refused: about ${count}.`,
    'token.sealed': () => 'A push address was sealed.',
    'token.opened': () => 'A push address was opened, for one push.',
    'push.delivered': () => 'The push service accepted that push.',
    'push.failed': ({ reason, status }) => `That push failed: ${outcomeWords(reason, status)}.`,
    'token.purged': ({ cause }) => cause === 'expired' ? 'A push address was deleted: its time was over.' : 'A push address was deleted before its time.',
    'bucket.closed': ({ sealed, expired, ended }) => `The books balance: ${sealed} sealed, ${expired + ended} deleted.`,
};

/** The balance of ten seconds without a token. */
const isEmpty = ({ op, sealed, expired, ended }) => op === 'bucket.closed' && sealed + expired + ended === 0;

/** Splits a bundle into its entries: each has its length in front, two bytes. */
function* entries(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let at = 0; at + 2 <= bytes.length;) {
        const end = at + 2 + view.getUint16(at);
        yield JSON.parse(textOf(bytes.subarray(at + 2, end)));
        at = end;
    }
}

/** Recognises the entries of one token by its ref. */
class Owner {
    #ids;
    #untils = new Set();
    #jobs = new Set();
    /** The token's ops so far. */
    ops = [];

    constructor(name, ref) {
        this.name = name;
        this.#ids = new TokenIDs(ref);
    }

    owns(entry) {
        const isOwn = this.#isOwn(entry);
        if (isOwn) this.ops.push(entry.op);
        return isOwn;
    }

    #isOwn({ op, id, job, until }) {
        const end = Date.parse(until) / 1000, is = (words) => hex(bytesOf(words)) === id;
        switch (op) {
            case 'token.sealed':
                if (!is(this.#ids.sealed(end))) return false;
                this.#untils.add(end);
                return true;
            case 'token.purged': return [...this.#untils].some((end) => is(this.#ids.purged(end)));
            case 'token.opened': {
                const number = Uint32Array.from({ length: 4 }, (_, place) => parseInt(job.slice(8 * place, 8 * place + 8), 16));
                if (is(this.#ids.opened(number))) this.#jobs.add(job);
                return this.#jobs.has(job);
            }
            default: return this.#jobs.has(job);
        }
    }
}

export class Log {
    #source = new WebSource(base);
    /** The number of entries that were read or, at the first look, left out but for the newest few. Null before it. */
    #size = null;
    #owners = [];

    /** Marks the entries of a token from now on. */
    add(name, ref) {
        this.#owners.push(new Owner(name, ref));
    }

    /** What the log says of a token. */
    opsOf(name) {
        return this.#owners.find((owner) => owner.name === name)?.ops ?? [];
    }

    get hasAllPurges() {
        return this.#owners.length > 0 && this.#owners.every(({ ops }) => ops.includes('token.purged'));
    }

    /** Shows the entries that came since the last call. */
    async update() {
        const note = await this.#source.read('checkpoint', longestNote, true);
        if (!note) return;
        const size = Number(textOf(note).split('\n')[1]), tiles = new Tiles(this.#source, size);
        this.#size ??= Math.max(0, size - shownAtFirst);
        while (this.#size < size) {
            const bundle = Math.floor(this.#size / 256), [bytes] = await tiles.bundle(bundle), end = Math.min(size, 256 * (bundle + 1));
            const list = [...entries(bytes)].slice(this.#size % 256, end - 256 * bundle);
            for (const entry of list) if (!isEmpty(entry)) this.#show(entry);
            this.#size = end;
        }
    }

    #show(entry) {
        const owner = this.#owners.find((owner) => owner.owns(entry)), list = byID('log');
        list.prepend(element('li', { class: owner ? 'own' : null }, element('time', { datetime: entry.at }, clock(Date.parse(entry.at) / 1000)),
            element('span', {}, words[entry.op]?.(entry) ?? entry.op, owner ? element('strong', {}, ` ${owner.name}'s.`) : null)));
        while (list.children.length > mostShown) list.lastChild.remove();
    }

    /** Checks the whole log in a thread of the auditor's page. Returns `{isGood, size, why}`. */
    async check() {
        const key = await this.#source.read('ledger.vkey', longestKey), program = new URL('page/worker.js', base).href;
        const steps = new Map(), worker = startThread(program, 'auditor');
        let size = 0;
        const end = await new Promise((resolve) => {
            worker.onmessage = ({ data }) => {
                if (data.kind === 'head') size = data.size;
                if (data.kind === 'step') steps.set(data.step, data.state);
                if (data.kind === 'end') resolve(data);
            };
            worker.onerror = () => resolve({ findings: [], unable: 'The checking thread ended.' });
            // A developer's broker sleeps between two runs. That is a gap, not a fault.
            const order = { place: { base }, program, threads: 0, vkey: textOf(key).trim(), kept: null, others: [], witnesses: [], allowsGaps: true };
            worker.postMessage({ order });
        });
        worker.terminate();
        const isGood = end.findings.length === 0 && end.unable === null && [...steps.values()].every((state) => state === 'good' || state === 'none');
        return { isGood, size, why: end.findings[0]?.detail ?? end.unable };
    }
}
