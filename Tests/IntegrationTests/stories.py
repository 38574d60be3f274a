"""Dishonest stories: an honest one, changed so that it breaks one rule, and signed as if nothing were wrong."""

import json

from logs import EPOCH, GRACE, moment, spell, story
from ledger import seconds


def honest(chance, count=None, **more):
    """A short honest story as a list of objects."""
    more.setdefault("resolution", chance.choice((60, 60, 30, 10, 1)))
    publications = story(count or chance.randint(60, 160), chance.getrandbits(32), **more)
    return [json.loads(entry) for window in publications for entry in window]


def spelled(entries):
    return [[entry if isinstance(entry, bytes) else spell(entry) for entry in entries]]


def at(entry):
    return int(seconds(entry["at"]))


def places(entries, *ops):
    return [place for place, entry in enumerate(entries) if entry["op"] in ops]


def after(entries, time):
    """Where the first entry later than this stands."""
    return next((place for place, entry in enumerate(entries) if at(entry) > time), None)


def lives(entries):
    """(place of the seal, place of the purge or None, until) of each ref."""
    found = {}
    for place, entry in enumerate(entries):
        if entry["op"] == "token.sealed":
            found[entry["ref"]] = [place, None, int(seconds(entry["until"]))]
        elif entry["op"] == "token.purged" and entry["ref"] in found:
            found[entry["ref"]][1] = place
    return found


def at_the_time(entry, other):
    """The entry as it would stand beside the other."""
    return entry | {"at": other["at"]}


def opening(ref, other, job):
    return {"at": other["at"], "job": job, "op": "token.opened", "ref": ref, "template": "peer_waiting"}


# Each takes a source of chance and an honest story without outages, changes it, and returns whether it found a place to.

def sealed_twice(chance, entries):
    seal = entries[chance.choice(places(entries, "token.sealed"))]
    alive = [place for place in range(entries.index(seal), len(entries)) if at(entries[place]) < seconds(seal["until"])]
    where = chance.choice(alive)
    entries.insert(where + 1, at_the_time(seal, entries[where]))
    return True


def never_sealed(chance, entries):
    used = [life for ref, life in lives(entries).items() if sum(entry.get("ref") == ref for entry in entries) > 1]
    if used:
        del entries[chance.choice(used)[0]]
    return bool(used)


def unknown_purged(chance, entries):
    where = chance.randrange(1, len(entries))
    entries.insert(where + 1, at_the_time({"cause": "expired", "op": "token.purged", "ref": chance.randbytes(16).hex()}, entries[where]))
    return True


def opened_late(chance, entries):
    possible = [(ref, life) for ref, life in lives(entries).items() if life[1] and after(entries, life[2])]
    if not possible:
        return False
    ref, (_, purge, until) = chance.choice(possible)
    where = after(entries, until)
    entries.insert(where + 1, opening(ref, entries[where], chance.randbytes(16).hex()))
    del entries[purge]
    return True


def after_purge(chance, entries):
    possible = [(ref, life[1]) for ref, life in lives(entries).items() if life[1]]
    if not possible:
        return False
    ref, purge = chance.choice(possible)
    entries.insert(purge + 1, opening(ref, entries[purge], chance.randbytes(16).hex()))
    return True


def job_twice(chance, entries):
    possible = places(entries, "token.opened")
    if possible:
        where = chance.choice(possible)
        entries.insert(where + 1, dict(entries[where]))
    return bool(possible)


def job_unknown(chance, entries):
    possible = places(entries, "push.delivered", "push.failed")
    if not possible:
        return False
    outcome = entries[chance.choice(possible)]
    kind = chance.randrange(3)
    if kind == 0:
        outcome["job"] = chance.randbytes(16).hex()
    elif kind == 1:
        del entries[next(place for place in places(entries, "token.opened") if entries[place]["job"] == outcome["job"])]
    else:
        sealed = [entry["ref"] for entry in entries[:entries.index(outcome)] if entry["op"] == "token.sealed"]
        outcome["ref"] = chance.choice(sealed)
        return any(entry["op"] == "token.opened" and entry["job"] == outcome["job"] and entry["ref"] != outcome["ref"]
                   for entry in entries)
    return True


