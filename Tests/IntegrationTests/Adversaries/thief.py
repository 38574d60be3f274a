"""A thief with stolen files, the source code and time. It looks for tokens, room ids, join codes, client ids and member secrets, and links rooms of
one phone.

It opens what should open by docs/sealing.md. It also tries what should not, with keys that lack one ingredient: an implementation with that mistake
would pass every test of answers.
"""

import hashlib
import itertools
from collections import defaultdict
from dataclasses import dataclass, field

import carving
import opening
from opening import DAY_MS, KEY_0, Keys, code_data, derive, job_data, ledger_id, ref_data, ref_of, token_data, token_of, unseal, untils

KINDS = ("tokens", "rooms", "codes", "clients", "members", "links")
NAMES = {"tokens": "token", "rooms": "room id", "codes": "join code", "clients": "client id", "members": "member secret",
         "links": "link"}


@dataclass
class Recovered:
    """What the thief got. Tokens, room ids and member secrets are bytes. Links are pairs of room indexes."""

    tokens: set = field(default_factory=set)
    rooms: set = field(default_factory=set)
    codes: set = field(default_factory=set)
    clients: set = field(default_factory=set)
    members: set = field(default_factory=set)
    links: set = field(default_factory=set)
    refs: dict = field(default_factory=lambda: defaultdict(set))  # by the purge ids of their rows
    opened: set = field(default_factory=set)  # purge ids of the rows whose tokens opened
    how: dict = field(default_factory=lambda: defaultdict(set))  # by which key, for readers of a failed test

    def add(self, kind, value, how):
        new = value not in getattr(self, kind)
        getattr(self, kind).add(value)
        self.how[kind].add(how)
        return new

    def said(self, of=None):
        """How many of each kind, and of how many."""
        parts = []
        for kind in KINDS:
            count, name = len(getattr(self, kind)), NAMES[kind]
            if count:
                parts.append(f"{count} of {len(of[kind])} {name}s" if of else f"{count} {name}s")
        return ", ".join(parts) or "nothing"


class Codes:
    """Join codes of six digits by their index: all of them under one day's key, hashed once."""

    _known = {}

    @classmethod
    def under(cls, day_key):
        if day_key not in cls._known:
            cls._known[day_key] = cls(day_key)
        return cls._known[day_key]

    def __init__(self, day_key):
        start = hashlib.blake2b(b"mayfly/v1 join\0" + (6).to_bytes(4, "big"), digest_size=32, key=day_key)
        found = bytearray()
        for number in range(1_000_000):
            state = start.copy()
            state.update(b"%06d" % number)
            found += state.digest()[:8]
        self._found = bytes(found)

    def find(self, index):
        place = self._found.find(index[:8])
        return f"{place // 8:06}" if place >= 0 and place % 8 == 0 else None


