// Shows the life of one reference.

import { element, fill, table } from './dom.js';
import { counted, span, time } from './format.js';

const words = new Map([
    ['token.sealed', ({ kind }) => `taken in and sealed: a token for ${kind}`],
    ['token.opened', ({ template }) => `opened for one push by the template ${template}`],
    ['push.delivered', ({ status }) => `Apple took the push (${status})`],
    ['push.failed', ({ status, reason }) => `the push failed: ${reason} (${status || 'no answer'})`],
    ['token.purged', ({ cause }) => `destroyed: ${cause}`],
]);

/** `life`: what Lives.of() says, null if the reference is unknown. */
export function showLife(ref, life, readSoFar, isAll) {
    if (!life) {
        const where = isAll ? 'The log has no entry of it.' : `Not among the ${counted(readSoFar, 'entry', 'entries')} read so far.`;
        fill('life', element('p', {}, element('code', {}, ref)), element('p', {}, where));
        return;
    }
    const rows = life.rows.map((row) => [time(row.at), words.get(row.op)?.(row) ?? row.op, String(row.index)]);
    const purged = life.rows.find((row) => row.op === 'token.purged');
    const late = purged ? purged.at - life.until : 0;
    const end = purged ? `It was destroyed ${span(Math.abs(late))} ${late > 0 ? 'after' : 'before'} its end.`
        : `It has not been destroyed${isAll ? '' : ', as far as the log is read'}.`;
    fill('life', element('p', {}, element('code', {}, ref)), element('p', {}, `Must end by ${time(life.until)}. ${end}`),
        table('Times are starts of windows', [['time'], ['what'], ['entry', true]], rows));
}
