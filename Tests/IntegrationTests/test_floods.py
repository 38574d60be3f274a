"""HTTP/2 peers that make work: each is told to calm down, or bounded, and the broker answers others meanwhile."""

import time

import pytest

from bad_requests import ASK, BODY, CODE
from http2_frames import (
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PADDED, PING, POST, PRIORITY, START, TABLE_SIZE, FramePeer, ask,
    block,
    data, field, frame, head, reset, settings, window)
from listeners import Listeners, fresh


@pytest.fixture(scope="module")
def world():
    listeners = Listeners(["tls"])
    yield listeners
    listeners.close()


@pytest.fixture
def peer(world):
    with FramePeer(world.broker("tls").port, world.certificate.context("h2")) as peer:
        yield peer


def stream(number):
    return 2 * number + 1


MANY = 50_000
OPEN = START + head(1, *POST)
UNFINISHED = START + frame(HEADERS, 1, block(*POST))
# How it begins, and what is sent again and again until the broker ends the connection.
FLOODS = {
    "rapid reset": (START, lambda n: ask(stream(n)) + reset(stream(n))),
    "rapid reset of unfinished requests": (START, lambda n: head(stream(n), *POST) + reset(stream(n))),
    "resets provoked by a window": (START, lambda n: head(stream(n), *POST) + window(stream(n), 2**31 - 1)),
    "resets provoked by a length": (
        START, lambda n: head(stream(n), *POST, (b"content-length", b"1")) + data(stream(n), b"12")),
    "resets provoked by a field": (START, lambda n: head(stream(n), *POST, (b"A", b"b"), flags=END_HEADERS | END_STREAM)),
    "resets provoked by trailers": (START, lambda n: head(stream(n), *POST) + head(stream(n), (b"a", b"b"))),
    "small CONTINUATION": (UNFINISHED, lambda n: frame(CONTINUATION, 1, field(b"a", b"b"))),
    "empty CONTINUATION": (UNFINISHED, lambda n: frame(CONTINUATION, 1)),
    "large CONTINUATION": (UNFINISHED, lambda n: frame(CONTINUATION, 1, field(b"a", b"b" * 16_000))),
    "SETTINGS": (START, lambda n: settings((3, n))),
    "empty SETTINGS": (START, lambda n: settings()),
    "SETTINGS that move the windows of many streams": (
        START + b"".join(head(stream(n), *POST) for n in range(100)), lambda n: settings((4, n % 2 * 65_535))),
    "acknowledgements": (START, lambda n: settings(flags=ACK)),
    "PING": (START, lambda n: frame(PING, 0, b"12345678")),
    "PING answers": (START, lambda n: frame(PING, 0, b"12345678", ACK)),
    "empty DATA": (OPEN, lambda n: data(1, b"", 0)),
    "empty DATA with padding": (OPEN, lambda n: frame(DATA, 1, b"\x03" + bytes(3), PADDED)),
    "WINDOW_UPDATE": (START, lambda n: window(0, 1)),
    "WINDOW_UPDATE of a stream": (OPEN, lambda n: window(1, 1)),
    "PRIORITY": (START, lambda n: frame(PRIORITY, stream(n), bytes(4) + b"\x10")),
    "PRIORITY_UPDATE": (START, lambda n: frame(0x10, 0, (stream(n)).to_bytes(4, "big") + b" " * 1000)),
    "frames of an unknown kind": (START, lambda n: frame(0x42, 0, bytes(1000))),
    "DATA on a refused stream": (
        OPEN + data(1, bytes(16_384), 0) + data(1, b"x", 0), lambda n: data(1, bytes(16_000), 0)),
    "resets of a closed stream": (START + ask(1), lambda n: reset(1)),
    "HEADERS beyond the streams allowed": (START, lambda n: head(stream(n), *POST)),
    "HEADERS on a closed stream": (START + ask(1) + ask(3), lambda n: head(1, *POST, (b"a", b"b" * 1000))),
}


@pytest.mark.parametrize("name", FLOODS)
def test_flood(world, peer, name):
    beginning, frames = FLOODS[name]
    begun = time.monotonic()
    peer.send(beginning)
    sent = peer.flood(frames, MANY)
    outcome = peer.outcome(2**31 - 1) if sent == MANY else f"goaway {peer.error}" if peer.error else "closed"
    print(f"{name}: {sent} sent, {outcome}, {time.monotonic() - begun:.1f} s")
    assert outcome == "closed" or outcome.startswith("goaway")
    with world.connect("tls") as other:
        other.send(ASK)
        assert other.answer().status == 404


def test_more_streams_than_allowed(peer):
    """Before its settings are acknowledged the surplus is refused; nothing of it is served (RFC 9113 section 5.1.2)."""
    peer.send(START + b"".join(head(stream(n), *POST) for n in range(200)))
    assert peer.outcome(stream(199)) == "reset REFUSED_STREAM"
    allowed = peer.peer_settings[3]
    assert 0 < allowed <= 128
    assert sum(end == "reset REFUSED_STREAM" for end in peer.ends.values()) == 200 - allowed
    peer.send(data(1, BODY.replace(CODE, fresh())))
    assert peer.outcome(1) == "answer 201"


@pytest.mark.parametrize("size", [b"", TABLE_SIZE], ids=["before the table is closed", "after it is closed"])
def test_hpack_bomb(world, peer, size):
    """A large field in the table, and a block of references to it: 48 MB from 16 KB."""
    large = b"\x40" + field(b"a", b"b" * 3_000)[1:]
    peer.send(START + frame(HEADERS, 1, size + block(*POST)[1:] + large + b"\xbe" * 12_000, END_HEADERS | END_STREAM))
    assert peer.outcome(1) in ("answer 431", "goaway COMPRESSION_ERROR", "goaway ENHANCE_YOUR_CALM")
    assert world.growth("tls") < 16e6


def test_table_sizes_again_and_again(peer):
    peer.send(START + frame(HEADERS, 1, b"\x20\x3f\x01" * 5_000 + block(*POST)[1:], END_HEADERS | END_STREAM))
    assert peer.outcome(1) in ("goaway COMPRESSION_ERROR", "answer 400")


def test_never_reading(world):
    """Requests on and on, and no answer is taken: the broker stops reading, and holds no more than what is under way."""
    with FramePeer(world.broker("tls").port, world.certificate.context("h2"), receive_buffer=4096, timeout=2) as peer:
        peer.send(START)
        sent = peer.flood(lambda n: ask(stream(n)), 1_000_000, reads=False)
        print(f"{sent} requests were taken, {world.growth('tls') / 1e6:+.1f} MB")
        assert sent < 1_000_000
        assert world.growth("tls") < 16e6


def test_memory_afterwards(world):
    """Last. What one connection may hold at a time: 64 streams of 16 KiB body, 28 KiB fields and as much again where they are put
    together, and the 4 MB that may wait for it: 10 MB; and what the allocator keeps of that."""
    print(f"{world.growth('tls') / 1e6:+.1f} MB after all floods")
    assert world.growth("tls") < 16e6
