"""Calls of every kind at a steady rate, good and bad, with secrets of their own, each of which is remembered to be looked for."""

import base64
import json
import os
import random
import socket
import string
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from secrets import token_bytes

from hpack import Decoder
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from canary import subscription_secrets
from http2_frames import (
    ACK, CONTINUATION, END_HEADERS, END_STREAM, HEADERS, POST, START, TABLE_SIZE, data, field as plain_field, frame, number, reset, settings, window)
from mayfly import other_address
from memory_scan import Secret

_letters = string.ascii_letters + string.digits
_huffman = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)


def new_word(length=24):
    """A join code or client id that shares no piece with another one."""
    return "".join(random.choices(_letters, k=length))


def new_capability():
    """A random value in the form of a room id."""
    return base64.urlsafe_b64encode(token_bytes(32))[:43].decode()


class Turn:
    """One room's story, or one user's. `ended`: when the last of its calls was answered; `held`: what the broker needs as long as its
    WebSockets are open; `looked_at`: when the broker will have looked whether one who left has come back, for which it needs the room's id;
    `pushed_at`: when its last push left."""

    ended = float("inf")
    looked_at = pushed_at = 0.0

    def __init__(self):
        self.held = []

    def is_over(self, moment):
        """Whether the broker no longer needs anything of it: a second after the answers, and shortly after what had to wait."""
        return self.ended <= moment - 1 and self.pushed_at < moment - 0.3 and not self.held


@dataclass
class Known:
    """What the callers of one connection know."""

    secrets: list = field(default_factory=list)
    turn: Turn = field(default_factory=Turn)
    calls: int = 0
    statuses: Counter = field(default_factory=Counter)
    # Makes a browser's subscription.
    subscribe: object = None
    addresses: int = 0

    def secret(self, kind, value, text):
        self.secrets.append(Secret(kind, value, text, self.turn))

    def word(self, kind):
        # Swift keeps 15 bytes of text where the text itself is: in registers, on the stack, in a task's frames.
        text = new_word(random.choice((15, 24)))
        self.secret(kind, None, text.encode())
        return text

    def token(self, length=32):
        secret = token_bytes(length)
        self.secret("token", secret, secret.hex().encode())
        return secret.hex()

    def address(self):
        """A token, or every other time a subscription."""
        self.addresses += 1
        if self.subscribe is None or self.addresses % 2:
            return self.token()
        subscription = self.subscribe(self.turn)
        for kind, (text, *value) in subscription_secrets(subscription):
            self.secret(kind, value[0] if value else None, text.encode())
        return subscription

    def capability(self, kind, text):
        self.secret(kind, base64.urlsafe_b64decode(text + "="), text.encode())
        return text

    def next_turn(self):
        self.turn.ended, self.turn = time.monotonic(), Turn()


