"""A small client of Mayfly, written from the contract alone. Every answer is checked against docs/openapi.yaml."""

import base64
import http.client
import json
import random
import secrets
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import contract
from canary import given

TOKEN_BYTES = 32


def new_token():
    token = secrets.token_hex(TOKEN_BYTES)
    given.add(token)
    return token


def new_code():
    return "code-" + secrets.token_hex(8)


def new_client():
    return "client-" + secrets.token_hex(8)


def base64url_bytes(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def invented_room(end=None):
    """A room id that no broker has made. `end`: the room's, in unix ms; in an hour, unless another is given."""
    end = int(time.time() * 1000) + 3_600_000 if end is None else end
    return base64.urlsafe_b64encode(end.to_bytes(6, "big") + secrets.token_bytes(26)).decode().rstrip("=")


def other_address():
    """A loopback address of its own for each client, so that per-address limits of one test don't affect others."""
    return f"127.{random.randint(1, 254)}.{random.randint(0, 254)}.{random.randint(1, 254)}"


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        return self.json.get("code")

    def expect(self, status, code=None, field=None):
        """Fails unless this is the expected answer. An error must be complete: RFC 9457, and the fields of the first clients."""
        told = f"{self.status} {self.body[:400]!r}"
        assert self.status == status, f"expected {status} {code or ''}, got {told}"
        if code is not None:
            problem = self.json
            assert self.headers["content-type"].split(";")[0] == "application/problem+json", self.headers
            assert problem["code"] == code, f"expected {code}, got {told}"
            assert problem["status"] == status and problem["success"] is False and problem["type"] == "about:blank", told
            assert problem["title"] and problem["detail"] and problem["error"] == problem["detail"], told
            assert problem.get("field") == field, f"expected field {field}, got {told}"
        return self


class Client:
    """One caller with an address of its own. `checked`: whether each answer is checked against docs/openapi.yaml."""

    def __init__(self, port, address=None, timeout=10, checked=True):
        self.port, self.address, self.timeout, self.checked = port, address or other_address(), timeout, checked
        self.connection = None

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def send(self, method, path, body=None, bearer=None, headers=None, checked=True):
        """One request; `body` is sent as JSON unless it is bytes. A broken connection raises."""
        for name in ("client1_token", "client2_token", "token", "deviceToken"):
            if isinstance(body, dict) and isinstance(body.get(name), str):
                given.add(body[name])
            elif isinstance(body, dict) and isinstance(body.get(name), dict):
                given.add_subscription(body[name])
        content = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        fields = {} if content is None else {"Content-Type": "application/json"}
        if bearer is not None:
            fields["Authorization"] = f"Bearer {bearer}"
        fields.update(headers or {})
        try:
            answer = self.exchange(method, path, content, fields)
        except BaseException:
            self.close()
            raise
        if checked and self.checked:
            contract.check(method, path, answer)
        return answer

    def exchange(self, method, path, content, fields):
        if self.connection is None:
            self.connection = http.client.HTTPConnection(
                "127.0.0.1", self.port, timeout=self.timeout, source_address=(self.address, 0))
        self.connection.request(method, path, content, fields)
        response = self.connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def create(self, joinid=None, client1=None, token=None, expires=3600, **more):
        body = {"joinid": joinid or new_code(), "client1": client1 or new_client()}
        if expires is not None:
            body["expiresInSeconds"] = expires
        if token is not None:
            body["client1_token"] = token
        return self.send("POST", "/api/rooms", body | more)

    def accept(self, joinid, client2=None, token=None, **more):
        body = {"joinid": joinid, "client2": client2 or new_client()}
        if token is not None:
            body["client2_token"] = token
        return self.send("POST", "/api/rooms/accept", body | more)

    def status(self, roomid):
        return self.send("GET", "/api/room", bearer=roomid)

    def delete(self, roomid):
        return self.send("DELETE", "/api/room", bearer=roomid)

    def put_token(self, roomid, client, token, **more):
        return self.send("PUT", "/api/room/token", {"client": client, "token": token} | more, bearer=roomid)

    def delete_token(self, roomid, client, **more):
        return self.send("DELETE", "/api/room/token", {"client": client} | more, bearer=roomid)

    def presence(self, roomid, client, **more):
        return self.send("POST", "/api/room/presence", {"client": client} | more, bearer=roomid)

    def test_push(self, roomid, client, **more):
        return self.send("POST", "/api/push/test", {"client": client} | more, bearer=roomid)

    def room(self, tokens=(True, True), expires=3600, **more):
        """A room with both sides in it."""
        code, creator, joiner = new_code(), new_client(), new_client()
        first, second = (new_token() if wanted else None for wanted in tokens)
        created = self.create(code, creator, first, expires, **more).expect(201).json
        accepted = self.accept(code, joiner, second).expect(200).json
        assert accepted["roomid"] == created["roomid"]
        return Room(code, created["roomid"], Side(creator, created, first), Side(joiner, accepted, second))


def ask(broker, question):
    """Calls `question` with a new client. Connections don't survive hours of a moved clock."""
    with closing(Client(broker.port, checked=False)) as client:
        return question(client)


@dataclass
class Side:
    client: str
    answer: dict
    token: str | None

    @property
    def member(self):
        return self.answer["member"]

    @property
    def ref(self):
        return self.answer.get("ref")


@dataclass
class Room:
    code: str
    roomid: str
    creator: Side
    joiner: Side


class Socket:
    """A WebSocket through the `websockets` library; messages are JSON objects."""

    def __init__(self, broker, tls=None):
        self.stack = ExitStack()
        self.connection = self.stack.enter_context(connect(
            broker.ws_url, ssl=tls, proxy=None, ping_interval=None, close_timeout=2, compression=None,
            source_address=(other_address(), 0)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()

    def send(self, message):
        self.connection.send(json.dumps(message))

    def receive(self, timeout=5):
        return json.loads(self.connection.recv(timeout))

    def expect(self, kind, timeout=5):
        message = self.receive(timeout)
        assert message["type"] == kind, f"expected {kind}, got {message}"
        return message

    def join(self, roomid, client, member=None):
        message = {"type": "join_room", "roomid": roomid, "client": client}
        self.send(message if member is None else message | {"member": member})
        return self.expect("joined")

    def closed(self, timeout=15):
        """Reads to the end: the close code the server sent (None if it sent none), and the messages before it."""
        messages = []
        try:
            while True:
                messages.append(self.receive(timeout))
        except ConnectionClosed as end:
            return (end.rcvd.code if end.rcvd else None), messages
