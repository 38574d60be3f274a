#!/usr/bin/env python3
"""Measures what Mayfly's ledger gives away, alone and together with Apple's records, by attacking it.

    linker.py                              simulates brokers of several sizes, attacks their logs, prints the success rates
    linker.py --helps                      prints what helps an attacker: a flooder, quiet nights, stops, rotation, ...
    linker.py --ledger DIR [--pushes FILE] attacks a real log, with the simulator's record of pushes (JSON of GET /pushes)

Python's standard library only. The ids in a log link nothing, and a batch is sorted by them. So all seals of one batch with one
`until` look alike: they are a *class*. The same holds for the purges of one batch with one `until`, or with none. A log says how
large each class is, and nothing else about tokens. The attacker knows the model (`--help` lists its parameters) and asks:

  1. Which two seals, or which two purges, belong to one room? Belief propagation over all pairs of classes. The prior of each pair
     comes from simulated rooms of the same model, sorted into the batches of the attacked log.
  2. Which purge belongs to a seal? Sinkhorn's algorithm: the model's flow from class to class, fitted to all sizes of classes.
  3. When was a pushed token sealed and purged, to the hour? Bayes, from all pushes to one handle in Apple's records. The log changes
     the odds of each class by its size, divided by the size that the model and Apple's records let one expect.

Inside a class nobody can do better than to guess. The program counts the expected hits of that guess, which has less noise than one
guess. The column *limit* is what an attacker would reach who was told, for every two classes, how many entries belong together.
Stops, rotations, sums and templates say less than that, so no attack on the log alone passes the limit.
"""

import argparse
import json
import math
import random
import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from linker_attacks import SLOT, follow, is_night, observers, pair, rhythm, score, weigh_pairs, weigh_pairs_one_by_one

HOUR, DAY = 3_600, 86_400
TRAINING = 60_000  # simulated rooms that train the attacker


# The simulated world.


@dataclass(slots=True)
class Token:
    sealed: float
    expires: float
    purged: float
    early: bool = False  # purged for another cause than its expiry
    pushes: list = field(default_factory=list)  # Apple's times

    @property
    def is_long(self):
        return self.expires - self.sealed > DAY


def simulate(options, rooms_a_day, start, end, chance):
    """Yields the tokens of each room that is made between `start` and `end`: none, the one side's, or both sides'."""
    def events(mean):
        time, count = chance.expovariate(1), 0
        while time < mean:
            time, count = time + chance.expovariate(1), count + 1
        return count

    def served(time):
        """People whose request fails try again until the broker is back."""
        return max(time, time - time % options.stop_every + options.stop_seconds) if options.stop_seconds else time

    lives, means = list(options.lives), list(options.accept)
    mean = rooms_a_day * (end - start) / DAY
    for _ in range(events(mean) if mean < 10_000 else max(0, round(chance.gauss(mean, math.sqrt(mean))))):
        made = chance.uniform(start, end)
        while chance.random() * (1 + options.swing) > rhythm(options, made):
            made = chance.uniform(start, end)
        made = served(made)
        expires = made + chance.choices(lives, options.lives.values())[0]
        joined = served(made + chance.expovariate(1 / chance.choices(means, options.accept.values())[0]))
        accepted = chance.random() < options.accepted and joined < expires
        closed = chance.uniform(joined, expires) if accepted and chance.random() < options.closed else None
        knocks = [], []
        for _ in range(events(options.meetings) if accepted else 0):
            # One side arrives and knocks. The other may come too late and knock back.
            first, time = chance.randrange(2), chance.uniform(joined, expires)
            knocks[1 - first].append(time)
            if chance.random() < options.late:
                knocks[first].append(time + 120 + chance.expovariate(1 / 1_800))
        tokens = []
        for slot in range(1 + accepted):
            if chance.random() < options.tokens:
                purged, early = closed or expires, closed is not None
                if not accepted and made + DAY < expires:  # the join code has expired
                    purged, early = made + DAY, True
                if accepted and chance.random() < options.withdrawn:
                    purged, early = chance.uniform(joined, purged), True
                pushes = sorted(time for time in knocks[slot] if time < purged - 1)
                tokens.append(Token(joined if slot else made, expires, purged, early, pushes))
        yield tokens


