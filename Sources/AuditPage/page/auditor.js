// The whole check of a log, in a thread of its own: quick answers first, then every entry. Tells the page of each step.

import { hex, utf8 } from './bytes.js';
import { checkBundle } from './bundles.js';
import { Figures, mostPolicies } from './figures.js';
import { Finding, told, Unable } from './findings.js';
import { count, counted } from './format.js';
import { Growth } from './growth.js';
import { checkContinues, checkEdge, readCosignatures, readHead } from './head.js';
import { Lives } from './lives.js';
import { openCheckpoint, readKey } from './note.js';
import { failureOf, Pool } from './pool.js';
import { sourceOf } from './source.js';
import { retentionCodes, Story } from './story.js';
import { policyPath, Tiles } from './tiles.js';
import { sha256 } from './tree.js';

/** Beyond this the page would need more memory than a tab has. */
export const mostEntries = 20_000_000;
const mostFindings = 20;
const longestPolicy = 1_048_576, mostPolicyText = 8_388_608;
const tellEveryMs = 250;

export class Auditor {
    #findings = [];
    #count = 0;
    #unable = null;
    #earlier = [];

    /**
     * `order`: `{place, program, threads, vkey, kept, others, witnesses}`: where the log is, this program's address, the key, the
     * note that this browser kept or null, notes to compare with, witnesses' keys. `tell`: takes messages for the page.
     */
    constructor(order, tell) {
        this.order = order;
        this.tell = tell;
        this.source = sourceOf(order.place);
    }

    /** Runs to the end; a log that grows while it is read may need a second look at its edge. */
    async run() {
        for (let attempt = 0; ; attempt++) {
            this.#findings = [];
            this.#count = 0;
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
                this.#fault(this.step, error);
                this.#tellFigures(this.isRead, true);
                break;
            } finally {
                this.pool?.end();
                this.pool = null;
            }
        }
        this.tell({ kind: 'end', findings: this.#findings, count: this.#count, unable: this.#unable });
    }

    #renew() {
        this.head = null;
        this.isRead = false;
        this.figures = new Figures();
        this.lives = new Lives();
        this.story = new Story((code, detail, index, ref = null) => this.#found(code, detail, index, ref), this.figures);
        this.failing = new Set();
        this.tell({ kind: 'begin' });
    }

    /** Why a missing file may be no fault: a newer head, whose files have replaced it. */
    async #hasGrown() {
        const head = await readHead(this.source, this.key).catch(() => null);
        return head !== null && this.head !== null && head.size > this.head.size;
    }

