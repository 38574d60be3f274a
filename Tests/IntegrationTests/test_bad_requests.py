"""The table of bad HTTP/1.1 requests against the broker, plain and over TLS: each answer, and that nothing came of what was refused."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bad_bodies import BODIES
from bad_requests import ASK, BODY, CODE, HEADS, HIDDEN, request
from listeners import WAYS, Listeners, fresh

ROWS = HEADS + BODIES


@pytest.fixture(scope="module")
def world():
    listeners = Listeners()
    yield listeners
    listeners.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(world, way, row):
    code, hidden = fresh(), fresh()
    with world.connect(way) as peer:
        peer.send(row.sent.replace(CODE, code).replace(HIDDEN, hidden))
        for number, status in enumerate(row.answers):
            answer = peer.problem(status, to_head=number == 0 and row.sent.startswith(b"HEAD"))
        if row.stays:
            assert "close" not in answer.headers.get("connection", "")
            peer.send(ASK)
            assert peer.answer().status == 404, "the next request on the connection was not answered"
        else:
            assert answer.headers["connection"] == "close"
            assert peer.rest() == b"", "bytes after the last answer"
    assert world.made(way, code) == row.made
    assert world.made(way, hidden) == 0, "the hidden request was served"


# What can't be a row, since it needs more than bytes.

@pytest.mark.parametrize("way", WAYS)
def test_100_continue(world, way):
    code = fresh()
    head, body = request(b"POST /api/rooms HTTP/1.1", b"Expect: 100-continue").replace(CODE, code).split(b"\r\n\r\n", 1)
    with world.connect(way) as peer:
        peer.send(head + b"\r\n\r\n")
        assert peer.answer().status == 100
        peer.send(body)
        assert peer.answer().status == 201
        # Nobody waits for it when the body comes at once, and then none is owed (RFC 9110 section 10.1.1).
        peer.send(head + b"\r\n\r\n" + body)
        assert peer.answer().status in (200, 201, 409)
    with world.connect(way) as peer:
        peer.send(head.replace(b"Content-Length: %d" % len(BODY), b"Content-Length: 16385") + b"\r\n\r\n")
        peer.problem(413)
        assert peer.rest() == b""


@pytest.mark.parametrize("way", WAYS)
def test_half_closed_after_whole_requests(world, way):
    code = fresh()
    with world.connect(way) as peer:
        peer.send(ASK + request().replace(CODE, code))
        peer.finish()
        assert [peer.answer().status, peer.answer().status] == [404, 201]
        assert peer.rest() == b""
    assert world.made(way, code) == 1


HALVES = {
    "nothing": b"", "half a request line": b"POST /api/ro", "half a head": request()[:60], "half a body": request()[:-5],
    "half of the chunks": b"POST /api/rooms HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(BODY), BODY),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", HALVES)
def test_half_closed_or_reset_within_a_request(world, way, name):
    code = fresh()
    with world.connect(way) as peer:
        peer.send(HALVES[name].replace(CODE, code))
        peer.finish()
        rest = peer.rest()
        assert rest == b"" or rest.startswith(b"HTTP/1.1 400 "), rest
    with world.connect(way) as peer:
        peer.send(ASK + HALVES[name].replace(CODE, code))
        peer.reset()
    assert world.made(way, code) == 0


@pytest.mark.parametrize("way", WAYS)
def test_resets_while_requests_are_answered(world, way):
    """Nobody is left to read the answers. Each room is made or not; the broker goes on."""
    def abandon(_):
        with world.connect(way) as peer:
            peer.send(request().replace(CODE, fresh()) * 3)
            peer.reset()
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(abandon, range(200)))
    assert world.made(way, fresh()) == 0


@pytest.mark.parametrize("way", WAYS)
def test_every_split_of_a_request(world, way):
    """Where the bytes are cut must not matter."""
    sent = b"POST /api/rooms HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n{\r\n" \
        + b"%x;a=b\r\n%b\r\n0\r\nX: y\r\n\r\n" % (len(BODY) - 1, BODY[1:])

    def split(at):
        whole = sent.replace(CODE, fresh())
        with world.connect(way) as peer:
            peer.send(whole[:at])
            time.sleep(0.03)
            peer.send(whole[at:])
            return peer.answer().status
    with ThreadPoolExecutor(32) as threads:
        statuses = list(threads.map(split, range(1, len(sent))))
    assert set(statuses) == {201}, statuses


@pytest.mark.parametrize("way", WAYS)
def test_memory_afterwards(world, way):
    """Last. What stays is the allocator's: buffers of the 64 connections at most that were open at a time, each of them bounded by
    16 KiB of head, 16 KiB of body, 64 KiB of answers and the TLS library's 40 KiB: 9 MB. Twice that is the bound."""
    grown = world.growth(way)
    print(f"{way}: {grown / 1e6:+.1f} MB after {len(ROWS)} rows")
    assert grown < 18e6
