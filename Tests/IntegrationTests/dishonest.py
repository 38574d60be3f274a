"""Dishonest stories: an honest one, changed so that it breaks one rule."""

import hashlib

from honest import (
    BATCH, DAY, HOUR, add, at, at_the_time, batches, books, change, closings, honest, lasts, midnights, pick, places, refused, remove, resort,
    until, window)
from logs import EPOCH, GRACE, POLICY, START, moment, policy

OTHER_TIMING, ONE_SEAL = policy(hour=300), policy(seals=1)

# Each rule takes a source of chance and an honest story without outages, changes it, and returns whether it could.


# Keys.

def ratchet_late(chance, entries):
    steps = places(entries, "keys.ratcheted")
    first = pick(chance, [place for place in steps if lasts(entries, at(entries[place]), 2 * EPOCH + GRACE)])
    return first is not None and remove(entries, *(entries[place] for place in steps if place >= first))


def ratchet_early(chance, entries):
    step = pick(chance, places(entries, "keys.ratcheted"))
    if step is not None:
        entries[step]["epoch"] = at(entries[step]) // EPOCH + chance.choice((0, 1, 2, 300, 10**9))
    return step is not None


def starts_as_excuses(chance, entries):
    """A day with a start every seven minutes and something every minute: there is no gap, and no step of the keys."""
    entries[:] = a_day_of_starts(entries[0], range(60, 420, 60))
    return True


def gaps_as_excuses(chance, entries):
    """The same with nothing in between: all of the day is a gap."""
    entries[:] = a_day_of_starts(entries[0], ())
    return True


def a_day_of_starts(start, between):
    return [entry for time in range(START, START + 86_400, 420) for entry in (
        start | {"at": moment(time), "resolution": 60}, *(refused(time + more) for more in between))]


def swept_late(chance, entries):
    steps = [entries[place] for place in places(entries, "keys.ratcheted")]
    first = chance.randrange(max(1, len(steps) - 3))
    for step in steps[first:]:
        step["swept"] = steps[first]["swept"]
    return len(steps) > first + 3


def swept_early(chance, entries):
    step = pick(chance, places(entries, "keys.ratcheted")[1:])
    if step is not None:
        entries[step]["swept"] += chance.choice((-2, 1, 2, 10**6))
    return step is not None


# Batches.

