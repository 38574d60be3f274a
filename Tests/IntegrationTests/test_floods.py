"""HTTP/2 header blocks that grow when they are unpacked. HTTP2AbuseTests has the floods of frames."""

import pytest

from http2_frames import END_HEADERS, END_STREAM, HEADERS, POST, START, TABLE_SIZE, FramePeer, block, field, frame
from listeners import Listeners

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


@pytest.mark.parametrize("size", [b"", TABLE_SIZE], ids=["before the table is closed", "after it is closed"])
def test_a_header_bomb_is_refused(world, peer, size):
    """A large field in the table and a block of references to it: 16 KB that unpack to 48 MB."""
    large = b"\x40" + field(b"a", b"b" * 3_000)[1:]
    peer.send(START + frame(HEADERS, 1, size + block(*POST)[1:] + large + b"\xbe" * 12_000, END_HEADERS | END_STREAM))
    assert peer.outcome(1) in ("answer 431", "goaway COMPRESSION_ERROR", "goaway ENHANCE_YOUR_CALM")
    assert world.growth("tls") < 16e6


def test_repeated_table_sizes_are_refused(peer):
    peer.send(START + frame(HEADERS, 1, b"\x20\x3f\x01" * 5_000 + block(*POST)[1:], END_HEADERS | END_STREAM))
    assert peer.outcome(1) in ("goaway COMPRESSION_ERROR", "answer 400")
