"""One network uses up its share of the HTTP engine, or all descriptors: others are served, and the log goes on. SharesTests, ShareTests, RequestTests
and StreamTests have the other limits."""

import time
from contextlib import ExitStack

import h2.config
import h2.connection
import h2.events
import pytest

from bad_requests import ASK, BODY, CODE, request
from http2_frames import END_HEADERS, END_STREAM, PREFACE, FramePeer, head, settings
from ledger import read
from listeners import Listeners, accept, fresh
from mayfly import new_token
from peers import Closed, Peer
from processes import Broker, eventually, http_status

pytestmark = pytest.mark.campaign

GREEDY, OTHER = "127.66.0.1", "127.77.0.1"


@pytest.fixture(scope="module")
def world():
    listeners = Listeners(["tls"])
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
def test_windows_of_zero(world, path):
    """150 connections with 64 requests each, whose windows never open."""
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


def test_requests_beside_stalled_answers_of_one_network(world):
    """Answers that stalled for a second are dropped for other requests of their network."""
    with ExitStack() as stack:
        for _ in range(20):
            peer = stack.enter_context(FramePeer(world.broker("tls").port, world.certificate.context("h2"), source="127.67.0.1"))
            peer.send(PREFACE + settings((4, 0)) + gets(b"/audit/"))
        time.sleep(2.5)
        neighbour = stack.enter_context(Bystander(world, "127.67.0.1"))
        for _ in range(50):
            assert neighbour.ask("/audit/")[0] == 200


DESCRIPTORS = 400


def test_surplus_connections_that_stay_open(state, processes):
    """Silent connections, and those kept open after a 503, can't use up the descriptors that storing needs."""
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
