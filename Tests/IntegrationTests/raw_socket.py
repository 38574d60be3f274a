"""A WebSocket over a plain TCP connection. It answers pings only while it reads, and can end in any way."""

import base64
import json
import os
import select
import socket
import struct
import time

from mayfly import other_address

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


class RawSocket:
    def __init__(self, broker):
        self.tcp = socket.create_connection(("127.0.0.1", broker.port), 10, source_address=(other_address(), 0))
        self.tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = base64.b64encode(os.urandom(16)).decode()
        self.tcp.sendall((
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{broker.port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n").encode())
        self.input, self.has_ended = b"", False
        while b"\r\n\r\n" not in self.input:
            self.input += self.tcp.recv(4096)
        head, self.input = self.input.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 101 "), head

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tcp.close()

    def frame(self, opcode, payload=b""):
        assert len(payload) < 65_536
        length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack(">H", len(payload))
        # A mask of zeros.
        self.tcp.sendall(bytes([0x80 | opcode]) + length + bytes(4) + payload)

    def send(self, message):
        self.frame(TEXT, json.dumps(message).encode())

    def hello(self, roomid, side):
        self.send({"type": "join_room", "roomid": roomid, "client": side.client, "member": side.member})

    def join(self, roomid, side):
        self.hello(roomid, side)
        joined = self.receive()
        assert joined["type"] == "joined", joined
        return joined

    def receive(self, seconds=5, answers=True):
        """Returns the next message, or None once the server has closed. Pings before it are answered."""
        end = time.monotonic() + seconds
        while True:
            opcode, payload = self._frame(end)
            if opcode == TEXT:
                return json.loads(payload)
            if opcode in (None, CLOSE):
                self.has_ended = True
                return None
            if opcode == PING and answers:
                self.frame(PONG, payload)

    def answer_ping(self, seconds=5):
        """Answers the next ping. Messages before it are dropped."""
        end = time.monotonic() + seconds
        while True:
            opcode, payload = self._frame(end)
            assert opcode in (TEXT, PING), opcode
            if opcode == PING:
                return self.frame(PONG, payload)

    def messages(self, seconds):
        """All messages within `seconds`."""
        found, end = [], time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                message = self.receive(left)
            except TimeoutError:
                break
            if message is None:
                break
            found.append(message)
        return found

    def _frame(self, end):
        while True:
            if len(self.input) >= 2:
                length, start = self.input[1] & 127, 2
                if length == 126 and len(self.input) >= 4:
                    length, start = struct.unpack(">H", self.input[2:4])[0], 4
                if length < 126 or start == 4:
                    if len(self.input) >= start + length:
                        frame = self.input[0] & 15, self.input[start:start + length]
                        self.input = self.input[start + length:]
                        return frame
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.tcp], [], [], left)[0]:
                raise TimeoutError
            try:
                more = self.tcp.recv(65_536)
            except ConnectionError:
                more = b""
            if not more:
                return None, b""
            self.input += more

    def close(self, code):
        """Sends a close frame with this code."""
        self.frame(CLOSE, struct.pack(">H", code))

    def reset(self):
        """Breaks the connection, as a network does."""
        self.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.tcp.close()
