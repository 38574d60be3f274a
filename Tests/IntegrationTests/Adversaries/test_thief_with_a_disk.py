"""Thieves with the disk: the database, its log and backups, with and without the key file, of one or several moments."""

import pytest

import carving
import ledger
import table
from canary import search
from long_story import WORDS
from opening import is_row_of
from thief import Recovered, Thief
from traces import correlation
from verdict import hold

pytestmark = pytest.mark.campaign


def tokens(rooms):
    return set().union(*(room.tokens for room in rooms))


def codes(rooms):
    return {room.code for room in rooms}


def ids(rooms):
    return {room.roomid for room in rooms}


def images(story):
    return [story.quiet_image, story.at_once, story.after_a_minute, story.after_retries, story.after_a_room, story.after_codes,
            story.after_a_day, story.after_three_days]


# Without keys.


# Promise: database-alone
def test_the_database_alone_opens_no_room(story):
    got = Recovered()
    for image in images(story):
        for files in (image.database, image.backup()):
            one = Thief(files, words=WORDS).work()
            for kind in ("tokens", "rooms", "codes", "clients", "members", "links"):
                getattr(got, kind).update(getattr(one, kind))
                got.how[kind] |= one.how[kind]
    hold(got, story.truth, table.DATABASE, "opening rows, trying codes, guessing clients, comparing rows, carving free pages and log",
         "no token, room id, join code, client id; no link between two rooms of one phone")


def test_the_database_shows_counts_times_and_purges(story):
    """The design allows these. The search must find them, or it looks in the wrong place."""
    rows = carving.select(story.at_once.database)
    rooms = {row["room"]: row for row in rows["room"]}
    for room in story.named:
        if room is story.closed:
            assert room.index not in rooms
            continue
        row = rooms[room.index]
        assert abs(row["expires"] / 1000 - room.expires) < 5
        assert (row["joiner_client"] is not None) == (2 in room.clients)
        for slot, column in ((1, "creator_token"), (2, "joiner_token")):
            assert (row[column] is None) == (slot not in room.refs)
            assert row[column] is None or is_row_of(bytes.fromhex(room.refs[slot]), {"purge_id": row[column], "expires": row["expires"]})
    [job] = rows["job"]
    assert is_row_of(bytes.fromhex(story.knocked.refs[2]), job)
    table.record(
        table.DATABASE, "reading it",
        f"{len(rooms)} rooms and {len(rows['token'])} tokens: their ends, their later purges in the log, who was accepted, which two are one room's",
        "counts, times, the ids of later purges")


# Promise: rows-tell-no-order
def test_the_database_does_not_show_the_order_of_rooms(story):
    """Rooms of many lengths. The order of rows is not the order in which rooms were made, and there is no hidden count."""
    queries = {"scan": "SELECT room FROM room NOT INDEXED", "tokens": "SELECT room FROM token"}
    found = {name: [row["room"] for row in rows] for name, rows in carving.select(story.after_a_room.database, queries).items()}
    made = [room.index for room in story.truth.rooms]
    told = {name: abs(correlation(order, made)) for name, order in found.items()}
    table.record(
        table.DATABASE, "the order in which rooms were made", f"rank correlation {max(told.values()):.2f} (1: all of it)",
        "order says nothing")
    assert max(told.values()) < 0.5, told


def test_no_secret_is_on_the_disk_in_the_clear(story):
    contents = set()
    for image in images(story):
        contents.update(*(folder.values() for folder in (image.database, image.keys, image.ledger)))
    found = search(contents, story.truth.canaries())
    table.record(table.DATABASE, "secrets in any file, raw, in hex or base64", ", ".join(found) or "nothing", "nothing")
    assert not found


def test_purged_rows_leave_no_piece_on_the_disk(story):
    """After a minute: not in a free page, not between rows, not in the write-ahead log."""
    earlier, found = [], set()
    for image in images(story):
        # The other images are taken under load.
        if image not in (story.quiet_image, story.at_once, story.after_a_day):
            found |= {name for name, _ in carving.remnants(image.database, earlier)}
        earlier.append(image.database)
    table.record(
        table.DATABASE, "pieces of 16 bytes of rows that are gone", f"some in {' and '.join(sorted(found))}" if found else "none",
        "what is purged leaves the disk within a minute")
    assert not found


# With the key file.


