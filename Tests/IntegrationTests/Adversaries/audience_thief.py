"""A thief of rows of apps with accounts: registrations, sessions, timers, waiting updates and queued pushes.

Like the thief of rooms it opens what should open by docs/sealing.md, and tries what should not: each key with an ingredient left out or taken from
the row, and no key at all.
"""

from dataclasses import dataclass, field
from itertools import combinations

import carving
from opening import KEY_0, Keys, audience_index, derive, job_data, note_data, note_of, ref_data, ref_of, token_data, token_of, unseal

APP = b"companion"


def owner_of(user):
    """A user as the tokens' keys name him: with the kind of app before."""
    return APP + b"\0" + user


def counted(bytes_):
    """Texts behind their lengths of one byte."""
    parts, at = [], 0
    while at < len(bytes_):
        parts.append(bytes_[at + 1:at + 1 + bytes_[at]])
        at += 1 + bytes_[at]
    return parts


@dataclass
class Loot:
    tokens: set = field(default_factory=set)
    users: set = field(default_factory=set)  # names
    sessions: set = field(default_factory=set)  # names, and those of activities
    keys: set = field(default_factory=set)  # of handles
    confirmed: set = field(default_factory=set)  # guesses: (what, ...)
    refs: set = field(default_factory=set)
    links: set = field(default_factory=set)  # pairs of rows
    how: set = field(default_factory=set)

    def said(self):
        names = {"tokens": "tokens", "users": "names of users", "sessions": "names of sessions and activities", "keys": "handle keys", "refs": "refs",
                 "confirmed": "guesses confirmed"}
        return ", ".join(f"{len(found)} {name}" for kind, name in names.items() if (found := getattr(self, kind))) or "nothing"


