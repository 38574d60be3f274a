"""What one network can take of the HTTP engine, and what a bystander from another one notices of it: nothing."""

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest

from bad_requests import ASK
from http2_frames import END_HEADERS, END_STREAM, PREFACE, FramePeer, head, settings
from listeners import Listeners
from peers import Closed, Peer
from processes import Broker, eventually, http_status

pytestmark = pytest.mark.campaign

GREEDY, OTHER = "127.66.0.1", "127.77.0.1"
HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")


@pytest.fixture(scope="module")
def world():
    listeners = Listeners()
    yield listeners
    listeners.close()


class Bystander(Peer):
    """A client that speaks HTTP/2 by the library h2."""

    def __init__(self, world, source):
        super().__init__(world.broker("tls").port, world.certificate.context("h2"), source=source, timeout=20)
        self.machine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.machine.initiate_connection()

    def ask(self, path, method="GET"):
        """The status and the length of an answer."""
        stream = self.machine.get_next_available_stream_id()
        fields = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)]
        self.machine.send_headers(stream, fields, end_stream=True)
        status, length = None, 0
        while True:
            self.send(self.machine.data_to_send())
            for event in self.machine.receive_data(self.receive()):
                match event:
                    case h2.events.ResponseReceived(stream_id=number) if number == stream:
                        status = int(dict(event.headers)[":status"])
                    case h2.events.DataReceived(stream_id=number) if number == stream:
                        length += len(event.data)
                        self.machine.acknowledge_received_data(event.flow_controlled_length, stream)
                    case h2.events.StreamEnded(stream_id=number) if number == stream:
                        self.send(self.machine.data_to_send())
                        return status, length
                    case h2.events.StreamReset() | h2.events.ConnectionTerminated():
                        raise AssertionError(f"{event}")


def gets(path):
    fields = ((b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", path))
    return b"".join(head(2 * number + 1, *fields, flags=END_HEADERS | END_STREAM) for number in range(64))


@pytest.mark.parametrize("path", [b"/audit/", b"/audit/checkpoint"])
def test_windows_of_nought(world, path):
    """150 connections with 64 requests each for a file of which they take nothing."""
    with ExitStack() as stack:
        bystander = stack.enter_context(Bystander(world, OTHER))
        whole = bystander.ask("/audit/")
        assert whole[0] == 200 and whole[1] > 1_000
        for _ in range(150):
            peer = FramePeer(world.broker("tls").port, world.certificate.context("h2"), source=GREEDY)
            stack.enter_context(peer)
            peer.send(PREFACE + settings((4, 0)) + gets(path))
            assert bystander.ask("/audit/") == whole
        begun = time.monotonic()
        for _ in range(200):
            assert bystander.ask("/audit/") == whole
        late = stack.enter_context(Bystander(world, "127.88.0.1"))
        assert late.ask("/audit/checkpoint")[0] == 200
        print(f"200 answers in {time.monotonic() - begun:.2f} s, {world.growth('tls') / 1e6:+.1f} MB")
        assert world.growth("tls") < 64e6


def test_the_same_networks_next_request(world):
    """Answers that have stalled for a second make room for others of their network."""
    with ExitStack() as stack:
        for _ in range(20):
            peer = stack.enter_context(FramePeer(world.broker("tls").port, world.certificate.context("h2"), source="127.67.0.1"))
            peer.send(PREFACE + settings((4, 0)) + gets(b"/audit/"))
        time.sleep(2.5)
        neighbour = stack.enter_context(Bystander(world, "127.67.0.1"))
        for _ in range(50):
            assert neighbour.ask("/audit/")[0] == 200


def test_sockets_that_never_join(world):
    with ExitStack() as stack:
        statuses = []
        for _ in range(300):
            peer = stack.enter_context(world.connect("plain", source="127.68.0.1"))
            peer.send(HANDSHAKE)
            statuses.append(peer.answer().status)
        assert statuses == [101] * 256 + [429] * 44
        with world.connect("plain", source=OTHER) as peer:
            peer.send(HANDSHAKE)
            assert peer.answer().status == 101
    text = http_text(world.broker("plain"), "/metrics")
    assert 'mayfly_share_refusals_total{resource="unjoined_sockets",reason="over_share"} 44' in text
    assert 'mayfly_share_refusals_total{resource="unjoined_sockets",reason="exhausted"} 0' in text


def http_text(broker, path):
    with Peer(broker.operator_port) as peer:
        peer.send(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
        return peer.answer().body.decode()


def test_one_network_leaves_connections_to_others(state, processes):
    """With 400 descriptors there are 176 connections: a network may have a quarter of what is free, so 35."""
    broker = Broker(state)
    broker.prefix = ("prlimit", "--nofile=400:400")
    processes.append(broker)
    broker.start()
    with ExitStack() as stack:
        statuses = []
        for _ in range(60):
            peer = stack.enter_context(Peer(broker.port, source=GREEDY))
            try:
                peer.send(ASK)
                statuses.append(peer.answer().status)
            except (Closed, OSError):
                statuses.append(None)
        served = statuses.count(404)
        print(f"{served} served")
        assert 20 < served < 50 and statuses == [404] * served + [429] * (60 - served)
        for number in range(20):
            other = stack.enter_context(Peer(broker.port, source=f"127.70.0.{number + 1}"))
            other.send(ASK)
            assert other.answer().status == 404
    assert http_status(f"http://127.0.0.1:{broker.operator_port}/readyz") == 200


def test_the_networks_of_one_56_count_as_one(state, processes):
    """256 /64 networks of one /56 may have a quarter of what is free together, and with the rest of their /48 twice that."""
    inside = "ip link set lo up && ip -6 route add local 2001:db8::/32 dev lo && exec sleep infinity"
    room = subprocess.Popen(["unshare", "--map-root-user", "--net", "sh", "-c", inside])
    try:
        enter = ("nsenter", "--target", str(room.pid), "--user", "--net", "--preserve-credentials", "--")
        eventually(lambda: "2001:db8::" in subprocess.run([*enter, "ip", "-6", "route", "show", "table", "local"], capture_output=True,
                                                          text=True).stdout, 10)
        broker = Broker(state)
        broker.options["listen"] = f"[::1]:{broker.port}"
        broker.prefix = (*enter, "prlimit", "--nofile=1700:1700")
        # Its operator's listener can't be reached from here.
        broker.is_ready = lambda: subprocess.run(
            [*enter, sys.executable, "-c", f"import socket; socket.create_connection(('127.0.0.1', {broker.operator_port}), 1)"],
            stderr=subprocess.DEVNULL).returncode == 0
        processes.append(broker)
        broker.start()
        script = Path(__file__).with_name("networks_of_one_56.py")
        told = subprocess.run([*enter, sys.executable, script, str(broker.port), "600"], stdout=subprocess.PIPE, check=True, timeout=120)
        found = json.loads(told.stdout)
        print(found)
        assert found["refused"] == 600 - found["greedy"] and 100 < found["greedy"] < 400
        assert set(found["others"]) == {401} and found["slowest"] < 2
        assert found["siblings"] <= found["greedy"]
    finally:
        room.kill()
        room.wait()


def test_unknown_methods_over_http2(world):
    with Bystander(world, OTHER) as client:
        assert client.ask("/api/rooms", "QUERY")[0] == 405
        assert client.ask("/audit/", "QUERY")[0] == 405
        assert client.ask("/api/nowhere", "QUERY")[0] == 404
