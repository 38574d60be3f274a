"""One client floods one side of a room: others are served, and memory stays bounded. MeetingTests has the limit of sockets."""

import json
import re
import socket
import threading
import time

import pytest

pytestmark = pytest.mark.campaign


class Flood:
    """Reports of one side over pipelined connections, as many as the broker accepts, until the block ends."""

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
    """The peer has just left. Such reports once held a copy of the room id and a timer each."""
    room = client.room()
    bystanders = [client.room() for _ in range(40)]
    client.presence(room.roomid, room.creator.client).expect(202)
    client.presence(room.roomid, room.creator.client, leaving=True).expect(202)
    before = world.broker.resident
    with Flood(world, room, connections=8) as flood:
        for bystander in bystanders:
            assert client.presence(bystander.roomid, bystander.joiner.client).expect(202).json == {"delivery": "queued"}
            time.sleep(0.15)
        grown = world.broker.resident - before
    total = sum(flood.counts.values())
    assert set(flood.counts) == {b"202", b"429"} and total > 2_000, flood.counts
    assert flood.counts[b"202"] <= 5 * (1 + flood.seconds // 5), flood.counts
    assert grown < 40e6, f"{grown / 1e6:.0f} MB after {total} reports"
    refused = client.presence(room.roomid, room.joiner.client).expect(429, "too_many_requests")
    assert 1 <= int(refused.headers["retry-after"]) <= 5