# Promise: keys-need-the-room-id
def test_keys_open_no_accepted_room(story):
    image = story.after_codes
    got = Thief({**image.database, "backup": image.backup()["mayfly.sqlite"]}, image.keys, words=WORDS).work()
    hold(got, story.truth, table.ACCEPTED, "all of the above with its keys", "as without it: a token needs the room id")


# Promise: queued-push-opens-for-minutes
def test_keys_open_a_queued_push(story):
    who = table.ACCEPTED
    for image, what in ((story.at_once, "a knock that is queued"), (story.after_a_minute, "the same knock a minute later")):
        got = Thief(image.database, image.keys, tries_codes=False).work()
        hold(got, story.truth, who, what, "the token of that knock", tokens={story.knocked.phones[2].token})
    got = Thief(story.after_retries.database, story.after_retries.keys, tries_codes=False).work()
    hold(got, story.truth, who, "a minute after the knock was over", "nothing: it waits two minutes at most")
    got = Thief(story.at_once.database, story.after_a_room.keys, tries_codes=False).work()
    hold(got, story.truth, who, "the image with the knock, the keys of ten minutes later", "nothing: its key is gone")


# Promise: codes-fall-while-valid
def test_keys_open_rooms_with_short_codes(story):
    """Six digits are guessed, and open the room id and the creator's token; for two minutes also what a guessed client id opens. Longer codes resist."""
    who = table.WAITING
    waiting, accepted, [first, *_] = story.pending, story.accepted, story.accepted
    fallen = {"rooms": ids(waiting), "tokens": tokens(waiting), "clients": {"alice"}, "members": set(),
              "links": story.truth.links(waiting)}
    created = fallen | {"members": {waiting[0].members[1]}}
    knocked = {story.knocked.phones[2].token}
    answer = {"rooms": {first.roomid}, "tokens": first.tokens, "clients": {"bob"}, "members": {first.members[2]}, "links": set()}
    # Just after an accept the write-ahead log still holds the pending row.
    just_now = {"rooms": ids(accepted), "tokens": tokens(accepted), "clients": {"dora"}, "members": {accepted[2].members[1]},
                "links": story.truth.links(accepted)}

    def both(one, other):
        return {kind: one[kind] | other[kind] for kind in one}

    cases = (
        ("seconds after the accepts", story.at_once, both(created, answer), waiting + accepted, knocked, just_now,
         "codes of six digits and their rooms; for a minute also of rooms just accepted"),
        ("a minute later", story.after_a_minute, both(created, answer), waiting + accepted, knocked, {},
         "codes of six digits and the rooms that wait for them; for two minutes the answers to create and accept, if the client id is guessed"),
        ("three minutes later", story.after_retries, fallen, waiting + accepted, set(), {},
         "the same without those answers; a used code opens nothing"),
        ("twenty minutes later", story.after_a_room, fallen, waiting, set(), {}, "the same, and used codes are gone after ten minutes"))
    for what, image, must, found, more, may, allowed in cases:
        got = Thief(image.database, image.keys, words=WORDS).work()
        hold(got, story.truth, who, what, allowed, may, **must | {"codes": codes(found), "tokens": must["tokens"] | more})


def test_no_row_leads_to_an_earlier_entry(story, tmp_path):
    """With keys and the whole later log, a row leads to its purge, and a queued push to its opening. The room id leads to all."""
    log = ledger.Ledger(story.after_three_days.write_ledger(tmp_path / "ledger"), story.stage.state.vkey).entries
    image = story.at_once

    def led(rooms):
        thief = Thief(image.database, image.keys, rooms, WORDS, tries_codes=False)
        thief.work()
        return thief.entries(log)
    [job] = carving.select(image.database)["job"]
    found = led(())
    pushed = {entry["op"] for entry in found[job["purge_id"]]}
    earlier = [entry for name, entries in found.items() for entry in entries if entry["op"] != "token.purged" and name != job["purge_id"]]
    table.record(
        table.ACCEPTED, "from rows to entries of the log of three days later",
        f"{len(found)} purges to come; of a queued push {', '.join(sorted(pushed))}; {len(earlier)} other entries",
        "a row's later purge; a queued push's opening and its outcome")
    assert len(found) > 100, "not even purges: this proves nothing"
    assert not earlier and "token.opened" in pushed and "token.sealed" not in pushed
    known = led([story.member_room.roomid])
    for slot in (1, 2):
        ref = bytes.fromhex(story.member_room.refs[slot])
        row = next(row for row in carving.select(image.database)["token"] if is_row_of(ref, row))
        ops = {entry["op"] for entry in known[row["purge_id"]]}
        assert "token.sealed" in ops, "with the room id nothing either: this proves nothing"


