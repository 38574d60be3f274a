"""More connections than there are descriptors for: the surplus is told so, the others are served, and the log goes on."""

from contextlib import ExitStack

import pytest

from bad_requests import ASK, BODY, CODE, request
from certificates import Certificate
from http2_frames import START, FramePeer, ask
from ledger import read
from listeners import accept, fresh
from mayfly import new_token
from peers import Closed, Peer
from processes import Broker, eventually, http_status

pytestmark = pytest.mark.campaign

DESCRIPTORS = 400


@pytest.fixture(params=["plain", "tls", "h2"])
def crowded(request, state, processes, tmp_path):
    """A broker with few descriptors, how to connect to it, and connections up to its limit."""
    certificate = Certificate(tmp_path) if request.param != "plain" else None
    broker = Broker(state, **(certificate.flags if certificate else {}))
    broker.prefix = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
    processes.append(broker)
    broker.start()

    def connect():
        if request.param == "h2":
            peer = FramePeer(broker.port, certificate.context("h2"))
            peer.send(START)
            return peer
        return Peer(broker.port, certificate and certificate.context("http/1.1"))

    def status(peer, number=0):
        """What it is answered; None when the connection ends without an answer."""
        try:
            if request.param == "h2":
                stream = 2 * number + 1
                peer.send(ask(stream))
                told = peer.outcome(stream)
                return int(told[7:]) if told.startswith("answer") else None
            peer.send(ASK)
            answer = peer.answer()
            assert answer.status != 503 or int(answer.headers["retry-after"]) > 0
            return answer.status
        except (Closed, OSError):
            return None
    with ExitStack() as stack:
        peers = []
        while len(peers) < DESCRIPTORS:
            peer = stack.enter_context(connect())
            peers.append(peer)
            if status(peer) == 503:
                break
        yield broker, connect, status, peers


def test_the_surplus_is_told_and_the_rest_is_served(crowded):
    broker, connect, status, peers = crowded
    print(f"{len(peers) - 1} connections before the first 503")
    assert 100 < len(peers) < DESCRIPTORS - 100
    for _ in range(100):
        with connect() as peer:
            assert status(peer) == 503
    for peer in peers[:20]:
        assert status(peer, 1) == 404
    assert http_status(f"http://127.0.0.1:{broker.operator_port}/readyz") == 200
    for peer in peers[20:40]:
        peer.socket.close()

    def served():
        with connect() as peer:
            return status(peer) == 404
    eventually(served, what="a place for another")


def test_surplus_that_does_not_leave(state, processes):
    """Those who stay after their 503, or never say anything, take no more than their bounded share; what is stored goes on."""
    broker = Broker(state)
    broker.prefix = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
    processes.append(broker)
    broker.start()
    with ExitStack() as stack:
        first = stack.enter_context(Peer(broker.port))
        for _ in range(DESCRIPTORS + 100):
            stack.enter_context(Peer(broker.port))
        code = fresh()
        first.send(request(body=BODY[:-1] + b',"client1_token":"%s"}' % new_token().encode()).replace(CODE, code))
        assert first.answer().status == 201
        first.send(accept(code))
        assert first.answer().status == 200
        assert http_status(f"http://127.0.0.1:{broker.operator_port}/readyz") == 200
        eventually(lambda: any(entry["op"] == "token.sealed" for entry in read(state).entries), 10, what="the log going on")
    eventually(lambda: answered(broker.port), 10, what="an answer after they left")


def answered(port):
    with Peer(port) as peer:
        peer.send(ASK)
        try:
            return peer.answer().status == 404
        except Closed:
            return False
