// The box with the verdict: one word, its reason, the progress, findings and their evidence.

import { byID, element, fill } from './dom.js';
import { meaningOf } from './findings.js';
import { count } from './format.js';

const heads = { checking: 'Checking …', good: 'Verified', bad: 'This log is wrong', unsure: 'Not verified' };

export class Verdict {
    #size = 0;

    /**
     * `kind`: checking, good, bad or unsure. `but`: a reservation. The text is a live region, so it changes only a few times per check.
     */
    set(kind, reason, but = '') {
        const word = heads[kind] + but;
        document.documentElement.dataset.verdict = kind;
        document.documentElement.dataset.but = but ? 'yes' : 'no';
        if (byID('word').textContent !== word) byID('word').textContent = word;
        if (byID('reason').textContent !== reason) byID('reason').textContent = reason;
        document.title = `${word}: audit log`;
        this.kind = kind;
    }

    clear() {
        fill('findings');
        fill('evidence');
        fill('basis');
        this.progress(0, 0);
    }

    progress(done, size = this.#size) {
        this.#size = size;
        byID('progress').max = Math.max(1, size);
        byID('progress').value = done;
        byID('progress-text').textContent = size > 0 ? `${count(done)} of ${count(size)}` : '';
    }

    /** `findings`: results of `told()`. */
    showFindings(findings) {
        if (findings.length === 0) return fill('findings');
        const items = findings.map(({ code, detail, index, file }) => element('li', {}, element('p', {}, `${meaningOf(code)}: `,
            index === null ? null : `entry ${count(index)} `, file ? element('code', {}, file) : null, ` ${detail}. `, element('code', {}, code))));
        fill('findings', element('h3', {}, 'What is wrong'), element('ol', {}, items));
    }

    /** Shows what the verdict rests on. `lines`: sentences. */
    showBasis(lines) {
        fill('basis', lines.map((words) => element('li', {}, words)));
    }

    /** Shows two contradictory heads that one key signed. */
    showEvidence(old, now, vkey) {
        const text = `${vkey}\n\n${old}\n${now}`;
        const area = element('textarea', { id: 'proof', rows: 14, readonly: true, 'aria-describedby': 'proof-note' });
        area.value = text;
        const copied = element('span', { role: 'status' });
        const copy = async () => {
            area.select();
            try {
                await navigator.clipboard.writeText(text);
                copied.textContent = ' copied';
            } catch {
                copied.textContent = ' selected: copy it from the box';
            }
        };
        fill('evidence', element('label', { for: 'proof' }, 'The evidence: the key, and the two heads that it signed'), area,
            element('p', { id: 'proof-note', class: 'quiet' }, 'A log that is only shorter may be a copy that lags: look again, at the address '
                + 'that its operator names. If it stays so, publish both heads. Whoever has the key can see that it signed both, and that the log which is '
                + 'shown now does not begin with what the first one signs.'),
            element('p', {}, element('button', { type: 'button', click: copy }, 'Copy'), copied));
    }
}
