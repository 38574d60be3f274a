"""HTTP/2 requests that a careless proxy would translate into two HTTP/1.1 requests, the second one hidden.

Each is a request on stream 1 for /audit/nowhere, in which HIDDEN_CREATE must stay what it is: a body, or a part of a value.
"""

from bad_requests import HIDDEN_CREATE
from http2_frames import END_HEADERS, END_STREAM, GET, START, data, head

TEXT = HIDDEN_CREATE
SIZE = b"%d" % len(TEXT)
CHUNKED = b"0\r\n\r\n" + TEXT


def post(*fields, body=TEXT, **changed):
    """A POST with these fields after the pseudo-headers, some of which are `changed`."""
    values = dict(GET) | {b":method": b"POST"} | {b":" + name.encode(): value for name, value in changed.items()}
    return START + head(1, *values.items(), *fields) + data(1, body)


def get(*fields, **changed):
    values = dict(GET) | {b":" + name.encode(): value for name, value in changed.items()}
    return START + head(1, *values.items(), *fields, flags=END_HEADERS | END_STREAM)


BREAK = b" HTTP/1.1\r\nHost: a.test\r\n\r\n" + TEXT
HIDDEN_IN_FRAMES = {
    "H2.CL, nought": post((b"content-length", b"0")),
    "H2.CL, short": post((b"content-length", b"5")),
    "H2.CL, long": post((b"content-length", b"5000")),
    "H2.CL, twice": post((b"content-length", b"0"), (b"content-length", SIZE)),
    "H2.CL, as a list": post((b"content-length", b"0, " + SIZE)),
    "H2.CL, signed": post((b"content-length", b"+0")),
    "H2.CL of a GET": START + head(1, *GET, (b"content-length", b"0")) + data(1, TEXT),
    "H2.0": post(),
    "H2.0 of a GET": START + head(1, *GET) + data(1, TEXT),
    "H2.TE": post((b"transfer-encoding", b"chunked"), body=CHUNKED),
    "H2.TE, capitals": post((b"Transfer-Encoding", b"chunked"), body=CHUNKED),
    "H2.TE, in a trailer": START + head(1, *GET, (b"te", b"trailers")) + data(1, CHUNKED, 0)
    + head(1, (b"transfer-encoding", b"chunked"), flags=END_HEADERS | END_STREAM),
    "H2.TE and a length": post((b"transfer-encoding", b"chunked"), (b"content-length", b"%d" % len(CHUNKED)), body=CHUNKED),
    "H2.TE, underscore": post((b"transfer_encoding", b"chunked"), body=CHUNKED),
    "H2.TE, high byte": post((b"transfer-encoding\xff", b"chunked"), body=CHUNKED),
    "H2.TE, connection": post((b"connection", b"transfer-encoding"), (b"transfer-encoding", b"chunked"), body=CHUNKED),
    **{f"H2.TE, injected by {name}": sent for name, sent in {
        "a value": post((b"a", b"b\r\nTransfer-Encoding: chunked"), body=CHUNKED),
        "a value with LF": post((b"a", b"b\nTransfer-Encoding: chunked"), body=CHUNKED),
        "a value with CR": post((b"a", b"b\rTransfer-Encoding: chunked"), body=CHUNKED),
        "a value with NUL": post((b"a", b"b\x00\r\nTransfer-Encoding: chunked"), body=CHUNKED),
        "a name": post((b"a: b\r\ntransfer-encoding", b"chunked"), body=CHUNKED),
        "a name with LF": post((b"a: b\ntransfer-encoding", b"chunked"), body=CHUNKED),
        "the method": post(method=b"POST /audit/nowhere HTTP/1.1\r\nTransfer-Encoding: chunked\r\nX: y", body=CHUNKED),
        "the path": post(path=b"/audit/nowhere HTTP/1.1\r\nTransfer-Encoding: chunked\r\nX: y", body=CHUNKED),
        "the authority": post(authority=b"localhost\r\nTransfer-Encoding: chunked", body=CHUNKED),
        "the scheme": post(scheme=b"https\r\nTransfer-Encoding: chunked", body=CHUNKED)}.items()},
    "a request in a value": get((b"a", b"b\r\n\r\n" + TEXT)),
    "a request in a value, with LF": get((b"a", b"b\n\n" + TEXT)),
    "a request in a name": get((b"a: b\r\n\r\n" + TEXT, b"c")),
    "a request in the method": get(method=b"GET /audit/nowhere" + BREAK),
    "a request in the path": get(path=b"/audit/nowhere" + BREAK),
    "a request in the path, with LF": get(path=(b"/audit/nowhere" + BREAK).replace(b"\r\n", b"\n")),
    "a request in the path, encoded": get(path=b"/audit/nowhere%20HTTP/1.1%0d%0a%0d%0aPOST%20/api/rooms"),
    "a request in the authority": get(authority=b"localhost\r\n\r\n" + TEXT),
    "a request in the scheme": get(scheme=b"https://a/ HTTP/1.1\r\n\r\n" + TEXT),
    "a request in a cookie": get((b"cookie", b"a=b\r\n\r\n" + TEXT), (b"cookie", b"c=d")),
    "a request in a host": get((b"host", b"localhost\r\n\r\n" + TEXT)),
    "CONNECT": START + head(1, (b":method", b"CONNECT"), (b":authority", b"localhost:443")) + data(1, TEXT),
    "CONNECT of a WebSocket": START + head(1, (b":method", b"CONNECT"), (b":protocol", b"websocket"), *GET[1:3], (b":path", b"/ws"),
                                           (b"sec-websocket-version", b"12")) + data(1, TEXT),
    "expectation": post((b"expect", b"100-continue")),
    "upgrade": post((b"upgrade", b"h2c"), (b"connection", b"upgrade")),
}
