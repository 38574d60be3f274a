"""HTTP/2 frames as raw bytes, valid or not, and a peer that sends them and reports the outcome (RFC 9113)."""

import select
import struct
from contextlib import suppress

from hpack import Decoder
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, RstStreamFrame, SettingsFrame

from peers import Peer

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x01
END_HEADERS, PADDED, HAS_PRIORITY = 0x04, 0x08, 0x20
ERRORS = ["NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
          "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY",
          "HTTP_1_1_REQUIRED"]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, stream, payload=b"", flags=0, size=None):
    """Any frame. `size`: the length in its head, if that isn't the payload's."""
    return struct.pack(">I", len(payload) if size is None else size)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def number(value, bits):
    """An HPACK integer with a prefix of `bits` bits (RFC 7541 section 5.1); the bits above it are zero."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    coded, value = [most], value - most
    while value > 127:
        coded.append(value % 128 + 128)
        value //= 128
    return bytes([*coded, value])


def field(name, value):
    """A literal field that is never indexed."""
    return b"\x10" + number(len(name), 7) + name + number(len(value), 7) + value


# The broker allows no table, so that a block begins with its new size (RFC 7541 section 4.2).
TABLE_SIZE = b"\x20"


def block(*fields):
    return TABLE_SIZE + b"".join(field(name, value) for name, value in fields)


def settings(*pairs, flags=0, stream=0):
    return frame(SETTINGS, stream, b"".join(struct.pack(">HI", *pair) for pair in pairs), flags)


def window(stream, increment):
    return frame(WINDOW_UPDATE, stream, struct.pack(">I", increment))


def reset(stream, code=8):
    return frame(RST_STREAM, stream, struct.pack(">I", code))


def head(stream, *fields, flags=END_HEADERS):
    return frame(HEADERS, stream, block(*fields), flags)


def data(stream, payload, flags=END_STREAM):
    return frame(DATA, stream, payload, flags)


GET = ((b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", b"/audit/nowhere"))
POST = ((b":method", b"POST"), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", b"/api/rooms"))
START = PREFACE + settings()


def ask(stream):
    """A request that is answered 404."""
    return head(stream, *GET, flags=END_HEADERS | END_STREAM)


class FramePeer(Peer):
    """A connection on which h2 was agreed."""

    def __init__(self, address, tls, **more):
        super().__init__(address, tls, **more)
        assert self.tls.selected_alpn_protocol() == "h2"
        self.decoder, self.statuses, self.bodies, self.ends = Decoder(), {}, {}, {}
        self.acknowledges = True  # that is, sends frames of its own accord
        self.peer_settings, self.goaways, self.error = {}, [], None

    def next_frame(self):
        """The next frame; None at the end of the stream."""
        while (told := self._parse()) is None:
            try:
                more = self.receive()
            except TimeoutError:
                raise
            except OSError:
                return None
            if not more:
                return None
            self.buffer += more
        return told

    def outcome(self, stream):
        """Returns a stream's outcome: `answer 201`, `reset CANCEL`, `goaway PROTOCOL_ERROR`, or `closed`."""
        while stream not in self.ends and (told := self.next_frame()) is not None:
            self.note(told)
            if self.error:
                return f"goaway {self.error}"
        return self.ends.get(stream, "closed")

    def note(self, told):
        """Records a frame, acknowledges settings, and opens the connection's window again."""
        stream = told.stream_id
        match told:
            case SettingsFrame() if "ACK" not in told.flags:
                self.peer_settings |= told.settings
                if self.acknowledges:
                    with suppress(OSError):
                        self.send(settings(flags=ACK))
            case PingFrame():
                pass
            case GoAwayFrame():
                self.goaways.append(told)
                self.error = ERRORS[told.error_code] if told.error_code else None
            case RstStreamFrame():
                self.ends.setdefault(stream, f"reset {ERRORS[told.error_code]}")
            case HeadersFrame():
                self.statuses[stream] = int(dict(self.decoder.decode(told.data))[":status"])
            case DataFrame():
                self.bodies[stream] = self.bodies.get(stream, b"") + told.data
                if self.acknowledges and told.data:
                    with suppress(OSError):
                        self.send(window(0, len(told.data)))
        if "END_STREAM" in told.flags:
            self.ends.setdefault(stream, f"answer {self.statuses[stream]}")

    def flood(self, frames, count, reads=True):
        """Sends `frames(number)` so often, noting the answers meanwhile. Returns how many were sent before the other side closed, or
        (where nothing is read) took no more."""
        sent = 0
        while sent < count:
            burst = b"".join(frames(number) for number in range(sent, min(sent + 100, count)))
            try:
                self.socket.sendall(self._seal(burst))
            except OSError:
                return sent
            sent += 100
            while reads and select.select([self.socket], [], [], 0)[0]:
                try:
                    told = self.next_frame()
                except TimeoutError:
                    break
                if told is None:
                    return sent
                self.note(told)
                if self.error:
                    return sent
        return sent

    def _seal(self, data):
        self.tls.write(data)
        return self.outgoing.read()

    def _parse(self):
        if len(self.buffer) < 9:
            return None
        told, size = Frame.parse_frame_header(memoryview(self.buffer[:9]))
        if len(self.buffer) < 9 + size:
            return None
        told.parse_body(memoryview(self.buffer[9:9 + size]))
        self.buffer = self.buffer[9 + size:]
        return told
