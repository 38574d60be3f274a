"""Reads the HTTP/2 of a process's TLS sessions, as `tls_capture.c` recorded it: requests for APNs and their answers. Skips HTTP/1.1."""

import functools
import struct
from dataclasses import dataclass
from pathlib import Path

import hpack.hpack
from hpack import Decoder

from preload import library

HEAD = struct.Struct("=QQII")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, CONTINUATION, RST_STREAM, GOAWAY = 0, 1, 9, 3, 7
END_STREAM, END_HEADERS, PADDED, PRIORITY = 1, 4, 8, 32

# The provider token repeats in the same bytes.
hpack.hpack.decode_huffman = functools.lru_cache(4096)(hpack.hpack.decode_huffman)


def captured(path):
    """Environment of a process whose sessions are to be written to `path`."""
    return {"LD_PRELOAD": library("tls_capture.c"), "CAPTURE": path}


@dataclass
class Exchange:
    """One request. Times are of the monotonic clock, in seconds; `asked` is when its last byte passed, `answered` when the answer's did."""
    source: Path
    session: int
    stream: int
    apns_id: str = ""
    token: str = ""
    asked: float | None = None
    status: int | None = None
    answered: float | None = None


class _Direction:
    """One direction of one session: frames, and their header blocks decoded by HPACK."""

    def __init__(self, has_preface):
        self.bytes, self.block, self.decoder = bytearray(), b"", Decoder()
        self.skip, self.is_http1 = len(PREFACE) if has_preface else 0, False

    def take(self, data):
        """Yields (stream, fields or None, whether the message ends here)."""
        self.bytes += data
        if self.skip:
            if len(self.bytes) < self.skip:
                return
            if self.bytes[:self.skip] != PREFACE:
                assert self.bytes.startswith(b"POST ")
                self.is_http1 = True
                return
            del self.bytes[:self.skip]
            self.skip = 0
        at = 0
        while len(self.bytes) - at >= 9:
            length = int.from_bytes(self.bytes[at:at + 3], "big")
            if len(self.bytes) - at < 9 + length:
                break
            kind, flags = self.bytes[at + 3], self.bytes[at + 4]
            stream = int.from_bytes(self.bytes[at + 5:at + 9], "big")
            payload = bytes(self.bytes[at + 9:at + 9 + length])
            at += 9 + length
            if kind in (HEADERS, CONTINUATION):
                assert not flags & (PADDED | PRIORITY) or kind == CONTINUATION
                if kind == HEADERS:
                    self.ends = bool(flags & END_STREAM)
                self.block += payload
                if flags & END_HEADERS:
                    block, self.block = self.block, b""
                    yield stream, dict(self.decoder.decode(block)), self.ends
            elif kind == DATA and flags & END_STREAM:
                yield stream, None, True
        del self.bytes[:at]


def exchanges(path, client):
    """All requests in the file that a client (or a server) left, in order. Those cut short by the end are left out."""
    data, at = Path(path).read_bytes() if Path(path).exists() else b"", 0
    numbers, directions, found = {}, {}, {}
    while len(data) - at >= HEAD.size:
        time, pointer, kind, length = HEAD.unpack_from(data, at)
        part = data[at + HEAD.size:at + HEAD.size + length]
        if len(part) < length:
            break
        at += HEAD.size + length
        if kind == 0:  # An address is used again once its session is gone.
            numbers[pointer] = len(directions)
            directions[len(directions)] = {1: _Direction(not client), 2: _Direction(client)}
            continue
        session, is_request = numbers[pointer], (kind == 2) == client
        if any(direction.is_http1 for direction in directions[session].values()):
            continue
        for stream, fields, ends in directions[session][kind].take(part):
            if is_request and fields is not None:
                found[session, stream] = Exchange(
                    path, session, stream, fields["apns-id"], fields[":path"].removeprefix("/3/device/"))
            one = found[session, stream]
            if not is_request and fields is not None:
                one.status = int(fields[":status"])
            if ends:
                setattr(one, "asked" if is_request else "answered", time / 1e9)
    return list(found.values())
