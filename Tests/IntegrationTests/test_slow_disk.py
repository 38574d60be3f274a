"""Reading the log from a disk that is slow, or answers nothing: only those who read wait."""

import ssl
import threading
import time
from contextlib import ExitStack, closing, suppress

import h2.config
import h2.connection
import h2.events
import pytest

from certificates import Certificate
from faults import Faults
from mayfly import Client, new_token
from nodes import Deployment, issue
from peers import Peer
from processes import Broker, State, eventually, http_status

READERS = 16


class Reader(threading.Thread):
    """Asks for a path once, from an address of its own."""

    def __init__(self, port, path, method="GET", headers=None):
        super().__init__(daemon=True)
        self.client, self.question, self.answer = Client(port, timeout=60, checked=False), (method, path, headers), None
        self.start()

    def run(self):
        method, path, headers = self.question
        # The broker may end first.
        with suppress(OSError):
            self.answer = self.client.send(method, path, headers=headers, checked=False)

    def result(self):
        self.join(30)
        assert self.answer is not None, "no answer"
        self.client.close()
        return self.answer


class Streams(Peer):
    """Many requests on one HTTP/2 connection."""

    def __init__(self, port, certificate, source="127.61.0.1"):
        super().__init__(port, certificate.context("h2"), source=source, timeout=30)
        self.machine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.machine.initiate_connection()
        self.statuses, self.bodies = {}, {}

    def ask(self, path, method="GET"):
        stream = self.machine.get_next_available_stream_id()
        self.machine.send_headers(stream, [
            (":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)], end_stream=True)
        self.send(self.machine.data_to_send())
        return stream

    def cancel(self, stream):
        self.machine.reset_stream(stream, 8)
        self.send(self.machine.data_to_send())

    def until(self, count):
        """Reads until `count` answers are complete."""
        done = set()
        while len(done) < count:
            for event in self.machine.receive_data(self.receive()):
                match event:
                    case h2.events.ResponseReceived(stream_id=number):
                        self.statuses[number] = int(dict(event.headers)[":status"])
                    case h2.events.DataReceived(stream_id=number):
                        self.bodies[number] = self.bodies.get(number, b"") + event.data
                        self.machine.acknowledge_received_data(event.flow_controlled_length, number)
                    case h2.events.StreamEnded(stream_id=number):
                        done.add(number)
            self.send(self.machine.data_to_send())


class Disk:
    """A broker with a part of its ledger folder on a disk that a test slows down."""

    def __init__(self, below="ledger/policies", **broker):
        self.state = State()
        self.faults = Faults(self.state, below)
        self.broker = Broker(self.state, **broker)
        self.broker.start(**self.faults.environment)
        self.policy = next((self.state / "ledger/policies").iterdir())

    @property
    def path(self):
        return f"/audit/policies/{self.policy.name}"

    def read(self, count=READERS, **more):
        """Asks for a file from `count` addresses, and returns once its disk was asked."""
        before = self.faults.struck
        readers = [Reader(self.broker.port, self.path, **more) for _ in range(count)]
        eventually(lambda: self.faults.struck > before, what="a read of the disk")
        return readers

    def create(self):
        with closing(Client(self.broker.port, timeout=5)) as client:
            return client.create(token=new_token())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.faults.disarm()
        self.broker.kill()
        self.state.remove()


@pytest.fixture
def disk():
    with Disk() as disk:
        yield disk


# Promise: slow-disk-stops-readers-only
def test_a_disk_that_hangs_stops_nobody_but_the_readers():
    """The whole folder hangs, so that nothing is published either."""
    with Disk("ledger") as disk:
        content = disk.policy.read_bytes()
        disk.faults.wait()
        readers = disk.read()
        for _ in range(5):
            disk.create().expect(201)
        # Files of the program are not on that disk.
        for path in ("/audit/", "/audit/ledger.vkey"):
            assert http_status(disk.broker.url + path) == 200
        assert all(reader.answer is None for reader in readers)
        disk.faults.disarm()
        for reader in readers:
            answer = reader.result()
            assert (answer.status, answer.body) == (200, content)
        assert disk.broker.stop() == 0


def test_a_slow_disk_delays_no_create(disk):
    """Twenty milliseconds a file, which sixteen readers want all the time. A create waits for none of them."""
    disk.faults.wait(20)
    ends = threading.Event()

    def read():
        with closing(Client(disk.broker.port, checked=False)) as client:
            while not ends.is_set():
                client.send("GET", disk.path, checked=False).expect(200)

    threads = [threading.Thread(target=read) for _ in range(READERS)]
    for thread in threads:
        thread.start()
    eventually(lambda: disk.faults.struck > READERS, what="reads")
    times = []
    for _ in range(20):
        begun, before = time.monotonic(), disk.faults.struck
        disk.create().expect(201)
        times.append((time.monotonic() - begun, disk.faults.struck - before))
    ends.set()
    for thread in threads:
        thread.join()
    print(f"a create took {sorted(times)[10][0] * 1000:.0f} ms, and {sorted(times)[-1][0] * 1000:.0f} ms at most")
    # On the loop, a create would wait for a read of each reader.
    assert sorted(reads for _, reads in times)[10] < READERS


def test_the_broker_stops_while_a_read_hangs(disk):
    disk.faults.wait()
    disk.read(4)
    disk.create().expect(201)
    disk.broker.child.terminate()
    assert disk.broker.child.wait(30) == 0, disk.broker.printed()


def test_head_ranges_and_conditions_read_as_before(disk):
    content = disk.policy.read_bytes()
    disk.faults.wait(5)
    head = Reader(disk.broker.port, disk.path, "HEAD").result()
    assert (head.status, head.headers["content-length"], head.body) == (200, str(len(content)), b"")
    # The server has no validators and no ranges, so it answers with the whole file (RFC 9110 sections 13.2.2 and 14.2).
    for headers in ({"Range": "bytes=0-9"}, {"If-None-Match": "*"}, {"If-Modified-Since": "Sun, 06 Nov 2044 08:49:37 GMT"}):
        answer = Reader(disk.broker.port, disk.path, headers=headers).result()
        assert (answer.status, answer.body) == (200, content)
    assert Reader(disk.broker.port, "/audit/tile/7/000").result().status == 404
    disk.faults.arm(-1, only="open")
    assert Reader(disk.broker.port, disk.path).result().status == 503
    assert "requests: the ledger's folder: " in disk.broker.printed()


def test_one_connection_of_http2(tmp_path):
    """A connection's further reads wait in line. Its cancelled ones make room for nobody else's loss."""
    certificate = Certificate(tmp_path)
    with Disk(tls_certificate=certificate.path, tls_key=certificate.key) as disk, ExitStack() as stack:
        content = disk.policy.read_bytes()
        disk.faults.wait()
        greedy = stack.enter_context(Streams(disk.broker.port, certificate))
        streams = [greedy.ask(disk.path) for _ in range(60)]
        eventually(lambda: disk.faults.struck >= 4, what="reads of the disk")
        other = stack.enter_context(Streams(disk.broker.port, certificate, "127.62.0.1"))
        page = other.ask("/audit/")
        other.until(1)
        assert other.statuses[page] == 200
        for stream in streams[:30]:
            greedy.cancel(stream)
        leaving = Streams(disk.broker.port, certificate, "127.63.0.1")
        leaving.ask(disk.path)
        leaving.reset()
        assert disk.faults.struck == 4
        disk.faults.disarm()
        greedy.until(30)
        assert [(greedy.statuses[stream], greedy.bodies[stream]) for stream in streams[30:]] == [(200, content)] * 30


def test_the_node_port_on_a_disk_that_hangs():
    with Deployment("a") as deployment, ExitStack() as stack:
        deployment.simulator.start()
        node = deployment["a"]
        faults = Faults(node.state, node.folder / "ledger/policies")
        node.start(**faults.environment)
        context = ssl.create_default_context(cafile=deployment.authority.path)
        context.check_hostname = False
        context.load_cert_chain(issue(deployment.authority, "reader"))
        path = f"/audit/policies/{next((node.folder / 'ledger/policies').iterdir()).name}"
        peers = [stack.enter_context(Peer(node.node_port, context, source=f"127.64.0.{number + 1}", timeout=30)) for number in range(8)]
        faults.wait()
        for peer in peers:
            peer.send(f"GET {path} HTTP/1.1\r\nHost: node\r\n\r\n".encode())
        eventually(lambda: faults.struck > 0, what="a read of the disk")
        with closing(Client(node.port, timeout=5)) as client:
            client.create(token=new_token()).expect(201)
        faults.disarm()
        for peer in peers:
            assert peer.answer().status == 200
        peers[0].send(b"GET /audit/tile/7/000 HTTP/1.1\r\nHost: node\r\n\r\n")
        assert peers[0].answer().status == 404
        # A file that can't be read is not missing: the other node tries again.
        faults.arm(-1, only="open")
        peers[0].send(f"GET {path} HTTP/1.1\r\nHost: node\r\n\r\n".encode())
        assert peers[0].answer().status == 503
