// Shows facts, timeline, buckets, gaps, pushes, refusals and policies of a log.

import { bar, barTable, timelineChart } from './charts.js';
import { bulletList, element, fill, table } from './dom.js';
import { count, counted, span, time } from './format.js';

const parts = ['facts', 'timeline', 'buckets', 'gaps', 'templates', 'outcomes', 'refused', 'policies'];

export class FiguresView {
    #policies = new Map();
    #figures = null;

    clear() {
        this.#policies.clear();
        for (const id of parts) fill(id);
    }

    /** `figures`: the result of Figures.told(). Lists are built once at the end, because rebuilding would disturb a reading visitor. */
    show(figures, isFinal) {
        this.#figures = figures;
        const { counts, size, from, to, starts, version, previous, next, smallest } = figures;
        const facts = [
            ['entries', count(size)], ['from', size > 0 ? time(from) : 'none'], ['to', size > 0 ? time(to) : 'none'],
            ...(previous === null ? [] : [['follows', previous], ['carried over', count(counts.carried)]]),
            ['tokens sealed', count(counts.sealed)], ['live at the end', count(counts.live)], ['expired', count(counts.expired)],
            ['ended before', count(counts.early)], ['opened', count(counts.opened)], ['delivered', count(counts.delivered)],
            ['failed', count(counts.failed)], ['under way', count(counts.pending)], ['batches', count(counts.batches)],
            ['smallest hourly batch', smallest === null ? 'none' : counted(smallest, 'seal')], ['days closed', count(counts.closed)],
            ['gaps', counts.gaps > 0 ? span(counts.gaps) : 'none'], ['starts of a broker', count(starts)],
            ...(version === null ? [] : [['version', version]]), ...(next === null ? [] : [['closed; goes on as', next]]),
        ];
        const fact = ([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value));
        fill('facts', element('dl', { class: 'facts' }, facts.map(fact)));
        if (!isFinal) return;
        fill('timeline', size > 0 ? timelineChart(figures.timeline) : null);
        fill('buckets', size > 0 ? this.#buckets(figures.buckets) : null);
        fill('gaps', this.#gaps(figures));
        fill('templates', barTable('Pushes by template', 'Openings of a token for one push', figures.templates, 'No token was opened.'));
        fill('outcomes', barTable('Outcomes of pushes', "By the push service's answer, with its status. A push that never left has none", figures.outcomes, 'No push has an outcome yet.'));
        fill('refused', barTable('Refused requests', 'By cause; each count was rounded when it was written', figures.refused, 'None.'));
    }

    policy(digest, text) {
        this.#policies.set(digest, text);
    }

    #buckets({ open, openCount, closings }) {
        const gone = (sealed, carried, out) => bar(out / Math.max(1, sealed + carried));
        const opened = open.map(({ until, sealed, carried, expired }) =>
            [time(until), count(sealed), count(carried), count(expired), gone(sealed, carried, expired)]);
        const closed = closings.map(({ until, at, sealed, carried, expired, ended, isRotation }) => [
            time(until), isRotation ? 'with the log' : `after ${span(Math.max(0, at - until))}`,
            count(sealed), count(carried), count(expired), count(ended)]);
        const some = openCount > opened.length ? `, the first ${opened.length} of ${count(openCount)}` : '';
        const newest = closed.length === 1 ? 'The day that was closed last' : `The ${closed.length} days that were closed last`;
        return [
            element('h3', {}, 'Tokens by the day on which they end'),
            opened.length === 0 ? element('p', { class: 'quiet' }, 'No day is open.')
                : table(`Open days${some}; tokens that ended early are booked when a day closes`,
                    [['ends by'], ['sealed', true], ['carried', true], ['expired', true], ['']], opened),
            closed.length === 0 ? null : element('details', {}, element('summary', {}, newest), table('Tokens sealed and purged',
                [['ended by'], ['closed'], ['sealed', true], ['carried', true], ['expired', true], ['ended', true]], closed)),
        ];
    }

    #gaps({ gaps, gapCount, mostGapsInADay }) {
        const heading = element('h3', {}, 'Gaps without a broker');
        if (gapCount === 0) return [heading, element('p', { class: 'quiet' }, 'None of a minute or more.')];
        const rows = gaps.map(({ from, to }) => [time(from), time(to), span(to - from), bar((to - from) / 3_600)]);
        return [heading, table(`${counted(gapCount, 'gap')}, at most ${span(mostGapsInADay)} in one day; what was due in a gap may come after it`,
            [['from'], ['to'], ['length'], ['']], rows)];
    }

    /** Called after the last policy was read, or failed to be read. */
    showPolicies() {
        const { policies, to } = this.#figures ?? { policies: [] };
        const items = policies.map(({ digest, name, from, to: end }) => {
            const text = this.#policies.get(digest);
            return element('li', {}, element('details', {},
                element('summary', {}, `${name}, from ${time(from)} ${end === undefined ? `on (to the last entry, ${time(to)})` : `to ${time(end)}`}`),
                element('p', { class: 'quiet' }, 'SHA-256 ', element('code', {}, digest)),
                text === undefined ? element('p', {}, 'Not read yet.') : element('pre', { tabindex: 0 }, text)));
        });
        fill('policies', element('h3', {}, 'Policies in force'),
            items.length === 0 ? element('p', { class: 'quiet' }, 'None is named so far.') : bulletList(items));
    }
}
