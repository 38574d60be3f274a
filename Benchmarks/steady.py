"""Creates and accepts at a steady rate. `Steady` starts this file as a separate process, which prints its results when its standard input is closed. A
request's latency counts from its due time, so a broker that stalls delays all that come due meanwhile."""

import json
import select
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass

CONNECTIONS = 64
TOKEN = "a1b2c3d4" * 8
# How many creates precede the accept of the first.
BEHIND = 250


class Steady:
    def __init__(self, port, rate):
        from machine import LOAD_CPU
        from processes import Process

        self.process = Process(f"steady-{port}", [sys.executable, __file__, port, rate], {LOAD_CPU}, pipes=True)

    def end(self):
        """[(when it was due, unix seconds; milliseconds until its answer; its HTTP status)]"""
        told, _ = self.process.child.communicate(timeout=60)
        return json.loads(told)

    def stop(self):
        self.process.stop()


@dataclass(slots=True)
class Asked:
    """A request and its outcome; times in unix seconds."""

    key: object
    due: float
    sent: float
    answered: float = 0.0
    status: int = 0
    body: bytes = b""


class Connections:
    """Kept connections with one request at a time on each, used in turn, so that none is idle for so long that it is closed. Several ports get the
    same number of connections each."""

    def __init__(self, *ports, count=CONNECTIONS, host="127.0.0.1", source=None):
        own = (source, 0) if source else None
        self.free = deque(socket.create_connection((host, ports[number % len(ports)]), source_address=own) for number in range(count))
        for connection in self.free:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, requests, rate=None, until=None):
        """Sends the requests, (key, bytes) each: `rate` a second, or as soon as a connection is free. Ends with them, or when `until` can be
        read. Yields each when its answer is there."""
        free, under_way, got = self.free, {}, {}
        wall, requests = time.time() - time.monotonic(), iter(requests)
        due, ended = time.monotonic(), False
        while not ended or under_way:
            now = time.monotonic()
            while free and not ended and (rate is None or due <= now):
                key, content = next(requests, (None, None))
                if content is None:
                    ended = True
                    break
                connection = free.popleft()
                sent = time.monotonic()
                connection.sendall(content)
                under_way[connection], got[connection] = Asked(key, (due if rate else sent) + wall, sent + wall), b""
                due += 1 / rate if rate else 0
            wait = bool(under_way) if ended or not free else max(0, due - now)
            ready, _, _ = select.select([*under_way, *([until] if until and not ended else [])], [], [], wait)
            now = time.monotonic() + wall
            for source in ready:
                if source is until:
                    ended = True
                    continue
                more = source.recv(65536)
                if not more:
                    raise SystemExit("the broker closed a connection")
                got[source] += more
                status, body = _answer(got[source])
                if status is not None:
                    asked = under_way.pop(source)
                    asked.answered, asked.status, asked.body = now, status, body
                    free.append(source)
                    yield asked


def post(path, body, bearer=None, method="POST"):
    content = json.dumps(body)
    bearer = f"Authorization: Bearer {bearer}\r\n" if bearer else ""
    return f"{method} {path} HTTP/1.1\r\nHost: bench\r\n{bearer}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n{content}".encode()


def _answer(answer):
    """(status, body) of a whole answer, else (None, None)."""
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return None, None
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return (int(head.split(b" ", 2)[1]), body) if len(body) >= int(length[15:]) else (None, None)


def _requests():
    prefix = f"steady-{time.time_ns()}"
    created = 0
    while True:
        created += 1
        yield None, post("/api/rooms", {"joinid": f"{prefix}-{created}", "expiresInSeconds": 600, "client1": "ann", "client1_token": TOKEN})
        if created > BEHIND:
            yield None, post("/api/rooms/accept", {"joinid": f"{prefix}-{created - BEHIND}", "client2": "ben", "client2_token": TOKEN})


def main(port, rate):
    seen = [
        (round(asked.due, 4), round((asked.answered - asked.due) * 1000, 3), asked.status)
        for asked in Connections(port).ask(_requests(), rate, until=sys.stdin)]
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
