// Shows what the log says: facts, timeline, live tokens, slow purges, outcomes, refusals, policies.

import { bar, barTable, timelineChart } from './charts.js';
import { grace } from './clock.js';
import { element, fill, table } from './dom.js';
import { count, span, time } from './format.js';

export class FiguresView {
    #policies = new Map();
    #figures = null;

    /** `showRef`: called with a ref that the visitor picks from a list. */
    constructor(showRef) {
        this.showRef = showRef;
    }

    clear() {
        this.#policies.clear();
        for (const id of ['facts', 'timeline', 'live', 'slowest', 'outcomes', 'refused', 'policies']) fill(id);
    }

    /** `figures`: what Figures.told() says. Lists, which a visitor may be in, are built once, at the end. */
    show(figures, isFinal) {
        this.#figures = figures;
        const { counts, size, from, to, starts, next } = figures;
        const facts = [
            ['entries', count(size)], ['from', size > 0 ? time(from) : 'none'], ['to', size > 0 ? time(to) : 'none'],
            ['tokens sealed', count(counts.sealed)], ['live at the end', count(counts.sealed - counts.purged)],
            ['purged', count(counts.purged)], ['late and excused', count(counts.excused)], ['opened', count(counts.opened)],
            ['delivered', count(counts.delivered)], ['failed', count(counts.failed)], ['starts of a broker', count(starts)],
            ...(next === null ? [] : [['closed; goes on as', next]]),
        ];
        const fact = ([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value));
        fill('facts', element('dl', { class: 'facts' }, facts.map(fact)));
        if (!isFinal) return;
        fill('timeline', size > 0 ? timelineChart(figures.timeline) : null);
        fill('live', figures.live ? this.#live(figures.live, to) : null);
        fill('slowest', this.#slowest(figures.slowest));
        fill('outcomes', barTable('Outcomes of pushes', "By Apple's answer, with its status", figures.outcomes, 'No push has an outcome yet.'));
        fill('refused', barTable('Refused requests', 'By cause; each count was rounded when it was written', figures.refused, 'None.'));
    }

    policy(digest, text) {
        this.#policies.set(digest, text);
    }

    #ref(ref) {
        return element('button', { type: 'button', class: 'id', click: () => this.showRef(ref) }, ref);
    }

    #live({ left, soonest }, now) {
        const rows = soonest.map(({ ref, until, sealed }) => [
            this.#ref(ref), time(sealed), time(until), until > now ? `in ${span(until - now)}` : `${span(now - until)} ago`,
            bar((now - sealed) / Math.max(1, until - sealed)),
        ]);
        return [
            ...barTable('Live tokens and their deadlines', `By the time left at the log's last entry, ${time(now)}`,
                left.filter(([, number]) => number > 0), 'No token is live.'),
            rows.length === 0 ? null : element('details', {}, element('summary', {}, rows.length === 1 ? 'The one whose time is up first' : `The ${rows.length} whose time is up first`),
                table('Soonest first; the bar shows how much of its life has passed', [['reference'], ['sealed'], ['must end by'], ['that is'], ['']], rows)),
        ];
    }

    #slowest(slowest) {
        const heading = element('h3', {}, 'Slowest purges');
        if (slowest.length === 0) return [heading, element('p', { class: 'quiet' }, 'No token was purged later than at its end.')];
        const judged = { ontime: '', excused: ', excused', late: ', too late' };
        const rows = slowest.map(({ ref, until, delay, lateness, cause }) =>
            [this.#ref(ref), time(until), `${span(delay)} later${judged[lateness]}`, cause, bar(delay / grace)]);
        return [heading, table(`How long after its end a token was purged; ${span(grace)} is the bound, unless no broker ran`,
            [['reference'], ['end'], ['purged'], ['cause'], ['']], rows)];
    }

    /** After the last policy was read, or could not be. */
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
            items.length === 0 ? element('p', { class: 'quiet' }, 'None is named so far.') : element('ul', {}, items));
    }
}
