"""Bad HTTP/1.1 requests against the broker: each kind of answer once, and that a refused request has no effect.

RequestParserTests reads every malformed request, cut at every byte. test_proxies.py plays the whole table behind two proxies.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from bad_bodies import BODIES
from bad_requests import ASK, BODY, CODE, HEADS, HIDDEN, request
from listeners import Listeners, fresh

ROWS = {row.name: row for row in HEADS + BODIES}
# One row for each status, and rows whose connection continues, ends, or hides a second request.
ONE_OF_EACH = [
    "three at once", "HTTP/1.0, kept", "no Host", "dots out of the log, encoded", "unknown method", "length of a gigabyte", "8193 bytes",
    "encoded body", "another expectation", "Origin twice", "upgrade, the key twice", "upgrade, two versions",
    "upgrade, and another request behind its refusal", "101 lines", "a bad one between good ones",
    "one after Connection: close", "length and chunks", "more chunks after the last"]


@pytest.fixture(scope="module")
def world():
    listeners = Listeners(["plain"])
    yield listeners
    listeners.close()


def play(world, row):
    code, hidden = fresh(), fresh()
    with world.connect("plain") as peer:
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
    assert world.made("plain", code) == row.made
    assert world.made("plain", hidden) == 0, "the hidden request was served"


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_row(world, name):
    play(world, ROWS[name])


# Requests that need more than bytes.

def test_100_continue(world):
    code = fresh()
    head, body = request(b"POST /api/rooms HTTP/1.1", b"Expect: 100-continue").replace(CODE, code).split(b"\r\n\r\n", 1)
    with world.connect("plain") as peer:
        peer.send(head + b"\r\n\r\n")
        assert peer.answer().status == 100
        peer.send(body)
        assert peer.answer().status == 201
        # A client that sends the body at once needs no 100, and gets none (RFC 9110 section 10.1.1).
        peer.send(head + b"\r\n\r\n" + body)
        assert peer.answer().status in (200, 201, 409)
    with world.connect("plain") as peer:
        peer.send(head.replace(b"Content-Length: %d" % len(BODY), b"Content-Length: 16385") + b"\r\n\r\n")
        peer.problem(413)
        assert peer.rest() == b""


def test_half_closed_after_whole_requests(world):
    code = fresh()
    with world.connect("plain") as peer:
        peer.send(ASK + request().replace(CODE, code))
        peer.finish()
        assert [peer.answer().status, peer.answer().status] == [404, 201]
        assert peer.rest() == b""
    assert world.made("plain", code) == 1


def test_half_closed_or_reset_within_a_request(world):
    code = fresh()
    half = request()[:-5].replace(CODE, code)
    with world.connect("plain") as peer:
        peer.send(half)
        peer.finish()
        rest = peer.rest()
        assert rest == b"" or rest.startswith(b"HTTP/1.1 400 "), rest
    with world.connect("plain") as peer:
        peer.send(ASK + half)
        peer.reset()
    assert world.made("plain", code) == 0


@pytest.mark.campaign
def test_memory_after_the_table_and_many_resets(world):
    """The allocator keeps the buffers of at most 64 connections, each with 16 KiB of head, 16 KiB of body and 64 KiB of answers: 6 MB. The bound is three
    times that."""
    def abandon(_):
        """Sends requests and reads no answer. Each room may be made or not; the broker runs on."""
        with world.connect("plain") as peer:
            peer.send(request().replace(CODE, fresh()) * 3)
            peer.reset()
    for row in ROWS.values():
        print(row.name)  # The last line shows which one failed.
        play(world, row)
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(abandon, range(200)))
    assert world.made("plain", fresh()) == 0
    grown = world.growth("plain")
    print(f"{grown / 1e6:+.1f} MB after {len(ROWS)} rows")
    assert grown < 18e6
