"""The examples of nginx and HAProxy, as the package has them, in front of a broker. Only their ports and paths are moved."""

import shutil
import socket
import ssl
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from bad_requests import CODE
from bad_requests import request as create
from certificates import Certificate
from listeners import accept, fresh
from mayfly import Socket, other_address
from peers import Peer
from processes import REPOSITORY, eventually, free_port
from world import World

EXAMPLES = {"nginx": REPOSITORY / "packaging/nginx/mayfly.conf", "haproxy": REPOSITORY / "packaging/haproxy/mayfly.cfg"}


class Example:
    """A running proxy with the example in it. `url` and friends are as a broker's."""

    def __init__(self, kind, broker_port, folder, connections=512):
        self.kind, self.port, self.folder = kind, free_port(), folder
        self.certificate = Certificate(folder)
        self.log = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.log.bind(("127.0.0.1", 0))
        self.log.setblocking(False)
        (folder / "both.pem").write_text(self.certificate.path.read_text() + self.certificate.key.read_text())
        text = EXAMPLES[kind].read_text()
        for place, moved in self.moves(broker_port).items():
            assert text.count(place) == 1, f"{EXAMPLES[kind]} no longer has {place!r} once"
            text = text.replace(place, moved)
        if kind == "haproxy":
            # Debian's own file, to which the example is appended, logs every request. Here the log is a UDP port.
            text = f"global\n    log 127.0.0.1:{self.log.getsockname()[1]} local0\ndefaults\n    log global\n    option httplog\n{text}"
        (folder / "example").write_text(text)
        program = shutil.which(kind) or f"/usr/sbin/{kind}"
        if kind == "nginx":
            main = folder / "nginx.conf"
            user = "user root;" if Path("/proc/self").stat().st_uid == 0 else ""
            kinds = "client_body proxy fastcgi uwsgi scgi".split()
            temporary = " ".join(f"{name}_temp_path {folder}/{name};" for name in kinds)
            main.write_text(f"daemon off; pid {folder}/pid; error_log {folder}/error.log; {user}\n"
                            f"events {{ worker_connections {connections}; }}\n"
                            f"http {{ {temporary} access_log {folder}/access.log;\ninclude {folder}/example; }}\n")
            command = [program, "-c", main, "-p", folder]
        else:
            command = [program, "-db", "-f", folder / "example"]
        self.prints = open(folder / "prints", "wb")
        self.child = subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=self.prints, stderr=self.prints)
        try:
            eventually(self.listens, 10, what=f"{kind} listening")
        except BaseException:
            self.close()
            raise

    def moves(self, broker_port):
        """What the example has, and what it has here."""
        if self.kind == "haproxy":
            return {"bind :443": f"bind 127.0.0.1:{self.port}", "/etc/haproxy/push.pem": f"{self.folder}/both.pem",
                    " 127.0.0.1:8787\n": f" 127.0.0.1:{broker_port}\n"}
        live = "/etc/letsencrypt/live/push.example.org"
        return {"listen 443 ssl;": f"listen 127.0.0.1:{self.port} ssl;", "listen [::]:443 ssl;": "",
                "http://127.0.0.1:8787;": f"http://127.0.0.1:{broker_port};", "/var/log/nginx/mayfly.log": f"{self.folder}/mayfly.log",
                f"{live}/fullchain.pem": str(self.certificate.path), f"{live}/privkey.pem": str(self.certificate.key)}

    def listens(self):
        assert self.child.poll() is None, (self.folder / "prints").read_text()
        try:
            Peer(self.port).__exit__()
        except OSError:
            return False
        return True

    @property
    def ws_url(self):
        return f"wss://localhost:{self.port}/ws"

    @property
    def tls(self):
        """For `websockets`, which reads and writes one connection from two threads. OpenSSL doesn't allow that: a request that is written
        while a session ticket is read is sometimes never sent. In TLS 1.2, all tickets come before the first request."""
        context = self.certificate.context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context

    def peer(self, **more):
        return Peer(self.port, self.certificate.context("http/1.1"), timeout=10, **more)

    def close(self):
        self.child.terminate()
        self.child.wait(10)
        self.prints.close()
        self.log.close()

    def logged(self):
        """All datagrams that reached the log."""
        lines = b""
        with suppress(BlockingIOError):
            while True:
                lines += self.log.recv(65_536)
        return lines.decode(errors="replace")


