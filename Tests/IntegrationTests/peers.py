"""One raw connection, plain or TLS: exact bytes out, strictly read answers in."""

import json
import re
import socket
import ssl
import struct
from contextlib import suppress

from mayfly import Answer, other_address


class Closed(Exception):
    """The peer closed the connection instead of answering. `rest`: the received part."""


class Peer:
    """`address` is a port of this machine or the path of a Unix-domain socket."""

    def __init__(self, address, tls=None, timeout=5, receive_buffer=None, source=None):
        if isinstance(address, int):
            self.socket = socket.socket()
            self.socket.bind((source or other_address(), 0))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.buffer, self.ended, self.tls = b"", False, None
        try:
            self.socket.connect(("127.0.0.1", address) if isinstance(address, int) else str(address))
            if tls is not None:
                self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                self.tls = tls.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
                self._through_tls(self.tls.do_handshake)
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """Sends as much as the peer accepts before it closes."""
        with suppress(BrokenPipeError, ConnectionResetError):
            if self.tls is None:
                self.socket.sendall(data)
            elif data:
                self._through_tls(self.tls.write, data)

    def finish(self):
        """Sends no more: a half-closed connection, which may still read."""
        if self.tls is not None:
            with suppress(ssl.SSLWantReadError):
                self.tls.unwrap()
            self.socket.sendall(self.outgoing.read())
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def receive(self):
        """The next bytes; none at the end of the stream."""
        if self.tls is None:
            return self.socket.recv(65_536)
        try:
            return self._through_tls(self.tls.read, 65_536)
        except ssl.SSLZeroReturnError:
            return b""

    def answer(self, to_head=False):
        """The next answer, interim ones included; each must be framed by a length and each error be a problem document."""
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("ascii").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.1 (\d{3}) [A-Za-z -]*", first)
        assert match, f"not a status line: {first!r}"
        status = int(match[1])
        headers = {}
        for line in lines:
            name, _, value = line.partition(": ")
            assert name.lower() not in headers or name.lower() == "set-cookie", f"twice: {name}"
            headers[name.lower()] = value
        count = 0 if to_head or status < 200 or status in (204, 304) else int(headers["content-length"])
        while len(self.buffer) < count:
            self._more()
        body, self.buffer = self.buffer[:count], self.buffer[count:]
        return Answer(status, headers, body)

    def problem(self, status, to_head=False):
        """An answer that must be this refusal, in the form of all errors."""
        answer = self.answer(to_head)
        assert answer.status == status, f"expected {status}, got {answer}"
        if status >= 400 and not to_head:
            assert answer.headers["content-type"] == "application/problem+json", answer
            document = json.loads(answer.body)
            assert document["status"] == status and document["code"] and document["detail"], document
        return answer

    def rest(self):
        """Reads to the end of the stream, which must come before the timeout. A reset counts as the end."""
        with suppress(ConnectionResetError, ssl.SSLEOFError):
            while True:
                data = self.receive()
                if not data:
                    break
                self.buffer += data
        rest, self.buffer = self.buffer, b""
        return rest

    def _more(self):
        try:
            data = self.receive()
        except (ConnectionResetError, ssl.SSLEOFError) as error:
            raise Closed(self.buffer) from error
        if not data:
            raise Closed(self.buffer)
        self.buffer += data

    def _through_tls(self, call, *arguments):
        while True:
            try:
                result = call(*arguments)
                self._flush()
                return result
            except ssl.SSLWantReadError:
                self._flush()
                data = self.socket.recv(65_536)
                self.incoming.write(data) if data else self.incoming.write_eof()

    def _flush(self):
        if self.outgoing.pending:
            self.socket.sendall(self.outgoing.read())
