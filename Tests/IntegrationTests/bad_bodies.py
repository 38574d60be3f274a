"""The table of bad HTTP/1.1 requests, continued: how a body is framed (RFC 9112 sections 6 and 7)."""

from bad_requests import BODY, CODE, HIDDEN, HIDDEN_CREATE, refused, request, served

HEAD = b"POST /api/rooms HTTP/1.1\r\nHost: a.test\r\n"
SIZE = b"%d" % len(BODY)
HEX = b"%x" % len(BODY)
WHOLE = HEX + b"\r\n" + BODY + b"\r\n0\r\n\r\n"
HIDDEN_CHUNKS = WHOLE.replace(CODE, HIDDEN)


def length(value, body=BODY):
    return HEAD + b"Content-Length: " + value + b"\r\n\r\n" + body


def coded(value, body=WHOLE):
    return HEAD + b"Transfer-Encoding: " + value + b"\r\n\r\n" + body


def chunked(body):
    return coded(b"chunked", body)


def sized(size):
    """One chunk with that first line, and the last chunk."""
    return chunked(size + b"\r\n" + BODY + b"\r\n0\r\n\r\n")


def bits(body):
    """Chunks of one byte each, except for the part with the join code."""
    start, rest = body.split(CODE)
    chunks = [start + CODE, *(b"%c" % byte for byte in rest), b""]
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)


LENGTHS = [
    served("length", length(SIZE)),
    served("length with noughts", length(b"000" + SIZE)),
    refused("length twice, same", length(SIZE + b"\r\nContent-Length: " + SIZE)),
    refused("length twice, different", length(SIZE + b"\r\nContent-Length: 0")),
    refused("length twice, nought first", length(b"0\r\nContent-Length: " + SIZE)),
    refused("length as a list", length(SIZE + b", " + SIZE)),
    refused("length as a list without a space", length(SIZE + b"," + SIZE)),
    *(refused(f"length {value!r}", length(value)) for value in (
        b"+" + SIZE, b"-1", b"-" + SIZE, b"", b"0x10", b"1 0", b"1\t0", SIZE + b";", SIZE + b".0", b"1e1", SIZE + b" x", b"\x0b"
        + SIZE,
        SIZE + b"\x00", "７".encode(), b"_1", b"NaN", b"9" * 19, b"18446744073709551616", b"18446744073709551615", b"0" * 19)),
    refused("length that wraps to the right one", length(b"%d" % (2**64 + len(BODY)))),
    refused("length one over 16 KiB", length(b"16385", b""), 413),
    refused("length of a gigabyte", length(b"1073741824", b""), 413),
    refused("length of 18 digits", length(b"9" * 18, b""), 413),
    served("16 KiB", length(b"16384", BODY + b" " * (16_384 - len(BODY)))),
    served("length too short", length(b"2", b"{}" + b"\x00" + HIDDEN_CREATE), 400, 400, stays=False, made=0),
    served("length nought before another", length(b"0", HIDDEN_CREATE.replace(HIDDEN, CODE)), 400, 201),
    served("no length", HEAD + b"\r\n" + BODY, 400, 400, stays=False, made=0),
    served("length with an underscore", HEAD + b"Content_Length: " + SIZE + b"\r\n\r\n" + BODY, 400, 400, stays=False, made=0),
    served("GET with a body", b"GET /audit/nowhere HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN_CREATE)
           + HIDDEN_CREATE + request(), 404, 201),
    served("GET with chunks",
        b"GET /audit/nowhere HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(HIDDEN_CREATE)
           + HIDDEN_CREATE + b"\r\n0\r\n\r\n" + request(), 404, 201),
]

