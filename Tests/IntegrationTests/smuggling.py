"""Requests that two readers could split differently. Each hides a create that must never be served."""

from bad_bodies import HEAD, length
from bad_requests import HIDDEN_CREATE, Row

ZERO = b"0\r\n\r\n" + HIDDEN_CREATE
CODINGS = [
    b"chunked", b"xchunked", b"chunked ", b"\tchunked", b"\x0bchunked", b"chunked\x0b", b" chunked", b"CHUNKED", b"'chunked'",
    b'"chunked"',
    b"chunked, identity", b"identity, chunked", b"gzip, chunked", b"chunked;x=y", b"chunked\r\nTransfer-Encoding: x",
    b"x\r\nTransfer-Encoding: chunked", b"\r\n chunked", b"\n chunked", b"chunked\x00", b"\xffchunked", b"chunk", b"", b",chunked"]
NAMES = [
    b"Transfer-Encoding ", b"Transfer_Encoding", b"Transfer\tEncoding", b" Transfer-Encoding", b"\tTransfer-Encoding",
    b"Transfer-Encoding\x00",
    b"X: y\nTransfer-Encoding", b"X: y\rTransfer-Encoding", b"X\nTransfer-Encoding", b"Transfer-Encoding\x0b",
    b"\x0bTransfer-Encoding",
    b"\xa0Transfer-Encoding", b"transfer-encoding\r\n"]


def row(name, sent):
    return Row(name, sent, (), False, 0)


def both(coding, body, size=None, name=b"Transfer-Encoding"):
    return HEAD + b"Content-Length: %d\r\n" % (len(body) if size is None else size) + name + b": " + coding + b"\r\n\r\n" + body


CHUNK_OF_HIDDEN = b"%x\r\n" % (len(HIDDEN_CREATE) + 2) + b"\r\n" + HIDDEN_CREATE + b"\r\n0\r\n\r\n"
HIDES = {
    # What one reader takes for a chunk's first line and another for data.
    "LF ends an extension": b"3;\nxx\r\nAAA\r\n", "LF in an extension": b"3;a\nb\r\nAAA\r\n",
    "CR in an extension": b"3;a\rb\r\nAAA\r\n",
    "LF after the size": b"3\nAAA\r\n", "CR after the size": b"3\rAAA\r\n", "LF after the data": b"3\r\nAAA\n",
    "CR after the data": b"3\r\nAAA\r",
    "two bytes after the data": b"3\r\nAAAXX", "space after the size": b"3 \r\nAAA\r\n", "0x": b"0x3\r\nAAA\r\n",
    "a sign": b"+3\r\nAAA\r\n",
    "a size that wraps": b"10000000000000003\r\nAAA\r\n", "a size that wraps 32 bits": b"100000003\r\nAAA\r\n",
    "a list of sizes": b"3,5\r\nAAA\r\n",
    "an underscore": b"0_3\r\nAAA\r\n", "letters after the size": b"3xyz\r\nAAA\r\n", "NUL after the size": b"3\x00\r\nAAA\r\n",
    "no size": b"\r\nAAA\r\n",
}

SMUGGLED = [
    *(row(f"CL.TE {coding!r}", both(coding, ZERO)) for coding in CODINGS),
    *(row(f"TE.CL {coding!r}", both(coding, CHUNK_OF_HIDDEN, size=len(CHUNK_OF_HIDDEN.split(b"\r\n")[0]) + 2))
        for coding in CODINGS),
    *(row(f"CL.TE {name!r}", both(b"chunked", ZERO, name=name)) for name in NAMES),
    *(row(f"TE.TE {coding!r}", HEAD + b"Transfer-Encoding: chunked\r\nTransfer-encoding: " + coding + b"\r\n\r\n" + ZERO)
        for coding in CODINGS),
    row("CL.0", length(b"%d" % len(HIDDEN_CREATE), HIDDEN_CREATE)),
    row("CL.0 of a GET", b"GET /audit/nowhere HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN_CREATE)
        + HIDDEN_CREATE),
    row("CL.0 of a HEAD", b"HEAD /audit/nowhere HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN_CREATE)
        + HIDDEN_CREATE),
    row("CL.0 of an OPTIONS", b"OPTIONS * HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN_CREATE)
        + HIDDEN_CREATE),
    row("CL.0, hop by hop", length(b"%d\r\nConnection: Content-Length" % len(HIDDEN_CREATE), HIDDEN_CREATE)),
    row("TE, hop by hop", HEAD + b"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNK_OF_HIDDEN),
    row("CL.0, HTTP/1.0", length(b"%d" % len(HIDDEN_CREATE), HIDDEN_CREATE).replace(b"HTTP/1.1", b"HTTP/1.0", 1)),
    row("TE, HTTP/1.0", HEAD.replace(b"1.1", b"1.0") + b"Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + ZERO),
    *(row(f"CL.CL {value!r}", length(value, HIDDEN_CREATE)) for value in (
        b"0\r\nContent-Length: %d" % len(HIDDEN_CREATE), b"%d\r\nContent-Length: 0" % len(HIDDEN_CREATE),
        b"0, %d" % len(HIDDEN_CREATE),
        b"+0\r\nContent_Length: %d" % len(HIDDEN_CREATE), b"%d\r\nContent-Length\x00: 0" % len(HIDDEN_CREATE),
        b"0\r\nContent-Length : %d" % len(HIDDEN_CREATE), b"%d\r\n Content-Length: 0" % len(HIDDEN_CREATE))),
    *(row(f"chunks: {name}", HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + trick + ZERO) for name, trick in HIDES.items()),
    *(row(f"chunks, hidden inside: {name}", HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + trick[:-5]
        + b"%x\r\n" % len(HIDDEN_CREATE)
          + HIDDEN_CREATE + b"\r\n0\r\n\r\n") for name, trick in HIDES.items()),
    row("hidden in a trailer", HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n" + HIDDEN_CREATE),
    row("hidden behind a lone LF in a trailer", HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\n" + HIDDEN_CREATE),
    row("hidden in a value", HEAD + b"X: y\n\n" + HIDDEN_CREATE),
    row("hidden in a value, with CR", HEAD + b"X: y\r\r" + HIDDEN_CREATE),
    row("hidden in the target", b"GET /x\n\n" + HIDDEN_CREATE + b" HTTP/1.1\r\nHost: a.test\r\n\r\n"),
    row("hidden behind an expectation", length(b"%d\r\nExpect: 100-continue" % len(HIDDEN_CREATE), HIDDEN_CREATE)),
    row("hidden behind another expectation", length(b"%d\r\nExpect: x" % len(HIDDEN_CREATE), HIDDEN_CREATE)),
    row("hidden behind an upgrade that fails", b"GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 12\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" + HIDDEN_CREATE),
    row("hidden behind an upgrade to h2c",
        b"GET /audit/nowhere HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n" + HIDDEN_CREATE),
]
