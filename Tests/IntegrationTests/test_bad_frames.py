"""The table of bad HTTP/2 connections and requests against the broker: the outcome of each, and that refused requests had no effect."""

import pytest

from bad_frames import FRAME_ROWS
from bad_requests import CODE
from http2_frames import END_HEADERS, END_STREAM, HEADERS, POST, START, TABLE_SIZE, FramePeer, ask, block, field, frame
from listeners import Listeners, fresh


@pytest.fixture(scope="module")
def world():
    listeners = Listeners(["tls"])
    yield listeners
    listeners.close()


@pytest.fixture(scope="module")
def h2(world):
    return world.certificate.context("h2")


# One row for each status, and for each way in which a stream or a connection ends.
ONE_OF_EACH = {
    "a right length", ":path b'/api/rooms#x'", ":path b'/api/%zz'", ":method post", "length of a gigabyte", ":path of 8193 bytes", "encoded body",
    "another expectation", "101 fields", "length too long", "33 settings at once", "a block in 20 pieces", "HTTP/1.1 after h2 was agreed"}
ROWS = [row if row.name in ONE_OF_EACH else pytest.param(row, marks=pytest.mark.campaign) for row in FRAME_ROWS]
NAMES = [row.name for row in FRAME_ROWS]
assert ONE_OF_EACH <= set(NAMES), ONE_OF_EACH - set(NAMES)


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_row(world, h2, row):
    code = fresh()
    with FramePeer(world.broker("tls").port, h2) as peer:
        peer.send(row.sent.replace(CODE, code))
        assert peer.outcome(row.stream) == row.outcome, (peer.statuses, peer.bodies)
        if row.stays:
            peer.send(ask(7))
            assert peer.outcome(7) == "answer 404", "the next request on the connection was not answered"
        else:
            peer.rest()
    assert world.made("tls", code) == row.made


# Header blocks that grow when they are unpacked. HTTP2AbuseTests has the floods of frames.

@pytest.mark.campaign
@pytest.mark.parametrize("size", [b"", TABLE_SIZE], ids=["before the table is closed", "after it is closed"])
def test_a_header_bomb_is_refused(world, h2, size):
    """A large field in the table and a block of references to it: 16 KB that unpack to 48 MB."""
    large = b"\x40" + field(b"a", b"b" * 3_000)[1:]
    with FramePeer(world.broker("tls").port, h2) as peer:
        peer.send(START + frame(HEADERS, 1, size + block(*POST)[1:] + large + b"\xbe" * 12_000, END_HEADERS | END_STREAM))
        assert peer.outcome(1) in ("answer 431", "goaway COMPRESSION_ERROR", "goaway ENHANCE_YOUR_CALM")
    assert world.growth("tls") < 16e6


@pytest.mark.campaign
def test_repeated_table_sizes_are_refused(world, h2):
    with FramePeer(world.broker("tls").port, h2) as peer:
        peer.send(START + frame(HEADERS, 1, b"\x20\x3f\x01" * 5_000 + block(*POST)[1:], END_HEADERS | END_STREAM))
        assert peer.outcome(1) in ("goaway COMPRESSION_ERROR", "answer 400")
