"""A broker for each kind of listener, and questions that tables of requests ask of them."""

import secrets
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bad_requests import ASK, CODE
from certificates import Certificate
from peers import Peer
from world import World

WAYS = ["plain", "tls"]


class Listeners:
    """One broker with a plain listener and one with a TLS listener."""

    def __init__(self, ways=WAYS):
        self.folder = tempfile.TemporaryDirectory(prefix="mayfly-tls-")
        self.certificate = Certificate(Path(self.folder.name))
        self.context = self.certificate.context("http/1.1")
        flags = {"plain": {}, "tls": self.certificate.flags}
        with ThreadPoolExecutor() as threads:
            made = threads.map(lambda way: World(apns=False, **flags[way]), ways)
            self.worlds = dict(zip(ways, made))
        for way in ways:
            for _ in range(20):
                with self.connect(way) as peer:
                    peer.send(ASK)
                    peer.answer()
        self.resident_at_first = {way: self.broker(way).resident for way in ways}

    def broker(self, way):
        return self.worlds[way].broker

    def connect(self, way, **more):
        return Peer(self.broker(way).port, self.context if way == "tls" else None, **more)

    def made(self, way, *codes):
        """How many rooms with these codes exist. An honest caller asks on a connection of its own."""
        with self.connect(way) as peer:
            statuses = []
            for code in codes:
                peer.send(accept(code))
                statuses.append(peer.answer().status)
        assert set(statuses) <= {200, 404}, statuses
        return statuses.count(200)

    def growth(self, way):
        """Bytes of memory that the broker holds beyond those of its beginning."""
        return self.broker(way).resident - self.resident_at_first[way]

    def close(self):
        running = [world.broker.running for world in self.worlds.values()]
        for world in self.worlds.values():
            world.close()
        self.folder.cleanup()
        assert all(running), "a broker ended while the tests ran"


def fresh():
    """A join code of the length that the tables' placeholders have."""
    return secrets.token_hex(len(CODE) // 2).encode()


def accept(code):
    body = b'{"joinid":"' + code + b'","client2":"d"}'
    return b"POST /api/rooms/accept HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n" % len(body) + body
