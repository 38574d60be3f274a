"""The table of bad HTTP/1.1 requests, as data: heads. `bad_bodies.py` has those whose framing is bad.

Every request would make a room with the join code CODE (or HIDDEN, for one that hides behind another), so that a request which
was refused and served nevertheless is found by trying the code. Rows with good requests show that the table can tell them apart.
"""

from dataclasses import dataclass

CODE, HIDDEN = b"code-of-this-row", b"code-hidden-here"
BODY = b'{"joinid":"' + CODE + b'","expiresInSeconds":600,"client1":"c"}'


@dataclass(frozen=True)
class Row:
    name: str
    sent: bytes
    answers: tuple  # statuses, in order
    stays: bool  # whether the connection may be used on
    made: int  # rooms


def request(line=b"POST /api/rooms HTTP/1.1", *lines, host=b"Host: a.test", body=BODY, end=b"\r\n\r\n"):
    """A request with a correct length and the given header lines in front of it."""
    length = b"Content-Length: %d" % len(body)
    return b"\r\n".join(part for part in (line, host, *lines, length) if part is not None) + end + body


def refused(name, sent, status=400):
    return Row(name, sent, (status,), False, 0)


def served(name, sent, *answers, stays=True, made=1):
    return Row(name, sent, answers or (201,), stays, made)


def with_line(line):
    return request(b"POST /api/rooms HTTP/1.1", line)


def to(target, method=b"POST"):
    return request(method + b" " + target + b" HTTP/1.1")


def called(host):
    return request(host=host)


# The line by which the proxies of test_proxies.py refuse it, wherever they see it.
HIDDEN_CREATE = request(b"POST /api/rooms HTTP/1.1", b"Hidden: 1", body=BODY.replace(CODE, HIDDEN))
ASK = b"GET /audit/nowhere HTTP/1.1\r\nHost: a.test\r\n\r\n"  # 404
ASK_ROOM = b"GET /api/room HTTP/1.1\r\nHost: a.test\r\n\r\n"  # 401

