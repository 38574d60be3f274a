// The page's figures about a log. All lists are bounded for any log.

import { Timeline } from './timeline.js';
import { Op, outcomeWords, reasons, refusalCauses } from './vocabulary.js';

const mostNames = 1_000, mostGaps = 60;
const seriesOf = new Map([[Op.sealed, 'sealed'], [Op.opened, 'opened'], [Op.purged, 'purged']]);

export class Figures {
    #timeline = new Timeline([...seriesOf.values()]);
    #outcomes = new Map();
    #refused = new Map();
    #templates = new Map();
    #starts = 0;
    /** The newest gaps, and the number of all gaps. */
    #gaps = [];
    #gapCount = 0;
    /** The program of the newest start: its version and its SHA-256. */
    #version = null;
    /** The log that this one follows. */
    #previous = null;
    /** `{digest, name, from, to}` of each policy that came into force, in the log's order. `to` is set when it ends. */
    #policies = [];
    /** Policies by digest and name: those named since the last start, and those before. */
    #inForce = new Map();
    #before = new Map();
    #isStarting = false;

    admit(columns, place) {
        const op = columns.op[place], at = columns.at[place], choice = columns.choice[place], rare = columns.rare.get(place);
        const series = seriesOf.get(op);
        if (series) this.#timeline.add(series, at);
        const add = (map, name, count) => {
            if (map.has(name) || map.size < mostNames) map.set(name, (map.get(name) ?? 0) + count);
        };
        if (op === Op.started) [this.#starts, this.#isStarting, this.#version] = [this.#starts + 1, true, rare.version];
        if (op === Op.opened) add(this.#templates, columns.templates[columns.template[place]], 1);
        if (op === Op.delivered || op === Op.failed) {
            add(this.#outcomes, outcomeWords(op === Op.failed ? reasons[choice] : null, columns.number[place]), 1);
        }
        if (op === Op.refused) add(this.#refused, refusalCauses[choice], columns.number[place]);
        if (op === Op.ledgerOpened) this.#previous = rare.text;
        if (op === Op.policyLoaded) this.#loaded(rare, at);
    }

    gap(gap) {
        this.#gapCount += 1;
        this.#gaps.push(gap);
        if (this.#gaps.length > mostGaps) this.#gaps.shift();
    }

    /** A start names all policies in force. A start that names none continues with the previous ones, because the broker only paused. */
    #loaded({ text: name, digest }, from) {
        if (this.#isStarting) {
            for (const policy of this.#inForce.values()) policy.to = from;
            [this.#before, this.#inForce, this.#isStarting] = [this.#inForce, new Map(), false];
        }
        const key = `${digest} ${name}`, same = this.#inForce.get(key) ?? this.#before.get(key);
        if (same) {
            delete same.to;
            this.#inForce.set(key, same);
        } else if (this.#policies.length < mostNames) {
            const policy = { digest, name, from };
            this.#policies.push(policy);
            this.#inForce.set(key, policy);
        }
    }

    /** Returns the figures for the page. Lists are only included if `isFinal`. */
    told(story, isFinal) {
        const { balance, clock } = story, sorted = (map) => [...map].sort((left, right) => right[1] - left[1]).slice(0, 60);
        const { batches, closed, sealed, expired, early, carried } = balance.counts;
        return {
            size: story.size, from: story.from, to: clock.at, starts: this.#starts, version: this.#version,
            previous: this.#previous, next: story.next,
            counts: {
                ...story.counts, sealed, carried, purged: expired + early, expired, early, live: balance.live, pending: story.pending,
                batches, closed, gaps: clock.total,
            },
            smallest: balance.smallest, gaps: this.#gaps.slice().reverse(), gapCount: this.#gapCount, mostGapsInADay: clock.mostInADay,
            buckets: isFinal ? balance.told() : null, timeline: this.#timeline.told(), templates: sorted(this.#templates), outcomes: sorted(this.#outcomes),
            refused: sorted(this.#refused), policies: this.#policies,
        };
    }
}
