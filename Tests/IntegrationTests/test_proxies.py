"""Behind the real nginx and the real HAProxy, over TCP and over a Unix-domain socket: the whole table and more, with no smuggling.

Each proxy keeps one connection to the broker, on which a hostile client's and an honest client's requests follow each other. After
each row the honest one must get its own answers, the hidden create must not have come to life, and a room that the row made must have
been answered to its sender. At the end the broker must hold as many rooms as both have been told of.
"""

import socket
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from bad_bodies import BODIES
from bad_requests import ASK, CODE, HEADS, HIDDEN, HIDDEN_CREATE, request
from certificates import Certificate
from listeners import accept, fresh
from mayfly import Socket, other_address
from peers import Peer
from proxies import Proxy
from smuggling import SMUGGLED
from world import World

pytestmark = pytest.mark.background
KINDS, WAYS, SECURE = ["nginx", "haproxy"], ["tcp", "unix"], "tls"
# One proxy and one way to the broker in `make test`, all of them in `make check`.
PLACES = [("nginx", "tcp"), *(pytest.param(kind, way, marks=pytest.mark.campaign) for kind in KINDS for way in WAYS if (kind, way) != ("nginx", "tcp"))]


@contextmanager
def behind(kind, way, trusted=True, **more):
    """A broker and a proxy in front of it. The lenient ones talk over the Unix-domain socket."""
    with tempfile.TemporaryDirectory(prefix="mayfly-socket-") as folder:
        path = f"{folder}/apps.sock"
        changes = {"listen": f"unix:{path}"} if way == "unix" else {}
        if way == SECURE:
            changes |= Certificate(Path(folder)).flags
        if trusted:
            changes["trusted_proxies"] = "unix" if way == "unix" else "127.0.0.1"
        with World(apns=False, **changes) as world:
            with Proxy(kind, path if way == "unix" else world.broker.port, lenient=way == "unix", secure=way == SECURE,
                **more) as proxy:
                yield world, proxy
            assert world.broker.running


def received(peer, first, quiet):
    """Reads until nothing arrives: first for the longer wait, then for the shorter one. Returns the bytes and whether the connection ended."""
    peer.socket.settimeout(first)
    data = b""
    try:
        while more := peer.socket.recv(65_536):
            data += more
            peer.socket.settimeout(quiet)
    except TimeoutError:
        return data, False
    except OSError:
        pass
    return data, True


def honest(proxy, *codes):
    """A caller with a room of its own. Each answer must be to its own request. Returns which of the codes opened a room."""
    code = fresh()
    with proxy.connect(timeout=10) as peer:
        peer.send(request().replace(CODE, code))
        created = peer.answer()
        assert created.status == 201, f"the honest create was answered {created}"
        roomid = created.json["roomid"].encode()
        peer.send(b"GET /api/room HTTP/1.1\r\nHost: a.test\r\nAuthorization: Bearer " + roomid + b"\r\n\r\n")
        status = peer.answer()
        assert status.status == 200 and "expiresAt" in status.json, f"the honest question was answered {status}"
        opened = []
        for asked in (code, *codes):
            peer.send(accept(asked))
            answer = peer.answer()
            assert answer.status in (200, 404), f"the honest accept was answered {answer}"
            if answer.status == 200:
                opened.append(asked)
    assert opened[:1] == [code]
    return opened[1:]


def creates(data):
    return data.count(b"HTTP/1.1 201 ") + data.count(b"HTTP/1.0 201 ")


def play(proxy, row):
    """Returns how many creates the hostile client was answered."""
    code, hidden = fresh(), fresh()
    with proxy.connect() as peer:
        peer.send(row.sent.replace(CODE, code).replace(HIDDEN, hidden))
        data, ended = received(peer, 0.3, 0.03)
        opened = honest(proxy, code, hidden)
        if not ended:
            waits = 2 if opened and not creates(data) else 0.01
            data += received(peer, waits, 0.01)[0]
    told = creates(data)
    assert hidden not in opened, "smuggled: the hidden create came to life"
    assert (code in opened) == (told == 1), f"created: {code in opened}, answered: {data[:300]}"
    return told


