"""One client floods one room side; others notice nothing, and what it takes stays within bounds."""

import json
import re
import socket
import statistics
import threading
import time
import urllib.request

import pytest

from raw_socket import RawSocket

pytestmark = pytest.mark.campaign


def resident(world):
    """MiB of the broker's memory."""
    with open(f"/proc/{world.broker.child.pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024


def gauge(world, name):
    with urllib.request.urlopen(f"{world.broker.operator_url}/metrics") as answer:
        found = re.search(rf"^{name} (\d+)$", answer.read().decode(), re.M)
    return int(found[1]) if found else None


class Flood:
    """Reports of one side over pipelined connections, as many as the broker takes, until the end of the `with`."""

    def __init__(self, world, room, connections=4, batch=100):
        self.world, self.ended, self.counts = world, threading.Event(), {}
        bodies = [json.dumps({"client": room.joiner.client, "leaving": leaving}) for leaving in (False, True)]
        requests = [
            f"POST /api/room/presence HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {room.roomid}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}" for body in bodies]
        self.batch, self.bytes = batch, "".join(requests[n % 2] for n in range(batch)).encode()
        self.threads = [threading.Thread(target=self.run) for _ in range(connections)]

    def run(self):
        with socket.create_connection(("127.0.0.1", self.world.broker.port), 30) as tcp:
            while not self.ended.is_set():
                tcp.sendall(self.bytes)
                left, seen = self.batch, b""
                while left > 0:
                    seen += tcp.recv(1 << 20)
                    found = re.findall(rb"HTTP/1\.1 (\d\d\d) ", seen)
                    for status in found:
                        self.counts[status] = self.counts.get(status, 0) + 1
                    left -= len(found)
                    seen = seen[-12:] if b"HTTP/1.1 " not in seen[-12:] else seen[seen.rfind(b"HTTP/1.1 ") + 1:]

    def __enter__(self):
        self.begin = time.monotonic()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        self.seconds = time.monotonic() - self.begin


def test_flood_of_reports(world, client):
    """Its peer is in the grace, which once made each report hold a copy of the room id and a timer of its own."""
    room = client.room()
    bystanders = [client.room() for _ in range(40)]
    client.presence(room.roomid, room.creator.client).expect(202)
    client.presence(room.roomid, room.creator.client, leaving=True).expect(202)
    before = resident(world)
    with Flood(world, room, connections=8) as flood:
        for bystander in bystanders:
            assert client.presence(bystander.roomid, bystander.joiner.client).expect(202).json == {"delivery": "queued"}
            time.sleep(0.15)
        grown = resident(world) - before
        slots = gauge(world, "mayfly_arena_slots_used")
    total = sum(flood.counts.values())
    assert set(flood.counts) == {b"202", b"429"} and total > 2_000, flood.counts
    assert flood.counts[b"202"] <= 5 * (1 + flood.seconds // 5), flood.counts
    assert grown < 40, f"{grown:.0f} MiB after {total} reports"
    assert slots is None or slots < 2_000
    refused = client.presence(room.roomid, room.joiner.client).expect(429, "too_many_requests")
    assert 1 <= int(refused.headers["retry-after"]) <= 5


def test_nine_hundred_sockets(world, client):
    room, bystander = client.room(), client.room()

    def latencies(count=60):
        found = []
        for _ in range(count):
            begin = time.monotonic()
            client.status(bystander.roomid).expect(200)
            found.append(time.monotonic() - begin)
        return statistics.median(found)
    quiet = latencies()
    opened = []

    def leave():
        leaver = world.client()
        while not done.is_set():
            answer = leaver.presence(room.roomid, room.joiner.client, member=room.joiner.member, leaving=True)
            assert answer.status in (202, 429)
    done = threading.Event()
    leaving = threading.Thread(target=leave)
    leaving.start()
    try:
        for _ in range(900):
            opened.append(RawSocket(world.broker))
            opened[-1].hello(room.roomid, room.joiner)
        busy = latencies()
        left = 0
        for one in opened:
            try:
                while one.receive(seconds=0.02) is not None:
                    pass
            except TimeoutError:
                left += 1
        assert left <= 8, f"{left} sockets of one side are open"
        assert busy < max(5 * quiet, 0.03), f"{busy * 1000:.1f} ms, {quiet * 1000:.1f} ms before"
        # Over its allowance for a moment, and back.
        assert client.presence(bystander.roomid, bystander.joiner.client).expect(202).json == {"delivery": "queued"}
    finally:
        done.set()
        leaving.join()
        for one in opened:
            one.tcp.close()


def test_a_ninth_socket_closes_the_most_silent(world, client):
    """At the pace that a side may have."""
    room = client.room()
    opened = []
    try:
        for number in range(10):
            opened.append(RawSocket(world.broker))
            opened[-1].join(room.roomid, room.joiner)
            if number == 4:
                time.sleep(5.05)
        closed = [one.receive(seconds=0.5) is None if one in opened[:2] else False for one in opened]
        assert closed == [True, True] + [False] * 8
        for one in opened[2:]:
            one.send({"type": "ping"})
            assert one.receive() == {"type": "pong"}
    finally:
        for one in opened:
            one.tcp.close()