    #found(code, detail, index, ref) {
        this.failing.add(retentionCodes.has(code) ? 'retention' : ['time', 'entry', 'after_closed'].includes(code) ? 'entries' : 'lives');
        this.#keep({ code, detail, index, ref, file: null });
    }

    #keep(finding) {
        this.#count += 1;
        if (this.#findings.length < mostFindings) this.#findings.push(finding);
    }

    /** Notes what ended a step early. */
    #fault(step, error) {
        const message = told(error);
        if (message.unable) this.#unable ??= message.detail; else this.#keep(message);
        this.#step(step, message.unable ? 'unable' : 'bad', message.detail);
    }

    #step(step, state, words = '') {
        this.step = step;
        this.tell({ kind: 'step', step, state, words });
    }

    async #all() {
        this.#step('signature', 'running');
        this.key = await readKey(this.order.vkey);
        if (!this.key) throw new Unable('The key is malformed, or its id is not its own.');
        this.head = await readHead(this.source, this.key);
        const { head } = this;
        this.tell({ kind: 'head', origin: head.origin, size: head.size, root: hex(head.root), note: head.note.whole });
        this.#step('signature', 'good', `${head.origin} signed ${counted(head.size, 'entry', 'entries')} with this key.`);
        this.tell({ kind: 'cosignatures', list: await readCosignatures(head, this.key, this.order.witnesses) });

        const tiles = new Tiles(this.source, head.size);
        this.#step('edge', 'running');
        await checkEdge(tiles, head);
        this.#step('edge', 'good', 'The tiles that every new entry builds on give the signed root.');
        await this.#compare(tiles);

        this.#step('entries', 'running');
        if (head.size > mostEntries) {
            throw new Unable(`This log has ${count(head.size)} entries; this page checks ${count(mostEntries)} at most. mayfly audit verify checks any number.`);
        }
        await this.#entries(tiles);
        this.#conclude();
        await this.#policies();
    }

    /** Holds the head against the one that this browser kept, and against those that the visitor brought. */
    async #compare(tiles) {
        const { kept, others } = this.order;
        this.#step('memory', 'running');
        let old = null;
        try {
            for (const note of [...others, ...this.#earlier, ...(kept ? [kept] : [])]) {
                old = await openCheckpoint(utf8(note), this.key);
                // A file may well be older than what its reader has seen since.
                if (note === kept && this.order.place.blob && old?.size > this.head.size) {
                    this.#step('memory', 'none', `This browser has proved a later head, of ${counted(old.size, 'entry', 'entries')}: this file is older.`);
                    return;
                }
                if (!old) throw new Unable('The checkpoint to compare with is not one that this key has signed.');
                await checkContinues(tiles, this.head, old);
            }
        } catch (error) {
            if (error.code === 'rewritten') this.tell({ kind: 'evidence', old: old.note.whole, now: this.head.note.whole });
            // The rest can be checked all the same: it hangs on the signed root alone.
            this.#fault('memory', error);
            return;
        }
        this.tell({ kind: 'keep', note: this.head.note.whole });
        const seen = kept ? `The ${counted(old.size, 'entry', 'entries')} of your last visit are the first of these ${count(this.head.size)}.` : '';
        const first = 'Nothing to compare with: this is the first visit with this key. The head is kept in this browser now.';
        const brought = others.length > 0 ? ' The log begins with all that the checkpoint signs that you brought.' : '';
        this.#step('memory', kept || others.length > 0 ? 'good' : 'none', (seen || first) + brought);
    }

    async #entries(tiles) {
        const { size, root } = this.head, full = Math.floor(size / 256), growth = new Growth(tiles);
        for (const step of ['lives', 'retention', 'entries']) this.#step(step, 'running');
        // The last files first: a log that grows may drop them.
        const tail = size % 256 === 0 ? null : checkBundle(tiles, full).catch((error) => ({ failure: told(error) }));
        this.pool = new Pool(Math.min(this.order.threads, Math.ceil(full / 16)), this.order.program, this.order.place);
        let toldAt = 0;
        for await (const result of this.pool.results(size, full)) {
            this.#admit(result);
            await growth.add(result.hash);
            if (performance.now() - toldAt < tellEveryMs) continue;
            toldAt = performance.now();
            this.#tellFigures(false, false);
        }
        const last = await tail;
        if (last) this.#admit(last);
        await growth.finish(last?.hashes ?? [], root);
        this.story.finish();
        this.isRead = true;
        this.#tellFigures(true, true);
    }

    #tellFigures(isEnd, isFinal) {
        this.tell({ kind: 'figures', figures: this.figures.told(this.story, isEnd), isFinal });
    }

    /** Takes the entries of a bundle in, up to the first that is wrong, which ends the check. */
    #admit(result) {
        const { columns } = result;
        for (let place = 0; place < (columns?.count ?? 0); place++) {
            const ref = this.story.admit(columns, place);
            this.figures.admit(columns, place, ref);
            this.lives.admit(columns, place, ref);
        }
        const failure = failureOf(result);
        if (failure) throw failure;
    }

    async #policies() {
        this.#step('policies', 'running');
        const { digests } = this.figures;
        let shown = 0;
        if (digests.size > mostPolicies) throw new Unable(`This log names more than ${mostPolicies} policies, too many for this page.`);
        for (const digest of digests) {
            const file = policyPath(digest), bytes = await this.source.read(file, longestPolicy);
            if (!bytes) throw new Finding('missing', 'is missing', { file });
            if (hex(await sha256(bytes)) !== digest) throw new Finding('damaged', 'is not the policy that it is named after', { file });
            shown += bytes.length;
            const text = shown > mostPolicyText ? 'Too long to be shown with all the others.' : new TextDecoder().decode(bytes);
            this.tell({ kind: 'policy', digest, text });
        }
        this.#step('policies', 'good', `${counted(digests.size, 'policy', 'policies')}, each what its name says.`);
    }

    /** Every entry has been read: what each of the steps came to that judge them. */
    #conclude() {
        const { counts, refs } = this.story, size = this.head.size;
        const excused = counts.excused ? `, ${count(counts.excused)} late and excused because no broker ran` : '';
        const good = {
            entries: `All ${counted(size, 'entry', 'entries')}, in their one spelling and in order of time, give every tile and the signed root.`,
            lives: `${counted(refs.count, 'token')}: each sealed once, opened only while it lived, each push with at most one outcome, purged at most once.`,
            retention: `${count(counts.purged - counts.excused)} purged on time${excused}; keys destroyed on time.`,
        };
        for (const [step, words] of Object.entries(good)) {
            const isBad = this.failing.has(step);
            this.#step(step, isBad ? 'bad' : 'good', isBad ? 'See below what is wrong, and where.' : words);
        }
    }
}