@pytest.mark.campaign
@pytest.mark.parametrize("way", [*WAYS, SECURE])
@pytest.mark.parametrize("kind", KINDS)
def test_no_row_is_smuggled_past_a_proxy(kind, way):
    with behind(kind, way) as (world, proxy):
        faults, told = {}, 0
        rows = HEADS + BODIES + SMUGGLED
        begun = time.monotonic()
        for row in rows:
            try:
                told += play(proxy, row) + 1
            except Exception as fault:
                faults[row.name] = repr(fault)[:500]
        print(f"{kind}, {way}: {len(rows)} rows, {told - len(rows)} creates served, {time.monotonic() - begun:.1f} s")
        assert not faults, "\n".join(f"{name}: {fault}" for name, fault in faults.items())
        with world.state.database() as database:
            assert database.execute("SELECT count(*) FROM room").fetchone()[0] == told


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_the_proxies_refuse_the_hidden_create_and_share_a_connection(kind):
    """Without both the table would show nothing."""
    with behind(kind, "tcp") as (world, proxy), Relay(world.broker.port) as relay, Proxy(kind, relay.port) as proxy:
        with proxy.connect() as peer:
            peer.send(HIDDEN_CREATE)
            assert received(peer, 1, 0.05)[0].startswith(b"HTTP/1.1 403 ")
        for _ in range(20):
            honest(proxy)
        assert relay.accepted == 1


class Relay:
    """Passes bytes on to a port, and counts the connections."""

    def __init__(self, port):
        self.listener, self.accepted, self.target = socket.create_server(("127.0.0.1", 0)), 0, port
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                self.accepted += 1
                far = socket.create_connection(("127.0.0.1", self.target))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self.copy, args=pair, daemon=True).start()

    @staticmethod
    def copy(one, other):
        with suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


@pytest.mark.parametrize("trusted", [True, pytest.param(False, marks=pytest.mark.campaign)], ids=["trusted", "not trusted"])
@pytest.mark.parametrize("kind, way", PLACES)
def test_only_a_trusted_proxy_names_client_addresses(kind, way, trusted):
    """Shown by the budget of wrong codes: with a trusted proxy for each client, else for all together."""
    one, other = other_address(), other_address()

    def guess(address, named=None):
        with proxy.connect(source=address) as peer:
            sent = accept(fresh())
            if named:
                sent = sent.replace(b"\r\n", b"\r\nX-Forwarded-For: " + named + b"\r\n", 1)
            peer.send(sent)
            return peer.answer().status
    with behind(kind, way, trusted) as (world, proxy):
        statuses = [guess(one) for _ in range(200)]
        assert set(statuses) == {404, 429} and statuses[-1] == 429
        assert guess(one, b"192.0.2.1") == guess(one, b"192.0.2.2, 192.0.2.3") == 429, "a forged address was believed"
        assert guess(other) == (404 if trusted else 429)
        assert guess(other, one.encode()) == (404 if trusted else 429), "another's address was believed"
        if way == "tcp":
            with Peer(world.broker.port, source=other_address()) as peer:
                for _ in range(200):
                    peer.send(accept(fresh()).replace(b"\r\n", b"\r\nX-Forwarded-For: " + other_address().encode() + b"\r\n", 1))
                    status = peer.answer().status
                assert status == 429, "an address named by nobody's proxy was believed"


@pytest.mark.parametrize("kind, way", PLACES)
def test_websockets_work_behind_a_proxy(kind, way):
    with behind(kind, way) as (world, proxy):
        code = fresh()
        with proxy.connect() as peer:
            peer.send(request().replace(CODE, code))
            roomid = peer.answer().json["roomid"]
            peer.send(accept(code))
            assert peer.answer().status == 200
        where = SimpleNamespace(ws_url=f"ws://127.0.0.1:{proxy.port}/ws")
        with Socket(where) as one, Socket(where) as other:
            one.join(roomid, "c")
            other.join(roomid, "d")
            one.expect("peer_joined")
            with proxy.connect() as peer:  # the others are served meanwhile
                peer.send(ASK)
                assert received(peer, 1, 0.05)[0].startswith(b"HTTP/1.1 404 ")
        honest(proxy)