class AudienceThief:
    """`words`: guessed users. `tokens`: guessed or known device tokens. `names`: guessed sessions, devices and events."""

    def __init__(self, database, keys=None, words=(), tokens=(), names=()):
        self.rows, self.shown = carving.everything(database), carving.select(database)
        self.seen = [row["key"] for row in carving.select(database, {"seen": "SELECT key FROM seen"})["seen"]]
        self.keys = []
        for file in (keys or {}).values():
            try:
                self.keys.append(Keys(file))
            except ValueError:
                pass
        self.words, self.guesses, self.names = [word.encode() for word in words], list(tokens), [name.encode() for name in names]
        self.got = Loot()

    def work(self):
        self._jobs()
        self._notes()
        users = {*self.words, *self.got.users}
        self._tokens(users)
        self._guess(users)
        self._link()
        return self.got

    def _epoch_keys(self, generation, ms):
        for keys in self.keys:
            if (key := keys.epoch_key(generation, ms)) is not None:
                yield key
        yield KEY_0

    def _open(self, row, key, ref_key, how):
        """A registration's token, and the box with its ref."""
        row = row | {"slot": 0}
        plaintext = unseal(row["sealed"], token_data(row), key)
        self._token(plaintext, how)
        self.got.refs |= {ref for ref in (ref_of(plaintext), unseal(row["ref"], ref_data(row), ref_key)) if ref is not None}

    def _token(self, plaintext, how):
        if token := token_of(plaintext):
            self.got.tokens.add(token)
            self.got.how.add(how)

    def _jobs(self):
        for row in self.rows["job"]:
            for ms in (row["deadline"], row["expires"]):
                for key in self._epoch_keys(row["generation"], ms):
                    for fields in ((row["job"],), (), (row["purge_id"],)):
                        self._token(unseal(row["sealed"], job_data(row), derive(key, "job", *fields)), "a job")

    def _note(self, sealed, label, fields, generation, expires):
        for ms in {expires}:
            for key in self._epoch_keys(generation, ms):
                for ingredients in (fields, []):
                    plaintext = unseal(sealed, note_data(generation, ms, label, fields), derive(key, label, *ingredients))
                    if plaintext is not None:
                        return note_of(plaintext)
        return None

    def _notes(self):
        """Opens what needs no user's name."""
        for row in self.rows["registration"]:
            if (note := self._note(row["details"], "details", [row["purge_id"]], row["generation"], row["expires"])) is not None:
                self.got.keys.add(note[:32])
                self.got.sessions |= {name for name in counted(note[32:]) if name}
                self.got.how.add("details")
            if row["waiting"] is not None:
                note = self._note(row["waiting"], "update", [row["purge_id"]], row["generation"], row["expires"])
                if note is not None:
                    self.got.users.add(note[1:1 + note[0]])
                    self.got.how.add("an update that waits")
        for row in self.rows["timer"]:
            if (note := self._note(row["sealed"], "timer", [row["id"]], row["generation"], row["expires"])) is not None:
                # The first byte tells whether a back end has asked.
                user, session, back_end = counted(note[1:])
                self.got.users |= {user, back_end}
                self.got.sessions.add(session)
                self.got.how.add("a timer")

    def _tokens(self, users):
        for row in self.rows["registration"]:
            own = [row[name] for name in ("audience", "owner", "purge_id", "id", "device")]
            without = [(), (b"",), (APP,), (APP + b"\0",), *((value,) for value in own)]
            for key in self._epoch_keys(row["generation"], row["expires"]):
                for fields in without:
                    for label in ("audience", "token", "ref"):
                        opener = derive(key, label, *fields)
                        for ref_key in (opener, derive(key, "ref", b"\0", *fields)):
                            self._open(row, opener, ref_key, "a token without its user")
                for user in users:
                    owner = owner_of(user)
                    self._open(row, derive(key, "audience", owner), derive(key, "ref", b"\0", owner), "a token, with its user")

    def _guess(self, users):
        """Confirms guesses by the indexes, with a user's name and a token's bytes."""
        confirmed = self.got.confirmed
        for row in self.rows["registration"]:
            for key in self._epoch_keys(row["generation"], row["expires"]):
                def index(label, *fields):
                    return audience_index(key, row["expires"], label, *fields)
                for user in users:
                    if row["owner"] == index("owner-index", APP, user) or row["audience"] == index("audience-index", APP, user):
                        confirmed.add(("user", user))
                    for name in self.names:
                        if row["session"] == index("session-index", APP, user, name):
                            confirmed.add(("session", user, name))
                    for token in self.guesses:
                        if row["device"] == index("device-index", owner_of(user), bytes([row["kind"]]), token):
                            confirmed.add(("token", user, token))
                for token in self.guesses:
                    for fields in ((bytes([row["kind"]]), token), (token,), (APP, token), (owner_of(b""), bytes([row["kind"]]), token)):
                        if row["device"] == index("device-index", *fields):
                            confirmed.add(("token alone", token))
        for row in self.rows["session"]:
            expires = int.from_bytes(row["session"][:8], "big")
            for key in self._epoch_keys(row["generation"], expires):
                for user in users:
                    for name in self.names:
                        if row["session"] == audience_index(key, expires, "session-index", APP, user, name):
                            confirmed.add(("session", user, name))
                        for device in self.names:
                            if row["client"] and row["client"] == audience_index(key, expires, "active-client", APP, user, name, device):
                                confirmed.add(("client", user, name, device))
        for index in self.seen:
            expires = int.from_bytes(index[:8], "big")
            for keys in self.keys:
                for generation in keys.generations:
                    if (key := keys.epoch_key(generation, expires)) is None:
                        continue
                    for user in users:
                        for name in self.names:
                            for event in self.names:
                                # Each caller's own: the user's, or a back end's.
                                for caller in [b"\0" + user, *(b"\1" + word for word in [*users, *self.names])]:
                                    if index == audience_index(key, expires, "seen-index", APP, user, name, event, caller):
                                        confirmed.add(("event", user, name, event))

    def _link(self):
        """Registrations that have a value or a nonce in common that isn't the same for all of one time. Of one user within one step the
        owner's index is."""
        by_value = {}
        for row in self.shown["registration"]:
            for value in row.values():
                if isinstance(value, bytes):
                    for part in {value, value[:24]} if len(value) > 32 else {value}:
                        by_value.setdefault(part, set()).add(row["purge_id"])
        for refs in by_value.values():
            self.got.links |= {frozenset(pair) for pair in combinations(refs, 2)}
