// The box with the verdict: one word, its reason, what to do, the progress, findings and their evidence.

import { byID, element, fill, textBox } from './dom.js';
import { meaningOf } from './findings.js';
import { count } from './format.js';

const heads = {
    checking: 'Checking …', good: 'Verified', consistent: 'Consistent, but not compared', bad: 'This log is wrong', unsure: 'Not verified',
};

export class Verdict {
    #size = 0;

    /**
     * `kind`: checking, good, consistent, bad or unsure. `head`: a headline instead of the kind's. `but`: a reservation. The text is a live
     * region, so it changes only a few times per check.
     */
    set(kind, reason, { head = heads[kind], but = '' } = {}) {
        const word = head + but;
        document.documentElement.dataset.verdict = kind;
        document.documentElement.dataset.but = but ? 'yes' : 'no';
        if (byID('word').textContent !== word) byID('word').textContent = word;
        if (byID('reason').textContent !== reason) byID('reason').textContent = reason;
        document.title = `${word}: audit log`;
        this.kind = kind;
    }

    clear() {
        fill('advice');
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

    /** Shows what to do. `lines`: sentences. `buttons`: `[text, action]` of each. */
    showAdvice(lines, buttons) {
        if (lines.length === 0) return fill('advice');
        fill('advice', element('h3', {}, 'What to do'), element('ul', {}, lines.map((words) => element('li', {}, words))),
            element('p', { class: 'row' }, buttons.map(([text, action]) => element('button', { type: 'button', click: action }, text))));
    }

    /** `findings`: results of `told()`. */
    showFindings(findings) {
        if (findings.length === 0) return fill('findings');
        const items = findings.map((finding) => element('li', {}, element('p', {}, `${meaningOf(finding)}: `,
            finding.index === null ? null : `entry ${count(finding.index)} `, finding.file ? element('code', {}, finding.file) : null,
            ` ${finding.detail}. `, element('code', {}, finding.code))));
        fill('findings', element('h3', {}, 'What is wrong'), element('ol', {}, items));
    }

    /** Shows what the verdict rests on. `lines`: sentences. */
    showBasis(lines) {
        fill('basis', lines.map((words) => element('li', {}, words)));
    }

    /**
     * Shows two contradictory heads that one key signed. `pair`: `{old, now, isCut, at}`. `isKept`: this browser keeps it. `remove`: called
     * when the reader has done with it.
     */
    showEvidence({ old, now, isCut, at }, vkey, isKept, remove) {
        const worth = isCut
            ? 'A log that is only shorter may be a copy that lags: look again, at the address that its operator names. If it stays so, publish both heads.'
            : 'Publish this with a copy of the log. Whoever has the key can see that it signed both heads, and that no log begins with both.';
        const kept = isKept ? 'This browser keeps it and shows it at every visit, until you remove it.'
            : 'This browser keeps nothing: download it before you leave this page.';
        fill('evidence', element('h3', {}, `A contradiction, found at ${at}`),
            textBox('proof', 'The evidence: the key, and the two heads that it signed', `${vkey}\n\n${old}\n${now}`, 'contradiction.txt', 14, `${worth} ${kept}`),
            element('p', {}, element('button', { type: 'button', click: remove }, 'Remove it')));
    }
}