LINE_ENDS = [
    served("blank lines first", b"\r\n\r\n" + request()),
    refused("bare LF before the request line", b"\n" + request()),
    refused("bare LF after the request line", request().replace(b"HTTP/1.1\r\n", b"HTTP/1.1\n")),
    refused("bare LF after Host", request().replace(b"a.test\r\n", b"a.test\n")),
    refused("bare LF after the last line", request(end=b"\n\r\n")),
    refused("bare LF as the end of the head", request(end=b"\r\n\n")),
    refused("nothing but bare LF", request().replace(b"\r\n", b"\n")),
    refused("bare CR after the request line", request().replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r")),
    refused("bare CR in a value", with_line(b"A: b\rTransfer-Encoding: chunked")),
    refused("CR twice", request().replace(b"a.test\r\n", b"a.test\r\r\n")),
    refused("CR twice at the end of the head", request(end=b"\r\n\r\r\n")),
    refused("LF CR", request().replace(b"a.test\r\n", b"a.test\n\r")),
    refused("a lone CR as the end of the head", request(end=b"\r\n\r")),
    refused("blank lines without end", b"\r\n" * 20_000, 431),
]

REQUEST_LINES = [
    refused("lower-case method", to(b"/api/rooms", b"post")),
    served("unknown method", to(b"/api/rooms", b"QUERY"), 405, made=0),
    served("unknown method for an unknown path", to(b"/api/nowhere", b"QUERY"), 404, made=0),
    refused("malformed method", to(b"/api/rooms", b"QU(ERY")),
    served("method not used here", to(b"/api/rooms", b"TRACE"), 405, made=0),
    refused("control byte in the method", to(b"/api/rooms", b"PO\x01ST")),
    refused("empty method", to(b"/api/rooms", b"")),
    refused("two spaces before the target", to(b" /api/rooms")),
    refused("two spaces before the version", to(b"/api/rooms ")),
    refused("tabs for spaces", request(b"POST\t/api/rooms\tHTTP/1.1")),
    refused("form feed for a space", request(b"POST\x0c/api/rooms HTTP/1.1")),
    refused("space before the method", request(b" POST /api/rooms HTTP/1.1")),
    refused("space after the version", request(b"POST /api/rooms HTTP/1.1 ")),
    refused("tab after the version", request(b"POST /api/rooms HTTP/1.1\t")),
    refused("no target", request(b"POST HTTP/1.1")),
    refused("no version", request(b"POST /api/rooms")),
    refused("HTTP/0.9, by its form", b"GET /audit/checkpoint\r\n\r\n"),
    refused("HTTP/0.9, by its name", request(b"POST /api/rooms HTTP/0.9")),
    refused("HTTP/1.2", request(b"POST /api/rooms HTTP/1.2")),
    refused("HTTP/1.10", request(b"POST /api/rooms HTTP/1.10")),
    refused("HTTP/01.1", request(b"POST /api/rooms HTTP/01.1")),
    refused("HTTP/1", request(b"POST /api/rooms HTTP/1")),
    refused("HTTP/2.0", request(b"POST /api/rooms HTTP/2.0")),
    refused("HTTP/3", request(b"POST /api/rooms HTTP/3")),
    refused("HTTP/-1.1", request(b"POST /api/rooms HTTP/-1.1")),
    refused("http/1.1", request(b"POST /api/rooms http/1.1")),
    refused("RTSP/1.0", request(b"POST /api/rooms RTSP/1.0")),
    refused("ICE/1.0", request(b"SOURCE /api/rooms ICE/1.0")),
    refused("HTTP/2's preface in plain text", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)),
    refused("a TLS hello in plain text", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n"),
    refused("zeros", bytes(512)),
    served("HTTP/1.0", request(b"POST /api/rooms HTTP/1.0"), stays=False),
    served("HTTP/1.0 without Host", request(b"POST /api/rooms HTTP/1.0", host=None), stays=False),
    served("HTTP/1.0, kept", request(b"POST /api/rooms HTTP/1.0", b"Connection: keep-alive")),
]

TARGETS = [
    served("absolute form", to(b"http://a.test/api/rooms")),
    served("absolute form, other letters", to(b"HTTP://A.test/api/rooms")),
    refused("absolute form, other host", to(b"http://b.test/api/rooms")),
    refused("absolute form, user", to(b"http://u@a.test/api/rooms")),
    refused("absolute form, other scheme", to(b"ftp://a.test/api/rooms")),
    refused("absolute form, no host", to(b"http:///api/rooms")),
    refused("absolute form, no path", to(b"http://a.test")),
    refused("authority form", to(b"a.test:443")),
    refused("CONNECT", b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n" + HIDDEN_CREATE),
    served("asterisk", to(b"*"), 404, made=0),
    served("asterisk, OPTIONS", to(b"*", b"OPTIONS"), 404, made=0),
    refused("no slash", to(b"api/rooms")),
    refused("only a query", to(b"?api/rooms")),
    refused("fragment", to(b"/api/rooms#x")),
    refused("non-ASCII", to("/api/räume".encode())),
    refused("NUL", to(b"/api/rooms\x00")),
    refused("control byte", to(b"/api/rooms\x7f")),
    refused("space", to(b"/api/rooms /x")),
    served("percent and no digits", to(b"/api/%zz"), 404, made=0),
    served("percent at the end", to(b"/api/rooms%"), 404, made=0),
    served("percent NUL", to(b"/api/rooms%00"), 404, made=0),
    served("percent CR LF", to(b"/api/rooms%0d%0aX:y"), 404, made=0),
    served("a letter percent-encoded", to(b"/api/room%73"), 404, made=0),
    served("a slash percent-encoded", to(b"/api%2frooms"), 404, made=0),
    served("two slashes", to(b"//api/rooms"), 404, made=0),
    served("slash at the end", to(b"/api/rooms/"), 404, made=0),
    served("dots", to(b"/x/../api/rooms"), 404, made=0),
    served("dots out of the log", to(b"/audit/../../keys/ledger.key", b"GET"), 404, made=0),
    served("dots out of the log, encoded", to(b"/audit/%2e%2e/%2e%2e/keys/ledger.key", b"GET"), 404, made=0),
    served("backslashes", to(b"\\api\\rooms".join([b"/", b""])), 404, made=0),
    served("parameters", to(b"/api/rooms;x=y"), 404, made=0),
    served("8192 bytes", to(b"/" + b"a" * 8191), 404, made=0),
    refused("8193 bytes", to(b"/" + b"a" * 8192), 414),
    refused("80,000 bytes", to(b"/" + b"a" * 80_000), 414),
    refused("80,000 bytes of a query", to(b"/api/rooms?" + b"a" * 80_000), 414),
]

HOSTS = [
    refused("no Host", called(None)),
    refused("Host twice, same", with_line(b"Host: a.test")),
    refused("Host twice, different", with_line(b"host: b.test")),
    *(served(f"Host {name}", called(b"Host: " + value)) for name, value in {
        "with a port": b"a.test:8787", "with an empty port": b"a.test:", "IPv4": b"127.0.0.1", "IPv6": b"[::1]:80",
        "percent": b"a%41"}.items()),
    served("Host empty", called(b"Host:")),
    *(refused(f"Host {value!r}", called(b"Host: " + value)) for value in (
        b"a b", b"a/b", b"u@a.test", b"a,b", b"http://a.test", b"a.test:80:80", b"a.test:x", b"a\xff", b"[::1", b"::1", b"a?b",
        b"a#b",
        b'"a"', b"a\\b", b"a%4", b"<a>", b"[::1]x")),
]

LINES = [
    refused("space before the colon", with_line(b"A : b")),
    refused("tab before the colon", with_line(b"A\t: b")),
    refused("space before the colon of the length", b"POST /api/rooms HTTP/1.1\r\nHost: a.test\r\nContent-Length : 5\r\n\r\n"),
    refused("folded with a space", with_line(b"A: b\r\n c")),
    refused("folded with a tab", with_line(b"A: b\r\n\tc")),
    refused("folded length", b"POST /api/rooms HTTP/1.1\r\nHost: a.test\r\nContent-Length:\r\n 5\r\n\r\n12345"),
    refused("folded before the first line", request(b"POST /api/rooms HTTP/1.1\r\n A: b")),
    refused("only blanks", with_line(b"  ")),
    refused("no colon", with_line(b"Abc")),
    refused("no name", with_line(b": b")),
    *(refused(f"{byte!r} in a name", with_line(b"A" + byte + b"b: c")) for byte in (
        b"\x00", b"\x01", b" ", b"\t", b"(", b",", b"/", b";", b"<", b"=", b"@", b"[", b"\\", b"{", b'"', b"\x7f", b"\x80",
        b"\xff")),
    *(refused(f"{byte!r} in a value", with_line(b"A: b" + byte + b"c")) for byte in (b"\x00", b"\x01", b"\x08", b"\x0b", b"\x0c",
        b"\x1b", b"\x7f")),
    served("high bytes in a value", with_line(b"A: \x80\xff")),
    served("empty value", with_line(b"A:")),
    served("blanks around a value", with_line(b"A: \t b \t ")),
    served("99 more lines", request(b"POST /api/rooms HTTP/1.1", *[b"A: b"] * 98)),
    refused("101 lines", request(b"POST /api/rooms HTTP/1.1", *[b"A: b"] * 99), 431),
    refused("10,000 lines", request(b"POST /api/rooms HTTP/1.1", *[b"A: b"] * 10_000), 431),
    refused("a value of 20,000 bytes", with_line(b"A: " + b"b" * 20_000), 431),
    refused("a value of 200,000 bytes", with_line(b"A: " + b"b" * 200_000), 431),
    refused("a value of 200,000 blanks", with_line(b"A: " + b" " * 200_000), 431),
    refused("a name of 20,000 bytes", with_line(b"A" * 20_000 + b": b"), 431),
    refused("lines of 20,000 bytes", request(b"POST /api/rooms HTTP/1.1", *[b"A: " + b"b" * 400] * 50), 431),
    refused("Authorization twice", request(b"GET /api/room HTTP/1.1", b"Authorization: Bearer a", b"Authorization: Bearer b",
        body=b"")),
    refused("Origin twice", with_line(b"Origin: https://a.test\r\nOrigin: https://a.test")),
    refused("encoded body", with_line(b"Content-Encoding: gzip"), 415),
    refused("another expectation", with_line(b"Expect: 200-ok"), 417),
    refused("two expectations", with_line(b"Expect: 100-continue, x"), 417),
    served("an expectation in HTTP/1.0", request(b"POST /api/rooms HTTP/1.0", b"Expect: 100-continue"), stays=False),
    served("Connection: close", with_line(b"Connection: close"), stays=False),
    served("lists over several lines", with_line(
        b"Accept: a/b\r\nAccept: */*\r\nAccept-Encoding: br\r\nAccept-Encoding: gzip\r\nConnection: keep-alive\r\nConnection: TE\r\nTE: trailers\r\n"
        b"If-None-Match: \"a\"\r\nIf-None-Match: W/\"b\"\r\nUpgrade: h2c\r\nUpgrade: foo/1\r\nX-Forwarded-For: a\r\nX-Forwarded-For: b\r\nForwarded: for=a\r\n"
        b"Forwarded: for=b\r\nVia: 1.1 a\r\nVia: 1.1 b\r\nCache-Control: no-cache\r\nCache-Control: no-store")),
    served("Connection names the length", with_line(b"Connection: content-length")),
    served("upgrade to h2c",
        with_line(b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")),
    served("upgrade to h2c without a body", request(
        b"GET /audit/nowhere HTTP/1.1", b"Connection: Upgrade", b"Upgrade: h2c", body=b"").replace(b"Content-Length: 0\r\n",
        b""), 404, made=0),
]

ORDER = [
    served("three at once", ASK + request() + ASK_ROOM, 404, 201, 401),
    served("HEAD, then another", b"HEAD /audit/nowhere HTTP/1.1\r\nHost: a.test\r\n\r\n" + request(), 404, 201),
    served("blank lines between", ASK + b"\r\n\r\n" + request(), 404, 201),
    served("a hundred at once", ASK * 99 + request(), *[404] * 99, 201),
    served("garbage after a good one", ASK + b"\x00\x01garbage\r\n\r\n", 404, 400, stays=False, made=0),
    served("a bad one between good ones", ASK + ASK.replace(b"Host", b"Host ") + HIDDEN_CREATE, 404, 400, stays=False, made=0),
    served("one after Connection: close", with_line(b"Connection: close") + HIDDEN_CREATE, stays=False),
    served("one after HTTP/1.0", request(b"POST /api/rooms HTTP/1.0") + HIDDEN_CREATE, stays=False),
]



def upgrade(*lines, line=b"GET /ws HTTP/1.1", key=b"AAAAAAAAAAAAAAAAAAAAAA==", version=b"13", body=b""):
    """A WebSocket handshake (RFC 6455 section 4.2.1)."""
    told = (b"Sec-WebSocket-Key: " + key, b"Sec-WebSocket-Version: " + version, *lines)
    return b"\r\n".join((line, b"Host: a.test", b"Connection: Upgrade", b"Upgrade: websocket", *told)) + b"\r\n\r\n" + body


UPGRADES = [
    refused("upgrade, version 12", upgrade(version=b"12"), 426),
    refused("upgrade, version as a list", upgrade(version=b"13, 8"), 426),
    refused("upgrade, no key", upgrade(key=b"")),
    refused("upgrade, a key of 15 bytes", upgrade(key=b"AAAAAAAAAAAAAAAAAAAA")),
    refused("upgrade, a key that is no base64", upgrade(key=b"A" * 21 + b"*==")),
    refused("upgrade, the key twice", upgrade(b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")),
    refused("upgrade, two keys", upgrade(b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")),
    refused("upgrade, the version twice", upgrade(b"Sec-WebSocket-Version: 13")),
    refused("upgrade, two versions", upgrade(b"Sec-WebSocket-Version: 12")),
    refused("upgrade, two origins", upgrade(b"Origin: https://a.test", b"Origin: https://b.test")),
    refused("upgrade, with a length", upgrade(b"Content-Length: 5", body=b"12345")),
    refused("upgrade, with chunks", upgrade(b"Transfer-Encoding: chunked", body=b"5\r\n12345\r\n0\r\n\r\n")),
    refused("upgrade, by POST", upgrade(line=b"POST /ws HTTP/1.1") + HIDDEN_CREATE),
    refused("upgrade, HTTP/1.0", upgrade(line=b"GET /ws HTTP/1.0")),
    refused("upgrade to something else", upgrade().replace(b"websocket", b"h2c", 1)),
    served("no upgrade", upgrade().replace(b"Connection: Upgrade\r\n", b""), 426, made=0),
    served("upgrade where there is none", upgrade(line=b"GET /audit/nowhere HTTP/1.1"), 404, made=0),
    refused("upgrade, and another request behind its refusal", upgrade(version=b"12") + HIDDEN_CREATE, 426),
]

HEADS = UPGRADES + LINE_ENDS + REQUEST_LINES + TARGETS + HOSTS + LINES + ORDER
