"""Connections that stay open: `Holder` starts this file as a process of its own, which says `held` when all are there, answers pings, and ends with
its standard input.
"""

import base64
import itertools
import json
import os
import select
import socket
import ssl
import struct
import sys
import threading
from http.client import HTTPConnection

LOOPBACK = "127.0.0.1"


class Holder:
    """`kind`: "idle" for connections that have sent one request, "sockets" for WebSockets, two to a room that it makes first (`rooms`, then `go`)."""

    def __init__(self, kind, port, count, tls=False):
        from machine import LOAD_CPU
        from processes import Process

        command = [sys.executable, __file__, kind, port, count, "tls" if tls else "plain"]
        self.process = Process(f"holder-{kind}-{port}", command, {LOAD_CPU}, pipes=True)
        self.stop = self.process.stop

    def expect(self, word):
        from processes import Invalid

        said = self.process.child.stdout.readline().strip()
        if said != word:
            raise Invalid(f"{self.process.name} said {said!r} in place of {word!r}: {self.process.log()}")

    def tell(self, word):
        self.process.child.stdin.write(word + "\n")
        self.process.child.stdin.flush()


made = itertools.count()


def connect(port, context=None):
    """A connection from addresses of this process, 20 from each: an address may hold a fourth of what is free, and the last ones find little."""
    source = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}.{1 + next(made) // 20 % 250}"
    connection = socket.create_connection((LOOPBACK, port), timeout=30, source_address=(source, 0))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(connection) if context else connection


def read_until(connection, end, start=b""):
    got = start
    while end not in got:
        more = connection.recv(4096)
        if not more:
            raise SystemExit(f"the server closed a connection after {got!r}")
        got += more
    return got


def idle(port, count, tls):
    context = None
    if tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    kept = []
    for _ in range(count):
        connection = connect(port, context)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n")
        read_until(connection, b"}")
        kept.append(connection)
    print("held", flush=True)
    sys.stdin.read()


def make_rooms(port, count):
    """Room ids of `count` rooms without tokens, each with both its members."""
    rooms = []

    def make(mine):
        connection = HTTPConnection(LOOPBACK, port, timeout=30)

        def post(path, body):
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status not in (200, 201):
                raise SystemExit(f"{path}: {answer.status} {text!r}")
            return json.loads(text)

        for number in mine:
            code = f"idle-{os.getpid()}-{number}"
            room = post("/api/rooms", {"joinid": code, "expiresInSeconds": 7200, "client1": "ann"})
            post("/api/rooms/accept", {"joinid": code, "client2": "ben"})
            rooms.append(room["roomid"])

    threads = [threading.Thread(target=make, args=(range(first, count, 8),)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(rooms) != count:
        raise SystemExit(f"{len(rooms)} rooms in place of {count}")
    return rooms


def frame(opcode, payload):
    """A masked frame of at most 65,535 bytes. The mask is zero, so the payload is unchanged (RFC 6455, 5.2)."""
    length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack(">H", len(payload))
    return bytes([0x80 | opcode]) + length + bytes(4) + payload


def frames(data):
    """Returns the whole unmasked frames at the start of `data` as (opcode, payload), and the rest."""
    found = []
    while len(data) >= 2:
        length, start = data[1], 2
        if length == 126:
            length, start = struct.unpack(">H", data[2:4].ljust(2, b"\0"))[0], 4
        if len(data) < start + length:
            break
        found.append((data[0] & 15, data[start:start + length]))
        data = data[start + length:]
    return found, data


def join(port, room, client):
    connection = connect(port)
    key = base64.b64encode(os.urandom(16)).decode()
    connection.sendall((
        f"GET /ws HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n").encode())
    head, _, rest = read_until(connection, b"\r\n\r\n").partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 101"):
        raise SystemExit(f"no WebSocket: {head!r}")
    connection.sendall(frame(1, json.dumps({"type": "join_room", "roomid": room, "client": client}).encode()))
    joined = read_until(connection, b"}", rest)
    if b'"joined"' not in joined:
        raise SystemExit(f"not joined: {joined!r}")
    connection.setblocking(False)
    return connection


def sockets(port, count):
    rooms = make_rooms(port, count // 2)
    print("rooms", flush=True)
    sys.stdin.readline()
    kept = {}
    poll = select.epoll()
    for room in rooms:
        for client in ("ann", "ben"):
            connection = join(port, room, client)
            kept[connection.fileno()] = connection
            poll.register(connection.fileno(), select.EPOLLIN)
    print("held", flush=True)
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    partial = {}
    while True:
        for number, _ in poll.poll():
            if number not in kept:
                return
            data = kept[number].recv(4096)
            if not data:
                raise SystemExit("the server closed a WebSocket")
            found, rest = frames(partial.pop(number, b"") + data)
            if rest:
                partial[number] = rest
            for opcode, payload in found:
                if opcode == 9:
                    kept[number].sendall(frame(10, payload))


if __name__ == "__main__":
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    kind, port, count, mode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    idle(port, count, mode == "tls") if kind == "idle" else sockets(port, count)
