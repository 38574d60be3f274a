// The page: starts a check, shows what it says, and takes the visitor's wishes.

import { byID, element, fill } from './dom.js';
import { FiguresView } from './figuresview.js';
import { counted, span, time } from './format.js';
import { showLife } from './lifeview.js';
import { Memory } from './memory.js';
import { readKey } from './note.js';
import { findLog } from './place.js';
import { startThread } from './pool.js';
import { Steps } from './steps.js';
import { Verdict } from './verdict.js';

const silentAfter = 900;

class AuditPage {
    log = findLog();
    steps = new Steps();
    verdict = new Verdict((ref) => this.search(ref));
    figures = new FiguresView((ref) => this.search(ref));
    memory = new Memory(this.log.isFile ? `file ${location.pathname}` : this.log.place.base);
    others = [];
    worker = null;
    serverKey = null;

    async begin() {
        this.listen();
        byID('about').textContent = this.log.about;
        byID('witnesses').value = this.memory.witnesses;
        this.steps.clear();
        this.verdict.set('checking', '');
        if (!globalThis.isSecureContext || !globalThis.crypto?.subtle) {
            return this.giveUp('Browsers check signatures only on pages that came over https or from this machine. Open this page over https.');
        }
        try {
            this.serverKey = await this.log.key();
        } catch (error) {
            return this.giveUp(`${error.message}. Nothing was checked; try again.`);
        }
        this.key = this.log.isFile && !this.memory.isOwnKey ? this.serverKey : this.memory.key ?? this.serverKey;
        await this.check();
    }

    /** One whole check, from the head on. */
    async check() {
        this.worker?.terminate();
        this.worker = null;
        this.verdict.set('checking', 'Reading the log.');
        this.steps.clear();
        this.verdict.clear();
        this.figures.clear();
        fill('origin');
        fill('life');
        this.showKey();
        if (!this.key) return this.giveUp('No key came with this log. Paste the one that its operator published, below.');
        if (!await readKey(this.key)) return this.giveUp('The key is malformed, or its id is not its own. Paste the one that the operator published, below.');
        const witnesses = (await Promise.all(this.memory.witnesses.split('\n').map(readKey))).filter(Boolean);
        Object.assign(this, { size: 0, read: 0, isDone: false, to: null, next: null, cosignatures: null });
        const hadFocus = document.activeElement === byID('again');
        byID('stop').hidden = false;
        byID('again').hidden = true;
        if (hadFocus) byID('stop').focus();
        // A file's threads may not start others.
        const threads = this.log.isFile ? 0 : Math.min(4, Math.max(1, navigator.hardwareConcurrency ?? 2));
        const kept = this.memory.head(this.key)?.note ?? null;
        this.worker = startThread(this.log.program, 'auditor');
        this.worker.onmessage = ({ data }) => this.hear(data);
        this.worker.onerror = () => this.giveUp('The checking thread ended. It may have run out of memory, or not have been loaded.');
        this.worker.postMessage({ order: { place: this.log.place, program: this.log.program, threads, vkey: this.key, kept, others: this.others, witnesses } });
    }

    hear(message) {
        switch (message.kind) {
            case 'begin': this.steps.clear(); break;
            case 'head':
                this.size = message.size;
                fill('origin', message.origin);
                this.verdict.progress(0, message.size);
                break;
            case 'step': this.step(message); break;
            case 'cosignatures':
                this.cosignatures = message.list;
                this.steps.showCosignatures(message.list);
                break;
            case 'evidence': this.verdict.showEvidence(message.old, message.now, this.key); break;
            case 'keep':
                this.memory.keep(this.key, message.note);
                this.memory.setKey(this.key, this.memory.isOwnKey);
                this.showKept();
                break;
            case 'figures':
                this.read = message.figures.size;
                this.to = message.figures.to;
                this.next = message.figures.next;
                this.verdict.progress(this.read);
                this.figures.show(message.figures, message.isFinal);
                break;
            case 'policy': this.figures.policy(message.digest, message.text); break;
            case 'life': showLife(message.ref, message.life, this.read, this.isDone); break;
            case 'end': this.end(message); break;
        }
    }

    step({ step, state, words }) {
        this.steps.set(step, state, words);
        if (state === 'bad') this.verdict.set('bad', words);
    }

    end({ findings, count, unable }) {
        this.isDone = true;
        this.steps.end();
        this.figures.showPolicies();
        if (this.cosignatures) this.steps.showCosignatures(this.cosignatures, this.to ?? 0);
        this.verdict.showFindings(findings, count);
        this.idle();
        if (findings.length > 0) return this.verdict.set('bad', this.wrong(findings[0], count));
        if (unable !== null || !this.steps.areAllGood) return this.giveUp(`${unable ?? 'A step was left out.'} This is no verdict on the log.`);
        this.verdict.set('good', this.good());
    }