class Thief:
    """`database`: {name: bytes} of one with its log, or of a backup. `keys`: what lay in the folder of keys, {name: bytes} too. `rooms`: room
    ids that it knows, as a member. `words`: client ids that it guesses. `tries_codes`: whether it tries all codes of six digits."""

    def __init__(self, database=None, keys=None, rooms=(), words=(), tries_codes=True):
        self.rows = carving.everything(database or {})
        self.shown = carving.select(database) if database else {name: [] for name in carving.TABLES}
        self.keys = []
        for file in (keys or {}).values():
            try:
                self.keys.append(Keys(file))
            except ValueError:
                pass
        self.words = [word.encode() for word in words]
        self.tries_codes = tries_codes
        self.got = Recovered()
        self.known_rooms = {opening.room_index(roomid): roomid for roomid in rooms}
        self.rooms_by_token = defaultdict(set)

    def work(self):
        """All attacks."""
        self._open_jobs()
        self._open_tokens_alone()
        if self.tries_codes:
            self._try_codes()
        self._open_codes_alone()
        self._use_rooms(self.known_rooms | {opening.room_index(roomid): roomid for roomid in self.got.rooms})
        self._link()
        # What it knew before doesn't count as recovered.
        self.got.rooms -= set(self.known_rooms.values())
        return self.got

    def _open_token(self, row, key, ref_key, how):
        """A token's row: the token, and the box with its ref."""
        plaintext = unseal(row["sealed"], token_data(row), key)
        self._token(row, plaintext, how)
        if plaintext is not None:
            self.got.opened.add(row["purge_id"])
        for ref in (ref_of(plaintext), unseal(row["ref"], ref_data(row), ref_key)):
            if ref is not None:
                self.got.refs[row["purge_id"]].add(ref)
                self.got.how["refs"].add(how)

    def _token(self, row, plaintext, how):
        if token := token_of(plaintext):
            self.got.add("tokens", token, how)
            self.rooms_by_token[token].add(row["room"])

    def _epoch_keys(self, generation, *times):
        """The epoch keys of these times and this generation from every key file; and the empty key, in case an implementation forgot one."""
        for keys in self.keys:
            for ms in times:
                if ms is not None and (key := keys.epoch_key(generation, ms)) is not None:
                    yield "its epoch's key", key
        yield "no epoch's key", KEY_0

    # Seals that open without anyone's help.

    def _open_jobs(self):
        for row in self.rows["job"]:
            for how, key in self._epoch_keys(row["generation"], row["deadline"], row["expires"]):
                for fields in ((row["job"],), ()):
                    self._token(row, unseal(row["sealed"], job_data(row), derive(key, "job", *fields)), f"a job, by {how}")

    def _open_tokens_alone(self):
        """A room's token, its room id left out of the key or taken from the row."""
        for row in self.rows["token"]:
            slot, room, name = bytes([row["slot"]]), row["room"], row["purge_id"]
            for how, key in self._epoch_keys(row["generation"], row["expires"]):
                for fields in ((slot,), (), (slot, b""), (slot, room), (room,), (slot, name), (name,)):
                    for labels in (("token", "ref"), ("ref", "token")):
                        keys = [derive(key, label, *fields) for label in labels]
                        self._open_token(row, *keys, f"a token's row, without its room id, by {how}")

    def _open_codes_alone(self):
        """Opens what waits for a code without the code."""
        for row in self.rows["room"]:
            for code in (None, row["code"]):
                self._open_code(row, [] if code is None else [code], "without its join code")

    # Codes.

    def _try_codes(self):
        targets = defaultdict(list)
        for row in self.rows["room"]:
            if row["code"] is not None:
                targets[row["code"]].append(row)
        for row in self.rows["code"]:
            targets.setdefault(row["code"], [])
        for index, rows in targets.items():
            # The key is that of the day on which the room was made: a day before the code's end at most, or the row has ten more minutes.
            days = {row["code_expires"] // DAY_MS - back for row in rows for back in (0, 1)}
            # A code's own row may be left alone. It doesn't say when it was made.
            candidates = [("no day's key", KEY_0)]
            candidates += [("a day's key", key) for keys in self.keys for day in days or range(keys.first_day, keys.first_day + 4)
                           if (key := keys.day_key(day))]
            for how, key in candidates:
                if (code := Codes.under(key).find(index)) and derive(key, "join", code.encode()) == index:
                    self.got.add("codes", code, f"trying codes, by {how}")
                    for row in rows:
                        self._open_code(row, [code.encode()], "with its join code")
                    break

    def _open_code(self, row, fields, how):
        """The three seals that a code is the key to: the room id; with the client id too, the answers to creator and joiner."""
        generation, index = row["code_generation"], row["code"]
        if index is None or generation is None:
            return
        for name, keys in (("pending", [()]), ("creator", [(word,) for word in self.words] + [()]),
                           ("retry", [(word,) for word in self.words] + [()])):
            if row[name] is None:
                continue
            ms = row["code_expires"] if name == "pending" else row["retry_until"]
            data = code_data({"pending": b"MFP1", "creator": b"MFC1", "retry": b"MFR1"}[name], generation, ms, index)
            for by, epoch_key in self._epoch_keys(generation, ms, row["expires"]):
                for word in keys:
                    plaintext = unseal(row[name], data, derive(epoch_key, name, *fields, *word))
                    if plaintext is None:
                        continue
                    secrets = {"pending": ("rooms",), "creator": ("members",), "retry": ("rooms", "members")}[name]
                    for number, kind in enumerate(secrets):
                        self.got.add(kind, plaintext[32 * number:32 * number + 32], f"{name}, {how}, by {by}")
                    for one in word:
                        self.got.add("clients", one.decode(), f"{name}, guessed")

    # With a room id.

    def _use_rooms(self, rooms):
        for row in self.rows["token"]:
            if roomid := rooms.get(row["room"]):
                for how, key in self._epoch_keys(row["generation"], row["expires"]):
                    keys = [derive(key, label, bytes([row["slot"]]), roomid) for label in ("token", "ref")]
                    self._open_token(row, *keys, f"a token's row, with its room id, by {how}")
        for row in self.rows["room"]:
            if roomid := rooms.get(row["room"]):
                self._guess_clients(row, roomid)

    def _guess_clients(self, row, roomid):
        for slot, side in ((1, "creator"), (2, "joiner")):
            stored, generation = row[f"{side}_client"], row[f"{side}_generation"]
            for word in self.words if stored else ():
                for how, key in self._epoch_keys(generation, row["expires"]):
                    if derive(key, "client", roomid, bytes([slot]), word) == stored:
                        self.got.add("clients", word.decode(), f"guessed, with the room id, by {how}")

    # The log.

    def entries(self, log):
        """The entries of this log that rows of the database lead to, by purge id: by an id or a job in a row, or by an id derived from any 16
        bytes of a row or from an opened ref. A row shows the end of its day."""
        ids, jobs = defaultdict(list), {}
        for entry in log:
            for key in ("id", "job"):
                if key in entry:
                    ids[bytes.fromhex(entry[key])].append(entry)
            if entry["op"] == "token.opened":
                jobs[bytes.fromhex(entry["job"])] = entry
        found = defaultdict(list)
        for row in [*self.rows["token"], *self.rows["job"]]:
            values = [value for value in row.values() if isinstance(value, bytes)]
            pieces = {value[at:at + 16] for value in values for at in (*range(0, len(value) - 15, 16), 24) if len(value) >= at + 16}
            names = set(pieces)
            for ref in pieces | self.got.refs.get(row["purge_id"], set()):
                names |= {ledger_id(ref, label, until) for label in ("sealed", "purged") for until in untils(row["expires"])}
                names |= {ledger_id(ref, "opened", job) for job in jobs}
            for name in names & ids.keys():
                found[row["purge_id"]] += [entry for entry in ids[name] if entry not in found[row["purge_id"]]]
        return found

    # Links.

    def _link(self):
        """Rooms that share what is rare: a token that fell, any stored value, a length that few have. Rows that SQL shows: what was carved may
        be two halves of two rows, and would link them."""
        rooms, columns, lengths = defaultdict(set), defaultdict(set), defaultdict(lambda: defaultdict(set))

        def mark(value, column, row):
            rooms[value].add(row["room"])
            columns[value].add(column)
        for table in ("room", "token", "job"):
            for row in self.shown[table]:
                for column, value in row.items():
                    if isinstance(value, bytes) and column != "room":
                        mark(value, column, row)
                        # The nonce, should one be used again.
                        mark(value[:24], f"{column}'s nonce", row)
                        lengths[column][len(value)].add(row["room"])
        for column, by_length in lengths.items():
            for length, sharing in by_length.items() if len(by_length) > 1 else ():
                rooms[column, length], columns[column, length] = sharing, {f"the length of {column}"}
        # Among few rooms nothing is rare.
        few = 4 if len(self.shown["room"]) > 20 else 1
        for value, sharing in rooms.items():
            for pair in itertools.combinations(sharing if len(sharing) <= few else (), 2):
                self.got.add("links", frozenset(pair), f"sharing {' and '.join(sorted(columns[value]))}")
        for sharing in self.rooms_by_token.values():
            for pair in itertools.combinations(sharing, 2):
                self.got.add("links", frozenset(pair), "the token")
