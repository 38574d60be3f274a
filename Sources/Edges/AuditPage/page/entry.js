// Parses an entry. Only the canonical form is accepted.

import { Finding } from './findings.js';
import { holds, utf8 } from './bytes.js';
import { keyNames, Op, ops, untilKey } from './vocabulary.js';

const keySpellings = keyNames.map((name) => utf8(`"${name}":`));
const Key = Object.freeze(Object.fromEntries(keyNames.map((name, number) => [name, number])));
const opNumbers = new Map(ops.map((one, number) => [one.name, number]));
const choiceNumbers = ops.map((one) => one.choices && new Map(one.choices.map((choice, number) => [choice, number])));
const longestText = 128, longestWindow = 60;
const hexValues = new Int8Array(256).fill(-1);
for (let digit = 0; digit < 16; digit++) hexValues['0123456789abcdef'.charCodeAt(digit)] = digit;

const isTextByte = (byte) => byte > 0x20 && byte < 0x7f && byte !== 0x22 && byte !== 0x5c;
const timeMarks = [[4, 0x2d], [7, 0x2d], [10, 0x54], [13, 0x3a], [16, 0x3a], [19, 0x5a]];
const daysOfMonths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/**
 * Parses one entry at a time. Its properties are the last entry's values: `at` and `until` in unix seconds, `op` as a number, `id` and
 * `job` as four 32-bit words, `number` (count, generation, resolution or status), `text` (name, next, node, previous or template),
 * `version`, `digest` (64 digits: policy or root), `choice` (index of cause or reason in the op's list), `sums` (other numbers, by key).
 */
export class EntryReader {
    at = 0;
    op = 0;
    until = 0;
    number = 0;
    choice = 0;
    text = '';
    version = '';
    digest = '';
    id = new Uint32Array(4);
    job = new Uint32Array(4);
    sums = null;
    #bytes;
    #start = 0;
    #position = 0;

    /** Parses `bytes`. @throws Finding with `index` if they aren't an entry. */
    read(bytes, index) {
        this.#bytes = bytes;
        this.#position = 0;
        this.index = index;
        this.until = 0;
        this.sums = null;
        let first = 0, present = 0, opText = null, choiceText = null;
        this.#expect(0x7b);
        do {
            this.#start = this.#position;
            const key = this.#key(first);
            first = key + 1;
            present |= 1 << key;
            this.#start = this.#position;
            switch (key) {
                case Key.at: this.at = this.#time(); break;
                case Key.until: this.until = this.#time(); break;
                case Key.id: this.#id(this.id); break;
                case Key.job: this.#id(this.job); break;
                case Key.count: case Key.generation: this.number = this.#number(0xffffffff); break;
                case Key.resolution: if ((this.number = this.#number(longestWindow)) === 0) this.#wrong(); break;
                case Key.status: this.number = this.#number(999); break;
                case Key.epoch: case Key.swept: case Key.sealed: case Key.expired: case Key.ended: case Key.jobs: case Key.size: case Key.live:
                    (this.sums ??= {})[keyNames[key]] = this.#number(Number.MAX_SAFE_INTEGER);
                    break;
                case Key.name: case Key.next: case Key.node: case Key.previous: case Key.template: this.text = this.#text(); break;
                case Key.version: this.version = this.#text(); break;
                case Key.cause: case Key.reason: choiceText = this.#text(); break;
                case Key.op: opText = this.#text(); break;
                case Key.binary: this.#digest(); break;
                case Key.policy: case Key.root: this.digest = this.#digest(); break;
            }
        } while (this.#skip(0x2c));
        this.#expect(0x7d);
        if (this.#position !== bytes.length) this.#wrong();
        this.op = opNumbers.get(opText) ?? this.#fail('is not a valid entry: its op is unknown');
        const choices = choiceNumbers[this.op];
        if (choices && choiceText !== null) this.choice = choices.get(choiceText) ?? this.#fail('is not a valid entry: its cause or reason is unknown');
        const more = this.op === Op.purged && choiceText === 'expired' ? untilKey : 0;
        if (present !== (ops[this.op].keys | more)) this.#fail(`is not a valid entry: ${opText} with missing or extra keys`);
        if (this.sums?.live === 0) this.#fail('is not a valid entry: it carries no token');
        return this;
    }

    #fail(detail) {
        throw new Finding('entry', detail, { index: this.index });
    }

    #wrong() {
        this.#fail(`is not a valid entry: not canonical at byte ${this.#start}`);
    }

    #skip(byte) {
        if (this.#bytes[this.#position] !== byte) return false;
        this.#position += 1;
        return true;
    }

    #expect(byte) {
        this.#start = this.#position;
        if (!this.#skip(byte)) this.#wrong();
    }

    #key(first) {
        for (let key = first; key < keySpellings.length; key++) {
            if (holds(this.#bytes, this.#position, keySpellings[key])) {
                this.#position += keySpellings[key].length;
                return key;
            }
        }
        return this.#wrong();
    }

    #text() {
        this.#expect(0x22);
        const from = this.#position;
        while (isTextByte(this.#bytes[this.#position])) this.#position += 1;
        const length = this.#position - from;
        if (length < 1 || length > longestText) this.#wrong();
        this.#expect(0x22);
        return String.fromCharCode.apply(null, this.#bytes.subarray(from, from + length));
    }

    #digest() {
        const text = this.#text();
        return /^[0-9a-f]{64}$/.test(text) ? text : this.#wrong();
    }

    /** Parses 32 digits as four 32-bit words. */
    #id(words) {
        this.#expect(0x22);
        for (let word = 0; word < 4; word++) {
            let value = 0;
            for (let i = 0; i < 8; i++) {
                const digit = hexValues[this.#bytes[this.#position++]];
                // Beyond the end the byte is undefined, and so is the digit.
                if (!(digit >= 0)) this.#wrong();
                value = value << 4 | digit;
            }
            words[word] = value;
        }
        this.#expect(0x22);
    }

    #number(limit) {
        const from = this.#position;
        let value = 0;
        for (let digit; (digit = this.#bytes[this.#position] - 0x30) >= 0 && digit < 10; this.#position++) {
            if (value === 0 && this.#position > from) this.#wrong();
            // Beyond 2^53 sums are rounded, but still too large.
            value = value * 10 + digit;
            if (value > limit) this.#wrong();
        }
        if (this.#position === from) this.#wrong();
        return value;
    }

    /** Parses `"2026-01-02T03:04:05Z"` as unix seconds. */
    #time() {
        this.#expect(0x22);
        for (const [place, mark] of timeMarks) if (this.#bytes[this.#position + place] !== mark) this.#wrong();
        const year = this.#pair(0) * 100 + this.#pair(2), month = this.#pair(5), day = this.#pair(8);
        const hour = this.#pair(11), minute = this.#pair(14), second = this.#pair(17);
        if (year < 1970 || month < 1 || month > 12 || hour > 23 || minute > 59 || second > 59) this.#wrong();
        const isLeap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
        if (day < 1 || day > daysOfMonths[month - 1] + (month === 2 && isLeap ? 1 : 0)) this.#wrong();
        this.#position += 20;
        this.#expect(0x22);
        return Date.UTC(year, month - 1, day, hour, minute, second) / 1000;
    }

    #pair(offset) {
        const tens = this.#bytes[this.#position + offset] - 0x30, ones = this.#bytes[this.#position + offset + 1] - 0x30;
        if (!(tens >= 0 && tens < 10 && ones >= 0 && ones < 10)) this.#wrong();
        return tens * 10 + ones;
    }
}