    wrong({ code, detail, index }, count) {
        const place = index === null ? '' : ` at entry ${index}`;
        const more = count > 1 ? ` ${counted(count - 1, 'more finding')} below.` : '';
        const other = code === 'signature' && this.serverKey && this.serverKey !== this.key
            ? " The server now names another key than the one used here; if its operator announced a new log, use the server's key, below." : '';
        return `${code}${place}: ${detail}.${more}${other}`;
    }

    good() {
        const silence = Date.now() / 1000 - this.to;
        const isSilent = this.size > 0 && silence > silentAfter && !this.log.isFile;
        const old = this.next !== null ? ` The log is closed and goes on as ${this.next}.`
            : isSilent ? ` The last entry is ${span(silence)} old, though a running broker adds one every five minutes.` : '';
        const key = this.memory.isOwnKey ? '' : ` The key came ${this.log.isFile ? 'with this file' : 'from the server'}: compare it with the one that the operator published.`;
        return `${counted(this.size, 'entry', 'entries')}${this.size > 0 ? `, to ${time(this.to)}` : ''}: every step below was checked here.${old}${key}`;
    }

    /** No verdict, and why. What was found wrong before stays. */
    giveUp(words) {
        this.steps.end();
        this.idle();
        this.worker = this.isDone ? this.worker : null;
        if (this.verdict.kind !== 'bad') this.verdict.set('unsure', words);
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
        this.worker.postMessage({ ref: digits });
        byID('life').scrollIntoView({ block: 'nearest' });
    }

    showKey() {
        const differs = this.serverKey !== null && this.serverKey !== this.key;
        byID('vkey').value = this.key ?? '';
        byID('server-key').hidden = !differs;
        const origin = this.memory.isOwnKey ? 'You gave this key.'
            : `This key came ${this.log.isFile ? 'with this file' : 'from the server'}: compare it with the one that the operator published elsewhere.`;
        byID('key-from').textContent = (this.key ? origin : 'No key came along.') + (differs && this.key ? ` The server now names another one: ${this.serverKey}` : '');
        this.showKept();
    }

    showKept() {
        const head = this.key ? this.memory.head(this.key) : null;
        if (!this.memory.isThere) return fill('kept', element('p', {}, 'Nothing: this browser forbids it, so every visit is the first.'));
        fill('kept', head ? [element('p', {}, `The head that it proved last, at ${head.at}, and the keys above.`), element('pre', { tabindex: 0 }, head.note)]
            : element('p', {}, 'No head of this log yet.'));
    }

    async useKey(text, isOwn) {
        const key = await readKey(text);
        byID('key-trouble').textContent = key ? '' : 'This is no key NAME+ID+KEY, or its id is not its own.';
        if (!key) return;
        this.memory.setKey(key.text, isOwn);
        this.key = key.text;
        await this.check();
    }

    listen() {
        const on = (id, event, action) => byID(id).addEventListener(event, (happening) => {
            happening.preventDefault();
            action();
        });
        on('again', 'click', () => this.check());
        on('stop', 'click', () => {
            this.worker?.terminate();
            this.worker = null;
            this.giveUp(`Stopped after ${counted(this.read, 'entry', 'entries')}. This is no verdict on the log.`);
        });
        on('search', 'submit', () => this.search(byID('ref').value));
        on('key-form', 'submit', () => this.useKey(byID('vkey').value, true));
        on('server-key', 'click', () => this.useKey(this.serverKey, false));
        on('other-form', 'submit', () => {
            // A text box drops the last newline, which is signed.
            const note = `${byID('other').value.replaceAll('\r', '').trim()}\n`;
            this.others = note === '\n' ? [] : [note];
            return this.check();
        });
        on('witness-form', 'submit', async () => {
            const lines = byID('witnesses').value.split('\n').map((line) => line.trim()).filter(Boolean);
            const wrong = (await Promise.all(lines.map(async (line) => await readKey(line) ? null : line))).find(Boolean);
            byID('witness-trouble').textContent = wrong ? `This is no key NAME+ID+KEY: ${wrong}` : '';
            if (wrong) return;
            this.memory.setWitnesses(lines.join('\n'));
            await this.check();
        });
        on('forget', 'click', () => {
            if (this.key) this.memory.forget(this.key);
            byID('witnesses').value = '';
            this.showKey();
        });
    }
}

if (typeof document !== 'undefined') new AuditPage().begin();