def outcome_twice(chance, entries):
    possible = places(entries, "push.delivered", "push.failed")
    if possible:
        where = chance.choice(possible)
        later = chance.randrange(where, len(entries))
        entries.insert(later + 1, at_the_time(entries[where], entries[later]))
    return bool(possible)


def purged_twice(chance, entries):
    possible = places(entries, "token.purged")
    if possible:
        where = chance.choice(possible)
        entries.insert(where + 1, dict(entries[where]))
    return bool(possible)


def purged_late(chance, entries):
    possible = [(life[1], after(entries, life[2] + GRACE)) for life in lives(entries).values() if life[1] and after(entries, life[2] + GRACE)]
    if not possible:
        return False
    purge, where = chance.choice(possible)
    entries.insert(where + 1, at_the_time(entries[purge], entries[where]))
    del entries[purge]
    return True


def never_purged(chance, entries):
    possible = [life[1] for life in lives(entries).values() if life[1] and after(entries, life[2] + GRACE)]
    if possible:
        del entries[chance.choice(possible)]
    return bool(possible)


def ratchet_late(chance, entries):
    steps = places(entries, "keys.ratcheted")
    first = chance.randrange(max(1, len(steps) - 4)) if steps else 0
    if len(steps) < first + 4:
        return False
    for place in reversed(steps[first:]):
        del entries[place]
    return True


def ratchet_early(chance, entries):
    steps = places(entries, "keys.ratcheted")
    if steps:
        step = entries[chance.choice(steps)]
        step["epoch"] = at(step) // EPOCH + chance.choice((0, 1, 2, 300, 10**9))
    return bool(steps)


def after_closed(chance, entries):
    where = chance.randrange(1, len(entries))
    entries.insert(where, {"at": entries[where]["at"], "next": "mayfly.test/log2", "op": "ledger.closed"})
    return True


def time(chance, entries):
    where = chance.randrange(1, len(entries))
    entries[where] = entries[where] | {"at": moment(at(entries[where - 1]) - chance.choice((1, 60, 300, 10**6)))}
    return True


def refused(time):
    return {"at": moment(time), "cause": "throttled", "count": 5, "op": "request.refused"}


def window_ends(entries):
    """Places of entries after which another window begins."""
    return [place for place in range(len(entries) - 1) if at(entries[place]) < at(entries[place + 1])]


def another_window(chance, entries):
    """Something at a time between two windows."""
    possible = [place for place in window_ends(entries) if at(entries[place + 1]) > at(entries[place]) + 1]
    if entries[0]["resolution"] == 1 or not possible:
        return False
    place = chance.choice(possible)
    between = range(at(entries[place]) + 1, min(at(entries[place + 1]), at(entries[place]) + entries[0]["resolution"]))
    entries.insert(place + 1, refused(chance.choice(between)))
    return True


def windows_not_kept(chance, entries):
    """A start that names long windows, after which the log goes on in those that it had."""
    length = chance.choice((3600, 3600, 1800, 600))
    place = chance.choice([place for place in window_ends(entries) if at(entries[place + 1]) % length] or [None])
    if place is not None:
        entries.insert(place + 1, entries[0] | {"at": entries[place]["at"], "resolution": length})
    return place is not None


def carried_over_twice(chance, entries):
    """Lives from an earlier log in two windows."""
    begin = at(entries[0])
    for back in (60, 120):
        entries.insert(0, {"at": moment(begin - back), "kind": "alert", "op": "token.sealed", "ref": chance.randbytes(16).hex(),
                           "until": moment(begin + 86_400)})
    return True


