"""HTTP/2 peers that make work: each is told to calm down, or bounded, and the broker answers others meanwhile."""

import time

import pytest

from bad_requests import ASK, BODY, CODE
from http2_frames import CONTINUATION, END_HEADERS, END_STREAM, HEADERS, POST, START, TABLE_SIZE, FramePeer, ask, block, data, field, frame, head, reset
from listeners import Listeners, fresh

pytestmark = pytest.mark.campaign


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
# How it begins, and what is sent again and again until the broker ends the connection. HTTP2AbuseTests has a flood of each kind of frame.
FLOODS = {
    "rapid reset": (START, lambda n: ask(stream(n)) + reset(stream(n))),
    "small CONTINUATION": (START + frame(HEADERS, 1, block(*POST)), lambda n: frame(CONTINUATION, 1, field(b"a", b"b"))),
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