@dataclass
class Call:
    method: str
    path: str
    body: dict | bytes | None = None
    bearer: str | None = None
    # How a call is broken off, or sent in an unusual way.
    manner: str = ""

    @property
    def content(self):
        return b"" if self.body is None else self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def rooms(known, sockets):
    """Plays rooms one after the other. Yields calls and receives their answers (a dictionary, or None for a broken call)."""
    for turn in count():
        code, creator, joiner = known.word("join code"), known.word("client id"), known.word("client id")
        created = yield Call("POST", "/api/rooms", {
            "joinid": code, "expiresInSeconds": 3600, "client1": creator, "client1_token": known.address()})
        room, first = known.capability("room id", created["roomid"]), known.capability("member secret", created["member"])
        accept = {"joinid": code, "client2": joiner, "client2_token": known.address()}
        accepted = yield Call("POST", "/api/rooms/accept", accept, manner=("", "chunks", "pieces")[turn % 3])
        second = known.capability("member secret", accepted["member"])
        match turn % 12:
            case 0:
                yield Call("POST", "/api/rooms/accept", accept)
                yield Call("GET", "/api/room", bearer=room)
            case 1:
                yield Call("POST", "/api/room/presence", {"client": creator, "member": first}, bearer=room)
            case 2:
                yield Call("PUT", "/api/room/token", {"client": joiner, "member": second, "token": known.address()}, bearer=room)
            case 3:
                known.turn.looked_at = time.monotonic() + 7
                yield Call("POST", "/api/room/presence", {"client": creator}, bearer=room)
                yield Call("POST", "/api/room/presence", {"client": creator, "leaving": True}, bearer=room)
                yield Call("POST", "/api/room/presence", {"client": joiner, "member": second, "roomid": room})
                yield Call("DELETE", "/api/room/token", {"client": joiner, "member": second}, bearer=room)
            case 4:
                yield Call("POST", "/api/rooms", {
                    "joinid": known.word("join code"), "expiresInSeconds": 3600, "client1": known.word("client id"),
                    "client1_token": known.address()}, manner=("cut", "reset")[turn // 8 % 2])
            case 5:
                body = json.dumps({"joinid": known.word("join code"), "client1_token": known.address(), "client1": 7}).encode()
                yield Call("POST", "/api/rooms", body[:-1] if turn // 8 % 2 else body)
            case 6 | 8:
                join = {"type": "join_room", "roomid": room, "client": creator, "member": first}
                sockets(known.turn, "/ws", room, [(join, "joined")])
            case 7:
                yield Call("POST", "/api/rooms/accept", {"joinid": known.word("join code"), "client2": known.word("client id")})
                yield Call("GET", "/api/room", bearer=known.capability("room id", new_capability()))
            case 9:
                # Secrets in wrong places and spellings.
                yield Call("GET", f"/api/room/{room}?token={known.token()}")
                escaped = "".join(f"\\u{ord(letter):04x}" for letter in known.word("client id"))
                yield Call("PUT", "/api/room/token", b'{"token":"%s","client":"%s"}' % (known.token().encode(), escaped.encode()), bearer=room)
            case 10:
                # As long as may be, and longer.
                for size in (15_000, 17_000):
                    body = {"client1_token": known.token(100), "joinid": known.word("join code"), "client1": known.word("client id"),
                            "expiresInSeconds": 3600, "text": "x" * size}
                    yield Call("POST", "/api/rooms", body, manner="continued")
            case 11:
                yield Call("GET", "/api/room", bearer=known.capability("room id", new_capability()) + "x" * 20_000)
                yield Call("HEAD", "/api/room", bearer=room)
        if turn % 4 == 3:
            yield Call("DELETE", "/api/room", bearer=room)
        known.next_turn()


class Wire:
    """A connection with a buffer of what it has read."""

    def __init__(self, port, tls=None):
        self.socket = socket.create_connection(("127.0.0.1", port), 20, (other_address(), 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.buffer = b""

    def take(self, size):
        while len(self.buffer) < size:
            self.more()
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def until(self, end):
        while end not in self.buffer:
            self.more()
        taken, self.buffer = self.buffer.split(end, 1)
        return taken

    def more(self):
        data = self.socket.recv(65_536)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self.buffer += data

    def close(self, abruptly=False):
        if abruptly:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class HTTP1:
    def __init__(self, port, tls=None):
        self.port, self.tls, self.wire = port, tls, Wire(port, tls)

    def call(self, call):
        content = call.content
        head = f"{call.method} {call.path} HTTP/1.1\r\nHost: localhost\r\n"
        if call.bearer:
            head += f"Authorization: Bearer {call.bearer}\r\n"
        if call.manner == "chunks":
            middle = len(content) // 2
            content = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (content[:middle], content[middle:], b""))
            head += "Transfer-Encoding: chunked\r\n"
        elif content:
            head += f"Content-Length: {len(content)}\r\n"
        if call.manner == "continued":
            head += "Expect: 100-continue\r\n"
        message = head.encode() + b"\r\n" + content
        if call.manner in ("cut", "reset"):
            self.wire.socket.sendall(message[:-4])
            time.sleep(0.01)
            self.wire.close(abruptly=call.manner == "reset")
            self.wire = Wire(self.port, self.tls)
            return "broken off", None
        for part in (message[:len(message) // 2], message[len(message) // 2:]) if call.manner == "pieces" else (message,):
            self.wire.socket.sendall(part)
        head = self.wire.until(b"\r\n\r\n").lower()
        if head.startswith(b"http/1.1 100"):
            head = self.wire.until(b"\r\n\r\n").lower()
        length = 0 if call.method == "HEAD" else int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        body = self.wire.take(length)
        if b"connection: close" in head:
            self.wire.close()
            self.wire = Wire(self.port, self.tls)
        return head[9:12].decode(), json.loads(body or b"null")

    def close(self):
        self.wire.close()


class HTTP2:
    """One stream after the other, so that nothing has to be sorted out."""

    def __init__(self, port, tls):
        self.port, self.tls = port, tls
        self.open()

    def open(self):
        self.wire, self.stream, self.decoder = Wire(self.port, self.tls), 1, Decoder()
        self.wire.socket.sendall(START)

    def call(self, call):
        stream, self.stream = self.stream, self.stream + 2
        content = call.content
        fields = [(b":method", call.method.encode()), *POST[1:3], (b":path", call.path.encode())]
        if call.bearer:
            fields.append((b"authorization", b"Bearer " + call.bearer.encode()))
        # Every other call with Huffman's code.
        lines = TABLE_SIZE + b"".join((coded_field if stream % 4 == 1 else plain_field)(*line) for line in fields)
        end = 0 if content else END_STREAM
        message = frame(HEADERS, stream, lines[:16_000], end | (END_HEADERS if len(lines) <= 16_000 and call.manner != "pieces" else 0))
        if len(lines) > 16_000:
            message += frame(CONTINUATION, stream, lines[16_000:], END_HEADERS)
        elif call.manner == "pieces":
            message = frame(HEADERS, stream, lines[:30], end) + frame(CONTINUATION, stream, lines[30:], END_HEADERS)
        if call.manner in ("cut", "reset"):
            self.wire.socket.sendall(message + data(stream, content[:-4], 0) + (reset(stream) if call.manner == "reset" else b""))
            if call.manner == "cut":
                time.sleep(0.01)
                self.wire.close()
                self.open()
            return "broken off", None
        if call.manner == "chunks":
            message += data(stream, content[:50], 0) + data(stream, content[50:])
        elif content:
            parts = [content[at:at + 16_384] for at in range(0, len(content), 16_384)]
            message += b"".join(data(stream, part, 0) for part in parts[:-1]) + data(stream, parts[-1])
        for part in (message[:len(message) // 2], message[len(message) // 2:]) if call.manner == "pieces" else (message,):
            self.wire.socket.sendall(part)
        status, body = None, b""
        while True:
            head = self.wire.take(9)
            payload = self.wire.take(int.from_bytes(head[:3], "big"))
            kind, flags, about = head[3], head[4], int.from_bytes(head[5:], "big")
            if kind == 4 and not flags & ACK:
                self.wire.socket.sendall(settings(flags=ACK))
            elif kind == 1 and about == stream:
                status = payload
            elif kind == 0 and about == stream:
                body += payload
                self.wire.socket.sendall(window(0, len(payload)))
            elif kind == 7 or kind == 3 and about == stream:
                raise ConnectionError(f"frame of type {kind} for stream {about}")
            if about == stream and flags & END_STREAM and kind in (0, 1):
                return self.decoder.decode(status)[0][1], json.loads(body or b"null")

    def close(self):
        self.wire.close()


def coded_field(name, value):
    """A literal field that is never indexed, both parts in Huffman's code."""
    parts = (_huffman.encode(part) for part in (name, value))
    return b"\x10" + b"".join(bytes([number(len(part), 7)[0] | 0x80]) + number(len(part), 7)[1:] + part for part in parts)


class WebSocket:
    """Sends `messages`, each with the type of its answer, or None not to wait for one."""

    def __init__(self, port, tls, path, held, messages):
        self.held, self.text = held, json.dumps(messages[0][0]).encode()
        self.wire = Wire(port, tls)
        self.wire.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
        assert b" 101 " in self.wire.until(b"\r\n\r\n")
        self.is_in_pieces = (held or "") > "V"
        for number, (message, kind) in enumerate(messages, 1):
            self.say(json.dumps(message).encode(), is_last=number == len(messages))
            while kind is not None and (answer := self.receive())["type"] != kind:
                assert answer["type"] != "error", answer

    def say(self, text, is_last):
        if not self.is_in_pieces:
            # And one byte of the next message, so that this one's buffer is kept for it.
            self.send(text, more=b"\x81" if is_last else b"")
        else:
            # Some of them in fragments, with a pong in between.
            for code, part in ((0x01, text[:-20]), (0x8A, b"?"), (0x00, text[-20:-10]), (0x80, text[-10:])):
                self.send(part, code)

    def send(self, text, code=0x81, more=b""):
        """One frame under a mask; `code`: its first byte."""
        mask = os.urandom(4)
        head = bytes([code, 0x80 | len(text)]) if len(text) < 126 else bytes([code, 0xFE]) + struct.pack(">H", len(text))
        self.wire.socket.sendall(head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(text)) + more)

    def receive(self):
        size = self.wire.take(2)[1]
        return json.loads(self.wire.take(struct.unpack(">H", self.wire.take(2))[0] if size == 126 else size))

    def close(self):
        """Closes, sometimes within an unfinished message."""
        if self.is_in_pieces:
            self.send(self.text[:-5], 0x01)
        self.wire.close()


class Load:
    """So many calls a second for so many seconds, over all that the broker's listener speaks: HTTP/1.1 and WebSocket, and with `tls` (contexts
    for HTTP/1.1 and HTTP/2) HTTP/2 too. Connections stay open, and so do the last of each path's WebSockets, until `close`. The connections
    share the `stories` out among them."""

    def __init__(self, port, tls=None, rate=1000, seconds=5.0, connections=12, kept_sockets=10, stories=(rooms,),
                 subscribe=None):
        self.port, self.tls, self.rate, self.seconds, self.kept, self.stories = port, tls, rate, seconds, kept_sockets, stories
        self.subscribe, self.known = subscribe, [Known(subscribe=subscribe) for _ in range(connections)]
        self.open, self.sockets, self.errors = [], {}, []

    def start(self):
        self.began = time.monotonic()
        self.threads = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(len(self.known))]
        for thread in self.threads:
            thread.start()
        return self

    def finish(self):
        for thread in self.threads:
            thread.join()
        assert not self.errors, self.errors
        self.lasted = time.monotonic() - self.began
        for known in self.known:
            known.next_turn()
        return self

    def one_more(self, story):
        """The first call of another story, and its answer."""
        known, connection = Known(calls=1, subscribe=self.subscribe), self._connect(0)
        self.known.append(known)
        self.open.append(connection)
        calls = story(known, self._socket)
        calls.send(connection.call(next(calls))[1])
        known.next_turn()

    @property
    def calls(self):
        return sum(known.calls for known in self.known)

    @property
    def statuses(self):
        return sum((known.statuses for known in self.known), Counter())

    @property
    def secrets(self):
        return [secret for known in self.known for secret in list(known.secrets)]

    def _connect(self, number):
        if self.tls is None:
            return HTTP1(self.port)
        http1, http2 = self.tls
        return HTTP2(self.port, http2) if number % 2 else HTTP1(self.port, http1)

    def _socket(self, turn, path, held, messages):
        """Opens one that is kept, for which the broker needs what is `held`, or without that one that is closed as soon as it was answered."""
        socket = WebSocket(self.port, self.tls and self.tls[0], path, held, messages)
        if held is None:
            return socket.close()
        turn.held.append(held)
        socket.turn = turn
        kept = self.sockets.setdefault(path, [])
        kept.append(socket)
        if len(kept) > self.kept:
            self._end(kept.pop(0))

    def _end(self, socket):
        socket.close()
        socket.turn.held.remove(socket.held)
        socket.turn.ended = time.monotonic()

    def _work(self, number):
        try:
            known, connection = self.known[number], self._connect(number)
            self.open.append(connection)
            # Each of them over HTTP/1.1 and HTTP/2.
            calls = self.stories[number // 2 % len(self.stories)](known, self._socket)
            call = next(calls)
            for turn in count():
                due = self.began + (turn * len(self.known) + number) / self.rate
                if due > self.began + self.seconds:
                    break
                time.sleep(max(0.0, due - time.monotonic()))
                status, answer = connection.call(call)
                known.calls += 1
                known.statuses[status] += 1
                call = calls.send(answer)
        except Exception as error:
            self.errors.append(f"connection {number}: {error!r}")

    def close(self):
        for connection in self.open:
            connection.close()
        for socket in [socket for kept in self.sockets.values() for socket in kept]:
            self._end(socket)
        self.open, self.sockets = [], {}