def before_any_start(chance, entries):
    begin = at(entries[0])
    if chance.random() < 0.5:
        del entries[0]
    else:
        entries.insert(0, chance.choice((refused(begin), {"at": moment(begin), "epoch": begin // EPOCH - 3, "op": "keys.ratcheted"})))
    return True


def not_sorted(chance, entries):
    """Two neighbours of one window exchanged."""
    def ref(place):
        return entries[place].get("ref", "") if place >= 0 else ""
    possible = [place for place in range(len(entries) - 1) if ref(place) and ref(place) < ref(place + 1)
                and at(entries[place]) == at(entries[place + 1])]
    if possible:
        place = chance.choice(possible)
        entries[place:place + 2] = entries[place + 1], entries[place]
    return bool(possible)


def ended(chance, entries):
    """A token that ends no later than it is sealed."""
    place = chance.choice(places(entries, "token.sealed"))
    entries[place] = entries[place] | {"until": moment(at(entries[place]) - chance.choice((0, 1, 300)))}
    return True


RULES = [
    another_window, windows_not_kept, carried_over_twice, before_any_start, not_sorted, ended, sealed_twice, never_sealed, unknown_purged, opened_late, after_purge, job_twice, job_unknown, outcome_twice, purged_twice,
    purged_late, never_purged, ratchet_late, ratchet_early, after_closed, time]
CODES = {
    unknown_purged: "never_sealed", another_window: "time", windows_not_kept: "time", carried_over_twice: "time", before_any_start: "entry",
    not_sorted: "entry", ended: "entry"}


def breaking(chance, rule):
    """A story that breaks this rule and none before it, and the code of it."""
    while True:
        entries = honest(chance, outages=0)
        if rule(chance, entries):
            return entries, CODES.get(rule, rule.__name__)


# Bytes that are no entry.

def _escaped(entry, chance):
    text = spell(entry).decode()
    place = chance.choice([place for place, letter in enumerate(text) if letter.isalpha()])
    return (text[:place] + f"\\u{ord(text[place]):04x}" + text[place + 1:]).encode()


def _value(key, value):
    return lambda entry, chance: spell(entry | {key: value}) if key in entry else None


def _values(key, *values):
    return [(f"{key} {value!r:.40}", _value(key, value)) for value in values]


def _raw(change):
    return lambda entry, chance: change(spell(entry), chance)


def _repeated(entry, chance):
    key = chance.choice(list(entry))
    return b"{" + spell({key: entry[key]})[1:-1] + b"," + spell(entry)[1:]


def _number(key, spelling):
    return lambda entry, chance: spell(entry | {key: 987654}).replace(b"987654", spelling.encode()) if key in entry else None


def _numbers(key, *spellings):
    return [(f"{key} {spelling:.40}", _number(key, spelling)) for spelling in spellings]


BAD_TIMES = (
    "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T23:59:60Z",
    "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00.5Z", "2026-01-01 00:00:00Z", "2026-1-1T0:0:0Z", "20260101T000000Z", "", "1969-12-31T23:59:59Z",
    "2025-02-29T00:00:00Z", "2026-01-01T00:00:00z", "٢٠٢٦-01-01T00:00:00Z", "12026-01-01T00:00:00Z", "0000-01-01T00:00:00Z", 1767225600, None)
NO_NUMBERS = ("01", "-1", "1.0", "1e2", "4294967296", "true", "null", '"5"', "", "-0", "+1", "0x10", "9" * 30, "9" * 5000, "[1]", "NaN")
NO_IDS = ("", "0" * 31, "0" * 33, "G" * 32, "AB" * 16, None, 5, ["0" * 32], {"x": 1}, "0" * 31 + "\n", "０" * 32)
NO_NAMES = ("", "a b", "a\"b", "a\\b", "é", "x" * 129, "tab\t", "\u007f", None, 7, "nul\0")
NO_ENTRIES = [
    ("a space", _raw(lambda raw, chance: raw.replace(b",", b", ", 1))),
    ("a space after a colon", _raw(lambda raw, chance: raw.replace(b":", b": ", 1))),
    ("a newline at the end", _raw(lambda raw, chance: raw + b"\n")),
    ("a newline before", _raw(lambda raw, chance: b"\n" + raw)),
    ("a byte order mark", _raw(lambda raw, chance: b"\xef\xbb\xbf" + raw)),
    ("no UTF-8", _raw(lambda raw, chance: raw[:-2] + b"\xff" + raw[-2:])),
    ("cut", _raw(lambda raw, chance: raw[:chance.randrange(len(raw))])),
    ("nothing", _raw(lambda raw, chance: b"")),
    ("two objects", _raw(lambda raw, chance: raw + raw)),
    ("an array", _raw(lambda raw, chance: b"[" + raw + b"]")),
    ("null", _raw(lambda raw, chance: chance.choice((b"null", b"{}", b"[]", b"0", b'""', b"true", b"{", b'{"op":', b'{"op":{}}', b'{"op":[1]}')))),
    ("deep", _raw(lambda raw, chance: b"[" * 65535)),
    ("deep in a key", _raw(lambda raw, chance: b'{"at":' * 10000)),
    ("as long as can be", _raw(lambda raw, chance: raw + b" " * (65535 - len(raw)))),
    ("keys out of order", lambda entry, chance: json.dumps(dict(reversed(sorted(entry.items()))), separators=(",", ":")).encode()),
    ("an escape", _escaped),
    ("a key twice", _repeated),
    ("a key too many", lambda entry, chance: spell(entry | {chance.choice(("zz", "a", "note", "")): "x"})),
    ("a key too few", lambda entry, chance: spell({key: value for key, value in entry.items() if key != chance.choice(list(entry))})),
    ("a key of another op", lambda entry, chance: spell(entry | {"epoch": 1}) if "epoch" not in entry else spell(entry | {"ref": "0" * 32})),
    *_values("op", "token.seen", "", "TOKEN.SEALED", "token.sealed ", None, "token", 1),
    *_values("at", *BAD_TIMES), *_values("until", *BAD_TIMES), *_values("ref", *NO_IDS), *_values("job", *NO_IDS),
    *_values("policy", "", "0" * 63, "Z" * 64, "A" * 64, None),
    *_values("kind", "background", "", "Alert", None), *_values("cause", "bored", "", "Expired", 5, "token"),
    *_values("reason", "because", "", "baddevicetoken", None),
    *(value for key in ("name", "template", "node", "version") for value in _values(key, *NO_NAMES)),
    *_numbers("epoch", "9007199254740992", "-5", "5890750.0", '"5890750"', "05890750", "9" * 20, "9" * 5000, "null"),
    *_numbers("resolution", "0", "3601"), *_numbers("status", "1000"),
    *(number for key in ("count", "generation", "resolution", "status") for number in _numbers(key, *NO_NUMBERS)),
]


def with_no_entry(chance, change):
    """An honest story, one entry of which is changed to bytes that are none."""
    while True:
        entries = honest(chance)
        order = list(range(len(entries)))
        chance.shuffle(order)
        for place in order:
            raw = change(entries[place], chance)
            if raw is not None and raw != spell(entries[place]):
                return entries[:place] + [raw] + entries[place + 1:], place


# Stories that may or may not be honest: what they are is for the verifiers to say, and to agree on.

def resorted(entries):
    """In the order of time and refs, as a log is; entries of one ref and time stay as they stand."""
    return sorted(entries, key=lambda entry: (at(entry), entry.get("ref", "")))


def shift_something(chance, entries, window):
    """One purge, step of the keys, opening or start at another time, often exactly at the edge of what is allowed."""
    ops = chance.choice((["token.purged"], ["keys.ratcheted"], ["token.opened"], ["broker.started"], ["push.delivered", "push.failed"]))
    possible = places(entries, *ops)
    if not possible:
        return entries
    place = chance.choice(possible)
    entry = entries[place]
    time = at(entry) + chance.choice((-1, 1, 1, 2, 3, 5)) * window
    if entry["op"] in ("token.purged", "token.opened") and entry["ref"] not in lives(entries):
        return entries
    if entry["op"] == "token.purged":
        until = lives(entries)[entry["ref"]][2]
        time = chance.choice((until - until % window, until, until + GRACE, until + GRACE + window, until + GRACE + 1, time))
    elif entry["op"] == "token.opened":
        until = lives(entries)[entry["ref"]][2]
        time = chance.choice((until - window, until, until + window, time))
    elif entry["op"] == "keys.ratcheted":
        due = (entry["epoch"] + 3) * EPOCH
        time = chance.choice((due, due + GRACE, due + GRACE + window, due + GRACE + 1, time, time - 2 * EPOCH, time - EPOCH))
    entries[place] = entry | {"at": moment(max(time, at(entries[0])))}
    return resorted(entries)


def drop_something(chance, entries, window):
    place = chance.randrange(len(entries))
    return entries[:place] + entries[place + 1:] or entries


def repeat_something(chance, entries, window):
    place, later = sorted(chance.randrange(len(entries)) for _ in range(2))
    return entries[:later + 1] + [at_the_time(entries[place], entries[later])] + entries[later + 1:]


def be_silent(chance, entries, window):
    """Nothing for a while, then perhaps a start, and all that fell due then or later."""
    begin = at(entries[0]) + chance.randrange(0, max(window, at(entries[-1]) - at(entries[0])), window)
    if chance.random() < 0.5:
        begin += -begin % EPOCH + chance.choice((-window, 0, 0, window, GRACE, GRACE + window))
    end = begin + chance.choice((window, 60, 120, 180, 300, 600, 660, 1500))
    end -= end % window
    due, kept = [], []
    for entry in entries:
        if not begin <= at(entry) < end:
            kept.append(entry)
        elif entry["op"] == "token.purged" or entry["op"] == "keys.ratcheted" and chance.random() < 0.9:
            late = chance.choice((0, 0, window, 60, 120, 120 + window))
            due.append(entry | {"at": moment(end + late - late % window)})
    again = []
    starts = [entry for entry in entries if entry["op"] == "broker.started"]
    if starts and chance.random() < 0.8:
        again = [starts[0] | {"at": moment(end)}]
        if chance.random() < 0.3:
            length = chance.choice((1, 7, 60, 90, 300))
            again[0] = again[0] | {"resolution": length}
            if chance.random() < 0.9:  # Then they are the windows.
                kept, due = ([entry if at(entry) < end else entry | {"at": moment(max(end, at(entry) // length * length))} for entry in some]
                             for some in (kept, due))
        if chance.random() < 0.2:
            again.append(again[0] | {"at": moment(end + chance.choice((0, window, 120, 180)))})
    return resorted(again + due + kept) or entries


def change_until(chance, entries, window):
    possible = places(entries, "token.sealed")
    if not possible:
        return entries
    place = chance.choice(possible)
    until = int(seconds(entries[place]["until"])) + chance.choice((-1, 1, -EPOCH, EPOCH, -GRACE, -GRACE - 1, window, 7))
    entries[place] = entries[place] | {"until": moment(until)}
    return entries


def change_epoch(chance, entries, window):
    possible = places(entries, "keys.ratcheted")
    if possible:
        place = chance.choice(possible)
        entries[place] = entries[place] | {"epoch": max(0, entries[place]["epoch"] + chance.choice((-1, 1, 1, 2, -2, 3)))}
    return entries


def cut_off(chance, entries, window):
    return entries[:chance.randrange(len(entries)) + 1]


def begin_later(chance, entries, window):
    """As if the log began in the middle: what was sealed before is not known to it."""
    first = chance.randrange(len(entries))
    known = {entry["ref"] for entry in entries[first:] if entry["op"] == "token.sealed"}
    return [entry for entry in entries[first:] if "ref" not in entry or entry["ref"] in known] or entries


CHANGES = [shift_something] * 4 + [be_silent] * 4 + [drop_something, repeat_something, change_until, change_epoch, cut_off, begin_later]


def perhaps_honest(chance):
    window = chance.choice((60, 60, 60, 30, 1, 50, 120, 300))
    entries = honest(chance, count=chance.randint(30, 110), resolution=window)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        entries = chance.choice(CHANGES)(chance, entries, window)
    return entries
