"""Hosts of Web Push that behave badly. None delays a push to Apple, rings the operator, ends a subscription or holds a connection for long."""

import socket
import ssl
import threading
import time
from collections import Counter

import pytest

from certificates import Certificate
from mayfly import new_token
from preload import library
from processes import eventually, free_port
from test_web_push import PushWorld
from web_push_service import Subscriber


class BadHost:
    """Gives each connection to `behave`, inside TLS if there is a certificate. `most`: the most that were open at a time at one address."""

    def __init__(self, behave, certificate=None, address="127.0.0.1"):
        self.behave, self.host, self.port = behave, address, free_port()
        self.lock, self.open, self.most, self.lasted, self.sent = threading.Lock(), Counter(), Counter(), [], 0
        self.context = certificate and ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if certificate:
            self.context.load_cert_chain(certificate.path, certificate.key)
        self.socket = socket.create_server((address, self.port), backlog=512)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.play, args=[connection], daemon=True).start()

    def play(self, connection):
        address, start = connection.getsockname()[0], time.monotonic()
        with self.lock:
            self.open[address] += 1
            self.most[address] = max(self.most[address], self.open[address])
        try:
            connection.settimeout(60)
            if self.context:
                connection = self.context.wrap_socket(connection, server_side=True)
                while b"\r\n\r\n" not in connection.recv(65_536):
                    pass
            self.behave(self, connection)
        except OSError:
            pass
        finally:
            connection.close()
            with self.lock:
                self.open[address] -= 1
                self.lasted.append(time.monotonic() - start)

    def send(self, connection, data):
        connection.sendall(data)
        self.sent += len(data)

    def close(self):
        self.socket.close()


def hang(host, connection):
    while connection.recv(65_536):
        pass


def answer_slowly(host, connection):
    for byte in b"HTTP/1.1 201 Created\r\nx-slow: " + b"x" * 600:
        host.send(connection, bytes([byte]))
        time.sleep(1)


def send_headers(host, connection):
    host.send(connection, b"HTTP/1.1 201 Created\r\n")
    while True:
        host.send(connection, b"x-more: and more\r\n" * 50)


def ring_a_phone(world, client):
    """The seconds until Apple has a push."""
    token, start = new_token(), time.monotonic()
    world.knock(token, client)
    eventually(lambda: world.simulator.pushes(token), 30, what="the push to Apple")
    return time.monotonic() - start


# Promise: web-hosts-no-alarm
@pytest.mark.alone
def test_a_host_that_hangs_or_answers_without_end_costs_nobody_anything():
    hosts = []

    def lines(certificate):
        hosts.extend([
            BadHost(hang), BadHost(hang, certificate), BadHost(answer_slowly, certificate), BadHost(send_headers, certificate),
            BadHost(hang, Certificate(certificate.path.parent, "other"), "127.0.0.2")])
        return [f"{host.host}:{host.port} private ca {certificate.path}" for host in hosts]
    with PushWorld(lines=lines) as world:
        client = world.client()
        rooms = [world.knock(Subscriber(host), client)[0]["roomid"] for host in hosts]
        eventually(lambda: all(host.open or host.lasted for host in hosts), what="a connection to each")
        assert ring_a_phone(world, client) < 15
        # Each is given up: 5 s for a connection, 10 s for an answer.
        eventually(lambda: all(host.lasted for host in hosts), 40, what="the end of a connection to each")
        assert max(max(host.lasted) for host in hosts) < 30 and hosts[3].sent < 4_000_000
        assert all(client.status(room).json["creatorHasToken"] for room in rooms)
        assert world.broker.metric("alarms_total") == 0
    for host in hosts:
        host.close()


# Promise: web-dials-are-bounded
@pytest.mark.alone
def test_many_hosts_that_hang_delay_no_push_to_apple():
    host = BadHost(hang, address="0.0.0.0")
    addresses = [f"127.1.0.{number}" for number in range(1, 41)]
    with PushWorld(lines=lambda certificate: [f"{address}:{host.port} private" for address in addresses]) as world:
        client = world.client()
        for address in addresses:
            world.knock(Subscriber(type("Service", (), {"host": address, "port": host.port})), client)
        eventually(lambda: len(host.most) == len(addresses), 30, what="a connection to each")
        assert ring_a_phone(world, client) < 15
        eventually(lambda: len(host.lasted) >= len(addresses), 30, what="the ends of the connections")
        # One at a time, for one time-out.
        assert set(host.most.values()) == {1}, host.most
        assert max(host.lasted) < 25
    host.close()


# Promise: web-no-inward-address
def test_a_name_that_changes_its_address_gains_nothing():
    """The address that was looked up is the one that is called."""
    first = BadHost(hang, address="127.0.0.2")
    port, seen = first.port, socket.create_server(("127.0.0.3", first.port))
    seen.setblocking(False)
    environment = {"LD_PRELOAD": library("names.c"), "TEST_NAMES": "push.example=127.0.0.2,push.example=127.0.0.3"}
    with PushWorld(lines=lambda certificate: [f"push.example:{port} private"], environment=environment) as world:
        world.knock({**Subscriber(world.service).json(), "endpoint": f"https://push.example:{port}/x"})
        eventually(lambda: len(first.lasted) > 1, 40, what="a second connection")
        try:
            seen.accept()
            raise AssertionError("the second address was called")
        except BlockingIOError:
            pass
    seen.close()
    first.close()
