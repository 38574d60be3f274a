"""Adversaries without the disk: a stranger, and a member of a room, over HTTP and a socket."""

import base64
import time

import pytest

import table
from canary import Canaries, search
from mayfly import Socket, invented_room
from processes import eventually, mayfly
from truth import Phone, six_digits

pytestmark = pytest.mark.campaign


@pytest.fixture
def client(story):
    """One caller with an address of its own, on the broker of the long story."""
    return story.stage.client()


def test_strangers_get_one_answer_for_all_missing_rooms(story, client):
    """Unknown, expired and closed rooms have the same answer, byte by byte."""
    gone = [story.short, story.closed, story.pending[0]]
    answers = {(a.status, a.body) for a in [client.status(room.roomid_text) for room in gone] + [client.status(roomid) for roomid in ("A" * 43, invented_room())]}
    answers |= {(a.status, a.body) for a in [client.delete(room.roomid_text) for room in gone]}
    told = {(a.status, a.body) for a in [client.accept(room.code) for room in gone] + [client.accept("never-was-a-code")]}
    table.record(
        table.STRANGER, "rooms and codes that never were, ended, were closed",
        "nothing: one answer for all" if len(answers) == len(told) == 1 else "which of them there were", "nothing")
    assert len(answers) == len(told) == 1 and answers.pop()[0] == told.pop()[0] == 404


def test_guesses_of_a_stranger_are_limited(story, client):
    """Six digits, one address: a hundred guesses in ten minutes, right ones included, as `policy show` prints."""
    waiting = story.truth.create(story.stage.client(), code=six_digits())
    tried = []
    for number in range(110):
        guess = f"{(int(waiting.code) + 1 + number) % 1_000_000:06}"
        tried.append(client.accept(guess, "stranger").status)
    shut_out = client.accept(waiting.code, "stranger").status
    # The chance is printed: per day, for one room of six digits.
    shown = mayfly("policy", "show", "rooms").stdout
    table.record(
        table.STRANGER, "110 codes from one address", f"{tried.count(404)} were looked up, then 429, also for the right one",
        "guessing has a printed probability")
    assert tried == [404] * 100 + [429] * 10 and shut_out == 429
    assert "six digits" in shown or "6 digits" in shown, shown


def test_a_member_can_only_knock_close_and_see_presence(story, client):
    """The joiner knows even the creator's client id."""
    truth = story.truth
    room = truth.pair(client, Phone())
    # The creator shows its member secret once: from then on its client id is worth nothing.
    member = story.stage.client()
    proof = member.send("POST", "/api/room/presence", {"client": room.clients[1], "member": _text(room.members[1]), "leaving": True},
                        bearer=room.roomid_text).expect(202)
    joiner = story.stage.client()
    seen = [proof.body]
    for call in (lambda: joiner.put_token(room.roomid_text, room.clients[1], "ab" * 32),
                 lambda: joiner.delete_token(room.roomid_text, room.clients[1]),
                 lambda: joiner.presence(room.roomid_text, room.clients[1])):
        seen.append(call().expect(403, "member_required").body)
    for call in (lambda: joiner.put_token(room.roomid_text, room.clients[1], "ab" * 32, member=_text(room.members[2])),
                 lambda: joiner.delete_token(room.roomid_text, room.clients[1], member=_text(room.members[2])),
                 lambda: joiner.put_token(room.roomid_text, "someone else", "ab" * 32)):
        seen.append(call().expect(403, "not_a_member").body)
    status = joiner.status(room.roomid_text).expect(200)
    assert set(status.json) == {"expiresAt", "accepted", "creatorPresent", "joinerPresent", "creatorHasToken", "joinerHasToken"}
    assert status.json["creatorHasToken"] is True, "the other's token was taken away"
    seen.append(status.body)
    phone = room.phones[1].token.hex()
    before = len(story.stage.simulator.pushes(phone))
    answers = [joiner.presence(room.roomid_text, room.clients[2])]
    # A waiting push uses up its side's share, which would hide a missing throttle.
    eventually(lambda: story.stage.simulator.pushes(phone), what="the push")
    story.stage.wait_for_pushes()
    answers += [joiner.presence(room.roomid_text, room.clients[2]) for _ in range(19)]
    seen += [answer.body for answer in answers]
    said = [answer.json["delivery"] for answer in answers if answer.status == 202]
    assert said == ["queued"] + ["throttled"] * (len(said) - 1) and len(said) in (5, 10) and before == 0
    assert {answer.status for answer in answers} == {202, 429}
    # One side may report and join five times in five seconds.
    time.sleep(5.1)
    with Socket(story.stage.broker) as creator, Socket(story.stage.broker) as other:
        creator.join(room.roomid_text, room.clients[1], _text(room.members[1]))
        seen.append(repr(other.join(room.roomid_text, room.clients[2])).encode())
    # Secrets of the peer in the answers to this side.
    found = search(seen, _of_the_other(room))
    purged = joiner.delete(room.roomid_text).expect(200).json["purged"]
    table.record(
        table.MEMBER, "reading, replacing, withdrawing the other's token; 20 knocks; closing",
        (", ".join(found) or "its presence") + f"; 1 of 20 knocks sent; the room closed ({purged} tokens)",
        "whether the other is there; can knock within limits and close the room")
    assert not found and purged == 2


def _text(secret):
    return base64.urlsafe_b64encode(secret).decode().rstrip("=")


def _of_the_other(room):
    canaries = Canaries()
    canaries.add("the other's token", room.phones[1].token)
    canaries.add("the other's client id", room.clients[1])
    canaries.add("the other's member secret", room.members[1])
    return canaries
