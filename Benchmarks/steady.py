"""Creates and accepts at a steady rate: `Steady` starts this file as a process of its own, which goes on until its standard input ends and then
prints what it saw. A request's time runs from when it was due, so that a broker that stands still delays all that come due meanwhile."""

import json
import select
import socket
import sys
import time
from collections import deque

CONNECTIONS = 64
TOKEN = "a1b2c3d4" * 8
# So many creates lie between a create and its accept.
BEHIND = 250


class Steady:
    def __init__(self, port, rate):
        from machine import LOAD_CPU
        from processes import Process

        self.process = Process(f"steady-{port}", [sys.executable, __file__, port, rate], {LOAD_CPU}, pipes=True)

    def end(self):
        """[(when it was due, unix seconds; milliseconds until its answer; whether that was a good one)]"""
        told, _ = self.process.child.communicate(timeout=60)
        return json.loads(told)

    def stop(self):
        self.process.stop()


def _bodies():
    prefix = f"steady-{time.time_ns()}"
    created = 0
    while True:
        created += 1
        yield "/api/rooms", {"joinid": f"{prefix}-{created}", "expiresInSeconds": 600, "client1": "ann", "client1_token": TOKEN}
        if created > BEHIND:
            yield "/api/rooms/accept", {"joinid": f"{prefix}-{created - BEHIND}", "client2": "ben", "client2_token": TOKEN}


def _requests():
    for path, body in _bodies():
        content = json.dumps(body)
        yield f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n{content}".encode()


def _status(answer):
    """The status of a whole answer, else None."""
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return None
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return int(head.split(b" ", 2)[1]) if len(body) >= int(length[15:]) else None


def main(port, rate):
    # In turn, so that none is idle for so long that it is closed.
    free = deque(socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS))
    for connection in free:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    requests, seen, open_since, got = _requests(), [], {}, {}
    wall, interval = time.time() - time.monotonic(), 1 / rate
    due, ended = time.monotonic(), False
    while not ended or open_since:
        now = time.monotonic()
        while due <= now and free and not ended:
            connection = free.popleft()
            connection.sendall(next(requests))
            open_since[connection], got[connection] = due, b""
            due += interval
        wait = 1 if ended or not free else max(0, due - now)
        ready, _, _ = select.select([*open_since, *([] if ended else [sys.stdin])], [], [], wait)
        now = time.monotonic()
        for source in ready:
            if source is sys.stdin:
                ended = True
                continue
            more = source.recv(65536)
            if not more:
                raise SystemExit("the broker closed a connection")
            got[source] += more
            status = _status(got[source])
            if status is not None:
                since = open_since.pop(source)
                seen.append((round(since + wall, 4), round((now - since) * 1000, 3), status < 300))
                free.append(source)
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
