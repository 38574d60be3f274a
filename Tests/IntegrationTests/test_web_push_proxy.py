"""Web Push through an HTTP proxy, which is told only addresses that the broker has checked."""

import socket
import threading

import pytest

from preload import library
from processes import eventually, mayfly
from test_web_push import TEXT, PushWorld, message
from web_push_service import Subscriber


class Proxy:
    """Opens tunnels, and notes where to."""

    def __init__(self):
        self.targets, self.socket = [], socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.tunnel, args=[connection], daemon=True).start()

    def tunnel(self, connection):
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1)
        target = head.split()[1].decode()
        self.targets.append(target)
        host, port = target.rsplit(":", 1)
        there = socket.create_connection((host.strip("[]"), int(port)))
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        threading.Thread(target=self.copy, args=[there, connection], daemon=True).start()
        self.copy(connection, there)

    @staticmethod
    def copy(source, sink):
        try:
            while data := source.recv(65_536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


@pytest.fixture
def proxy():
    proxy = Proxy()
    yield proxy
    proxy.socket.close()


def test_a_proxy_is_told_the_checked_address(proxy):
    environment = {"LD_PRELOAD": library("names.c"), "TEST_NAMES": "push.example=127.0.0.1"}
    with PushWorld(apns_proxy=f"localhost:{proxy.port}", environment=environment) as world:
        client, browser = world.client(), Subscriber(world.service)
        world.knock({**Subscriber(world.service).json(), "endpoint": "https://push.example/x"}, client)
        world.knock(browser, client)
        assert browser.open(message(browser))["notification"]["title"] == TEXT
        eventually(lambda: world.broker.metric("web_push_inward_total") > 0, what="the counter")
        told = {target for target in proxy.targets if not target.endswith(f":{world.simulator.port}")}
        assert told == {f"127.0.0.1:{world.service.port}"}, proxy.targets


def test_enabling_needs_no_password_of_the_proxy():
    with PushWorld() as world:
        world.broker.stop()
        missing = world.folder / "password"
        proxy = ("--apns-proxy", "user@localhost:1", "--apns-proxy-password", missing)
        enabled = mayfly("push", "enable", *world.state.flags, *world.flags, *proxy)
        assert enabled.returncode == 0, enabled