def small_batch(chance, entries):
    """A seal is published alone, in an hour of its own."""
    seal = pick(chance, [entry for _, batch in batches(entries)[1:] for entry in batch if entry["op"] == "token.sealed"])
    if not seal:
        return False
    taken = {time for time, _ in batches(entries)}
    hour = pick(chance, [hour for hour in range(START + HOUR, at(seal), HOUR) if hour not in taken and hour // DAY == (at(seal) - 1) // DAY])
    return hour is not None and lasts(entries, hour, 0) and change(entries, seal, at=moment(hour))


def batch_late(chance, entries):
    time, batch = pick(chance, batches(entries)) or (0, ())
    later = time - time % HOUR + GRACE + 2 * window(entries)
    if not batch or later % HOUR < GRACE or not lasts(entries, later, 0) or \
            batch[-1]["op"] == "bucket.closed" and any(later - window(entries) < at(entry) <= later for entry in entries):
        return False
    remove(entries, *batch)
    return add(entries, *(entry | {"at": moment(later)} for entry in batch))


def midnight_missing(chance, entries):
    time, batch = pick(chance, midnights(entries)) or (0, ())
    return bool(batch) and lasts(entries, time, GRACE) and remove(entries, *batch)


# Buckets.

def purge_left_out(chance, entries):
    purge = pick(chance, [entry for entry in expired_purges(entries) if entry["until"] in closed_untils(entries)])
    return bool(purge) and remove(entries, purge)


def seal_left_out(chance, entries):
    seals = [entry for _, batch in midnights(entries) for entry in batch if entry["op"] == "token.sealed"]
    seal = pick(chance, [entry for entry in seals if entry["until"] in closed_untils(entries)])
    return bool(seal) and remove(entries, seal)


def expired_purges(entries):
    return [entry for entry in entries if entry["op"] == "token.purged" and "until" in entry]


def closed_untils(entries):
    return {entry["until"] for entry in closings(entries)}


def purge_of_another_day(chance, entries):
    """One token less in the bucket that closes, one more in the next."""
    possible = [(entry, time) for time, batch in midnights(entries) for entry in batch if entry in expired_purges(entries) and until(entry) == time]
    purge, time = pick(chance, possible) or (None, 0)
    if not purge or books(entries, time).get(moment(time + DAY), [0, 0])[0] == 0:
        return False
    closing = next(entry for entry in closings(entries) if until(entry) == time)
    closing["expired"] -= 1
    return change(entries, purge, until=moment(time + DAY))


def purge_of_nothing(chance, entries):
    """More purges than seals."""
    batch = pick(chance, batches(entries))
    purge = batch and pick(chance, [entry for entry in batch[1] if entry in expired_purges(entries)])
    if not purge:
        return False
    many = sum(entry.get("until") == purge["until"] and entry["op"] == "token.sealed" for entry in entries)
    return add(entries, *(purge | {"id": chance.randbytes(16).hex()} for _ in range(many + 1)))


def wrong_count(chance, entries):
    closing = pick(chance, closings(entries))
    if closing:
        closing[chance.choice(("sealed", "expired"))] += chance.choice((1, 2, 1000))
    return bool(closing)


def not_even(chance, entries):
    closing = pick(chance, [entry for entry in closings(entries) if entry["ended"]])
    if closing:
        closing["ended"] -= 1
    return bool(closing)


def overbooked(chance, entries):
    """Early purges of tokens that were never sealed."""
    closing = pick(chance, closings(entries))
    if closing:
        closing["ended"] += len(entries)
    return bool(closing)


def early_purges_of_nothing(chance, entries):
    time, batch = pick(chance, batches(entries)) or (0, ())
    purge = {"at": moment(time), "cause": "ended", "op": "token.purged"}
    return bool(batch) and add(entries, *(purge | {"id": chance.randbytes(16).hex()} for _ in range(len(entries))))


def life_too_long(chance, entries):
    seal = pick(chance, places(entries, "token.sealed"))
    if seal is not None:
        entries[seal]["until"] = moment(at(entries[seal]) // DAY * DAY + 604_800 + chance.choice((2, 3, 1000)) * DAY + DAY)
    return seal is not None


def bucket_unknown(chance, entries):
    kind = chance.randrange(3)
    if kind == 0:
        entry = pick(chance, [entry for entry in entries if "until" in entry])
        return bool(entry) and change(entries, entry, until=moment(until(entry) - chance.choice((1, 60, DAY // 2))))
    if kind == 1:
        entry = pick(chance, [entry for entry in entries if "until" in entry])
        return bool(entry) and change(entries, entry, until=moment(START))
    found = midnights(entries)
    place = chance.randrange(1, len(found)) if len(found) > 1 else 0
    return place > 0 and add(entries, at_the_time(found[place - 1][1][-1], found[place][1][-1]))


def purged_early(chance, entries):
    purge = pick(chance, expired_purges(entries))
    return bool(purge) and change(entries, purge, until=moment((at(purge) + window(entries)) // DAY * DAY + 2 * DAY))


# Jobs and templates.

def template_unknown(chance, entries):
    opening = pick(chance, places(entries, "token.opened"))
    if opening is not None:
        entries[opening]["template"] = "free_text"
    return opening is not None


def job_twice(chance, entries):
    opening = pick(chance, places(entries, "token.opened"))
    return opening is not None and add(entries, entries[opening] | {"id": chance.randbytes(16).hex()})


def job_unknown(chance, entries):
    outcome = pick(chance, places(entries, "push.delivered", "push.failed"))
    if outcome is None:
        return False
    if chance.random() < 0.5:
        return change(entries, entries[outcome], job=chance.randbytes(16).hex())
    return remove(entries, next(entry for entry in entries if entry["op"] == "token.opened" and entry["job"] == entries[outcome]["job"]))


def outcome_twice(chance, entries):
    outcome = pick(chance, places(entries, "push.delivered", "push.failed"))
    if outcome is None:
        return False
    later = pick(chance, [entry for entry in entries if at(entry) > at(entries[outcome])])
    return bool(later) and add(entries, at_the_time(entries[outcome], later))


def outcome_late(chance, entries):
    outcome = pick(chance, places(entries, "push.delivered", "push.failed"))
    if outcome is None or not lasts(entries, at(entries[outcome]), 400):
        return False
    if chance.random() < 0.5:
        return remove(entries, entries[outcome])
    late = at(entries[outcome]) + 190 + 2 * window(entries)
    return change(entries, entries[outcome], at=moment(late - late % window(entries)))


# Time and order.

def after_closed(chance, entries):
    """An empty log is closed and continues."""
    first = next(place for place, entry in enumerate(entries) if place and at(entry) >= at(entries[0]))
    if at(entries[first]) == at(entries[0]) and entries[first]["op"] in BATCH:
        return False
    entries.insert(first, {"at": entries[0]["at"], "next": "mayfly.test/log2", "op": "ledger.closed"})
    return True


def time(chance, entries):
    where = chance.randrange(1, len(entries))
    entries[where] = entries[where] | {"at": moment(at(entries[where - 1]) - chance.choice((1, 60, 300, 10**6)))}
    return True


def window_ends(entries):
    """Places of entries after which another window begins."""
    return [place for place in range(len(entries) - 1) if at(entries[place]) < at(entries[place + 1])]


def another_window(chance, entries):
    """Something at a time between two windows."""
    possible = [place for place in window_ends(entries) if at(entries[place + 1]) > at(entries[place]) + 1]
    if window(entries) == 1 or not possible:
        return False
    place = chance.choice(possible)
    between = range(at(entries[place]) + 1, min(at(entries[place + 1]), at(entries[place]) + window(entries)))
    entries.insert(place + 1, refused(chance.choice(between)))
    return True


def windows_not_kept(chance, entries):
    """A start names long windows, but the log continues in its old ones."""
    place = pick(chance, [place for place in window_ends(entries) if at(entries[place + 1]) % 60])
    if place is not None:
        entries.insert(place + 1, entries[0] | {"at": entries[place]["at"], "resolution": 60})
    return place is not None


def before_any_start(chance, entries):
    begin = at(entries[0])
    if chance.random() < 0.5:
        del entries[0]
    else:
        entries.insert(0, chance.choice((refused(begin), {"at": moment(begin), "epoch": begin // EPOCH - 3, "op": "keys.ratcheted", "swept": 0})))
    return True


def not_sorted(chance, entries):
    """Two neighbours of one window exchanged."""
    groups = {"token.opened": 1, "push.delivered": 1, "push.failed": 1, "token.sealed": 2, "token.purged": 2, "bucket.closed": 2}
    possible = [place for place in range(len(entries) - 1) if at(entries[place]) == at(entries[place + 1])
                and groups.get(entries[place]["op"], 0) == groups.get(entries[place + 1]["op"]) and "bucket.closed" != entries[place + 1]["op"]
                and "push" not in entries[place + 1]["op"]]
    place = pick(chance, possible)
    if place is not None:
        entries[place:place + 2] = entries[place + 1], entries[place]
    return place is not None


def twice(chance, entries):
    """One entry of a batch or window repeated at once."""
    place = pick(chance, places(entries, "token.sealed", "token.purged"))
    if place is not None:
        entries.insert(place, entries[place])
    return place is not None


# Starts, gaps and policies.

def gaps(chance, entries):
    """More than an hour without a broker, before a start."""
    begin = pick(chance, [at(entries[place]) for place in window_ends(entries)])
    end = begin + 3600 + 2 * window(entries) + chance.randrange(0, 600, 60)
    end += -end % 60
    kept = [entry for entry in entries if at(entry) <= begin]
    if begin // 86400 < end // 86400:
        return False
    entries[:] = [*kept, entries[0] | {"at": moment(end)}]
    return True


def silent_without_start(chance, entries):
    end = chance.randrange(at(entries[0]) + 1000, max(at(entries[0]) + 1001, at(entries[-1]) - 60))
    entries[:] = [entry for entry in entries if not end - 930 <= at(entry) <= end or entry is entries[0]]
    return at(entries[-1]) > end


def policy_changed(chance, entries):
    place = pick(chance, window_ends(entries))
    other = chance.choice((OTHER_TIMING, ONE_SEAL))
    entries.insert(place + 1, entries[0] | {"at": entries[place]["at"]} | chance.choice(
        ({"policy": hashlib.sha256(other).hexdigest()}, {"resolution": 7}, {"resolution": 59})))
    return True


# Rotation.

def carry(chance, entries):
    begin, kind = entries[0]["at"], chance.randrange(5)
    opened = {"at": begin, "jobs": 0, "op": "ledger.opened", "previous": "mayfly.test/old", "root": "0" * 64, "size": 5}
    carried = {"at": begin, "live": 1, "op": "bucket.carried", "until": moment(START + DAY)}
    later = carried | {"until": moment(START + 2 * DAY)}
    if kind == 4:
        entries.insert(chance.choice(window_ends(entries)) + 1, opened)
        return resort(entries)
    entries[:0] = ([carried], [opened, carried, carried], [opened, later, carried], [opened, carried | {"until": moment(START + DAY + 1)}])[kind]
    return True


def carried_more(chance, entries):
    """Tokens from an earlier log that this one never ends."""
    begin = entries[0]["at"]
    entries[:0] = [{"at": begin, "jobs": 0, "op": "ledger.opened", "previous": "mayfly.test/old", "root": "0" * 64, "size": 5},
                   {"at": begin, "live": chance.randint(1, 9), "op": "bucket.carried", "until": moment(START + DAY)}]
    return lasts(entries, START + DAY, GRACE)


def carried_jobs(chance, entries):
    """Pushes from an earlier log without an outcome."""
    entries[:0] = [{"at": entries[0]["at"], "jobs": chance.randint(1, 9), "op": "ledger.opened", "previous": "mayfly.test/old", "root": "0" * 64,
                    "size": 5}]
    return True


def rotation_that_goes_on(chance, entries):
    """A bucket closed ahead of its time, and the log doesn't end."""
    time, batch = pick(chance, midnights(entries)) or (0, ())
    if not batch:
        return False
    ahead, (sealed, expired) = pick(chance, list(books(entries, time).items())) or (moment(time + 5 * DAY), (0, 0))
    return add(entries, batch[-1] | {"until": ahead, "sealed": sealed, "expired": expired, "ended": 0})


def closed_with_tokens(chance, entries):
    """A log that ends without its buckets' closings."""
    last = pick(chance, [time for time, batch in midnights(entries) if books(entries, time)])
    if last is None:
        return False
    entries[:] = [entry for entry in entries if at(entry) <= last]
    entries.append({"at": moment(last), "next": "mayfly.test/log2", "op": "ledger.closed"})
    return True


RULES = [
    ratchet_late, ratchet_early, starts_as_excuses, gaps_as_excuses, swept_late, swept_early, small_batch, batch_late, midnight_missing,
    purge_left_out, seal_left_out, purge_of_another_day, purge_of_nothing, wrong_count, not_even, overbooked, early_purges_of_nothing,
    life_too_long, bucket_unknown, purged_early, template_unknown, job_twice, job_unknown, outcome_twice, outcome_late, after_closed, time,
    another_window, windows_not_kept, before_any_start, not_sorted, twice, gaps, silent_without_start, policy_changed, carry, carried_more,
    carried_jobs, rotation_that_goes_on, closed_with_tokens]
CODES = {
    starts_as_excuses: "ratchet_late", gaps_as_excuses: "gaps", purge_left_out: "unbalanced", seal_left_out: None,
    purge_of_another_day: "unbalanced", purge_of_nothing: "unbalanced", wrong_count: "unbalanced", not_even: "unbalanced",
    early_purges_of_nothing: "overbooked", outcome_twice: "job_unknown", another_window: "time", windows_not_kept: "time",
    before_any_start: "entry", not_sorted: "entry", twice: "entry", carried_more: "unbalanced", carried_jobs: "outcome_late",
    rotation_that_goes_on: "unbalanced", closed_with_tokens: "unbalanced", silent_without_start: None}


def breaking(chance, rule):
    """A story that breaks this rule and none before it, and the code of it; None: one of several."""
    while True:
        entries = honest(chance, outages=0, policies=(POLICY,))
        if rule(chance, entries):
            return entries, CODES.get(rule, rule.__name__)
