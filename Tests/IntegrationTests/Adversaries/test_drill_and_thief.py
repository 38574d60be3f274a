"""Compares what `mayfly drill` reports with what the thief opens in the same image."""

import pytest

import table
from mayfly import new_token
from thief import Thief

pytestmark = pytest.mark.campaign


def test_the_drill_counts_what_a_thief_opens(story, drill):
    """At four moments, without a guess: tokens that open, short codes, and rooms that wait for them."""
    waiting = {room.code for room in story.pending}
    said = []
    for image in (story.at_once, story.after_a_minute, story.after_retries, story.after_codes):
        found = drill(image)
        alone = Thief(image.database, image.keys, tries_codes=False).work()
        trying = Thief(image.database, image.keys).work()
        rows = Thief(image.database).shown
        assert found["queued_tokens"][1] == len(alone.tokens)
        assert found["room_tokens"] == (len(rows["token"]), 0)
        # Six digits are the only short codes here. Of those that wait each falls, and with it the room.
        assert found["short_join_codes"][0] == len(trying.codes & waiting)
        assert len({room.roomid for room in story.pending} & trying.rooms) == len(trying.codes & waiting)
        assert found["room_ids"] == (sum(row["pending"] is not None for row in rows["room"]), 0)
        said.append(f"{found['queued_tokens'][1]} and {found['short_join_codes'][0]}")
    assert said[0] == f"1 and {len(waiting)}" and said[-1] == "0 and 0", said
    table.record(
        table.ACCEPTED, "mayfly drill at four moments: tokens that open by themselves, short codes that wait", ", ".join(said),
        "what the thief gets from the same images")


def test_the_drill_of_a_room_opens_what_a_member_could(story, drill):
    """Whatever became of the room's tokens."""
    image, said = story.after_a_minute, []
    for room in (story.member_room, story.replaced, story.withdrawn, story.closed, story.short):
        found = drill(image, "--room", room.roomid_text)
        opens = sum(found.get(side, (0, 0))[1] for side in ("creator_token", "joiner_token"))
        got = Thief(image.database, image.keys, [room.roomid], tries_codes=False).work()
        assert opens == len(room.tokens) == len(got.tokens - {story.knocked.phones[2].token})
        said.append(str(opens))
    assert drill(story.after_a_room, "--room", story.short.roomid_text) == {"room": (0, 0)}
    table.record(
        table.MEMBER_WITH_DISK, "mayfly drill --room, for five rooms", f"{', '.join(said)} tokens",
        "what the thief gets with the same room ids")


def test_a_code_and_a_token(story, drill):
    image, [room, *_] = story.at_once, story.pending
    got = Thief(image.database, image.keys).work()
    assert room.roomid in got.rooms and room.tokens <= got.tokens
    found = drill(image, "--code", room.code)
    assert (found["room_ids"], found["creator_token"], found["joiner_token"]) == ((1, 1), (1, 1), (0, 0))
    # A used code opens the room with the joiner's client id, for two minutes.
    assert drill(image, "--code", story.accepted[0].code)["room_ids"] == (1, 0)
    assert drill(story.after_retries, "--code", story.accepted[0].code)["room_ids"] == (0, 0)
    assert drill(image, "--token", story.knocked.phones[2].token.hex())["queued_tokens"] == (1, 1)
    assert drill(image, "--token", story.knocked.phones[1].token.hex())["queued_tokens"] == (1, 0)
    assert drill(image, "--token", new_token())["queued_tokens"] == (1, 0)
