"""Honest stories as lists of objects, and functions to change them."""

import json

from ledger import seconds
from logs import cut, moment, place, simulate, spell, story

HOUR, DAY, SEALS = 600, 3600, 4  # Of the honest stories: the timing of logs.POLICY.
BATCH = ("token.sealed", "token.purged", "bucket.closed")


def honest(chance, count=None, **more):
    """A short honest story as a list of objects."""
    more.setdefault("resolution", chance.choice((60, 60, 30, 10, 1)))
    return parsed(story(count or chance.randint(150, 250), chance.getrandbits(32), **more))


def rotated(chance, count=120, **more):
    """An honest log that continues another one."""
    simulation = simulate(60, chance.getrandbits(32), outages=0, resolution=chance.choice((60, 10, 1)), **more)
    simulation.plan(simulation.now + chance.randint(1, 1500), "rotate", "mayfly.test/old", "mayfly.test/log", chance.choice((0, 5, 400)))
    while not simulation.ended:
        simulation.run(simulation.size + 1)
    return parsed(cut(simulation.run(count), count))


def parsed(publications):
    return [json.loads(entry) for window in publications for entry in window]


def spelled(entries):
    return [[entry if isinstance(entry, bytes) else spell(entry) for entry in entries]]


def at(entry):
    return int(seconds(entry["at"]))


def until(entry):
    return int(seconds(entry["until"]))


def places(entries, *ops):
    return [place for place, entry in enumerate(entries) if entry["op"] in ops]


def at_the_time(entry, other):
    """The entry with the window of the other."""
    return entry | {"at": other["at"]}


def resort(entries):
    """Puts the entries of a story without stops back into the log's order."""
    entries.sort(key=lambda entry: (at(entry), place(entry)))
    return True


def add(entries, *more):
    entries += more
    return resort(entries)


def window(entries):
    return next(entry["resolution"] for entry in entries if entry["op"] == "broker.started")


def batches(entries):
    """(time, its entries) of each batch but the last, which may be cut."""
    found = {}
    for entry in entries:
        if entry["op"] in BATCH:
            found.setdefault(at(entry), []).append(entry)
    return [(time, batch) for time, batch in found.items() if time < at(entries[-1])]


def midnights(entries):
    return [(time, batch) for time, batch in batches(entries) if batch[-1]["op"] == "bucket.closed"]


def closings(entries):
    return [entry for _, batch in midnights(entries) for entry in batch if entry["op"] == "bucket.closed"]


def books(entries, end):
    """until: (sealed, expired) as published up to this time, of the buckets that are open."""
    found = {}
    for entry in entries:
        if at(entry) <= end and "until" in entry:
            counts = found.setdefault(entry["until"], [0, 0])
            if entry["op"] == "bucket.closed":
                del found[entry["until"]]
            else:
                counts[entry["op"] == "token.purged"] += 1
    return found


def pick(chance, some):
    """One of them, or None."""
    return chance.choice(some) if some else None


def change(entries, entry, **new):
    entries[next(place for place, other in enumerate(entries) if other is entry)] = entry | new
    return resort(entries)


def remove(entries, *some):
    entries[:] = [entry for entry in entries if not any(entry is other for other in some)]
    return True


def lasts(entries, time, span):
    """Whether the story lasts so long after this time."""
    return at(entries[-1]) > time + span + 2 * window(entries)


def refused(time):
    return {"at": moment(time), "cause": "throttled", "count": 5, "op": "request.refused"}
