// The complete check of a log, in its own thread: quick answers first, then every entry. Reports each step to the page.

import { hex, utf8 } from './bytes.js';
import { checkBundle } from './bundles.js';
import { Figures } from './figures.js';
import { Finding, told, Unable } from './findings.js';
import { count, counted, span } from './format.js';
import { Growth } from './growth.js';
import { checkContinues, checkEdge, isTimely, readCosignatures, readHead } from './head.js';
import { openCheckpoint, readKey } from './note.js';
import { Policies } from './policy.js';
import { failureOf, Pool } from './pool.js';
import { sourceOf } from './source.js';
import { Search } from './search.js';
import { Story } from './story.js';
import { Tiles } from './tiles.js';
import { Op } from './vocabulary.js';

/** A check of a larger log takes longer than a visitor waits. */
export const mostEntries = 20_000_000;
const mostPolicyText = 8_388_608, tellEveryMs = 250;

const stepOfCode = new Map(Object.entries({
    balance: ['bucket_unknown', 'life_too_long', 'purged_early', 'unbalanced', 'overbooked', 'carry'],
    pushes: ['template_unknown', 'job_twice', 'job_unknown', 'outcome_late'],
    time: ['small_batch', 'batch_late', 'midnight_missing', 'ratchet_late', 'ratchet_early', 'swept_late', 'swept_early', 'gaps'],
    policies: ['policy_changed'],
}).flatMap(([step, codes]) => codes.map((code) => [code, step])));

export class Auditor {
    #findings = [];
    #unable = null;
    #policyText = 0;
    #earlier = [];

    /**
     * `order`: `{place, program, threads, vkey, kept, others, proven, witnesses, allowsGaps}`: the log's place, this program's address, the
     * key, `{note, at}` that this browser kept or null, the visitor's notes to compare with, notes of an earlier contradiction, witnesses'
     * keys. `tell`: receives messages for the page.
     */
    constructor(order, tell) {
        this.order = order;
        this.tell = tell;
        this.source = sourceOf(order.place);
    }

    /** Runs the check. A log that grows meanwhile may need a second look at its edge. */
    async run() {
        for (let attempt = 0; ; attempt++) {
            this.#findings = [];
            this.#unable = null;
            this.#renew();
            try {
                await this.#all();
                break;
            } catch (error) {
                if (attempt < 3 && error.code === 'missing' && await this.#hasGrown()) {
                    this.#earlier.push(this.head.note.whole);
                    continue;
                }
                this.#fault(this.#stepOf(error), error);
                this.#tellFigures(true);
                break;
            } finally {
                this.pool?.end();
                this.pool = null;
            }
        }
        this.tell({ kind: 'end', findings: this.#findings, unable: this.#unable, compared: this.compared });
    }

    #renew() {
        this.head = null;
        /** What the log was compared with: the head of an earlier visit, the visitor's own checkpoints, and the number of witnesses. */
        this.compared = { kept: false, others: false, witnesses: 0 };
        this.figures = new Figures();
        this.policies = new Policies(this.source, (digest, text) => this.#policy(digest, text));
        this.story = new Story(this.order.allowsGaps ?? false, (gap) => this.figures.gap(gap));
        this.tell({ kind: 'begin' });
    }

    #policy(digest, text) {
        this.#policyText += text.length;
        this.tell({ kind: 'policy', digest, text: this.#policyText > mostPolicyText ? 'Too long to be shown with all the others.' : text });
    }

    /** The step that an error ends: the one of its code. */
    #stepOf(error) {
        if (this.step !== 'entries') return this.step;
        return stepOfCode.get(error.code) ?? (error.file?.startsWith('policies/') ? 'policies' : 'entries');
    }

    /** Returns the reason why a missing file is no fault: the files of a newer head have replaced it. */
    async #hasGrown() {
        const head = await readHead(this.source, this.key).catch(() => null);
        return head !== null && this.head !== null && head.size > this.head.size;
    }

    /** Records the error that ended a step. */
    #fault(step, error) {
        const message = told(error);
        if (message.unable) this.#unable ??= message.detail; else this.#findings.push(message);
        this.#step(step, message.unable ? 'unable' : 'bad', message.detail);
    }

