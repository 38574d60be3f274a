"""The attacks of linker.py: which entries of a log belong together, and when a phone's token was sealed and purged."""

import math
from collections import Counter, defaultdict
from itertools import accumulate

DAY, HOUR = 86_400, 3_600
NEIGHBOURS = 24  # later seals that may be the partner, if each seal is published by itself
SLOT = 600  # steps of time, in seconds
STEPS = 100  # moments of a room's creation that are tried at most, for each life of a room
DELAYS = 4  # accept delays that are tried


def rhythm(options, time):
    """Returns how busy the broker is, 1 in the mean. By default people are most active at 20:00 UTC, least at 8:00."""
    return 1 + options.swing * math.cos(2 * math.pi * (time / DAY - options.peak / 24))


def is_night(options, time):
    return abs((time / HOUR - options.peak) % 24 - 12) < 3


# The attack on the log alone.


def weigh_pairs(rooms, scale):
    """Returns how much likelier two entries of two classes are one room's than both alone: {(class, class): odds}.

    `rooms`: the classes of the entries of each room that the attacker learns from. `scale`: how many real rooms stand behind each.
    """
    single, pair = Counter(), Counter()
    for classes in rooms:
        if len(classes) == 2:
            pair[tuple(sorted(classes))] += 1
        elif classes:
            single[classes[0]] += 1
    return {(one, other): (1 + (one == other)) * count / ((single[one] + 0.5) * (single[other] + 0.5) * scale)
            for (one, other), count in pair.items()}


