"""A strict C2SP witness (tlog-witness, tlog-cosignature) on http.server, hashlib and PyNaCl, and a lying one."""

import base64
import hashlib
import json
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from ledger import _hash
from processes import free_port

LOG_KEY, COSIGNATURE_KEY = 0x01, 0x04


def key_id(name, kind, public):
    return _hash(name.encode() + b"\n" + bytes([kind]) + public)[:4]


def vkey(name, kind, public):
    return f"{name}+{key_id(name, kind, public).hex()}+{base64.b64encode(bytes([kind]) + public).decode()}"


def read_vkey(text):
    """(name, key id, type, public key); ValueError for any other form."""
    name, written, encoded = text.split("+", 2)
    key = base64.b64decode(encoded, validate=True)
    if key_id(name, key[0], key[1:]).hex() != written:
        raise ValueError("the key's id is not its own")
    return name, bytes.fromhex(written), key[0], key[1:]


def signature_line(name, identity, signature):
    return f"— {name} {base64.b64encode(identity + signature).decode()}\n"


def split_note(note):
    """Text, and [(name, key id, signature)]; ValueError unless it is a signed note."""
    if any(byte < 0x20 and byte != 0x0a for byte in note):
        raise ValueError("control character")
    text, separator, lines = note.decode().rpartition("\n\n")
    if not separator or not lines.endswith("\n"):
        raise ValueError("no signatures")
    signatures = []
    for line in lines[:-1].split("\n"):
        dash, name, encoded = line.split(" ")
        signature = base64.b64decode(encoded, validate=True)
        if dash != "—" or not name or "+" in name or len(signature) < 5:
            raise ValueError("no signature line")
        signatures.append((name, signature[:4], signature[4:]))
    return text + "\n", signatures


def decimal(text):
    if not text.isascii() or not text.isdigit() or text != str(int(text)):
        raise ValueError("no decimal number")
    return int(text)


