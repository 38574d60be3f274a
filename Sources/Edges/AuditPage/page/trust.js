// The trusted inputs of a check: the key, checkpoints from elsewhere, witnesses' keys, and values that this browser keeps.

import { byID, element, fill, on, textBox } from './dom.js';
import { count } from './format.js';
import { readKey } from './note.js';

export class Trust {
    key = null;
    /** The key beside the log, from its server or its file. */
    foundKey = null;
    /** The visitor's notes to compare with. */
    others = [];
    /** Two heads that contradict each other, as `{old, now, isCut, at}`, or null. The visitor removes it. */
    contradiction = null;

    /** `check`: called when the visitor changes an input. */
    constructor(log, memory, check) {
        Object.assign(this, { log, memory, check });
        byID('witnesses').value = memory.witnesses;
        on('key-form', 'submit', () => this.#use(byID('vkey').value, true));
        on('server-key', 'click', () => this.#use(this.foundKey, false));
        on('other-form', 'submit', () => {
            // A text box removes the last newline, which is signed.
            const note = `${byID('other').value.replaceAll('\r', '').trim()}\n`;
            this.others = note === '\n' ? [] : [note];
            check();
        });
        on('witness-form', 'submit', () => this.#useWitnesses(byID('witnesses').value));
        on('forget', 'click', () => {
            if (this.key) memory.forget(this.key);
            this.contradiction = null;
            byID('witnesses').value = '';
            fill('evidence');
            this.show();
        });
    }

    /** Finds the key: the visitor's own, else the one of the last visit, else the one beside the log. */
    async find() {
        this.foundKey = await this.log.key();
        const known = this.log.isFile && !this.memory.isOwnKey ? null : this.memory.key;
        const key = known ?? this.foundKey;
        // Without storage, the contradiction is kept as long as the page is open.
        this.contradiction = (key && this.memory.contradiction(key)) ?? (key === this.key ? this.contradiction : null);
        this.key = key;
        this.show();
    }

    /** Returns whether the key beside the log differs from the one in use. */
    get differs() {
        return this.foundKey !== null && this.foundKey !== this.key;
    }

    /** A sentence about the key's source. */
    get caveat() {
        if (this.memory.isOwnKey) return 'You gave the key.';
        return `The key came ${this.log.isFile ? 'with this file' : 'from the server'}: compare it with the one that the operator published.`;
    }

    async witnesses() {
        return (await Promise.all(this.memory.witnesses.split('\n').map(readKey))).filter(Boolean);
    }

    /** The last head that this browser verified, as `{note, at, since}`, or null. */
    get kept() {
        return this.key ? this.memory.head(this.key) : null;
    }

    /** Keeps a contradiction, unless there is an earlier one. */
    keepContradiction(pair) {
        if (this.contradiction) return;
        this.memory.setContradiction(this.key, pair);
        this.contradiction = pair;
    }

    /** Also forgets the head that it began with. Otherwise the next check would find the same contradiction. */
    removeContradiction() {
        if (this.kept?.note === this.contradiction.old) this.memory.forgetHead(this.key); else this.memory.setContradiction(this.key, null);
        Object.assign(this, { contradiction: null, others: [] });
        byID('other').value = '';
    }

    /** Keeps a head that continues the last one, and its key. */
    keep(note) {
        this.memory.keep(this.key, note);
        this.memory.setKey(this.key, this.memory.isOwnKey);
        this.show();
    }

    show() {
        const field = byID('vkey');
        if (document.activeElement !== field) field.value = this.key ?? '';
        byID('server-key').hidden = !this.differs;
        const origin = this.key ? this.caveat : 'There is no key.';
        byID('key-from').textContent = this.differs && this.key ? `${origin} The server now names another one: ${this.foundKey}` : origin;
        const head = this.key ? this.memory.head(this.key) : null;
        if (!this.memory.isThere) fill('kept', element('p', {}, 'Nothing: this browser forbids it, so every visit is the first.'));
        else if (!head) fill('kept', element('p', {}, 'No head of this log yet.'));
        else {
            const size = Number(head.note.split('\n')[1]);
            fill('kept', element('p', {}, 'The keys above, and the head that it proved last.'),
                textBox('kept-head', `The head of ${head.at}, of ${count(size)} entries`, head.note, `checkpoint-${size}`, 5,
                    `This browser saw the log first at ${head.since}. A copy of the head, where the operator can't reach it, protects all entries before it.`));
        }
    }

    async #use(text, isOwn) {
        const key = await readKey(text);
        byID('key-trouble').textContent = key ? '' : 'This is not a key NAME+ID+KEY, or its id is wrong.';
        if (!key) return;
        this.memory.setKey(key.text, isOwn);
        this.check();
    }

    async #useWitnesses(text) {
        const lines = text.split('\n').map((line) => line.trim()).filter(Boolean);
        const wrong = (await Promise.all(lines.map(async (line) => await readKey(line) ? null : line))).find(Boolean);
        byID('witness-trouble').textContent = wrong ? `This is not a key NAME+ID+KEY: ${wrong}` : '';
        if (wrong) return;
        this.memory.setWitnesses(lines.join('\n'));
        this.check();
    }
}
