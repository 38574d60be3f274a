"""Runs the campaigns' thieves on a copy of a simulated broker's state (`LifeThief`), and prints what they must not get.

    rob.py COPY DEVICES KEYS NOW

COPY: a folder with the database, the key file of the same moment, and `rooms`: a line for each of that time's rooms, with its number and its id in hex.
DEVICES: how many devices had companions then. KEYS: the key file of a later night. NOW: broker time of that night, in unix ms. The users of a life are
user-0, user-1 and user-2.
Exit 1 if a thief got something, 2 if it could not look.
"""

import sys
import traceback
from pathlib import Path

from audience_thief import AudienceThief
from opening import room_index
from thief import Thief

USERS = [f"user-{number}" for number in range(3)]
NAMES = [f"{kind}-{number}" for kind in ("session", "printer") for number in range(3)]
# A key outlives its last expiry by ten minutes at most, and the keeper may be late by some seconds.
SLACK_MS = 660_000


class Copy:
    def __init__(self, folder, later_keys, now):
        self.database = {"mayfly.sqlite": (folder / "mayfly.sqlite").read_bytes(), "mayfly.sqlite-wal": (folder / "mayfly.sqlite-wal").read_bytes()}
        self.keys, self.later_keys, self.now = {"keys": (folder / "ratchet.key").read_bytes()}, {"keys": later_keys.read_bytes()}, now
        known = [line.split() for line in (folder / "rooms").read_text().splitlines()]
        self.rooms = [bytes.fromhex(roomid) for _, roomid in known]
        self.clients = [f"{side}-{number}" for number, _ in known for side in ("creator", "joiner")]

    def thief(self, keys=None, **more):
        return self._with_keys(Thief(self.database, keys, words=self.clients, **more), keys)

    def audience_thief(self, keys=None):
        return self._with_keys(AudienceThief(self.database, keys, words=USERS, names=NAMES), keys)

    @staticmethod
    def _with_keys(thief, keys):
        assert keys is None or len(thief.keys) == len(keys), "the key file can't be read"
        return thief


def end(row):
    """Returns when a row expires. A session has no such column; its index begins with it."""
    return row.get("deadline") or row.get("expires") or int.from_bytes(row["session"][:8], "big")


def check_thieves(copy, devices):
    """With all that is needed they open what is there. Otherwise they prove nothing."""
    thief, audience = copy.thief(copy.keys, rooms=copy.rooms, tries_codes=False), copy.audience_thief(copy.keys)
    got, loot = thief.work(), audience.work()
    known = {room_index(roomid) for roomid in copy.rooms}
    if any(row["room"] in known for row in thief.shown["token"]) or thief.shown["job"]:
        assert got.tokens, "no token opens with its room id and keys"
    if devices:
        assert loot.tokens and loot.confirmed, "no registration opens with its user and keys"


def without_keys(copy):
    got, loot = copy.thief().work(), copy.audience_thief().work()
    yield "the database alone", got, (got.tokens, got.refs, got.rooms, got.codes, got.clients, got.members)
    yield "the database alone, with names of users", loot, (loot.tokens, loot.refs, loot.users, loot.sessions, loot.keys, loot.confirmed)


def accepted_rooms(copy):
    """Rooms that wait for a short code may open with the keys, and so may queued pushes. Accepted rooms may not. Just after an accept, the file still
    has what waited for the code."""
    thief = copy.thief(copy.keys)
    thief.rows["job"] = []
    got = thief.work()
    accepted = {row["room"] for row in thief.shown["room"] if row["joiner_client"] is not None and row["retry"] is None}
    rows = {row["purge_id"] for row in thief.shown["token"] if row["room"] in accepted}
    yield "accepted rooms, with the keys", got, (
        {roomid for roomid in got.rooms if room_index(roomid) in accepted}, rows & got.refs.keys(),
        {token for token in got.tokens if thief.rooms_by_token[token] & accepted})


def after_the_end(copy):
    """Rows that ended before the second theft, attacked with all room ids and names."""
    thief, audience = copy.thief(copy.later_keys, rooms=copy.rooms, tries_codes=False), copy.audience_thief(copy.later_keys)
    last = copy.now - SLACK_MS
    for one in (thief, audience):
        one.rows = {table: [row for row in rows if end(row) < last] for table, rows in one.rows.items()}
    audience.seen = [index for index in audience.seen if int.from_bytes(index[:8], "big") < last]
    got, loot = thief.work(), audience.work()
    yield "what had ended, with later keys", got, (got.tokens, got.refs, got.rooms, got.clients, got.members)
    yield "registrations that had ended, with later keys", loot, (loot.tokens, loot.refs, loot.users, loot.sessions, loot.keys, loot.confirmed)


def main(folder, devices, later_keys, now):
    copy, wrong = Copy(Path(folder), Path(later_keys), int(now)), 0
    check_thieves(copy, int(devices))
    for attack in (without_keys, accepted_rooms, after_the_end):
        for what, got, kinds in attack(copy):
            if found := sum(map(len, kinds)):
                print(f"{what}: {found} found. {got.said()}")
                wrong = 1
    return wrong


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except Exception:
        print(traceback.format_exc())
        sys.exit(2)
