"""SIGTERM under load: sent requests are answered, acknowledged ones last, and the broker ends in time."""

import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from bad_requests import ASK, CODE, request
from certificates import Certificate
from http2_frames import PREFACE, FramePeer, ask, settings
from listeners import accept, fresh
from mayfly import Socket
from peers import Peer
from preload import library
from processes import eventually
from strict_clients import Crowd, keep_asking, keep_streaming
from world import World

ROUNDS = 3


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return Certificate(tmp_path_factory.mktemp("certificate"))


def crowd(port, certificate):
    """Eager clients, hesitant ones, and ones with a connection for each request; over TLS some of HTTP/2."""
    if certificate is None:
        return [*[(keep_asking, (port, None), {})] * 6, *[(keep_asking, (port, None), {"pause": 0.01})] * 4,
                *[(keep_asking, (port, None), {"kept": False})] * 6]
    one, two = certificate.context("http/1.1"), certificate.context("h2")
    return [*[(keep_asking, (port, one), {})] * 4, *[(keep_asking, (port, one), {"pause": 0.01})] * 2,
            *[(keep_asking, (port, one), {"kept": False})] * 2, *[(keep_streaming, (port, two), {})] * 4]


@pytest.mark.campaign
@pytest.mark.parametrize("way", ["plain", "tls"])
def test_a_stop_answers_every_sent_request(certificate, way):
    certificate = certificate if way == "tls" else None
    with World(apns=False, **(certificate.flags if certificate else {})) as world:
        rooms = 0
        for number in range(ROUNDS):
            with Crowd(*crowd(world.broker.port, certificate)) as tally:
                time.sleep(0.4 + 0.13 * number)
                begun = time.monotonic()
                assert world.broker.stop() == 0, world.broker.printed()
                took = time.monotonic() - begun
            print(f"{way}, round {number + 1}: {tally.statuses}, lost {len(tally.lost)}, drained in {took:.1f} s")
            assert not tally.lost, tally.lost[:5]
            # A busy machine answers few in that time. All clients have a request under way.
            assert set(tally.statuses) == {201} and tally.statuses[201] > 10
            assert took < 6
            rooms += len(tally.made)
            with world.state.database() as database:
                assert database.execute("SELECT count(*) FROM room").fetchone()[0] == rooms
            world.broker.start()
            with Peer(world.broker.port, certificate and certificate.context("http/1.1")) as peer:
                for code in tally.made[:: len(tally.made) // 20]:
                    peer.send(accept(code))
                    assert peer.answer().status == 200, "a room that was made is gone after a restart"


HALF = request()[:-20]


@pytest.mark.campaign
@pytest.mark.parametrize("ask_twice", [False, True], ids=["once", "twice"])
def test_a_second_signal_ends_the_broker_at_once(ask_twice):
    """Half a request delays the end until its deadline. A second SIGTERM does not wait."""
    with World(apns=False) as world, Peer(world.broker.port, timeout=15) as peer:
        code = fresh()
        peer.send(HALF.replace(CODE, code))
        time.sleep(0.2)
        world.broker.child.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        time.sleep(1.5)
        assert world.broker.running, "it did not wait for the other half"
        if ask_twice:
            world.broker.child.send_signal(signal.SIGTERM)
            assert world.broker.child.wait(5) == 1
            assert time.monotonic() - begun < 3
        else:
            peer.send(request()[-20:])
            answer = peer.answer()
            assert answer.status == 201 and answer.headers["connection"] == "close"
            assert world.broker.child.wait(5) == 0


def test_idle_connections_do_not_delay_a_stop():
    with World(apns=False) as world:
        peers = [Peer(world.broker.port) for _ in range(50)]
        for peer in peers[:25]:
            peer.send(ASK)
            assert peer.answer().status == 404
        # Well below the ten seconds that a request may take, also on a busy machine.
        with Waits(8):
            assert world.broker.stop() == 0
        for peer in peers:
            assert peer.rest() == b""
            peer.socket.close()


class Waits:
    """Fails if the block takes longer than so many seconds."""

    def __init__(self, most):
        self.most = most

    def __enter__(self):
        self.begun = time.monotonic()

    def __exit__(self, *_):
        took = time.monotonic() - self.begun
        assert took < self.most, f"took {took:.1f} s"


@pytest.mark.campaign
def test_a_stop_closes_websockets():
    with World(apns=False) as world:
        room = world.client().room()
        with Socket(world.broker) as one, Socket(world.broker) as other:
            one.join(room.roomid, room.creator.client)
            with Waits(4):
                world.broker.child.send_signal(signal.SIGTERM)
                assert one.closed()[0] == 1001
                assert other.closed()[0] == 1001
                assert world.broker.child.wait(5) == 0


def ignores_the_close(world, certificate):
    """A WebSocket that is open, and never answers."""
    peer = Peer(world.broker.port, certificate and certificate.context("http/1.1"), timeout=20)
    peer.send(b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
              b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
    eventually(lambda: b"101 Switching" in peer.receive())
    return peer


def sends_half_a_body(world, certificate):
    peer = Peer(world.broker.port, certificate and certificate.context("http/1.1"), timeout=20)
    peer.send(HALF)
    return peer


def never_reads(world, certificate):
    peer = Peer(world.broker.port, certificate and certificate.context("http/1.1"), timeout=1, receive_buffer=4096)
    try:
        for _ in range(2_000):
            peer.send(ASK * 100)
    except TimeoutError:
        pass
    return peer


def opens_no_window(world, certificate):
    peer = FramePeer(world.broker.port, certificate.context("h2"), timeout=20)
    peer.send(PREFACE + settings((4, 0)) + ask(1))
    return peer


def stops_within_the_handshake(world, certificate):
    peer = Peer(world.broker.port, timeout=20)
    peer.send(b"\x16\x03\x01")
    return peer


HOLDS = [
    (ignores_the_close, False), (sends_half_a_body, True), (never_reads, False), (opens_no_window, True), (stops_within_the_handshake, True)]


@pytest.mark.campaign
@pytest.mark.background
@pytest.mark.parametrize("hold, secure", HOLDS, ids=lambda value: getattr(value, "__name__", "tls" if value else "plain"))
def test_no_client_can_delay_a_stop(hold, secure):
    with tempfile.TemporaryDirectory() as folder:
        certificate = Certificate(Path(folder)) if secure else None
        with World(apns=False, **(certificate.flags if certificate else {})) as world:
            with hold(world, certificate):
                time.sleep(0.3)
                begun = time.monotonic()
                world.broker.child.send_signal(signal.SIGTERM)
                assert world.broker.child.wait(20) == 0, world.broker.printed()
                took = time.monotonic() - begun
                print(f"{hold.__name__}, {'tls' if secure else 'plain'}: {took:.1f} s")
                assert took < 14
            with pytest.raises(OSError):
                socket.create_connection(("127.0.0.1", world.broker.port), 2)


@pytest.mark.campaign
@pytest.mark.parametrize("signals", [1, 2])
def test_no_library_tidies_up_at_the_end(signals):
    """Other threads may still use it. A broker once ended with SIGABRT, after its last line of output."""
    shown = subprocess.run(["true"], env={"LD_PRELOAD": library("late.c")}, capture_output=True)
    assert shown.stderr == b"tidied up\n", "the library says nothing when a process tidies up"
    with World(apns=False) as world:
        assert world.broker.stop() == 0
        world.broker.start(LD_PRELOAD=library("late.c"))
        with never_reads(world, None):
            time.sleep(0.3)
            for _ in range(signals):
                world.broker.child.send_signal(signal.SIGTERM)
                time.sleep(0.2)
            assert world.broker.child.wait(20) == signals - 1
        assert "stopp" in world.broker.printed() and "tidied up" not in world.broker.printed()


@pytest.mark.campaign
@pytest.mark.parametrize("load", ["wrk", "wrk over TLS", "h2load"])
def test_wrk_and_h2load_lose_no_answer_in_a_stop(certificate, load, tmp_path):
    """wrk counts retries after the stop as connect and write errors, and lost answers as read errors and timeouts. h2load's log marks requests that were
    never sent."""
    secure = load != "wrk"
    log = tmp_path / "requests"
    with World(apns=False, **(certificate.flags if secure else {})) as world:
        target = f"http{'s' if secure else ''}://localhost:{world.broker.port}/audit/checkpoint"
        command = ["h2load", "-D", "2", "-c", "8", "-m", "8", "--log-file", log] if load == "h2load" else ["wrk", "-t", "1", "-c", "16", "-d", "2s"]
        child = subprocess.Popen([*command, target], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            time.sleep(1)
            assert world.broker.stop() == 0
            printed = child.communicate(timeout=30)[0]
        finally:
            child.kill()
            child.wait()
        if load == "h2load":
            requests = [line.split() for line in log.read_text().splitlines()]
            statuses = [status for sent, status, _ in requests if sent != "0"]
            assert len(statuses) > 50 and set(statuses) == {"200"}, printed
        else:
            assert "read 0," in printed and "timeout 0" in printed and "Non-2xx" not in printed, printed
