// The page: starts checks, shows their results and handles the visitor's input.

import { byID, download, element, fill, on } from './dom.js';
import { FiguresView } from './figuresview.js';
import { headlineOf, meaningOf } from './findings.js';
import { count, counted, presentTime, span, time } from './format.js';
import { showLife, showSearch } from './lifeview.js';
import { Memory } from './memory.js';
import { readKey } from './note.js';
import { findLog } from './place.js';
import { startThread } from './pool.js';
import { Steps } from './steps.js';
import { Trust } from './trust.js';
import { Verdict } from './verdict.js';

const silentAfter = 900;

/** What to do about a log with this Finding. */
function adviceOn({ code, isCut }) {
    switch (code) {
        case 'rewritten': return isCut
            ? 'Check again, from another network too. If it stays so, keep the evidence below, and ask others who watch this log what they see.'
            : "Keep the evidence below, and show it to others who watch this log. Don't rely on the log until somebody has explained it.";
        case 'signature': return 'First compare both keys with the one that the operator published elsewhere: one of them is wrong, or this is another log.';
        case 'missing': case 'damaged': return 'Check again, or look at another copy of the log.';
        default: return 'Check again, or look at another copy. If it stays so, keep the checkpoint and the entries, and ask the operator.';
    }
}

class AuditPage {
    log = findLog();
    steps = new Steps();
    verdict = new Verdict();
    figures = new FiguresView();
    trust = new Trust(this.log, new Memory(this.log.isFile ? `file ${location.pathname}` : this.log.place.base), () => this.check(true));
    worker = null;
    turn = 0;

    begin() {
        on('again', 'click', () => this.check());
        on('stop', 'click', () => this.giveUp(`Stopped after ${counted(this.read, 'entry', 'entries')}. This is no verdict on the log.`));
        on('search', 'submit', () => this.search(byID('ref').value));
        on('allow-gaps', 'change', () => this.check(true));
        byID('about').textContent = this.log.about;
        this.check();
    }

    /** Runs one complete check. `isAsked`: the visitor asked for it, perhaps from a place far below the verdict. */
    async check(isAsked = false) {
        const turn = ++this.turn;
        this.reset();
        if (isAsked) byID('verdict').scrollIntoView();
        const trouble = await this.prepare();
        // The visitor may have started another check meanwhile.
        if (turn !== this.turn) return;
        this.showEvidence();
        if (trouble) {
            byID('trust-part').open = true;
            return this.giveUp(trouble);
        }
        const witnesses = await this.trust.witnesses();
        if (turn !== this.turn) return;
        const hadFocus = document.activeElement === byID('again');
        byID('stop').hidden = false;
        byID('again').hidden = true;
        if (hadFocus) byID('stop').focus();
        // In a file, threads can't start other threads.
        const threads = this.log.isFile ? 0 : Math.min(4, Math.max(1, navigator.hardwareConcurrency ?? 2));
        const worker = startThread(this.log.program, 'auditor');
        this.worker = worker;
        worker.onmessage = ({ data }) => this.worker === worker && this.hear(data);
        worker.onerror = () => this.giveUp('The checking thread ended. It may have run out of memory, or not have been loaded.');
        const { log: { place, program }, trust: { key: vkey, kept, others, contradiction } } = this, allowsGaps = byID('allow-gaps').checked;
        const proven = contradiction ? [contradiction.old, contradiction.now] : [];
        this.since = kept?.since;
        worker.postMessage({ order: { place, program, threads, vkey, kept, others, proven, witnesses, allowsGaps } });
    }

    reset() {
        this.worker?.terminate();
        Object.assign(this, { worker: null, size: 0, read: 0, isDone: false, to: null, next: null, cosignatures: null, note: null });
        this.verdict.set('checking', 'Reading the log.');
        this.steps.clear();
        this.verdict.clear();
        this.figures.clear();
        fill('origin');
        fill('life');
        byID('life').removeAttribute('aria-busy');
    }

    /** Finds the key. Returns the reason if no check is possible, otherwise null. */
    async prepare() {
        if (!globalThis.isSecureContext || !globalThis.crypto?.subtle) {
            return 'Browsers check signatures only on pages from https or from this machine. Open this page over https.';
        }
        try {
            await this.trust.find();
        } catch (error) {
            return `${error.message}. Nothing was checked; try again.`;
        }
        if (!this.trust.key) return 'No key came with this log. Paste the one that its operator published, below.';
        if (await readKey(this.trust.key)) return null;
        return 'The key is malformed, or its id is wrong. Paste the one that the operator published, below.';
    }

