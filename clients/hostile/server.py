#!/usr/bin/env python3
"""Serves corpus.json for the tests of both clients, on a free loopback port, which it prints. Ends when standard input ends.

An answer of the corpus is at `/NAME/...`, whatever the call; a socket at `/NAME/ws` or `/NAME/ws/sessions`. Neither waits for anything: what a client
does with them is up to the tests. README.md explains the corpus.
"""

import base64
import copy
import gzip
import hashlib
import json
import socketserver
import sys
import threading
import time
import zlib
from pathlib import Path

CORPUS = json.loads((Path(__file__).parent / "corpus.json").read_text())
CHUNK = 65_536


def pieces(part):
    """The bytes of a part, in pieces: text, an object as JSON, or a list of parts."""
    if isinstance(part, str):
        yield part.encode()
    elif isinstance(part, list):
        for one in part:
            yield from pieces(one)
    elif "hex" in part:
        yield bytes.fromhex(part["hex"])
    elif "pause" in part:
        time.sleep(part["pause"])
    elif "gzip" in part:
        # A bomb is packed in pieces, so that it needs no memory here either.
        packer = zlib.compressobj(9, wbits=31)
        for piece in pieces(part["gzip"]):
            yield packer.compress(piece)
        yield packer.flush()
    elif "repeat" in part:
        text, times = bytes.fromhex(part["repeat"]) if part.get("isHex") else part["repeat"].encode(), part.get("times")
        batch = max(1, CHUNK // len(text))
        while times is None or times > 0:
            count = batch if times is None else min(batch, times)
            yield text * count
            if times is None:
                # The pace of a fast network. Foundation on Linux can't cancel a stream that never pauses, as on loopback.
                time.sleep(0.002)
            else:
                times -= count
    else:
        yield json.dumps(part["json"]).encode()


def changed(valid, case):
    """A valid answer with what the case changes in it."""
    answer = copy.deepcopy(valid) | case.get("change", {})
    return {name: value for name, value in answer.items() if name not in case.get("without", ())}


def answer(case, call):
    """The pieces of an HTTP answer."""
    if "raw" in case:
        yield from pieces(case["raw"])
        return
    valid = CORPUS["valid"]["problem"] if case.get("problem") else CORPUS["valid"].get(call, {})
    body = case.get("body", {"json": changed(valid, case)})
    status = case.get("status", 400 if case.get("problem") else 200)
    kind = "application/problem+json" if case.get("problem") else "application/json"
    headers = {"Content-Type": kind, "Connection": "close"} | case.get("headers", {})
    if "length" not in case and case.get("framing") is None:
        body_bytes = b"".join(pieces(body))
        headers["Content-Length"] = len(body_bytes)
        body = [{"hex": body_bytes.hex()}]
    elif "length" in case:
        headers["Content-Length"] = case["length"]
    elif case["framing"] == "chunked":
        headers["Transfer-Encoding"] = "chunked"
    head = f"HTTP/1.1 {status} X\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value is not None)
    yield (head + "\r\n").encode()
    for piece in pieces(body):
        if piece:
            yield b"%x\r\n%b\r\n" % (len(piece), piece) if case.get("framing") == "chunked" else piece
    if case.get("framing") == "chunked":
        yield b"0\r\n\r\n"


CASES = CORPUS["answers"] + CORPUS["sockets"] + CORPUS["accounts"] + CORPUS["feeds"]
# Calls of apps with accounts whose path contains a name: their method, and the beginning and end of the path.
NAMED = [("GET", "approval/", "", "approval"), ("POST", "approval/", "/respond", "respond"), ("DELETE", "push/session/", "", "clearSession"),
         ("POST", "sessions/", "/events", "report"), ("GET", "devices/by-printer/", "", "monitors"), ("POST", "monitors/", "/status", "reportStatus"),
         ("PATCH", "devices/", "/settings", "respond")]


def call_of(case, method, path):
    """The client's call, by its method and path."""
    end = path.split("/api/", 1)[-1]
    if case in CORPUS["accounts"] and end == "push/test":
        return "testPushOfUser"
    for verb, first, last, name in NAMED:
        if method == verb and end.startswith(first) and end.endswith(last):
            return name
    return {"POST rooms": "create", "POST rooms/accept": "accept", "GET room": "status", "DELETE room": "close", "PUT room/token": "replaceToken",
            "DELETE room/token": "withdrawToken", "POST room/presence": "reportPresence", "POST push/test": "testPush",
            "POST push/register": "registerDevice", "POST devices/register": "registerMonitor", "GET push/status": "companionStatus",
            "POST push/clear-approval": "clearApproval", "DELETE voip/token": "deletePhones"}.get(f"{method} {end}")


def frame(payload, opcode=1, flags=0x80):
    size = len(payload)
    length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2) if size < 65_536 else b"\x7f" + size.to_bytes(8)
    return bytes([flags | opcode]) + length + payload


def frames(message):
    """The pieces of one message of a socket. A string without braces names a valid one."""
    if isinstance(message, str):
        message = {"json": CORPUS["valid"][message]}
    if "valid" in message:
        message = {"json": changed(CORPUS["valid"][message["valid"]], message)}
    if "flood" in message:
        one = frame(b"".join(pieces({"json": message["flood"]})))
        yield from pieces({"repeat": one.hex(), "isHex": True, "times": message.get("times")})
    elif "frame" in message:
        yield frame(b"".join(pieces(message["frame"])), message.get("opcode", 1), message.get("flags", 0x80))
    elif "bytes" in message:
        yield from pieces(message["bytes"])
    elif "close" in message:
        yield frame(message["close"].to_bytes(2), 8)
    elif "deflated" in message:
        packer = zlib.compressobj(9, wbits=-15)
        packed = b"".join([packer.compress(piece) for piece in pieces(message["deflated"])] + [packer.flush(zlib.Z_SYNC_FLUSH)])
        yield frame(packed[:-4], 1, 0xC0)
    else:
        yield frame(b"".join(pieces(message)))


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            method, path, _ = self.rfile.readline().decode().split()
            headers = {}
            while line := self.rfile.readline().strip():
                name, value = line.decode().split(":", 1)
                headers[name.lower()] = value.strip()
            self.rfile.read(int(headers.get("content-length", 0)))
            name = path.split("/")[1]
            case = next(case for case in CASES if case["name"] == name)
            if "send" in case:
                self.converse(case, headers)
            else:
                for piece in answer(case, call_of(case, method, path)):
                    self.wfile.write(piece)
        except (OSError, ValueError):
            pass  # The client has gone, as it should.

    def converse(self, case, headers):
        """Shakes hands and sends the case's messages, once the client has joined. Then it reads to the client's end."""
        key = headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = case.get("accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        extensions = "Sec-WebSocket-Extensions: permessage-deflate\r\n" if case.get("deflate") else ""
        self.wfile.write((
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\n{extensions}\r\n").encode())
        self.connection.recv(CHUNK)
        for message in case["send"]:
            for piece in frames(message):
                self.wfile.write(piece)
        if not case.get("cut"):
            self.connection.settimeout(60)
            while self.connection.recv(CHUNK):
                pass


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    names = [case["name"] for case in CASES]
    assert len(names) == len(set(names)), "a name of the corpus is there twice"
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_address[1], flush=True)
        sys.stdin.read()