def weigh_pairs_one_by_one(options, rooms_a_day, log, tokens, training, scale, span):
    """The same if each seal is published by itself: then the accept delay of each pair is known.

    A purge a room's life after a seal also hints that the seal is a creator's.
    """
    alone, ends, seals, odds = Counter(), Counter(), defaultdict(list), {}
    for room in training:
        if len(room) == 1:
            alone[room[0].sealed // SLOT, log.until(room[0].expires)] += 1
        for token in room:
            if not token.early:
                ends[token.purged // SLOT, log.until(token.expires)] += 1
    before = dict(zip(log.batches[1:], log.batches))
    kept = (1 - options.closed) * (1 - options.withdrawn)
    creators = (1 - options.accepted * options.tokens) / (1 - options.accepted * (2 * options.tokens - 1))  # of the seals without a partner

    def hint(made, life, until):
        place = log.place(made + life, False)
        usual = (ends[(made + life) // SLOT, until] + 0.5) * scale / SLOT * (place - before.get(place, made))
        return log.purges[place, until] / usual if 0 < usual < math.inf else 1.0
    for token in tokens:
        if span[0] - DAY / 4 <= token.sealed < span[1] + DAY / 4:
            seals[log.until(token.expires)].append(token.sealed)
    for until, times in seals.items():
        times.sort()
        density = []
        for time in times:
            fitting = [(life, share) for life, share in options.lives.items() if log.until(time + life) == until]
            seen = sum(share * hint(time, life, until) for life, share in fitting) / (sum(share for _, share in fitting) or 1)
            density.append((alone[time // SLOT, until] + 0.5) * scale / SLOT * (1 - creators + creators * seen))
        for index, made in enumerate(times):
            fitting = [(life, share) for life, share in options.lives.items() if log.until(made + life) == until]
            hints = [(life, share, hint(made, life, until)) for life, share in fitting]
            made_here = rooms_a_day / DAY * rhythm(options, made) * options.accepted * options.tokens ** 2 / density[index]
            for later in range(index + 1, min(len(times), index + 1 + NEIGHBOURS)):
                delay = times[later] - made
                joined = sum(share / mean * math.exp(-delay / mean) for mean, share in options.accept.items())
                living = sum(share * (1 - kept + kept * seen) for life, share, seen in hints if delay < life)
                if living:
                    odds[(made, until), (times[later], until)] = made_here * living * joined / density[later]
    return odds


def pair(counts, odds, rounds=12):
    """Belief propagation over pairs. Returns each class's best partner and the chance of each of its entries: {class: (chance, class)}."""
    names = list(counts)
    index, size = {name: number for number, name in enumerate(names)}, list(counts.values())
    edges = [(index[one], index[other], weight) for (one, other), weight in odds.items()
             if one in index and other in index and (one != other or counts[one] > 1)]
    there, back = [0.5] * len(edges), [0.5] * len(edges)  # the chance that an entry is free for the other
    for _ in range(rounds):
        total = [1.0] * len(names)
        for (one, other, weight), go, come in zip(edges, there, back):
            if one == other:
                total[one] += (size[one] - 1) * weight * go
            else:
                total[one] += size[other] * weight * come
                total[other] += size[one] * weight * go
        there, back = (
            [(go + 1 / max(1, total[one] - weight * (go if one == other else come))) / 2
             for (one, other, weight), go, come in zip(edges, there, back)],
            [(come + 1 / max(1, total[other] - weight * go)) / 2 for (one, other, weight), go, come in zip(edges, there, back)])
    best = {}
    for (one, other, weight), go, come in zip(edges, there, back):
        free = weight * go * (go if one == other else come)
        for this, that in ((one, other), (other, one)):
            best[names[this]] = max(best.get(names[this], (0, ())), (free / (1 + free), names[that]))
    return best


def follow(seals, purges, flows, rounds=20):
    """Sinkhorn: fits the expected flows to the sizes of all classes. Returns each seal's best purge: {class: (chance, class)}."""
    edges = [(seal, purge, flow) for (seal, purge), flow in flows.items() if seals[seal] and purges[purge]]
    rows, columns = dict.fromkeys(seals, 1.0), dict.fromkeys(purges, 1.0)
    for _ in range(rounds):
        for factors, others, counts, this, that in ((rows, columns, seals, 0, 1), (columns, rows, purges, 1, 0)):
            sums = defaultdict(float)
            for edge in edges:
                sums[edge[this]] += edge[2] * others[edge[that]]
            for name, total in sums.items():
                factors[name] = counts[name] / total if total else 0.0
    best = {}
    for seal, purge, flow in edges:
        chance = flow * rows[seal] * columns[purge] / (seals[seal] * purges[purge])
        best[seal] = max(best.get(seal, (0, ())), (chance, purge))
    return best


def score(cases, best, counts, pairs=True):
    """Returns {group: [expected hits, limit, cases]}. `cases`: (groups, class of the one entry, class of the other).

    In pairs, an entry of the same class is not its own partner.
    """
    truth, result = defaultdict(Counter), {}
    for groups, one, other in cases:
        for group in groups:
            truth[group][one, other] += 1
    for group, links in truth.items():
        hits, top = 0, Counter()
        for (one, other), count in links.items():
            share = count / max(1, counts[other] - (pairs and one == other))
            hits += share if best.get(one, (0, ()))[1] == other else 0
            top[one] = max(top[one], share)
        result[group] = [hits, sum(top.values()), links.total()]
    return result


# The attack with Apple's records.


class Observer:
    """Guesses when a pushed token was sealed and purged, from the pushes to one handle.

    With `expected`, the sizes of classes that the attacker would expect (of seals and of purges), the log's sizes change the odds.
    """

    def __init__(self, options, log, start, end, slot, expected=None):
        self.log, self.expected, self.known, self.early_odds = log, expected, {}, {}
        self.start, self.slot, self.count = start, slot, max(1, math.ceil((end - start) / slot))
        self.pushes = options.meetings * (1 + options.late) / 2  # to one side, in the mean
        self.early = 1 - (1 - options.closed) * (1 - options.withdrawn)  # the share of tokens that don't live until their expiry
        self.middles = [start + (number + 0.5) * slot for number in range(self.count)]
        activity = [rhythm(options, time) for time in self.middles]
        delays = [quantile(options.accept, (number + 0.5) / DELAYS) for number in range(DELAYS)]
        self.hypotheses = []
        for life, share in options.lives.items():
            for joins in (False, True):
                for delay in (delay for delay in delays if delay < life):
                    is_long, cells = life - joins * delay > DAY, []
                    for active, made in zip(activity, self.middles):
                        until = log.until(made + life)
                        seal, purge = (0, log.place(made + joins * delay, is_long), until), (1, log.place(made + life, is_long), until)
                        weight = active * share * self.odds(seal)
                        lived = weight * (1 - self.early) * math.exp(-self.pushes) * self.odds(purge)
                        cells.append((weight, lived, seal, purge, -until * log.rotated))
                    self.hypotheses.append((life, joins, delay, is_long, cells))

    def odds(self, entry):
        """How a class's size changes the odds that a token is in it. Times after the log's end keep their odds."""
        if not self.expected or entry[1] == math.inf:
            return 1.0
        if entry not in self.known:
            kind, *name = entry
            expected = self.expected[kind].get(tuple(name), 0)
            self.known[entry] = (self.log.seals, self.log.sums)[kind][tuple(name)] / expected if expected else 0.0
        return self.known[entry]

    def early_purges(self, until, is_long):
        """For each slot: the odds of an early purge, the sums of the odds, the class. `until` is 0 unless the log reveals it."""
        if (until, is_long) not in self.early_odds:
            classes = [(1, self.log.place(time, is_long), until) for time in self.middles]
            odds = [self.odds(entry) for entry in classes]
            self.early_odds[until, is_long] = odds, [0, *accumulate(odds)], classes
        return self.early_odds[until, is_long]

    def look(self, pushes):
        """Returns the weights of times of sealing and purging (by slot), and how much of the token lies in each class."""
        first, last = ((time - self.start) / self.slot for time in (pushes[0], pushes[-1]))  # from here on times are in slots
        here = min(max(int(last), 0), self.count - 1)
        sealed, purged, loads, early = (defaultdict(float) for _ in range(4))
        for life, joins, delay, is_long, cells in self.hypotheses:
            length, wait = life / self.slot, delay / self.slot
            rate, shift = self.pushes / (length - wait), int(joins * wait + 0.5)
            low, high = max(0, math.ceil(last - length - 0.5)), min(self.count - 1, math.floor(first - wait - 0.5))
            step = max(1, (high - low + 1) // STEPS)
            likely, until = step * rate ** len(pushes), None
            for made in range(low, high + 1, step):
                weight, lived, seal, purge, its_until = cells[made]
                if not weight:
                    continue
                if its_until != until:
                    until = its_until
                    odds, sums, _ = self.early_purges(until, is_long)
                    before = sums[here] + (last - here) * odds[here]
                expires, lived = made + 0.5 + length, lived * likely
                left = max(expires - last, 0.5)
                possible = (sums[min(int(expires), self.count)] + max(0, expires - self.count) - before) / left
                quiet = math.exp(-rate * (last - made - 0.5 - wait)) - math.exp(-self.pushes)
                ended = likely * weight * self.early / self.pushes * max(0, quiet) * max(0, possible)
                sealed[made + shift] += lived + ended
                loads[seal] += lived + ended
                purged[int(expires)] += lived
                loads[purge] += lived
                early[life, until, is_long, int(expires)] += ended
        self.spread(early, last, here, purged, loads)
        whole = sum(sealed.values()) or 1
        return sealed, purged, {entry: load / whole for entry, load in loads.items()}

    def spread(self, early, last, here, purged, loads):
        """An early purge comes between the last push and the expiry. The longer nothing was pushed, the less likely it is."""
        groups = defaultdict(dict)
        for (*group, expires), weight in early.items():
            groups[tuple(group)][expires] = weight
        for (life, until, is_long), ends in groups.items():
            odds, _, classes = self.early_purges(until, is_long)
            rate, open_ones, shape = self.pushes * self.slot / life, 0.0, {}
            for now in range(max(ends), here - 1, -1):
                open_ones += ends.get(now, 0) / max(0.5, now - last)
                shape[now] = open_ones * math.exp(-rate * max(0, now - last)) * (odds[now] if now < self.count else 1.0)
            scale = sum(ends.values()) / (sum(shape.values()) or 1)
            for now, weight in shape.items():
                purged[now] += weight * scale
                if now < self.count:
                    loads[classes[now]] += weight * scale

    def guess(self, weights, width):
        """Returns the likeliest span of that many slots, as the time of its start, and its chance."""
        chance, best, inside, slots = 0.0, None, 0.0, sorted(weights)
        first = 0
        for slot in slots:
            inside += weights[slot]
            while slots[first] <= slot - width:
                inside -= weights[slots[first]]
                first += 1
            if inside > chance + 1e-15:
                chance, best = inside, slot
        return (None, 0.0) if best is None else (self.start + (best - width + 1) * self.slot, chance / sum(weights.values()))


def quantile(mixture, share):
    """Of a mixture of exponential distributions, {mean: share}."""
    low, high = 0.0, 100 * max(mixture)
    for _ in range(60):
        middle = (low + high) / 2
        below = sum(part * (1 - math.exp(-middle / mean)) for mean, part in mixture.items()) < share
        low, high = (middle, high) if below else (low, middle)
    return low


def observers(options, log, learnt, scale, pushed, start, end, slot):
    """Returns one observer without the log and one with it.

    The second first asks how much of each class the other pushed phones fill (`pushed`; none if they are too many to help).
    `learnt`: the pushes of each token that the attacker learns from, and the classes of its seal and its purge.
    """
    def sizes(chosen):
        return [{name: (count + 0.5) * scale for name, count in Counter(column).items()} for column in zip(*chosen)] or [{}, {}]
    alone = together = Observer(options, log, start, end, slot)
    if not pushed:
        return alone, Observer(options, log, start, end, slot, sizes(classes for _, *classes in learnt))
    begin, finish = min(one[0] for one in pushed), max(one[0] for one in pushed)
    others = sizes(classes for pushes, *classes in learnt if not pushes or not begin <= pushes[0] <= finish)
    counts, factors = (log.seals, log.sums), [defaultdict(lambda: 1.0), defaultdict(lambda: 1.0)]
    for _ in range(2):
        filled = [Counter(), Counter()]
        for pushes in pushed:
            for (kind, *name), load in together.look(pushes)[2].items():
                filled[kind][tuple(name)] += load
        expected = [{}, {}]
        for kind in (0, 1):
            for name in filled[kind].keys() | others[kind].keys():
                factor = factors[kind][name]
                total = filled[kind][name] + others[kind].get(name, 0) * factor
                expected[kind][name] = total / factor if factor else 0
                factors[kind][name] = counts[kind][name] * factor / total if total else 0.0
        together = Observer(options, log, start, end, slot, expected)
    return alone, together