# The log as published.


class Log:
    """The batches of a log, and the class of each entry in them."""

    def __init__(self, batches, day, hour, counts=None):
        self.batches, self.day, self.hour = batches, day, hour
        self.midnights = [moment for moment in batches if moment % day == 0]
        self.one_by_one = self.rotated = False
        self.seals, self.purges = counts or (Counter(), Counter())
        self.sums = self.purges

    @classmethod
    def published(cls, options, tokens, end):
        """Publishes a simulated log. With `--batch 1` each seal is published alone, at its second."""
        if options.batch == 1:
            log = cls(sorted({token.sealed for token in tokens}), DAY, HOUR)
        else:
            batches, last = [], 0
            shorts = sorted(token.sealed for token in tokens if not token.is_long)
            for moment in range(options.hour, int(end) + 1, options.hour):
                count = bisect_left(shorts, moment)
                # The flooder fills each batch with rooms of its own. It knows their ids and ignores them.
                if moment % DAY == 0 or options.flooder or count - last >= options.batch:
                    batches.append(moment)
                    last = count
            log = cls(batches, DAY, options.hour)
        log.one_by_one, log.rotated = options.batch == 1, options.rotated
        log.seals, log.purges, log.sums = (Counter(map(key, tokens)) for key in (log.seal, log.purge, log.purge_by_sums))
        return log

    def place(self, time, is_long):
        """Returns the moment of the batch with an entry of that time, infinity after the log's end."""
        if self.one_by_one:
            index, moments = bisect_left(self.batches, time), self.batches
        else:
            moments = self.midnights if is_long else self.batches
            index = bisect_right(moments, time)
        return moments[index] if index < len(moments) else math.inf

    def until(self, expires):
        return (expires // self.day + 1) * self.day

    def seal(self, token):
        return self.place(token.sealed, token.is_long), self.until(token.expires)

    def purge(self, token):
        return self.place(token.purged, token.is_long), 0 if token.early else self.until(token.expires)

    def purge_by_sums(self, token):
        """A rotation after every batch reveals its early purges by `until`."""
        moment, until = self.purge(token)
        return moment, -self.until(token.expires) if self.rotated and not until else until


# The tables.


def attack(options, rooms_a_day, seed, training, records=True):
    """Attacks one simulated log. Returns {(question, group): [hits, limit, cases]}."""
    end = (2 * options.margin + options.days) * DAY
    span = options.margin * DAY, end - options.margin * DAY
    rooms = list(simulate(options, rooms_a_day, 0, end, random.Random(f"{seed} {rooms_a_day}")))
    tokens, scale = [token for room in rooms for token in room], rooms_a_day * end / DAY / len(training)
    log, result = Log.published(options, tokens, end), {}

    def groups(time):
        return [] if not span[0] <= time < span[1] else ["day", "night"] if is_night(options, time) else ["day"]

    def add(question, key, time, odds, counts):
        cases = ((groups(time(one)), key(one), key(other)) for room in rooms if len(room) == 2 for one, other in (room, room[::-1]))
        result.update({(question, group): numbers for group, numbers in score(cases, pair(counts, odds), counts).items()})
    if log.one_by_one:
        odds = weigh_pairs_one_by_one(options, rooms_a_day, log, tokens, training, scale, span)
        add("seals", log.seal, lambda token: token.sealed, odds, log.seals)
        return result
    classes = [[(log.seal(token), log.purge(token), log.purge_by_sums(token)) for token in room] for room in training]
    odds = [weigh_pairs(([names[kind] for names in room] for room in classes), scale) for kind in (0, 1)]
    add("seals", log.seal, lambda token: token.sealed, odds[0], log.seals)
    add("purges", log.purge, lambda token: token.purged, odds[1], log.purges)
    flows = Counter(names[:2] for room in classes for names in room)
    flows = follow(log.seals, log.purges, {edge: count * scale for edge, count in flows.items()})
    cases = ((groups(token.sealed), log.seal(token), log.purge(token)) for token in tokens)
    result.update({("purge of a seal", group): numbers for group, numbers in score(cases, flows, log.purges, False).items()})
    if records:
        learnt = [(token.pushes, names[0], names[2])
                  for tokens_too, room in zip(training, classes) for token, names in zip(tokens_too, room)]
        watch(options, log, tokens, learnt, scale, span, end, result)
    return result


def watch(options, log, tokens, learnt, scale, span, end, result):
    """The attack with Apple's records: adds to `result` how often the hour is right without the log and with it."""
    near = [token.pushes for token in tokens if token.pushes and span[0] - DAY <= token.pushes[0] < span[1] + DAY]
    asked = [token for token in tokens if token.pushes and span[0] <= token.sealed < span[1]]
    both = observers(options, log, learnt, scale, near if len(near) <= options.joint else [], 0, end, SLOT)
    for token in random.Random(len(asked)).sample(asked, min(len(asked), options.phones)):
        for who, observer in zip(("alone", "with the log"), both):
            for question, time, weights in zip(("sealed", "purged"), (token.sealed, token.purged), observer.look(token.pushes)):
                start, _ = observer.guess(weights, HOUR // SLOT)
                for group in ["day", "night"] if is_night(options, time) else ["day"]:
                    numbers = result.setdefault((f"{question} {who}", group), [0, 0, 0])
                    numbers[0] += start is not None and start <= time < start + HOUR
                    numbers[2] += 1


def percent(result, question, group="day", place=0):
    numbers = result.get((question, group))
    return 100 * numbers[place] / numbers[2] if numbers and numbers[2] else None


def teach(options, rooms_a_day):
    end = (2 * options.margin + options.days) * DAY
    return list(simulate(options, max(rooms_a_day, TRAINING * DAY / end), 0, end, random.Random("training")))


def measure(options, rooms_a_day, training, runs, records=True):
    """Returns the sums of several runs."""
    total = {}
    for seed in range(runs):
        for key, numbers in attack(options, rooms_a_day, seed, training, records).items():
            total[key] = [one + other for one, other in zip(total.get(key, [0, 0, 0]), numbers)]
    return total


def changed(options, **changes):
    return argparse.Namespace(**{**vars(options), **changes})


def better(result, question, group="day"):
    alone, both = (percent(result, f"{question} {who}", group) for who in ("alone", "with the log"))
    return None if alone is None else f"{both - alone:+.1f}"


def row(*cells):
    return "| " + " | ".join("–" if cell is None else f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in cells) + " |"


def alone_cells(result, question):
    return percent(result, question), percent(result, question, "night"), percent(result, question, place=1)


def print_tables(options):
    results = {}
    print("| rooms a day | two seals | at night | limit | one by one | at night | two purges | at night | limit | seal to purge | at night | limit |")
    print("|" + "--:|" * 12)
    for rooms in options.rooms:
        # The busiest brokers show the same in fewer days.
        options = changed(options, days=1, margin=min(options.margin, 2)) if rooms >= 10_000 else options
        training, runs = teach(options, rooms), options.runs or max(4, 14 - 4 * round(math.log10(rooms)))
        result = results[rooms] = measure(options, rooms, training, runs)
        single = measure(changed(options, batch=1), rooms, training, runs)
        print(row(f"{rooms:,}", *alone_cells(result, "seals"), *alone_cells(single, "seals")[:2],
                  *alone_cells(result, "purges"), *alone_cells(result, "purge of a seal")), flush=True)
    print("\n| rooms a day | sealed: Apple | with the log | better | at night | purged: Apple | with the log | better | at night | phones |")
    print("|" + "--:|" * 10)
    for rooms, result in results.items():
        cells = [cell for question in ("sealed", "purged") for cell in (
            percent(result, f"{question} alone"), percent(result, f"{question} with the log"),
            better(result, question), better(result, question, "night"))]
        print(row(f"{rooms:,}", *cells, f"{result.get(('sealed alone', 'day'), [0])[-1]:,}"))


HELPS = {
    "nothing": {},
    "a flooder": {"flooder": True},
    "a flooder, batches at 00:00 only": {"flooder": True, "hour": DAY},
    "nobody awake at night": {"swing": 1.0},
    "nobody awake at 00:00 UTC": {"swing": 1.0, "peak": 12},
    "half an hour's stop every 4 hours": {"stop_seconds": HOUR // 2, "stop_every": 4 * HOUR},
    "a rotation after every batch": {"rotated": True},
    "all rooms joined within a minute or so": {"accept": {20: 1.0}},
}


def print_helps(options):
    print("| what helps | rooms a day | two seals | at night | two purges | at night | sealed: better | at night | purged: better | at night |")
    print("|:--|" + "--:|" * 9)
    for name, changes in HELPS.items():
        for rooms in options.rooms:
            world = changed(options, **changes)
            result = measure(world, rooms, teach(world, rooms), options.runs or max(1, 7 - 2 * round(math.log10(rooms))))
            print(row(name, f"{rooms:,}", *alone_cells(result, "seals")[:2], *alone_cells(result, "purges")[:2],
                      *(better(result, question, group) for question in ("sealed", "purged") for group in ("day", "night"))), flush=True)


# A real log.


def seconds(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def read_entries(folder):
    """Yields the entries in a folder. Nothing is verified here."""
    size = int((folder / "checkpoint").read_text().split("\n")[1])
    for number in range(math.ceil(size / 256)):
        groups = f"{number:,}".split(",")  # 1,234,567 is x001/x234/567
        path = "/".join([f"x{int(group):03}" for group in groups[:-1]] + [f"{int(groups[-1]):03}"])
        rest = size - 256 * number
        data = (folder / f"tile/entries/{path}{f'.p/{rest}' if rest < 256 else ''}").read_bytes()
        while data:
            end = 2 + int.from_bytes(data[:2], "big")
            yield json.loads(data[2:end])
            data = data[end:]


def read_log(folder, lives):
    """Returns the log, the ids of its seals and purges by class, and the times between which its tokens were sealed."""
    seals, purges, timing, start, at = defaultdict(list), defaultdict(list), {}, None, 0
    for entry in read_entries(folder):
        at = seconds(entry["at"])
        start = at if start is None else start
        if entry["op"] == "broker.started":
            timing = json.loads((folder / f"policies/{entry['policy']}.json").read_text()).get("ledger", {})
        hour, day = timing.get("hourSeconds", HOUR), timing.get("daySeconds", DAY)
        if entry["op"] == "ledger.opened":
            start -= max(lives)
        elif entry["op"] in ("token.sealed", "token.purged"):
            until = seconds(entry["until"]) if "until" in entry else 0
            (seals if entry["op"] == "token.sealed" else purges)[at // hour * hour, until].append(entry["id"])
    if not seals:
        sys.exit("linker: the log has no sealed token, so there is nothing to attack.")
    moments = sorted({moment for moment, _ in (*seals, *purges)})
    counts = [Counter({name: len(ids) for name, ids in classes.items()}) for classes in (seals, purges)]
    return Log(moments, day, hour, counts), seals, purges, start, max(moments[-1], start + 1)


def print_links(options):
    log, seals, purges, start, end = read_log(Path(options.ledger), options.lives)
    training = list(simulate(options, TRAINING * DAY / (end - start), start, end, random.Random("training")))
    learnt = [[(token.pushes, log.seal(token), log.purge(token)) for token in room] for room in training]
    scale = log.seals.total() / max(1, sum(names[1] in log.seals for room in learnt for names in room))
    partners = pair(log.seals, weigh_pairs(([names[1] for names in room] for room in learnt), scale))
    flows = Counter(names[1:] for room in learnt for names in room)
    ends = follow(log.seals, log.purges, {edge: count * scale for edge, count in flows.items()})

    def named(guess, classes, number, own=None):
        chance, name = guess or (0, None)
        ids = classes.get(name, [])
        other = number ^ 1 if name == own and number ^ 1 < len(ids) else number - 1 if name == own else number % max(1, len(ids))
        return f"{ids[other] if ids else '-':32}  {chance:6.1%}"
    print(f"{'sealed as':32}  {'same room as':32}  chance  {'purged as':32}  chance")
    for name, ids in sorted(seals.items()):
        for number, this in enumerate(ids):
            print(f"{this}  {named(partners.get(name), seals, number, name)}  {named(ends.get(name), purges, number)}")
    if options.pushes:
        print_times(options, log, [names for room in learnt for names in room], scale, start, end)


def print_times(options, log, learnt, scale, start, end):
    handles = defaultdict(list)
    for push in json.loads(Path(options.pushes).read_text()):
        handles[push["token"], push["headers"].get("apns-collapse-id", "-")].append(seconds(push["at"]))
    near = [sorted(times) for times in handles.values()]
    both = observers(options, log, learnt, scale, near if len(near) <= options.joint else [], start, end, min(SLOT, log.hour / 6))
    print(f"\n{'phone':9}  {'handle':22}  {'sealed at or soon after':23}  chance  Apple's  {'purged at or soon after':23}  chance  Apple's")
    for (phone, handle), times in sorted(handles.items()):
        cells = []
        for alone, weights in zip(*(observer.look(sorted(times))[:2] for observer in both)):
            moment, chance = both[1].guess(weights, 6)
            text = datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z") if moment is not None else "-"
            cells.append(f"{text:23}  {chance:6.1%}  {both[0].guess(alone, 6)[1]:7.1%}")
        print(f"{phone[:8]}…  {handle:22}  {'  '.join(cells)}")


def mixture(text):
    return {int(value): float(share) for value, share in (one.split(":") for one in text.split(","))}


def main():
    parser = argparse.ArgumentParser(description="Measures what the ledger gives away, alone and with Apple's records, by attacking it.")
    add = parser.add_argument
    add("--ledger", metavar="DIR", help="attack this log")
    add("--pushes", metavar="FILE", help="with these records")
    add("--helps", action="store_true", help="print what helps an attacker")
    add("--rooms", type=int, nargs="+", help="rooms a day (10 100 1000 10000; with --helps 100 1000)")
    add("--batch", type=int, default=64, help="seals in a batch; 1 publishes each by itself, at once (%(default)s)")
    add("--hour", type=int, default=HOUR, help="seconds between batches (%(default)s)")
    add("--flooder", action="store_true", help="the attacker fills each batch with rooms of its own, and ignores them")
    add("--rotated", action="store_true", help="the log is rotated after every batch")
    add("--stop-seconds", type=int, default=0, help="how long the broker stops (%(default)s)")
    add("--stop-every", type=int, default=4 * HOUR, help="seconds between the starts of two stops (%(default)s)")
    add("--runs", type=int, help="simulated brokers of each size (10, 6, 4, 4; with --helps 3, 1)")
    add("--days", type=int, default=2, help="days that count in each (%(default)s)")
    add("--phones", type=int, default=1_000, help="attacked tokens of each run, at most (%(default)s)")
    add("--joint", type=int, default=1_000, help="largest number of pushed tokens that are compared with each other (%(default)s)")
    add("--lives", type=mixture, default={HOUR: 0.4, DAY: 0.5, 7 * DAY: 0.1}, help="lifetimes of rooms, seconds:share,... (%(default)s)")
    add("--accepted", type=float, default=0.75, help="share of rooms with a joiner (%(default)s)")
    add("--accept", type=mixture, default={120: 0.5, 900: 0.35, 4 * HOUR: 0.15}, help="mean seconds until then:share,... (%(default)s)")
    add("--closed", type=float, default=0.4, help="share of those that are closed before they end (%(default)s)")
    add("--tokens", type=float, default=0.9, help="share of sides with a token (%(default)s)")
    add("--withdrawn", type=float, default=0.05, help="share of tokens that are withdrawn (%(default)s)")
    add("--meetings", type=float, default=3, help="mean number of knocks in a joined room's life (%(default)s)")
    add("--late", type=float, default=0.4, help="share of knocks that are answered late, by a knock back (%(default)s)")
    add("--swing", type=float, default=0.8, help="how much busier the busiest hour is than the mean, 0 to 1 (%(default)s)")
    add("--peak", type=float, default=20, help="the busiest hour, UTC (%(default)s)")
    options = parser.parse_args()
    options.margin = math.ceil(max(options.lives) / DAY) + 1  # days before and after those that count
    if options.pushes and not options.ledger:
        parser.error("--pushes needs --ledger")
    if options.ledger and not Path(options.ledger, "checkpoint").is_file():
        parser.error("--ledger must be a log's folder on this machine")
    if options.ledger:
        print_links(options)
    elif options.helps:
        options.rooms = options.rooms or [100, 1_000]
        print_helps(options)
    else:
        options.rooms = options.rooms or [10, 100, 1_000, 10_000]
        print_tables(options)


if __name__ == "__main__":
    main()