    hear(message) {
        switch (message.kind) {
            case 'begin': this.steps.clear(); break;
            case 'head':
                [this.size, this.note] = [message.size, message.note];
                fill('origin', message.origin);
                this.verdict.progress(0, message.size);
                break;
            case 'step': this.step(message); break;
            case 'cosignatures':
                this.cosignatures = message.list;
                this.steps.showCosignatures(message.list);
                break;
            case 'evidence':
                this.trust.keepContradiction({ old: message.old, now: message.now, isCut: message.isCut, at: presentTime() });
                this.showEvidence();
                break;
            case 'keep': this.trust.keep(message.note); break;
            case 'figures':
                this.read = message.figures.size;
                this.to = message.figures.to;
                this.next = message.figures.next;
                this.verdict.progress(this.read);
                this.figures.show(message.figures, message.isFinal);
                break;
            case 'policy': this.figures.policy(message.digest, message.text); break;
            case 'searching': showSearch(message.ref, message.read, this.size); break;
            case 'life':
                showLife(message);
                byID('life').scrollIntoView({ block: 'nearest' });
                break;
            case 'end': this.end(message); break;
        }
    }

    step({ step, state, words }) {
        this.steps.set(step, state, words);
        if (state === 'bad') this.verdict.set('bad', words);
    }

    end({ findings, unable, compared }) {
        this.isDone = true;
        this.steps.end();
        this.figures.showPolicies();
        if (this.cosignatures) this.steps.showCosignatures(this.cosignatures, this.to ?? 0);
        this.verdict.showFindings(findings);
        this.verdict.showBasis([this.trust.caveat, this.steps.wordsOf('memory'), this.cosigned].filter(Boolean));
        this.idle();
        if (findings.length > 0) {
            const [first] = findings, words = this.wrong(findings);
            if (this.isConvicted) return this.convict(first.isCut ? '' : words);
            this.verdict.showAdvice([adviceOn(first)], []);
            return this.verdict.set('bad', words, { head: headlineOf(first) });
        }
        if (unable !== null || !this.steps.areAllGood) return this.giveUp(`${unable ?? 'A step was left out.'} This is no verdict on the log.`);
        if (this.isConvicted) return this.convict('');
        const isCompared = compared.kept || compared.others || compared.witnesses > 0;
        const old = this.age < 0 ? `dated ${span(-this.age)} ahead of this machine's clock` : `stale: ${span(this.age)} old`;
        this.verdict.set(isCompared ? 'good' : 'consistent', this.consistent(compared, isCompared),
            { but: this.isStale ? `${isCompared ? ', but' : ', and'} ${old}` : '' });
        this.advise(isCompared);
    }

    wrong([finding, ...rest]) {
        const { code, index } = finding;
        const place = index === null ? '' : `, at entry ${count(index)}`;
        const more = rest.length > 0 ? ` ${counted(rest.length, 'more finding')} below.` : '';
        const other = code === 'signature' && this.trust.differs
            ? " The server now names another key than the one used here. Only if its operator announced a new log, use the server's key, below." : '';
        if (other) byID('trust-part').open = true;
        return `${meaningOf(finding)}${place}.${more}${other}`;
    }

    /** A sentence about the head's other signatures. Null if they were not read. */
    get cosigned() {
        const list = this.cosignatures, known = list?.filter(({ state }) => state === 'good').length;
        if (!list) return null;
        if (list.length === 0) return 'Nobody but the operator has signed this log.';
        const unknown = known < list.length ? ` ${count(list.length - known)} more can't be checked without their keys.` : '';
        return `${counted(known, 'witness', 'witnesses')} whose key you gave signed it too; the steps name the dates.${unknown}`;
    }

    /** Seconds since the last entry. Negative if the entry is ahead of this machine's clock. */
    get age() {
        return Date.now() / 1000 - this.to;
    }

    /** A running broker adds entries all the time, and none from the future. A closed log gets no more. */
    get isStale() {
        return this.size > 0 && Math.abs(this.age) > silentAfter && this.next === null;
    }