# Material of two moments.


def test_new_keys_open_no_old_database(story):
    old, who = story.after_a_minute, table.WAITING
    got = Thief(old.database, story.after_codes.keys, words=WORDS).work()
    hold(got, story.truth, who, "an image from then, the keys of ten minutes after the codes' end",
         "used and ended codes until their day's key is gone; they open nothing", codes=codes(story.pending + story.accepted))
    got = Thief(old.database, story.after_three_days.keys, words=WORDS).work()
    hold(got, story.truth, who, "an image from then, the keys of three days later", "nothing")


def test_no_room_opens_ten_minutes_after_expiry(story):
    """Even with the room id and any image of the database: the key no longer exists."""
    allowed = "nothing: the key no longer exists"
    for image, what in ((story.at_once, "an image from when the token lived, and its room id"), (story.after_a_room, "all that is there then")):
        got = Thief(image.database, story.after_a_room.keys, [story.short.roomid], WORDS, tries_codes=False).work()
        hold(got, story.truth, table.AFTER_EXPIRY, what, allowed)
    lived = Thief(story.at_once.database, story.at_once.keys, [story.short.roomid], WORDS, tries_codes=False).work()
    assert story.short.tokens <= lived.tokens and lived.clients == {"erin"}, "not even while it lived: this proves nothing"


# Promise: earlier-keys-end-with-the-day
def test_old_keys_open_only_their_generation(story):
    rooms = [*story.named, story.later, *story.next_day]
    got = Thief(story.after_a_day.database, story.at_once.keys, ids(rooms), WORDS).work()
    same_day = [*story.accepted, story.replaced, story.withdrawn, story.member_room, story.knocked, story.later]
    hold(got, story.truth, table.EARLIER_KEYS, "a day later, knowing all room ids",
         "what was sealed in the same generation (a day); of the next only its codes, which open nothing",
         tokens=tokens(same_day), codes=codes(story.next_day), clients={"bob", "carol", "dora"}, links=story.truth.links(same_day))
    got = Thief(story.after_a_day.database, story.at_once.keys, words=WORDS).work()
    hold(got, story.truth, table.EARLIER_KEYS, "a day later, knowing no room", "codes of six digits, which open nothing", codes=codes(story.next_day))


def test_an_image_with_keys_opens_to_whoever_learns_the_room_ids(story):
    """For ever: the value of a copy of everything."""
    image = story.after_a_minute
    got = Thief(image.database, image.keys, ids(story.named), WORDS, tries_codes=False).work()
    living = [room for room in story.named if room is not story.closed]
    hold(got, story.truth, table.EARLIER_KEYS, "both of one moment, knowing room ids", "what was live then", tokens=tokens(living),
         clients={"alice", "bob", "carol", "dora", "erin"}, links=story.truth.links(living))


# A member.


# Promise: member-with-the-disk
def test_a_member_with_the_disk_opens_the_peers_token(story):
    cases = ((story.member_room, "an accepted room", {"carol"}), (story.replaced, "the peer's token was replaced", set()),
             (story.withdrawn, "the peer's token was withdrawn", set()), (story.closed, "the room was closed", set()))
    for room, what, guessed in cases:
        image = story.after_a_minute
        got = Thief(image.database, image.keys, [room.roomid], WORDS, tries_codes=False).work()
        allowed = "both sides' present tokens; a client id that it guesses" if room.tokens else "nothing of the room"
        hold(got, story.truth, table.MEMBER_WITH_DISK, f"{what}, a minute ago",
             # Anyone with the keys can open the queued push.
             f"{allowed}; a queued knock's token",
             tokens=room.tokens | {story.knocked.phones[2].token}, clients=guessed)


def test_a_withdrawn_token_is_erased_but_keeps_its_key(story):
    """It leaves the disk. An earlier image opens with the room id until the token would have expired."""
    room, keys = story.later, story.after_codes.keys
    for image, what, must in ((story.after_a_room, "an image from before a token was withdrawn", room.tokens | {room.earlier[0].token}),
                              (story.after_codes, "twenty minutes after a token was withdrawn", room.tokens)):
        got = Thief(image.database, keys, [room.roomid], WORDS, tries_codes=False).work()
        hold(got, story.truth, table.MEMBER_WITH_DISK, what, "what the image holds, until expiry", tokens=must)
