"""One hostile client. `Attack` starts this file as a separate process, which prints `ready` once its attack has begun, and stops when its standard input is
closed."""

import contextlib
import json
import os
import select
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

from hold import connect, frame, read_until
from steady import Connections, post

HERE = Path(__file__).resolve().parent
TOKEN = "a1b2c3d4" * 8
SOCKETS, STREAM_CONNECTIONS, STREAMS, NETWORKS = 900, 150, 64, 256
# A path of the auditor's page: bytes that the broker holds once.
STATIC = b"/audit/page/auditor.js"
IPV6_FREEBIND = 78
LAST = ["nice", "-n", "19"]


class Attack:
    """`kind`: a function of this file. It has the lowest priority, so that a bystander is measured and not the load's own core."""

    def __init__(self, kind, port, log):
        from machine import LOAD_CPU
        from processes import Invalid, Process

        command = [*LAST, sys.executable, __file__, kind, port]
        self.process = Process(f"attack-{kind}-{port}", command, {LOAD_CPU}, pipes=True)
        said = self.process.child.stdout.readline().strip()
        if not said.startswith("ready"):
            raise Invalid(f"{kind} did not begin: {said!r} {self.process.log()}")
        log(f"shares: {kind}: {said}")

    def end(self):
        """Stops the attack and returns the counts that it printed."""
        self.process.child.stdin.close()
        told = self.process.child.stdout.read()
        self.process.child.wait(30)
        self.process.child.stdin = None
        self.process.stop()
        return told.strip()


def until_the_end():
    """Whether the attack should continue."""
    return not select.select([sys.stdin], [], [], 0)[0]


def room(port, joinid):
    """The room id of a room whose creator left a token."""
    made = {"joinid": joinid, "expiresInSeconds": 7200, "client1": "eve", "client1_token": TOKEN}
    told = list(Connections(port, count=1).ask([(0, post("/api/rooms", made)), (1, post("/api/rooms/accept", {"joinid": joinid, "client2": "mal"}))]))
    return json.loads(told[1].body)["roomid"]


def flood(port, method, path, bearer, body):
    """Runs wrk with one request over and over until the end. Prints the counts of answers."""
    script = Path(f"/tmp/mayfly-attack-{os.getpid()}.lua")
    script.write_text(f"""
        wrk.method, wrk.body = "{method}", '{json.dumps(body)}'
        wrk.headers["Content-Type"], wrk.headers["Authorization"] = "application/json", "Bearer {bearer}"
        """)
    load = subprocess.Popen(
        ["wrk", "-t1", "-c64", "-d3600s", "-s", script, f"http://127.0.0.1:{port}{path}"], stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)
    script.unlink()
    print("ready", flush=True)
    sys.stdin.read()
    load.send_signal(2)
    print(" ".join(load.communicate()[0].split()))


def reports(port):
    """Presence reports for one room whose other side is away."""
    flood(port, "POST", "/api/room/presence", room(port, f"reports-{time.time_ns()}"), {"client": "mal"})


def reports_in_grace(port):
    """Sends presence reports for one room whose other side comes and goes, so that it is always within its grace."""
    roomid = room(port, f"grace-{time.time_ns()}")

    def come_and_go():
        while True:
            try:
                join(port, roomid, "eve").close()
            except (OSError, SystemExit):
                pass
            time.sleep(2)

    threading.Thread(target=come_and_go, daemon=True).start()
    flood(port, "POST", "/api/room/presence", roomid, {"client": "mal"})


def one_token(port):
    """Registers one token over and over."""
    flood(port, "PUT", "/api/room/token", room(port, f"token-{time.time_ns()}"), {"client": "eve", "token": TOKEN})


def join(port, roomid, client):
    connection = connect(port)
    connection.sendall((
        "GET /ws HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
    read_until(connection, b"\r\n\r\n")
    connection.sendall(frame(1, json.dumps({"type": "join_room", "roomid": roomid, "client": client}).encode()))
    return connection


def sockets(port):
    """Opens many sockets on one side while the other reports over and over that it leaves."""
    roomid = room(port, f"sockets-{time.time_ns()}")
    kept = []
    for _ in range(SOCKETS):
        try:
            kept.append(join(port, roomid, "eve"))
        except (OSError, SystemExit):
            pass
    flood(port, "POST", "/api/room/presence", roomid, {"client": "mal", "leaving": True})


def streams(port):
    """HTTP/2 connections that let nothing be sent to them, and ask for as much as they may."""
    def number(kind, flags, stream, payload):
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    # :method GET, :scheme https, :path and :authority as literals without an index (RFC 7541).
    block = b"\x82\x87\x04" + bytes([len(STATIC)]) + STATIC + b"\x01\x05bench"
    begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + number(4, 0, 0, b"\0\4\0\0\0\0")
    asked = b"".join(number(1, 5, 2 * each + 1, block) for each in range(STREAMS))
    kept = []
    while until_the_end():
        for _ in range(STREAM_CONNECTIONS - len(kept)):
            try:
                connection = connect(port, context)
                connection.sendall(begin + asked)
                connection.setblocking(False)
                kept.append(connection)
            except OSError:
                break
        if kept and not getattr(streams, "said", False):
            print(f"ready with {len(kept)} connections", flush=True)
            streams.said = True
        time.sleep(0.2)
        kept = [connection for connection in kept if is_open(connection)]


def is_open(connection):
    try:
        return connection.recv(65_536) != b""
    except ssl.SSLWantReadError:
        return True
    except OSError:
        return False


def networks(port):
    """Connections from all the /64 networks of one /56; runs in a network namespace that routes them to itself."""
    kept = []
    with contextlib.suppress(OSError):
        while True:
            connection = socket.socket(socket.AF_INET6)
            connection.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
            connection.bind((f"fd6d:6179:666c:{len(kept) % NETWORKS:x}::1", 0))
            connection.settimeout(2)
            connection.connect(("::1", port))
            kept.append(connection)
    print(f"ready with {len(kept)} connections", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    globals()[sys.argv[1]](int(sys.argv[2]))
