"""The table of bad HTTP/2 connections and requests, as data.

Most rows try to make a room with the join code CODE on stream 1, so that a request which was refused and served nevertheless is
found by trying the code.
"""

import struct
from dataclasses import dataclass

from bad_requests import BODY
from http2_frames import (
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GET, GOAWAY, HAS_PRIORITY, HEADERS, PADDED, PING, POST, PREFACE, PRIORITY,
    PUSH_PROMISE, RST_STREAM, SETTINGS, START, TABLE_SIZE, WINDOW_UPDATE, ask, block, data, field, frame, head, reset, settings,
    window)

SIZE = b"%d" % len(BODY)


@dataclass(frozen=True)
class FrameRow:
    name: str
    sent: bytes  # from the preface on
    outcome: str  # of the stream; as FramePeer.outcome
    stream: int = 1
    made: int = 0
    ends: bool = False  # whether the connection does, though the stream was answered

    @property
    def stays(self):
        return self.outcome.startswith(("answer", "reset")) and not self.ends


def bad(name, frames, outcome, stream=1):
    return FrameRow(name, START + frames, outcome, stream)


def good(name, frames, outcome="answer 201", made=1):
    return FrameRow(name, START + frames, outcome, made=made)


def create(*fields, start=POST, body=BODY):
    return head(1, *start, *fields) + data(1, body)


def without(name):
    return tuple(pair for pair in POST if pair[0] != name)


def changed(name, value):
    return tuple((name, value) if pair[0] == name else pair for pair in POST)


PROTOCOL, RESET = "goaway PROTOCOL_ERROR", "reset PROTOCOL_ERROR"
# nghttp2 is sometimes stricter than RFC 9113 or uses another error code. These rows expect nghttp2's.

