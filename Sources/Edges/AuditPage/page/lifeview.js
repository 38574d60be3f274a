// Shows the history of one token to its owner, and the proof of its end.

import { byID, element, fill, table, textBox } from './dom.js';
import { count, counted, span, time } from './format.js';
import { Op, outcomeWords } from './vocabulary.js';

const outcomeOf = ({ outcome }) => outcome ? `${outcomeWords(outcome.reason, outcome.status)}, ${time(outcome.at)}` : 'no outcome yet';
const words = new Map([
    [Op.sealed, ({ until }) => `taken in and sealed, to be destroyed by ${time(until)}`],
    [Op.opened, (row) => `opened for one push by the template ${row.template}; ${outcomeOf(row)}`],
    [Op.purged, ({ cause }) => `destroyed: ${cause}`],
]);

const waiting = 'Seals and purges are published in batches: often after hours, at the latest after midnight UTC.';

/** Shows progress while the log is read again. Screen readers only announce the result. */
export function showSearch(ref, read, size) {
    byID('life').setAttribute('aria-busy', 'true');
    fill('life', element('p', {}, element('code', {}, ref)),
        element('p', { class: 'quiet' }, `Reading the log once more${read > 0 ? `: ${count(read)} of ${count(size)}` : ''} …`));
}

function summary(rows, skipped, read, trouble) {
    const where = trouble ? `the ${counted(read, 'entry', 'entries')} that could be read` : 'the log';
    if (rows.length === 0) return `No entry of this reference is in ${where}. ${waiting}`;
    const pushes = rows.filter(({ op }) => op === Op.opened), purge = rows.find(({ op }) => op === Op.purged);
    const after = purge ? pushes.filter(({ index }) => index > purge.index).length : 0;
    return `${purge ? 'It was destroyed.' : `No purge of it is in ${where} yet. ${waiting}`} It was opened for ${counted(pushes.length, 'push', 'pushes')}. `
        + (after > 0 ? `${counted(after, 'opening')} came after its purge: the broker kept a copy. ` : '')
        + (skipped > 0 ? `${counted(skipped, 'more entry of it is', 'more entries of it are')} not listed. ` : '')
        + 'Compare with your phone: a push that it received two minutes or more before the log ends, and that is not listed here, was sent without a record.';
}

/** `message`: the result of `Auditor.find`. */
export function showLife({ ref, rows, skipped, read, trouble, proof }) {
    const seals = rows.filter(({ op }) => op === Op.sealed), items = rows.map((row) => [time(row.at), words.get(row.op)(row), count(row.index)]);
    byID('life').removeAttribute('aria-busy');
    fill('life', element('p', {}, element('code', {}, ref)), element('p', {}, summary(rows, skipped, read, trouble)),
        trouble ? element('p', {}, `Not all of the log was read: ${trouble.detail}.`) : null,
        rows.length > 0 && seals.length === 0 ? element('p', {}, 'Its seal waits for its batch, or is in an earlier log.') : null,
        items.length === 0 ? null : table('Seals and purges have the time of their batch, which comes later; openings that of their window',
            [['time'], ['what'], ['entry', true]], items),
        proof ? proofBox(proof) : null);
}

function proofBox({ index, op, text }) {
    return element('details', {}, element('summary', {}, op === Op.purged ? 'The proof of its purge' : `The proof of its ${op === Op.opened ? 'latest push' : 'seal'}`),
        textBox('life-proof', `Entry ${count(index)} in the signed log (C2SP tlog-proof)`, text, `${index}.tlog-proof`, 8,
            'It proves to anybody with the log\'s key that this entry is in the log. Only the reference '
            + 'shows that the entry is your token\'s. Sharing the reference discloses the whole story.'));
}
