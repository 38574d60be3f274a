// What the page shows of a log besides its verdict. All lists are bounded, whatever the log says.

import { grace } from './clock.js';
import { Timeline } from './timeline.js';
import { Op, purgeCauses, reasons, refusalCauses } from './vocabulary.js';

const mostSlow = 20, mostLive = 50;
export const mostPolicies = 1_000;
const seriesOf = new Map([[Op.sealed, 'sealed'], [Op.opened, 'opened'], [Op.purged, 'purged']]);

export class Figures {
    #timeline = new Timeline([...seriesOf.values()]);
    #outcomes = new Map();
    #refused = new Map();
    #slowest = [];
    #starts = 0;
    /** Origin of the log that follows this one, once it is closed. */
    #next = null;
    /** In the log's order: `{digest, name, from, index, to}`, each time another policy came into force; `to` once it is no more. */
    policies = [];
    /** By digest and name: those that were named since the last start that names any, and those before. */
    #inForce = new Map();
    #before = new Map();
    #isStarting = false;
    digests = new Set();

    /** `ref`: the number that the story gives it. */
    admit(columns, place, ref) {
        const op = columns.op[place], at = columns.at[place], choice = columns.choice[place];
        const series = seriesOf.get(op);
        if (series) this.#timeline.add(series, at);
        const add = (map, name, count) => map.set(name, (map.get(name) ?? 0) + count);
        if (op === Op.started) [this.#starts, this.#isStarting] = [this.#starts + 1, true];
        if (op === Op.started || op === Op.policyLoaded) this.#name(columns.rare.get(place).policy);
        if (op === Op.closed) this.#next ??= columns.rare.get(place).text;
        if (op === Op.delivered) add(this.#outcomes, `delivered (${columns.number[place]})`, 1);
        if (op === Op.failed) add(this.#outcomes, `${reasons[choice]} (${columns.number[place] || 'no answer'})`, 1);
        if (op === Op.refused) add(this.#refused, refusalCauses[choice], columns.number[place]);
        if (op === Op.policyLoaded) this.#loaded(columns.rare.get(place), at, columns.first + place);
    }

    /** A policy that the log must have. */
    #name(digest) {
        if (this.digests.size <= mostPolicies) this.digests.add(digest);
    }

    /** A start names all that are in force. One that names none goes on with them: the broker only paused. */
    #loaded({ text: name, policy: digest }, from, index) {
        if (this.#isStarting) {
            for (const policy of this.#inForce.values()) policy.to = from;
            [this.#before, this.#inForce, this.#isStarting] = [this.#inForce, new Map(), false];
        }
        const key = `${digest} ${name}`, same = this.#inForce.get(key) ?? this.#before.get(key);
        if (same) {
            delete same.to;
            this.#inForce.set(key, same);
        } else if (this.policies.length < mostPolicies) {
            const policy = { digest, name, from, index };
            this.policies.push(policy);
            this.#inForce.set(key, policy);
        }
    }

    /** The story tells of each purge: how long after its `until`, which is before it when it was not waited for. */
    purgedAfter(delay, purge) {
        const last = this.#slowest.at(-1);
        if (delay <= 0 || this.#slowest.length === mostSlow && last.delay >= delay) return;
        const place = this.#slowest.findIndex((other) => other.delay < delay);
        this.#slowest.splice(place < 0 ? this.#slowest.length : place, 0, { delay, ...purge });
        if (this.#slowest.length > mostSlow) this.#slowest.pop();
    }

    /** For the page; with `isEnd` also what only the end of the log shows. */
    told(story, isEnd) {
        const sorted = (map) => [...map].sort((left, right) => right[1] - left[1]).slice(0, 60);
        return {
            size: story.size, from: story.from, to: story.clock.at, counts: { ...story.counts }, starts: this.#starts, next: this.#next,
            timeline: this.#timeline.told(), outcomes: sorted(this.#outcomes), refused: sorted(this.#refused),
            policies: this.policies,
            slowest: this.#slowest.map((slow) => ({ ...slow, ref: story.refs.text(slow.ref), cause: purgeCauses[slow.choice] })),
            live: isEnd ? this.#live(story) : null,
        };
    }

    /** Live refs by how long they still have at the log's last entry, and those whose time is up first. */
    #live(story) {
        const now = story.clock.at, soonest = [];
        const bounds = [[-grace, 'overdue'], [0, 'ended, being purged'], [300, 'within 5 minutes'], [3_600, 'within an hour'],
            [86_400, 'within a day'], [604_800, 'within a week'], [Infinity, 'later']];
        const left = bounds.map(() => 0);
        for (let ref = 0; ref < story.refs.count; ref++) {
            if (!story.isLive(ref)) continue;
            const until = story.until.values[ref], rest = until - now;
            left[bounds.findIndex(([bound], place) => place === 0 ? rest < bound : rest <= bound)] += 1;
            if (soonest.length === mostLive && soonest.at(-1).until <= until) continue;
            let place = soonest.length;
            while (place > 0 && soonest[place - 1].until > until) place -= 1;
            soonest.splice(place, 0, { number: ref, until });
            if (soonest.length > mostLive) soonest.pop();
        }
        return {
            left: bounds.map(([, name], place) => [name, left[place]]),
            soonest: soonest.map(({ number, until }) => ({ ref: story.refs.text(number), until, sealed: story.sealedAt.values[number] })),
        };
    }
}