    /** The words for a log without a finding. `compared`: see `Auditor`. */
    consistent({ kept, others, witnesses }, isCompared) {
        const age = this.age < 0 ? `${span(-this.age)} ahead of this machine's clock` : `${span(this.age)} ago`;
        const until = this.size > 0 ? `, the last one of ${time(this.to)} (${age})` : '';
        return [
            `${counted(this.size, 'entry', 'entries')}${until}.`,
            this.next === null ? '' : `The log is closed, and ${this.next} continues it.`,
            !this.isStale || this.age < 0 ? ''
                : this.log.isFile ? 'This file shows the log as it was then, not as it is now.'
                : 'A running broker adds an entry every five minutes: the broker has stopped, or you are shown an old copy.',
            kept && this.since ? `What this browser saw first, at ${this.since}, is unchanged.` : '',
            others ? 'It continues the checkpoint that you pasted.' : '',
            witnesses > 0 ? `${counted(witnesses, 'witness', 'witnesses')} whose key you gave signed it.` : '',
            isCompared ? '' : 'It does not contradict itself. But there was nothing earlier to compare it with: a log that was rewritten before now looks the same.',
        ].filter(Boolean).join(' ');
    }

    /** Shows what the visitor can do about a log without a finding. */
    advise(isCompared) {
        const lines = [], buttons = [];
        if (!isCompared) {
            lines.push('Ask somebody who looked at this log before you for a checkpoint that they kept, and compare with it.',
                "Keep this checkpoint where the operator can't reach it. It proves any later change of these entries.");
            if (this.trust.memory.isThere) lines.push('Come back with this browser: it will compare the log with what it saw today.');
            buttons.push(['Compare with a checkpoint', () => this.askForCheckpoint()],
                ['Download this checkpoint', () => download(`checkpoint-${this.size}`, this.note)]);
        }
        if (this.isStale) {
            lines.push(this.age < 0 ? "Compare this machine's clock with another one. If it is right, the log's times are wrong."
                : 'Ask the operator whether the broker is stopped, and somebody else who watches this log what they see.');
        }
        this.verdict.showAdvice(lines, buttons);
    }

    askForCheckpoint() {
        byID('trust-part').open = true;
        byID('other').focus();
    }

    showEvidence() {
        const { contradiction, key, memory } = this.trust;
        if (contradiction) this.verdict.showEvidence(contradiction, key, memory.isThere, () => this.removeEvidence());
    }

    removeEvidence() {
        this.trust.removeContradiction();
        byID('verdict-title').focus();
        this.check(true);
    }

    /** Whether two heads are known that no log can continue both. A shorter log may only lag. */
    get isConvicted() {
        return this.trust.contradiction !== null && !this.trust.contradiction.isCut;
    }

    /** `words`: the result of the present check. */
    convict(words) {
        const { at } = this.trust.contradiction;
        this.verdict.showAdvice([adviceOn({ code: 'rewritten' })], []);
        this.verdict.set('bad', `${words} At ${at} this browser found two checkpoints that this key signed and that contradict each other. They are below.`.trim(),
            { head: 'This log was rewritten' });
    }

    /** Shows that there is no verdict, and why. Earlier findings stay. */
    giveUp(words) {
        this.steps.end();
        this.idle();
        if (!this.isDone) {
            this.worker?.terminate();
            this.worker = null;
        }
        if (this.verdict.kind === 'bad') return;
        if (this.isConvicted) this.convict(words); else this.verdict.set('unsure', words);
    }

    idle() {
        const hadFocus = document.activeElement === byID('stop');
        byID('stop').hidden = true;
        byID('again').hidden = false;
        if (hadFocus) byID('again').focus();
    }

    search(ref) {
        const digits = ref.trim().toLowerCase();
        byID('ref').value = digits;
        if (!/^[0-9a-f]{32}$/.test(digits)) return fill('life', element('p', {}, 'A reference has 32 hexadecimal digits.'));
        if (!this.worker) return fill('life', element('p', {}, 'The log has not been read.'));
        showSearch(digits, 0, this.size);
        this.worker.postMessage({ ref: digits });
        byID('life').scrollIntoView({ block: 'nearest' });
    }
}

if (typeof document !== 'undefined') new AuditPage().begin();
