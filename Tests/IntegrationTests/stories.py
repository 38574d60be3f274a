"""Honest stories with random changes: some stay honest. The verifiers have to agree on each."""

from honest import BATCH, DAY, HOUR, SEALS, add, at, at_the_time, batches, books, change, honest, pick, remove, resort, rotated, until, window
from logs import EPOCH, GRACE, moment, policy


def shift_something(chance, entries):
    """Moves one entry or batch to another time, often exactly to a limit."""
    length, kind = window(entries), chance.randrange(3)
    if kind == 0 and batches(entries):
        time, some = chance.choice(batches(entries))
        to = chance.choice((time + length, time - length, time - time % HOUR + GRACE, time - time % HOUR + GRACE + length, time + HOUR))
    else:
        some = [chance.choice(entries)]
        time = at(some[0])
        to = time + chance.choice((-1, 1, 1, 2, 3, 5)) * length
        if "job" in some[0]:
            to = time + chance.choice((150, 150 + length, 150 + 2 * length))
        elif some[0]["op"] == "keys.ratcheted":
            to = chance.choice((time, time + EPOCH)) + GRACE + chance.choice((0, length, 2 * length))
    to = max(to - to % length, at(entries[0]))
    remove(entries, *some)
    return add(entries, *(entry | {"at": moment(to)} for entry in some))


def drop_something(chance, entries):
    if len(entries) > 1:
        del entries[chance.randrange(1, len(entries))]


def repeat_something(chance, entries):
    place, later = sorted(chance.randrange(len(entries)) for _ in range(2))
    entry = at_the_time(entries[place], entries[later])
    if "id" in entry and chance.random() < 0.7:
        entry["id"] = chance.randbytes(16).hex()
    add(entries, entry)


def be_silent(chance, entries):
    """Removes all entries for a while, then perhaps adds a start. Batches and steps of the keys come after it."""
    length = window(entries)
    begin = chance.randrange(at(entries[0]) + length, at(entries[-1]) + length + 1, length)
    if chance.random() < 0.5:
        begin += -begin % EPOCH + chance.choice((-length, 0, 0, length, GRACE, GRACE + length))
    end = begin + chance.choice((length, 60, 120, 180, 300, 600, 660, 1500, 3000))
    end -= end % 60
    for entry in [entry for entry in entries if begin <= at(entry) < end]:
        remove(entries, entry)
        if entry["op"] in BATCH and chance.random() < 0.98 or entry["op"] in ("keys.ratcheted", "push.delivered") and chance.random() < 0.9:
            late = chance.choice((0, 0, 0, length, 120, 120 + length))
            entries.append(entry | {"at": moment(end + (0 if entry["op"] in BATCH else late - late % length))})
    if chance.random() < 0.8:
        entries.append(entries[0] | {"at": moment(end)})
        if chance.random() < 0.2:
            entries.append(entries[0] | {"at": moment(end + chance.choice((0, 60, 120, 180)))})
    resort(entries)


def change_numbers(chance, entries):
    entry = chance.choice(entries)
    for name in {"epoch", "swept", "sealed", "expired", "ended", "live", "jobs"} & entry.keys():
        if chance.random() < 0.5:
            entry[name] = max(1, entry[name] + chance.choice((-1, 1, 1, 2, -2, 3)))


def change_until(chance, entries):
    entry = pick(chance, [entry for entry in entries if "until" in entry])
    if entry:
        change(entries, entry, until=moment(until(entry) + chance.choice((-1, 1, -DAY, DAY, 2 * DAY, 170 * DAY))))


def cut_off(chance, entries):
    del entries[chance.randrange(len(entries)) + 1:]


def end_it(chance, entries):
    """Rotation, as it should be or nearly."""
    last = at(entries[-1])
    if entries[-1]["op"] in BATCH:
        last += window(entries)
    early, booked = {}, books(entries, last)
    for ahead, (sealed, expired) in booked.items():
        early[ahead] = chance.choice((0, 0, 0, sealed - expired, 1))
        entries.append({"at": moment(last), "ended": early[ahead], "expired": expired, "op": "bucket.closed", "sealed": sealed, "until": ahead})
    if chance.random() < 0.9:
        entries.append({"at": moment(last), "next": "mayfly.test/log2", "op": "ledger.closed"})
    resort(entries)


CHANGES = [shift_something] * 4 + [be_silent] * 4 + [drop_something, repeat_something, change_until, change_numbers, change_numbers, cut_off, end_it]


def perhaps_honest(chance):
    if chance.random() < 0.2:
        entries = rotated(chance, chance.randint(30, 160))
    else:
        timing = {"hour": HOUR, "day": DAY, "seals": chance.choice((1, SEALS))}
        if chance.random() < 0.3:
            timing = chance.choice(({"hour": 60, "day": 600, "seals": 2}, {"hour": 60, "day": 60, "seals": 1}))
        resolution = chance.choice((60, 60, 30, 10, 1, 20))
        entries = honest(chance, count=chance.randint(60, 260), resolution=resolution, outages=chance.choice((0, 0, 1)), policies=(policy(**timing),))
    for _ in range(chance.choice((0, 1, 1, 1, 2))):
        chance.choice(CHANGES)(chance, entries)
    return entries