BEGINNINGS = [
    FrameRow("HTTP/1.1 after h2 was agreed", b"GET /audit/nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3, "closed"),
    FrameRow("bad preface", PREFACE.replace(b"SM", b"MS") + settings() + ask(1), "closed"),
    FrameRow("zeros", bytes(200), "closed"),
    FrameRow("no settings first", PREFACE + ask(1), PROTOCOL),
    FrameRow("settings' acknowledgement first", PREFACE + settings(flags=ACK) + ask(1), PROTOCOL),
    FrameRow("settings on a stream", PREFACE + settings(stream=1) + ask(1), PROTOCOL),
    FrameRow("preface twice", START + PREFACE + settings() + ask(1), "goaway FRAME_SIZE_ERROR"),
]

SETTINGS_ROWS = [
    bad("settings of 5 bytes", frame(SETTINGS, 0, bytes(5)), "goaway FRAME_SIZE_ERROR"),
    bad("acknowledgement with content", frame(SETTINGS, 0, bytes(6), ACK), "goaway FRAME_SIZE_ERROR"),
    bad("push allowed by 2", settings((2, 2)), PROTOCOL),
    bad("window of 2 GiB", settings((4, 2**31)), "goaway FLOW_CONTROL_ERROR"),
    bad("frames of 16383 bytes", settings((5, 16_383)), PROTOCOL),
    bad("frames of 16 MiB", settings((5, 2**24)), PROTOCOL),
    bad("a window made too large by settings", window(1, 2**31 - 1 - 65_535) + settings((4, 65_536)), PROTOCOL),
    good("unknown settings", settings((0xFF, 1), (0x1234, 2**32 - 1)) + create()),
    good("table of 4 GiB", settings((1, 2**32 - 1)) + create()),
    good("table of none", settings((1, 0)) + create()),
    bad("33 settings at once", settings(*[(1, n) for n in range(33)]) + create(), "goaway ENHANCE_YOUR_CALM"),
]

FRAMES = [
    bad("frame over 16 KiB", frame(DATA, 1, bytes(16_385)), "goaway FRAME_SIZE_ERROR"),
    bad("frame of 16 MiB", frame(HEADERS, 1, b"", END_HEADERS, size=2**24 - 1), "goaway FRAME_SIZE_ERROR"),
    bad("DATA on stream 0", frame(DATA, 0, b"x"), PROTOCOL),
    bad("DATA on an idle stream", data(1, b"x"), PROTOCOL),
    bad("HEADERS on stream 0", head(0, *GET), PROTOCOL),
    bad("HEADERS on an even stream", ask(2), PROTOCOL, stream=2),
    bad("HEADERS on an earlier stream", ask(5) + create(), "answer 404", stream=5),
    bad("HEADERS again without an end", head(1, *POST) + head(1, *POST), RESET),
    bad("PUSH_PROMISE", frame(PUSH_PROMISE, 1, struct.pack(">I", 2) + block(*GET), END_HEADERS), PROTOCOL),
    bad("PUSH_PROMISE on an open stream", head(1, *POST) + frame(PUSH_PROMISE, 1, struct.pack(">I", 2) + block(*GET),
        END_HEADERS), PROTOCOL),
    bad("CONTINUATION of nothing", frame(CONTINUATION, 1, block(*GET), END_HEADERS), PROTOCOL),
    bad("CONTINUATION on another stream", head(1, *POST, flags=0) + frame(CONTINUATION, 3, b"", END_HEADERS), PROTOCOL),
    bad("PING within a block", head(1, *POST, flags=0) + frame(PING, 0, bytes(8)), PROTOCOL),
    bad("DATA within a block", head(1, *POST, flags=0) + data(1, BODY), PROTOCOL),
    bad("RST_STREAM on an idle stream", reset(1), PROTOCOL),
    bad("RST_STREAM on stream 0", reset(0), PROTOCOL),
    bad("RST_STREAM of 3 bytes", head(1, *POST) + frame(RST_STREAM, 1, bytes(3)), "goaway FRAME_SIZE_ERROR"),
    bad("PING of 7 bytes", frame(PING, 0, bytes(7)), "goaway FRAME_SIZE_ERROR"),
    bad("PING on a stream", frame(PING, 1, bytes(8)), PROTOCOL),
    bad("GOAWAY on a stream", frame(GOAWAY, 1, bytes(8)), PROTOCOL),
    bad("GOAWAY of 7 bytes", frame(GOAWAY, 0, bytes(7)), "goaway FRAME_SIZE_ERROR"),
    bad("WINDOW_UPDATE of 0", window(0, 0), PROTOCOL),
    bad("WINDOW_UPDATE of 0 on a stream", head(1, *POST) + window(1, 0), PROTOCOL),
    bad("WINDOW_UPDATE on an idle stream", window(1, 1), PROTOCOL),
    bad("WINDOW_UPDATE of 3 bytes", frame(WINDOW_UPDATE, 0, bytes(3)), "goaway FRAME_SIZE_ERROR"),
    bad("WINDOW_UPDATE that overflows", window(0, 2**31 - 1), "goaway FLOW_CONTROL_ERROR"),
    bad("WINDOW_UPDATE that overflows on a stream", head(1, *POST) + window(1, 2**31 - 1), "reset FLOW_CONTROL_ERROR"),
    good("PRIORITY on stream 0", frame(PRIORITY, 0, bytes(5)) + create()),
    bad("PRIORITY of 4 bytes", frame(PRIORITY, 1, bytes(4)), "goaway FRAME_SIZE_ERROR"),
    bad("padding longer than the frame", head(1, *POST) + frame(DATA, 1, b"\xff{}", PADDED | END_STREAM), PROTOCOL),
    bad("padding of HEADERS longer than the frame", frame(HEADERS, 1, b"\xff" + block(*GET), PADDED | END_HEADERS | END_STREAM),
        PROTOCOL),
    bad("padding of no length", head(1, *POST) + frame(DATA, 1, b"", PADDED | END_STREAM), PROTOCOL),
    good("padding", head(1, *POST) + frame(DATA, 1, b"\x80" + BODY + bytes(128), PADDED | END_STREAM)),
    good("frames of unknown kinds", frame(0x42, 0, b"x" * 100) + frame(0xFE, 7, b"y", 0xFF) + create()),
    good("unknown flags", head(1, *POST, flags=END_HEADERS | 0xD2 & ~HAS_PRIORITY) + frame(DATA, 1, BODY, END_STREAM | 0xF6)),
    good("the bit kept back before a stream's number", frame(HEADERS, 2**31 + 1, block(*POST), END_HEADERS) + data(1, BODY)),
    good("a priority of HEADERS", frame(HEADERS, 1, bytes(5) + block(*POST), END_HEADERS | HAS_PRIORITY) + data(1, BODY)),
    good("PRIORITY and PRIORITY_UPDATE", frame(PRIORITY, 1, bytes(4) + b"\x10") + frame(0x10, 0, struct.pack(">I", 1) + b"u=1")
        + create()),
    good("PING answers nobody asked for", frame(PING, 0, bytes(8), ACK) * 10 + create()),
    FrameRow("GOAWAY before the request", START + frame(GOAWAY, 0, bytes(8)) + create(), "answer 201", made=1, ends=True),
    good("a block in pieces", frame(HEADERS, 1, block(*POST)[:9]) + frame(CONTINUATION, 1, block(*POST)[9:20])
         + frame(CONTINUATION, 1, block(*POST)[20:], END_HEADERS) + data(1, BODY)),
    good("an empty last DATA", head(1, *POST) + data(1, BODY, 0) + data(1, b"")),
]

COMPRESSION = "goaway COMPRESSION_ERROR"
PAIRS = block(*POST)
BLOCKS = [
    bad(name, frame(HEADERS, 1, content, END_HEADERS | END_STREAM), outcome) for name, content, outcome in [
        ("an index of 0", TABLE_SIZE + b"\x80", COMPRESSION),
        ("an index beyond the tables", TABLE_SIZE + b"\xbe", COMPRESSION),
        ("an index of 2^70", TABLE_SIZE + b"\xff" + b"\xff" * 9 + b"\x7f", COMPRESSION),
        ("a name by an index beyond the tables", TABLE_SIZE + b"\x7f\x01\x01x", COMPRESSION),
        ("a literal cut short", PAIRS[:-3], COMPRESSION),
        ("a length beyond the block", TABLE_SIZE + b"\x10\x7f\xff\xff\xff\x7f", COMPRESSION),
        ("a table larger than allowed", b"\x3f\xe1\xff\x03" + PAIRS[1:], COMPRESSION),
        ("a table size within the block", PAIRS + b"\x20" + field(b"a", b"b"), COMPRESSION),
        ("Huffman code with the end sign", TABLE_SIZE + b"\x10\x84\xff\xff\xff\xff\x01x", COMPRESSION),
        ("Huffman padding of zeros", TABLE_SIZE + b"\x10\x81\x00\x01x", COMPRESSION),
        ("an empty block", b"", RESET),
        ("only a table size", TABLE_SIZE, RESET),
    ]
]

FIELDS = [
    *(bad(f"without {name.decode()}", create(start=without(name)), RESET) for name in (b":method", b":scheme", b":path")),
    bad("neither :authority nor host", create(start=without(b":authority")), RESET),
    *(bad(f"{name.decode()} twice", create((name, value)), RESET) for name, value in POST),
    bad("an unknown pseudo-header", create((b":x", b"y")), RESET),
    bad(":status in a request", create((b":status", b"200")), RESET),
    bad(":protocol unasked", create((b":protocol", b"websocket")), RESET),
    bad("a pseudo-header after others", head(1, *without(b":path"), (b"a", b"b"), (b":path", b"/api/rooms")) + data(1, BODY),
        RESET),
    *(bad(f":path {path!r}", create(start=changed(b":path", path)), outcome) for path, outcome in {
        b"": RESET, b"api/rooms": RESET, b"https://localhost/api/rooms": RESET, b"*": RESET, b"/api/rooms#x": "answer 400",
        b"/api/rooms x": RESET, "/api/r\u00e4ume".encode(): "answer 400", b"/api/rooms\x00": RESET, b"/api/rooms\r\nx: y": RESET,
        b"/api/%zz": "answer 404", b"//api/rooms": "answer 404", b"/x/../api/rooms": "answer 404"}.items()),
    bad(":path of 8193 bytes", create(start=changed(b":path", b"/" + b"a" * 8192)), "answer 414"),
    bad(":path of 15,000 bytes", create(start=changed(b":path", b"/" + b"a" * 15_000)), "answer 414"),
    bad(":method post", create(start=changed(b":method", b"post")), "answer 405"),
    bad(":method BREW", create(start=changed(b":method", b"BREW")), "answer 405"),
    bad(":method PO ST", create(start=changed(b":method", b"PO ST")), RESET),
    bad(":scheme with a space", create(start=changed(b":scheme", b"ht tps")), RESET),
    *(bad(f":authority {value!r}", create(start=changed(b":authority", value)), outcome) for value, outcome in {
        b"a b": RESET, b"u@localhost": "answer 400", b"a/b": RESET, b"a\r\nb": RESET, b"a:x": "answer 400"}.items()),
    bad("host unlike :authority", create((b"host", b"other")), "answer 400"),
    bad("host twice", create((b"host", b"localhost"), (b"host", b"localhost")), RESET),
    good("host like :authority", create((b"host", b"localhost"))),
    good("host without :authority", create((b"host", b"localhost"), start=without(b":authority"))),
    *(bad(f"name {name!r}", create((name, b"x")), RESET) for name in (
        b"A", b"aB", b"a b", b"a:b", b"a\x00", b"a\r\n", b"", b"\xc3\xa4", b"a\x7f")),
    *(bad(f"value {value!r}", create((b"a", value)), RESET) for value in (b"x\x00", b"x\r\ny: z", b"x\n", b"\x01", b"x\x7f")),
    *(bad(f"connection-specific {name.decode()}", create((name, value)), RESET) for name, value in {
        b"connection": b"close", b"keep-alive": b"timeout=5", b"proxy-connection": b"close", b"upgrade": b"h2c",
        b"transfer-encoding": b"chunked"}.items()),
    bad("te: gzip", create((b"te", b"gzip")), RESET),
    good("te: trailers", create((b"te", b"trailers"))),
    good("a right length", create((b"content-length", SIZE))),
    bad("length too short", create((b"content-length", b"5")), RESET),
    bad("length too long", create((b"content-length", b"500")), RESET),
    bad("length and no body", head(1, *POST, (b"content-length", SIZE), flags=END_HEADERS | END_STREAM), RESET),
    *(bad(f"length {value!r}", create((b"content-length", value)), RESET) for value in (
        b"+" + SIZE, b"-1", b"", b"0x10", b"1 0", SIZE + b", " + SIZE, b"9" * 30)),
    bad("length twice", create((b"content-length", SIZE), (b"content-length", SIZE)), RESET),
    bad("authorization twice", create((b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")), "answer 400"),
    bad("encoded body", create((b"content-encoding", b"gzip")), "answer 415"),
    bad("another expectation", create((b"expect", b"200-ok")), "answer 417"),
    bad("101 fields", create(*[(b"a", b"b")] * 101), "answer 431"),
    bad("fields of 30,000 bytes", frame(HEADERS, 1, block(*POST), 0) + frame(CONTINUATION, 1, field(b"a", b"b" * 15_000))
        + frame(CONTINUATION, 1, field(b"a", b"b" * 15_000), END_HEADERS) + data(1, BODY), "answer 431"),
    bad("a block in 20 pieces", frame(HEADERS, 1, block(*POST), 0) + frame(CONTINUATION, 1, field(b"a", b"b")) * 19
        + frame(CONTINUATION, 1, b"", END_HEADERS) + data(1, BODY), "closed"),
    bad("CONNECT", head(1, (b":method", b"CONNECT"), (b":authority", b"localhost:443")) + data(1, BODY), "answer 400"),
    bad("CONNECT with a path", create(start=changed(b":method", b"CONNECT")), RESET),
]

BODIES = [
    bad("length over 16 KiB, and nothing of it", head(1, *POST, (b"content-length", b"16385")), "answer 413"),
    bad("length of a gigabyte", head(1, *POST, (b"content-length", b"1073741824")), "answer 413"),
    bad("body over 16 KiB", head(1, *POST) + data(1, BODY + b" " * 16_000, 0) + data(1, b" " * 384), "answer 413"),
    bad("body of 49 KiB", head(1, *POST) + data(1, b" " * 16_384, 0) * 3 + data(1, BODY), "answer 413"),
    bad("DATA after the end", create(body=b"{}") + data(1, BODY), "goaway STREAM_CLOSED"),
    bad("HEADERS after the end", create(body=b"{}") + head(1, *POST, flags=END_HEADERS | END_STREAM), "goaway STREAM_CLOSED"),
    good("trailers", head(1, *POST) + data(1, BODY, 0) + head(1, (b"x", b"y"), flags=END_HEADERS | END_STREAM)),
    bad("trailers without an end", head(1, *POST) + data(1, BODY, 0) + head(1, (b"x", b"y")), RESET),
    bad("trailers with a pseudo-header", head(1, *POST) + data(1, BODY, 0)
        + head(1, (b":path", b"/"), flags=END_HEADERS | END_STREAM), RESET),
    bad("reset before the end", head(1, *POST) + data(1, BODY, 0) + reset(1) + ask(3), "answer 404", stream=3),
]

FRAME_ROWS = BEGINNINGS + SETTINGS_ROWS + FRAMES + BLOCKS + FIELDS + BODIES
