"""Independent APNs servers: PyPI's h2 on asyncio, and Debian's nghttpd. They record what they receive."""

import asyncio
import re
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated, DataReceived, PriorityUpdated, RemoteSettingsChanged, RequestReceived, StreamEnded, StreamReset)
from h2.settings import SettingCodes, Settings
from hpack import Decoder

from processes import eventually, free_port


class Representations(Decoder):
    """Records how each header field was written (RFC 7541 section 6), by hooks into hpack."""

    def __init__(self):
        super().__init__()
        self.kinds, self.blocks = {}, []

    def decode(self, data, raw=False):
        self.kinds = {}
        headers = super().decode(data, raw)
        self.blocks.append((bytes(data), self.kinds))
        return headers

    def _note(self, kind, found):
        self.kinds[bytes(found[0][0]).decode()] = kind
        return found

    def _decode_indexed(self, data):
        return self._note("indexed", super()._decode_indexed(data))

    def _decode_literal_index(self, data):
        return self._note("incremental", super()._decode_literal_index(data))

    def _decode_literal_no_index(self, data):
        return self._note("never" if data[0] & 0x10 else "without", super()._decode_literal_no_index(data))


@dataclass(eq=False)
class Request:
    connection: "Connection"
    stream: int
    fields: list
    kinds: dict
    block: bytes
    at: float = field(default_factory=time.monotonic)
    body: bytes = b""

    @property
    def headers(self):
        return dict(self.fields)

    @property
    def token(self):
        return self.headers[":path"].removeprefix("/3/device/")


class Connection(asyncio.Protocol):
    def __init__(self, server):
        self.server, self.receiving, self.open, self.answered = server, {}, {}, 0
        self.most_open = self.most_before_an_answer = 0
        self.odd, self.settings = [], {}
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.h2.decoder = self.decoder = Representations()

    def connection_made(self, transport):
        self.transport, self.protocol = transport, transport.get_extra_info("ssl_object").selected_alpn_protocol()
        self.server.connections.append(self)
        # An update after the first frame would count only from the client's acknowledgement on.
        self.h2.local_settings = Settings(client=False, initial_values={SettingCodes.MAX_CONCURRENT_STREAMS: self.server.streams})
        self.h2.initiate_connection()
        self.flush()

    def flush(self):
        self.transport.write(self.h2.data_to_send())

    def data_received(self, data):
        for event in self.h2.receive_data(data):
            match event:
                case RequestReceived():
                    block, kinds = self.decoder.blocks.pop(0)
                    request = Request(self, event.stream_id, list(event.headers), kinds, block)
                    self.receiving[event.stream_id] = self.open[event.stream_id] = request
                    self.most_open = max(self.most_open, len(self.open))
                    if not self.answered:
                        self.most_before_an_answer = max(self.most_before_an_answer, len(self.open))
                case DataReceived():
                    self.receiving[event.stream_id].body += event.data
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case StreamEnded(): self.server.take(self.receiving.pop(event.stream_id))
                case StreamReset(): self.open.pop(event.stream_id, None)
                case RemoteSettingsChanged():
                    self.settings |= {int(code): change.new_value for code, change in event.changed_settings.items()}
                case PriorityUpdated() | ConnectionTerminated(): self.odd.append(event)
        self.flush()

    def answer(self, request, status, body=b""):
        if self.open.pop(request.stream, None) is None or self.transport.is_closing():
            return
        self.answered += 1
        head = [(":status", str(status)), ("apns-id", request.headers["apns-id"])]
        self.h2.send_headers(request.stream, head, end_stream=not body)
        if body:
            self.h2.send_data(request.stream, body, end_stream=True)
        self.flush()


class H2Server:
    """Answers each request with 200, unless `holds`: then `answer` does it when it is asked to."""

    def __init__(self, certificate, streams=1000, holds=False):
        self.streams, self.holds, self.connections, self.requests, self.held = streams, holds, [], [], []
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.context.set_alpn_protocols(["h2"])
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        making = self.loop.create_server(lambda: Connection(self), "127.0.0.1", 0, ssl=self.context)
        self.server = asyncio.run_coroutine_threadsafe(making, self.loop).result(5)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_):
        def end():
            self.server.close()
            for connection in self.connections:
                connection.transport.abort()
            self.loop.call_soon(self.loop.stop)
        self.loop.call_soon_threadsafe(end)
        self.thread.join(5)
        self.loop.close()

    def take(self, request):
        self.requests.append(request)
        if self.holds:
            self.held.append(request)
        else:
            request.connection.answer(request, 200)

    def answer(self, count=None, status=200, body=b""):
        """Answers the requests it kept, oldest first."""
        def work():
            chosen, self.held[:] = self.held[:count], self.held[count:] if count is not None else []
            for request in chosen:
                request.connection.answer(request, status, body)
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (work(), done.set()))
        assert done.wait(5)

    def request(self, token, seconds=8):
        return eventually(lambda: [one for one in self.requests if one.token == token], seconds, what="the push")[0]


class Nghttpd:
    """Debian's server. It answers POST with 200 and the received body if it `echoes`, else with 404."""

    def __init__(self, certificate, output, echoes=True, streams=100):
        self.port, self.output = free_port(), output
        echo = ["--echo-upload"] if echoes else [f"--htdocs={output.parent / 'nowhere'}"]
        self.command = ["nghttpd", "-v", *echo, f"--max-concurrent-streams={streams}", "--address=127.0.0.1", str(self.port),
            certificate, certificate]

    def __enter__(self):
        with open(self.output, "wb") as output:
            self.child = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        eventually(lambda: "listen" in self.printed(), what="nghttpd")
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait(10)

    def printed(self):
        return self.output.read_text(errors="replace")

    def frames(self):
        """The kinds of all received frames, in order, of all connections."""
        return re.findall(r"recv ([A-Z_]+) frame", self.printed())

    def requests(self):
        """Of each request, in order of coming: (name, value, whether it may never be indexed)."""
        found = {}
        for connection, stream, sensitive, name, value in re.findall(
                r"^\[id=(\d+)\] \[ *[\d.]+\] recv \(stream_id=(\d+)(, sensitive)?\) (:?[^:\s]+): (.*)$", self.printed(), re.M):
            found.setdefault((int(connection), int(stream)), []).append((name, value, bool(sensitive)))
        return list(found.values())
