"""Bytes that are no entry."""

import json

from honest import honest, rotated
from logs import spell


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
    ("a key of another op", lambda entry, chance: spell(entry | ({"epoch": 1} if "epoch" not in entry else {"id": "0" * 32}))),
    ("an until that tells", lambda entry, chance: spell(entry | {"until": entry["at"]}) if entry.get("cause") == "ended" else None),
    ("an expiry without until", lambda entry, chance: spell({key: entry[key] for key in entry if key != "until"}) if "until" in entry else None),
    ("another cause with until", lambda entry, chance: spell(entry | {"cause": "ended"}) if entry.get("cause") == "expired" else None),
    *_values("op", "token.seen", "", "TOKEN.SEALED", "token.sealed ", None, "token", 1),
    *_values("at", *BAD_TIMES), *_values("until", *BAD_TIMES), *_values("id", *NO_IDS), *_values("job", *NO_IDS),
    *(value for key in ("policy", "binary", "root") for value in _values(key, "", "0" * 63, "Z" * 64, "A" * 64, None)),
    *_values("cause", "bored", "", "Expired", 5, "token", "deleted", "ended|policy"),
    *_values("reason", "because", "", "baddevicetoken", None, "expired", "peer_present", "room_closed"),
    *(value for key in ("name", "template", "node", "version", "previous") for value in _values(key, *NO_NAMES)),
    *(number for key in ("epoch", "swept", "sealed", "expired", "ended", "size", "jobs", "live") for number in _numbers(
        key, "9007199254740992", "-5", "5890750.0", '"5890750"', "05890750", "9" * 20, "null", "true")),
    *_numbers("epoch", "9" * 5000), *_numbers("live", "0"), *_numbers("resolution", "0", "61", "3600"), *_numbers("status", "1000"),
    *(number for key in ("count", "generation", "resolution", "status") for number in _numbers(key, *NO_NUMBERS)),
]


def with_no_entry(chance, change):
    """An honest story with one entry replaced by bytes that aren't an entry."""
    while True:
        entries = honest(chance) if chance.random() < 0.7 else rotated(chance)
        order = list(range(len(entries)))
        chance.shuffle(order)
        for place in order:
            raw = change(entries[place], chance)
            if raw is not None and raw != spell(entries[place]):
                return entries[:place] + [raw] + entries[place + 1:], place