@pytest.fixture(scope="module", params=EXAMPLES)
def example(request, tmp_path_factory):
    with World(apns=False, trusted_proxies="127.0.0.1") as world:
        proxy = Example(request.param, world.broker.port, tmp_path_factory.mktemp(request.param))
        yield proxy
        proxy.close()
        assert world.broker.running


def room_of(peer):
    code = fresh()
    peer.send(create().replace(CODE, code))
    created = peer.answer()
    assert created.status == 201
    peer.send(accept(code))
    assert peer.answer().status == 200
    return created.json["roomid"]


def test_rooms_and_websockets_work(example):
    with example.peer() as peer:
        room = room_of(peer)
    with Socket(example, tls=example.tls) as one, Socket(example, tls=example.tls) as other:
        one.join(room, "c")
        other.join(room, "d")
        one.expect("peer_joined")


def test_each_client_has_a_budget_of_its_own(example):
    """By the address that the proxy names. One that a client names counts for nothing."""
    one, other = other_address(), other_address()

    def guess(address, named=None):
        sent = accept(fresh())
        if named:
            sent = sent.replace(b"\r\n", b"\r\nX-Forwarded-For: " + named + b"\r\n", 1)
        with example.peer(source=address) as peer:
            peer.send(sent)
            return peer.answer().status
    statuses = [guess(one) for _ in range(120)]
    assert statuses[0] == 404 and statuses[-1] == 429
    assert guess(one, b"192.0.2.1") == 429
    assert guess(other) == 404


def test_the_largest_body_arrives_and_a_larger_one_is_refused(example):
    code = fresh()
    # This broker has no webhooks, but it has read the body.
    for path, size, status in ((b"/api/rooms", 16_384, 201), (b"/api/rooms", 16_385, 413), (b"/webhooks/call", 262_144, 404), (b"/webhooks/call", 262_145, 413)):
        start = b'{"joinid":"' + code + b'","client1":"c","more":"'
        body = start + b"x" * (size - len(start) - 2) + b'"}'
        with example.peer() as peer:
            peer.send(b"POST %s HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n" % (path, len(body)) + body)
            data = b""
            while b"\r\n" not in data:
                data += peer.receive()
            assert data.startswith(b"HTTP/1.1 %d " % status), data[:200]


def test_nothing_of_a_request_is_written_down(example):
    """Also not by a request that fails and one whose broker doesn't answer."""
    secret = fresh().decode()
    with example.peer() as peer:
        peer.send(f"GET /api/room?{secret} HTTP/1.1\r\nHost: {secret}.test\r\nAuthorization: Bearer {secret}\r\n\r\n".encode())
        peer.receive()
    with example.peer() as peer:
        peer.send(f"GET /{secret} HTTP/9.1\r\n\r\n".encode())
        peer.receive()
    with pytest.raises(InvalidStatus):
        connect(f"wss://localhost:{example.port}/{secret}", ssl=example.tls, proxy=None)
    told = [path.name for path in example.folder.rglob("*") if path.is_file() and secret in path.read_text(errors="replace")]
    assert not told, told
    assert secret not in example.logged()


@pytest.mark.parametrize("connections", [40, 41])
def test_a_full_nginx_writes_down_nobody(tmp_path, connections):
    """A caller with whom nginx's connections run out: as the last one, or before the broker's end of it."""
    secret = fresh().decode()
    upgrade = (f"GET /ws?{secret} HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
               "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n").encode()
    with World(apns=False, trusted_proxies="127.0.0.1") as world, ExitStack() as peers:
        proxy = Example("nginx", world.broker.port, tmp_path, connections)
        peers.callback(proxy.close)
        statuses = []
        with suppress(OSError):
            for _ in range(connections):
                peer = peers.enter_context(Peer(proxy.port, proxy.certificate.context("http/1.1"), timeout=2))
                peer.send(upgrade)
                statuses.append(peer.receive()[9:12])
        assert 10 < statuses.count(b"101") < connections / 2, statuses
        told = {path.name: text for path in tmp_path.rglob("*.log") if secret in (text := path.read_text()) or "client:" in text}
        assert not told, told


def test_the_certificate_is_the_examples(example):
    assert ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", example.port))) == example.certificate.der
