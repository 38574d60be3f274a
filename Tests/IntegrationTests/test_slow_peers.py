"""Peers that take their time: each phase of a connection has its deadline. These tests wait, all at once, in the background."""

import select
import time
from contextlib import suppress

import pytest

from bad_requests import ASK, BODY, request
from http2_frames import (
    GET, HEADERS, POST, PREFACE, START, FramePeer, ask, block, data, frame, head, settings)
from listeners import WAYS, Listeners
from peers import Peer
from processes import eventually

pytestmark = pytest.mark.campaign
background = pytest.mark.background


@pytest.fixture(scope="module")
def world():
    listeners = Listeners()
    yield listeners
    listeners.close()


def streams(world, **more):
    return FramePeer(world.broker("tls").port, world.certificate.context("h2"), **more)


HEAD = request().split(BODY)[0]
# DeadlineTests has each phase of a request, on a clock of its own.
SLOW = {"headers": (HEAD[:-4] + b"\r\nA: ", b"b"), "body": (HEAD, b" ")}


@pytest.mark.parametrize("way, phase", [("plain", "headers"), ("tls", "body")])
@background
def test_a_peer_that_sends_a_byte_a_second(world, way, phase):
    first, drip = SLOW[phase]
    with world.connect(way, timeout=1) as peer:
        peer.send(first)
        begun = time.monotonic()
        while True:
            assert time.monotonic() - begun < 16, "still open"
            peer.send(drip)
            try:
                answer = peer.problem(408)
                break
            except TimeoutError:
                continue
        assert 9 < time.monotonic() - begun
        assert answer.headers["connection"] == "close"
        assert peer.rest() == b""


@pytest.mark.parametrize("sent", [b"", b"\x16", bytes.fromhex("160303020001")], ids=["nothing", "a byte", "a record's head"])
@background
def test_a_peer_that_does_not_finish_the_handshake(world, sent):
    with Peer(world.broker("tls").port, timeout=16) as peer:
        begun = time.monotonic()
        peer.send(sent)
        assert not peer.rest().startswith(b"HTTP"), "an answer in plain text"
        assert 9 < time.monotonic() - begun < 16


@pytest.mark.parametrize("way", WAYS)
@background
def test_a_peer_that_never_reads(world, way):
    """It asks as long as the broker takes it, and is cut off 30 s after the last byte that went out."""
    with world.connect(way, timeout=1, receive_buffer=4096) as peer:
        asked = 0
        with suppress(TimeoutError):
            while asked < 400_000:
                peer.send(ASK * 100)
                asked += 100
        assert asked < 400_000, "the broker answered on and on"
        begun = time.monotonic()
        eventually(lambda: is_reset(peer.socket), 40, 0.5, "reset")
        assert time.monotonic() - begun > 15


def is_reset(sock):
    """Whether the other side gave up, told without reading."""
    poll = select.poll()
    poll.register(sock, select.POLLERR | select.POLLHUP)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


# HTTP/2: the beginning, and a request that comes slowly, end after 10 s; an answer that is not taken after 30 s.

SLOW_FRAMES = {
    "half a preface": (PREFACE[:10], None, "closed"),
    "half a block": (START + frame(HEADERS, 1, block(*GET)), None, "goaway ENHANCE_YOUR_CALM"),
    "a body in many pieces": (START + head(1, *POST), data(1, b" ", 0), "answer 408"),
    "no body, and other requests": (START + head(3, *POST), ask, "answer 408"),
}


@pytest.mark.parametrize("phase", SLOW_FRAMES)
@background
def test_frames_that_come_slowly(world, phase):
    first, drip, outcome = SLOW_FRAMES[phase]
    looked_at = 3 if drip is ask else 1
    with streams(world, timeout=1) as peer:
        peer.acknowledges = False
        peer.send(first)
        begun, count = time.monotonic(), 5
        while True:
            assert time.monotonic() - begun < 22, "still open"
            if drip:
                peer.send(drip(count) if callable(drip) else drip)
                count += 2
            try:
                assert peer.outcome(looked_at) == outcome
                break
            except TimeoutError:
                continue
        if outcome != "closed" or not drip:
            assert time.monotonic() - begun > 9


@background
def test_a_window_of_zero(world):
    """The answers' heads come, their bodies can't; the streams are given up, and the connection lives on."""
    with streams(world, timeout=1) as peer:
        peer.send(PREFACE + settings((4, 0)) + b"".join(ask(2 * n + 1) for n in range(50)))
        begun = time.monotonic()
        while True:
            assert time.monotonic() - begun < 45, "still waiting"
            try:
                outcome = peer.outcome(1)
                break
            except TimeoutError:
                continue
        assert outcome == "reset CANCEL" and peer.statuses[1] == 404
        assert time.monotonic() - begun > 25
        assert world.growth("tls") < 16e6


@pytest.mark.parametrize("taken", [0, 1], ids=["nothing", "a byte a second"])
@background
def test_a_peer_that_takes(world, taken):
    """Streams' windows opened byte by byte must not keep an answer for ever: it has 30 s."""
    with streams(world, timeout=1) as peer:
        peer.send(PREFACE + settings((4, taken)) + ask(1))
        begun = time.monotonic()
        while True:
            assert time.monotonic() - begun < 45, "still waiting"
            peer.send(frame(8, 1, (1).to_bytes(4, "big")) if taken else b"")
            try:
                assert peer.outcome(1) == "reset CANCEL"
                break
            except TimeoutError:
                continue


@background
def test_a_peer_that_never_reads_frames(world):
    with streams(world, timeout=2, receive_buffer=4096) as peer:
        peer.send(START)
        assert peer.flood(lambda n: ask(2 * n + 1), 1_000_000, reads=False) < 1_000_000
        eventually(lambda: is_reset(peer.socket), 45, 0.5, "reset")


@pytest.mark.parametrize("way", WAYS)
def test_memory_afterwards(world, way):
    print(f"{way}: {world.growth(way) / 1e6:+.1f} MB after all slow peers")
    assert world.growth(way) < 18e6