def is_consistent(old, old_root, new, new_root, proof):
    """RFC 9162, 2.1.4.2."""
    if old == new:
        return not proof and old_root == new_root
    if old == 0:
        return not proof
    if not proof:
        return False
    path = ([old_root] if old & (old - 1) == 0 else []) + proof
    node, last = old - 1, new - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    first = second = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            first, second = _hash(b"\1" + sibling + first), _hash(b"\1" + sibling + second)
            while node & 1 == 0 and node:
                node, last = node >> 1, last >> 1
        else:
            second = _hash(b"\1" + second + sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and first == old_root and second == new_root


class Refusal(Exception):
    def __init__(self, status, body=b"", kind="text/plain"):
        self.status, self.body, self.kind = status, body, kind


class Witness:
    """Cosigns whatever continues the last head that it cosigned. It writes and syncs its file before it answers."""

    def __init__(self, folder, name="witness.test/w", logs=(), seed=None):
        self.folder, self.name = Path(folder), name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.signer = SigningKey(seed or os.urandom(32))
        self.public = bytes(self.signer.verify_key)
        self.vkey = vkey(name, COSIGNATURE_KEY, self.public)
        self.logs = {}
        for text in logs:
            origin, identity, kind, public = read_vkey(text)
            assert kind == LOG_KEY
            self.logs.setdefault(origin, []).append((identity, public))
        self.port, self.server = free_port(), None
        self.lock = threading.Lock()
        self.asked, self.statuses = 0, []
        # An ssl.SSLContext to speak TLS with.
        self.tls = None
        # Called with (handler, body) in place of an honest answer.
        self.fault = None

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/prefix"

    # The protocol

    def state_file(self, origin):
        return self.folder / hashlib.sha256(origin.encode()).hexdigest()

    def latest(self, origin):
        """(size, root) of the last head cosigned; (0, None) if there was none."""
        try:
            state = json.loads(self.state_file(origin).read_text())
        except FileNotFoundError:
            return 0, None
        return state["size"], bytes.fromhex(state["root"])

    def persist(self, origin, size, root):
        path = self.state_file(origin)
        beside = path.with_suffix(".new")
        with open(beside, "w") as file:
            file.write(json.dumps({"origin": origin, "size": size, "root": root.hex()}))
            file.flush()
            os.fsync(file.fileno())
        os.rename(beside, path)
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def cosign(self, text, seconds=None):
        """The signature's bytes after the key id."""
        seconds = int(time.time()) if seconds is None else seconds
        message = f"cosignature/v1\ntime {seconds}\n".encode() + text.encode()
        return seconds.to_bytes(8, "big") + self.signer.sign(message).signature

    def line(self, text, seconds=None):
        return signature_line(self.name, key_id(self.name, COSIGNATURE_KEY, self.public), self.cosign(text, seconds)).encode()

    def add_checkpoint(self, body):
        """The body of a 200 answer; raises Refusal."""
        try:
            head, separator, note = body.partition(b"\n\n")
            first, *lines = head.decode("ascii").split("\n")
            if not separator or not first.startswith("old ") or len(lines) > 63:
                raise ValueError("no request")
            old = decimal(first[4:])
            proof = [base64.b64decode(line, validate=True) for line in lines]
            text, signatures = split_note(note)
            origin, written, encoded, *more = text.split("\n")
            size, root = decimal(written), base64.b64decode(encoded, validate=True)
            if not more or len(root) != 32 or any(len(node) != 32 for node in proof) or size >= 2**63:
                raise ValueError("no checkpoint")
        except ValueError as error:
            raise Refusal(400, str(error).encode())
        if origin not in self.logs:
            raise Refusal(404)
        if not any(self._holds(origin, text, signature) for signature in signatures):
            raise Refusal(403)
        if old > size:
            raise Refusal(400)
        with self.lock:
            known, known_root = self.latest(origin)
            if old != known:
                raise Refusal(409, f"{known}\n".encode(), "text/x.tlog.size")
            if old == 0 and proof:
                raise Refusal(422)
            if old == size and root != (known_root or _hash(b"")):
                raise Refusal(409, f"{known}\n".encode(), "text/x.tlog.size")
            if not is_consistent(old, known_root or _hash(b""), size, root, proof):
                raise Refusal(422)
            self.persist(origin, size, root)
        return self.line(text)

    def _holds(self, origin, text, signature):
        name, identity, content = signature
        for known, public in self.logs[origin]:
            if name == origin and identity == known:
                try:
                    VerifyKey(public).verify(text.encode(), content)
                    return True
                except (BadSignatureError, ValueError):
                    return False
        return False

    # The server

    def start(self):
        witness = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path != "/prefix/add-checkpoint":
                    return self.answer(404)
                witness.asked += 1
                if witness.fault is not None:
                    return witness.fault(self, body)
                self.honest(body)

            def honest(self, body):
                try:
                    answer = witness.add_checkpoint(body)
                except Refusal as refusal:
                    return self.answer(refusal.status, refusal.body, refusal.kind)
                self.answer(200, answer)

            def answer(self, status, body=b"", kind="text/plain; charset=utf-8"):
                witness.statuses.append(status)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def raw(self, content):
                self.close_connection = True
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            allow_reuse_address, daemon_threads, block_on_close = True, True, False
            connections = set()

            def get_request(self):
                connection, address = super().get_request()
                if witness.tls is not None:
                    connection = witness.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                self.connections.add(connection)
                return connection, address

            def handle_error(self, *_):
                pass  # the broker went away

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.server.connections = set()
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def stop(self):
        """Ends like a killed process: it stops listening and resets open connections."""
        if self.server is None:
            return
        self.server.shutdown()
        self.server.server_close()
        for connection in self.server.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.server = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


def text_of(body):
    return split_note(body.partition(b"\n\n")[2])[0]


def stall(handler, _):
    time.sleep(20)


def close_at_once(handler, _):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def faults(witness):
    """Every way of lying, by name. None writes the witness's state."""
    def says(make):
        return lambda handler, body: handler.answer(200, make(text_of(body)))

    def size(number):
        return lambda handler, body: handler.answer(409, f"{number}\n".encode(), "text/x.tlog.size")

    def flipped(text):
        name, identity, signature = split_note(b"x\n\n" + witness.line(text))[1][0]
        return signature_line(name, identity, signature[:-1] + bytes([signature[-1] ^ 1])).encode()

    def gigabytes(handler, _):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4294967296\r\n\r\n")
        _pour(handler, b"\xe2\x80\x94 witness.test/w AAAA\n" * 4096)

    def endless_chunks(handler, _):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        _pour(handler, b"10000\r\n" + b"x" * 0x10000 + b"\r\n")

    def endless_header(handler, _):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        _pour(handler, b"X: " + b"y" * 1000 + b"\r\n")

    def drip(handler, _):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(200):
            handler.wfile.write(b"\xe2")
            time.sleep(0.1)

    numbers = iter(range(1_000_000))
    return {
        "stalls": stall,
        "drips": drip,
        "closes": close_at_once,
        "bad signature": says(flipped),
        "no signature": says(lambda text: b""),
        "half a line": says(lambda text: witness.line(text)[:-1]),
        "another's signature": says(lambda text: Witness(witness.folder, "witness.test/other").line(text)),
        "another's key under its name": says(lambda text: Witness(witness.folder, witness.name).line(text)),
        "its name on another key's id": says(lambda text: signature_line(
            witness.name, key_id(witness.name, COSIGNATURE_KEY, witness.public),
            Witness(witness.folder, witness.name).cosign(text)).encode()),
        "over another text": says(lambda text: witness.line(text.replace("\n", "\n1", 1))),
        "a text of its own": says(lambda text: b"\nevil.test/log\n1\nAAAA\n\n" + witness.line(text)),
        "as a plain signature": says(lambda text: signature_line(
            witness.name, key_id(witness.name, COSIGNATURE_KEY, witness.public),
            witness.signer.sign(text.encode()).signature).encode()),
        "the future": says(lambda text: witness.line(text, int(time.time()) + 86_400)),
        "the past": says(lambda text: witness.line(text, int(time.time()) - 86_400)),
        "time 2^63": says(lambda text: witness.line(text, 2**63)),
        "time 2^64-1": says(lambda text: witness.line(text, 2**64 - 1)),
        "not text": says(lambda text: bytes(range(256))),
        "gigabytes": gigabytes,
        "chunks without end": endless_chunks,
        "a header without end": endless_header,
        "chunked garbage": lambda handler, _: handler.raw(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + witness.line("x\n") + b"\r\n0\r\n\r\n"),
        "no HTTP": lambda handler, _: handler.raw(b"\x16\x03\x01 hello\r\n\r\n"),
        "a redirect": lambda handler, _: handler.raw(
            b"HTTP/1.1 307 See\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
        "a size above all": size(10**9),
        "a size of 2^64": size(2**64),
        "a negative size": size(-1),
        "a padded size": size("007"),
        "a size that is none": size("many"),
        "sizes that never rest": lambda handler, body: size(next(numbers) % 3)(handler, body),
        "a size of the wrong type": lambda handler, _: handler.answer(409, b"1\n"),
        "bad proof": lambda handler, _: handler.answer(422),
        "does not know": lambda handler, _: handler.answer(404),
        "does not trust": lambda handler, _: handler.answer(403),
        "bad request": lambda handler, _: handler.answer(400),
        "server error": lambda handler, _: handler.answer(503),
        "status 999": lambda handler, _: handler.raw(b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n"),
    }


def _pour(handler, content):
    """Without end, until the other side has enough."""
    try:
        for _ in range(100_000):
            handler.wfile.write(content)
    except OSError:
        handler.close_connection = True


def old_protocol(witness):
    """An honest answer in HTTP/1.0, by a server that closes."""
    def answer(handler, body):
        try:
            content = witness.add_checkpoint(body)
        except Refusal as refusal:
            return handler.answer(refusal.status, refusal.body, refusal.kind)
        handler.raw(b"HTTP/1.0 200 OK\r\n\r\n" + content)
    return answer


def policy(path, witnesses, quorum, *lines, logs=(), urls=True):
    """Writes a tlog-policy file: the witnesses as w0, w1, ..., then `lines`, then the quorum."""
    text = [f"log {text}" for text in logs]
    text += [f"witness w{number} {witness.vkey}{f' {witness.url}' if urls else ''}" for number, witness in enumerate(witnesses)]
    text += [*lines, f"quorum {quorum}"]
    Path(path).write_text("\n".join(text) + "\n")
    return path


def cosigners(note, witnesses):
    """Those whose cosignature under a note holds, checked here from the specification alone; one that does not hold fails."""
    text, signatures = split_note(note)
    found = []
    for name, identity, signature in signatures:
        for witness in witnesses:
            if name == witness.name and identity == key_id(name, COSIGNATURE_KEY, witness.public):
                assert len(signature) == 72, "no cosignature"
                seconds = int.from_bytes(signature[:8], "big")
                assert seconds < 2**63 and abs(seconds - time.time()) < 600, f"dated {seconds}"
                message = f"cosignature/v1\ntime {seconds}\n".encode() + text.encode()
                VerifyKey(witness.public).verify(message, signature[8:])
                assert witness not in found, "two lines of one witness"
                found.append(witness)
    return found