    #step(step, state, words = '') {
        this.step = step;
        this.tell({ kind: 'step', step, state, words });
    }

    async #all() {
        this.#step('signature', 'running');
        this.key = await readKey(this.order.vkey);
        if (!this.key) throw new Unable('The key is malformed, or its id is wrong.');
        this.head = await readHead(this.source, this.key);
        const { head } = this;
        this.tell({ kind: 'head', origin: head.origin, size: head.size, root: hex(head.root), note: head.note.whole });
        this.#step('signature', 'good', `${head.origin} signed ${counted(head.size, 'entry', 'entries')} with this key.`);
        this.cosignatures = await readCosignatures(head, this.key, this.order.witnesses);
        this.tell({ kind: 'cosignatures', list: this.cosignatures });

        const tiles = new Tiles(this.source, head.size);
        this.#step('edge', 'running');
        await checkEdge(tiles, head);
        this.#step('edge', 'good', 'The newest tiles hash to the signed root.');
        await this.#compare(tiles);

        this.#step('entries', 'running');
        if (head.size > mostEntries) {
            throw new Unable(`This log has ${count(head.size)} entries; this page checks ${count(mostEntries)} at most. `
                + 'mayfly audit verify checks any number.');
        }
        for (const step of ['balance', 'pushes', 'time', 'policies']) this.tell({ kind: 'step', step, state: 'running', words: '' });
        await this.#entries(tiles);
        this.#conclude();
    }

    /** Compares the head with the one that this browser kept, and with the visitor's. Heads without entries prove nothing. */
    async #compare(tiles) {
        const { kept, others, proven = [], place } = this.order, own = kept ? [kept.note] : [];
        const words = [];
        let old = null, isOlder = false;
        this.#step('memory', 'running');
        try {
            for (const note of new Set([...others, ...proven, ...this.#earlier, ...own])) {
                old = await openCheckpoint(utf8(note), this.key);
                if (!old) throw new Unable('The checkpoint to compare with is not signed by this key.');
                // A file may be older than a head that its reader saw later.
                if (place.blob && old.size > this.head.size && !others.includes(note)) {
                    if (own.includes(note)) {
                        words.push(`This browser has proved a later head, of ${counted(old.size, 'entry', 'entries')}: this file is older.`);
                    }
                    isOlder = true;
                    continue;
                }
                await checkContinues(tiles, this.head, old);
                if (old.size === 0) continue;
                if (own.includes(note)) {
                    words.push(`The ${counted(old.size, 'entry', 'entries')} of your last visit, at ${kept.at}, are the first of these ${count(this.head.size)}.`);
                    this.compared.kept = true;
                } else if (others.includes(note)) {
                    words.push(`The log continues the checkpoint that you pasted, of ${counted(old.size, 'entry', 'entries')}.`);
                    this.compared.others = true;
                }
            }
        } catch (error) {
            if (error.code === 'rewritten') {
                this.tell({ kind: 'evidence', old: old.note.whole, now: this.head.note.whole, isCut: error.isCut });
            }
            // The other steps only need the signed root.
            this.#fault('memory', error);
            return;
        }
        if (!isOlder) this.tell({ kind: 'keep', note: this.head.note.whole });
        if (proven.length > 0 && !isOlder) {
            words.push('It continues both heads that seemed to contradict each other: the shorter log was an old copy.');
            this.compared.kept = true;
        }
        if (words.length === 0) {
            words.push(kept ? 'The head of your last visit had no entries.'
                : 'Nothing to compare with on the first visit with this key. This browser now keeps the head.');
        }
        this.#step('memory', this.compared.kept || this.compared.others ? 'good' : 'none', words.join(' '));
    }

    async #entries(tiles) {
        let toldAt = 0;
        await this.#pass(this.head, tiles, async (result) => {
            await this.#admit(result);
            if (performance.now() - toldAt < tellEveryMs) return;
            toldAt = performance.now();
            this.#tellFigures(false);
        });
        this.story.finish();
        this.#tellFigures(true);
    }

    /**
     * Reads every entry and checks them against the signed root. `take`: called and awaited with the result of each bundle, in order.
     * `keepsHashes`: keep the hashes of all entries.
     */
    async #pass({ size, root }, tiles, take, keepsHashes = false) {
        const full = Math.floor(size / 256), growth = new Growth(tiles);
        // Read the last files first, because a growing log may drop them.
        const tail = size % 256 === 0 ? null : checkBundle(tiles, full, keepsHashes).catch((error) => ({ failure: told(error) }));
        this.pool = new Pool(Math.min(this.order.threads, Math.ceil(full / 16)), this.order.program, this.order.place);
        for await (const result of this.pool.results(size, full, keepsHashes)) {
            await take(result);
            await growth.add(result.hash);
        }
        const last = await tail;
        if (last) await take(last);
        await growth.finish(last?.hashes ?? [], root);
    }

    #tellFigures(isFinal) {
        this.tell({ kind: 'figures', figures: this.figures.told(this.story, isFinal), isFinal });
    }

    /** Checks the entries of a bundle. The first invalid one ends the check. */
    async #admit(result) {
        const { columns } = result;
        for (let place = 0; place < (columns?.count ?? 0); place++) {
            const op = columns.op[place], isStart = op === Op.started;
            this.story.admit(columns, place);
            if (isStart || op === Op.policyLoaded) {
                this.story.name(columns, place, await this.policies.of(columns.rare.get(place).digest, isStart));
            }
            this.figures.admit(columns, place);
        }
        const failure = failureOf(result);
        if (failure?.code === 'entry' && this.story.isClosed) failure.code = 'after_closed';
        if (failure) throw failure;
    }

    /** Counts the witnesses that saw this head. They are named by the visitor, and cosign only a log that continues the one they saw before. */
    #countWitnesses() {
        const last = this.story.clock.at ?? 0, known = this.cosignatures.filter(({ state, at }) => state === 'good' && isTimely(at, last));
        this.compared.witnesses = this.head.size > 0 ? known.length : 0;
        if (this.compared.witnesses === 0 || this.#findings.length > 0 || this.#unable !== null) return;
        if (this.compared.kept || this.compared.others) return;
        this.#step('memory', 'good', `${counted(known.length, 'witness', 'witnesses')} whose key you gave signed this head, which continues what they saw before.`);
    }

    /** Reports the results of the steps that judge entries, after the last entry. */
    #conclude() {
        this.#countWitnesses();
        const { counts, size } = this.figures.told(this.story, false), policies = this.policies.count;
        this.#step('entries', 'good',
            `All ${counted(size, 'entry', 'entries')} are canonical and in order, and match every tile and the signed root.`);
        this.#step('balance', 'good', `${counted(counts.sealed + counts.carried, 'token')} sealed, ${count(counts.purged)} purged, ${count(counts.live)} live; `
            + `${counted(counts.closed, 'day')} closed in balance.`);
        this.#step('pushes', 'good', `${counted(counts.opened, 'opening')}, each by a template of the policy in force, with one outcome in time`
            + `${counts.pending > 0 ? `; ${count(counts.pending)} under way` : ''}.`);
        const gaps = counts.gaps > 0 ? ` Gaps without a broker excuse ${span(counts.gaps)} in all.` : '';
        this.#step('time', 'good', `Keys destroyed, purges done and ${counted(counts.batches, 'batch', 'batches')} published on time.${gaps}`);
        this.#step('policies', 'good', `${counted(policies, 'policy', 'policies')}, each with the hash in its name, and one timing for the log.`);
    }

    /**
     * Finds the history of the token with this ref. Reads the whole log again, so that no server sees which token it is. The result also
     * contains what could not be read.
     */
    async find(ref) {
        let search, trouble = null, proof = null;
        for (let attempt = 0; ; attempt++) {
            search = new Search(ref);
            try {
                proof = await this.#search(search);
                break;
            } catch (error) {
                // A log that has grown may have dropped its old partial files.
                if (attempt < 3 && error.code === 'missing') continue;
                trouble = told(error);
                break;
            } finally {
                this.pool?.end();
                this.pool = null;
            }
        }
        this.tell({ kind: 'life', ref, rows: search.rows, skipped: search.skipped, read: search.read, trouble, proof });
    }

    /** Reads the log for a search and returns its proof. */
    async #search(search) {
        if (!this.head) throw new Unable('no head of this log could be read');
        const head = await readHead(this.source, this.key), tiles = new Tiles(this.source, head.size);
        if (head.size > mostEntries) throw new Unable('this log is too long for this page; mayfly audit show reads any number of entries');
        await checkContinues(tiles, head, this.head);
        let toldAt = performance.now();
        await this.#pass(head, tiles, async (result) => {
            await search.take(result);
            const failure = failureOf(result);
            if (failure) throw failure;
            if (performance.now() - toldAt < tellEveryMs) return;
            toldAt = performance.now();
            this.tell({ kind: 'searching', ref: search.ref, read: search.read });
        }, true);
        return search.proof(head);
    }
}