BOTH = b"Content-Length: %b\r\nTransfer-Encoding: %b"
CODINGS = [
    served("chunks", chunked(WHOLE)),
    served("chunks, other letters", coded(b"CHUNKED")),
    served("chunks, tab before the value", coded(b"\tchunked")),
    served("chunks, a blank after the value", coded(b"chunked ")),
    refused("length and chunks", HEAD + BOTH % (SIZE, b"chunked") + b"\r\n\r\n" + WHOLE),
    refused("length and chunks, the length is that of the chunks", HEAD + BOTH % (b"%d" % len(WHOLE), b"chunked") + b"\r\n\r\n"
        + WHOLE),
    refused("chunks and length", coded(b"chunked\r\nContent-Length: " + SIZE)),
    refused("length and identity", HEAD + BOTH % (SIZE, b"identity") + b"\r\n\r\n" + BODY),
    refused("length and an unknown coding", HEAD + BOTH % (SIZE, b"xchunked") + b"\r\n\r\n" + BODY),
    refused("chunks twice", coded(b"chunked\r\nTransfer-Encoding: chunked")),
    refused("chunks, then identity", coded(b"chunked\r\nTransfer-Encoding: identity")),
    refused("identity, then chunks", coded(b"identity\r\nTransfer-Encoding: chunked")),
    *(refused(f"coding {value!r}", coded(value)) for value in (
        b"gzip", b"gzip, chunked", b"chunked, gzip", b"chunked, identity", b"chunked, chunked", b"chunked,", b",chunked",
        b"xchunked",
        b"chunkedx", b"chunked;q=1", b'"chunked"', b"chunked\x0b", b"\x0bchunked", b"chunked\x00", b"", b"identity",
        b"chunked\t ", b"chunk\xc3\xa9d",
        b"chu\xeanked", b"cow", b"chunked x", b"chunked \x00")),
    refused("chunks with a space before the colon", HEAD + b"Transfer-Encoding : chunked\r\nContent-Length: 0\r\n\r\n" + WHOLE),
    refused("chunks with a tab before the name", HEAD + b"\tTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + WHOLE),
    refused("chunks folded", HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + WHOLE),
    refused("chunks behind a lone LF", HEAD + b"A: b\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + WHOLE),
    refused("chunks in HTTP/1.0", b"POST /api/rooms HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + WHOLE),
    refused("chunks in HTTP/1.0, kept",
        b"POST /api/rooms HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + WHOLE),
]

CHUNKS = [
    served("one byte a chunk", chunked(bits(BODY))),
    served("16 KiB, one byte a chunk", chunked(bits(BODY + b" " * (16_384 - len(BODY))))),
    refused("one more, one byte a chunk", chunked(bits(BODY + b" " * (16_385 - len(BODY)))), 413),
    refused("100,000 chunks of one byte", chunked(bits(BODY + b" " * 100_000)), 413),
    served("size with noughts", sized(b"0000" + HEX)),
    served("last chunk of many noughts", chunked(WHOLE[:-5] + b"00000\r\n\r\n")),
    served("size in capitals", sized(HEX.upper())),
    served("an extension", sized(HEX + b";a=b")),
    served("a quoted extension", sized(HEX + b';a="b c"')),
    served("an extension on the last chunk", chunked(WHOLE[:-5] + b"0;a=b\r\n\r\n")),
    refused("an extension of 200,000 bytes", sized(HEX + b";a=" + b"b" * 200_000), 413),
    refused("100 extensions of 2,000 bytes", chunked((b"1;a=" + b"b" * 2_000 + b"\r\n \r\n") * 100 + WHOLE), 413),
    refused("bare LF in an extension", sized(HEX + b";a=b\nc")),
    refused("bare CR in an extension", sized(HEX + b";a=b\rc")),
    refused("LF in a quoted extension", sized(HEX + b';a="\n"')),
    refused("NUL in an extension", sized(HEX + b";a=\x00")),
    *(refused(f"size {size!r}", sized(size)) for size in (
        b"", b"-1", b"-" + HEX, b"+" + HEX, b"0x" + HEX, b"g", b" " + HEX, b"\t" + HEX, HEX + b" ", HEX + b"\t", HEX + b" x",
        HEX + b",",
        HEX + b"\x00", HEX + b"\x0b", HEX + b"h", HEX + b"_0", b"1" + b"0" * 16 + HEX, b"F" * 17)),
    refused("size of 64 bits", sized(b"F" * 16), 413),
    refused("size of 63 bits", sized(b"7" + b"F" * 15), 413),
    refused("size one over 16 KiB", sized(b"4001"), 413),
    refused("bare LF after the size", chunked(HEX + b"\n" + BODY + b"\r\n0\r\n\r\n")),
    refused("bare CR after the size", chunked(HEX + b"\r" + BODY + b"\r\n0\r\n\r\n")),
    refused("another byte for the LF after the size", chunked(HEX + b"\rX" + BODY + b"\r\n0\r\n\r\n")),
    refused("bare LF after the data", chunked(HEX + b"\r\n" + BODY + b"\n0\r\n\r\n")),
    refused("bare CR after the data", chunked(HEX + b"\r\n" + BODY + b"\r0\r\n\r\n")),
    refused("nothing after the data", chunked(HEX + b"\r\n" + BODY + b"0\r\n\r\n")),
    refused("two other bytes after the data", chunked(HEX + b"\r\n" + BODY + b"XX0\r\n\r\n")),
    refused("data longer than its size", chunked(HEX + b"\r\n" + BODY + b" \r\n0\r\n\r\n")),
    refused("bare LF after the last size", chunked(WHOLE[:-5] + b"0\n\r\n")),
    refused("bare LF at the end", chunked(WHOLE[:-2] + b"\n")),
    refused("another byte for the last LF", chunked(WHOLE[:-1] + b"X")),
    refused("two other bytes at the end", chunked(WHOLE[:-2] + b"XX\r\n\r\n")),
    served("another request right after", chunked(WHOLE) + b"GET /api/room HTTP/1.1\r\nHost: a.test\r\n\r\n", 201, 401),
    served("more chunks after the last", chunked(WHOLE + HIDDEN_CHUNKS), 201, 400, stays=False),
]


def trailing(lines):
    return chunked(WHOLE[:-2] + lines + b"\r\n")


TRAILERS = [
    served("a trailer", trailing(b"X: y\r\n")),
    served("a trailer that sets a length", trailing(b"Content-Length: 500\r\n")),
    refused("a trailer that sets a coding", trailing(b"Transfer-Encoding: chunked\r\n")),
    served("a trailer that sets a host", trailing(b"Host: b.test\r\n")),
    served("a trailer that closes", trailing(b"Connection: close\r\n")),
    refused("a trailer with bare LF", trailing(b"X: y\n")),
    refused("a folded trailer", trailing(b"X: y\r\n z\r\n")),
    refused("a trailer with a space before its colon", trailing(b"X : y\r\n")),
    refused("a trailer without a colon", trailing(b"X\r\n")),
    refused("a trailer with NUL", trailing(b"X: \x00\r\n")),
    refused("a trailer of 20,000 bytes", trailing(b"X: " + b"y" * 20_000 + b"\r\n"), 431),
    refused("10,000 trailers", trailing(b"X: y\r\n" * 10_000), 431),
]

BODIES = LENGTHS + CODINGS + CHUNKS + TRAILERS
