// The list of steps and their results.

import { bulletList, byID, element, fill } from './dom.js';
import { time } from './format.js';
import { isTimely } from './head.js';

const titles = new Map([
    ['signature', 'The head of the log is signed by its key'],
    ['edge', 'The newest tiles match the signed root'],
    ['memory', 'The log continues an earlier head'],
    ['entries', 'Every entry matches the tiles and the root'],
    ['balance', 'As many tokens were purged as sealed'],
    ['pushes', 'Every opening has its template and its outcome'],
    ['time', 'Keys, purges and batches are on time'],
    ['policies', 'Every policy has the hash in its name'],
]);
const states = new Map([
    ['waiting', '· waiting'], ['running', '… checking'], ['good', '✓ good'], ['bad', '✗ wrong'], ['unable', '? not checked'],
    // There is nothing to compare with.
    ['none', '– not made'],
]);

export class Steps {
    #states = new Map();

    clear() {
        fill('cosignatures');
        byID('steps-count').textContent = '';
        byID('steps').replaceChildren(...Array.from(titles, ([step, title]) => element('li', { id: `step-${step}` },
            element('span', { class: 'state' }), element('div', {}, element('p', {}, title), element('p', { class: 'quiet' })))));
        this.#states.clear();
        for (const step of titles.keys()) this.set(step, 'waiting');
    }

    set(step, state, words = '') {
        this.#states.set(step, state);
        const [mark, body] = byID(`step-${step}`).children;
        mark.className = `state ${state}`;
        mark.textContent = states.get(state);
        body.lastChild.textContent = words;
    }

    /** Called at the end. Marks the remaining steps as not done. */
    end() {
        for (const [step, state] of this.#states) if (state === 'waiting' || state === 'running') this.set(step, 'unable');
        const count = (wanted) => [...this.#states.values()].filter((state) => state === wanted).length, notMade = count('none');
        byID('steps-count').textContent = `${count('good')} of ${titles.size} passed${notMade > 0 ? `, ${notMade} not made` : ''}`;
        if (count('good') + notMade < titles.size) byID('steps-part').open = true;
    }

    /** The words of a step's result. */
    wordsOf(step) {
        return byID(`step-${step}`).lastChild.lastChild.textContent;
    }

    /** Whether no step failed. Only the comparison with an earlier head may be missing. */
    get areAllGood() {
        return this.#states.size === titles.size && [...this.#states].every(([step, state]) => state === 'good' || (step === 'memory' && state === 'none'));
    }

    /** Shows the cosignatures. `list`: the result of readCosignatures(). `last`: the time of the last entry, if known. */
    showCosignatures(list, last = 0) {
        const items = list.map(({ name, id, at, state }) => element('li', {}, element('span', { class: 'id' }, `${name} (${id})`),
            at === null ? ': a signature of a kind that this page does not know' : `: saw this head at ${time(at)}; `
                + (state !== 'good' ? 'not checked: give its key below' : isTimely(at, last) ? 'its signature holds'
                    : 'its signature holds, but its date does not fit: before the last entry, or in the future')));
        fill('cosignatures', element('h3', {}, 'Witnesses'),
            list.length === 0 ? element('p', { class: 'quiet' }, 'Nobody else has signed this head.') : bulletList(items));
    }
}
