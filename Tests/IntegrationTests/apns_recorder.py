"""An APNs on PyPI's h2 that answers each request alike or never; closing it drops its connections."""

import queue
import socket
import ssl
import threading

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded


class APNsRecorder:
    def __init__(self, certificate, address=("127.0.0.1", 0), status=None):
        self.status = status
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.context.set_alpn_protocols(["h2"])
        self.listener = socket.create_server(address)
        self.port = self.listener.getsockname()[1]
        self.requests, self.whole, self.connections = queue.Queue(), queue.Queue(), []
        self.thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()
        self.thread.join(5)

    def request(self, timeout):
        """The headers of the next request."""
        return self.requests.get(timeout=timeout)

    def whole_request(self, timeout):
        """The next request's header fields in their order, h2's tuples, and its body."""
        return self.whole.get(timeout=timeout)

    def _accept(self):
        try:
            while True:
                plain, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(plain,), daemon=True).start()
        except OSError:
            pass

    def _serve(self, plain):
        try:
            self._answer(self.context.wrap_socket(plain, server_side=True))
        except OSError:
            pass

    def _answer(self, connection):
        self.connections.append(connection)
        h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        h2.initiate_connection()
        connection.sendall(h2.data_to_send())
        fields, bodies = {}, {}
        while data := connection.recv(65536):
            for event in h2.receive_data(data):
                if isinstance(event, RequestReceived):
                    self.requests.put(dict(event.headers))
                    fields[event.stream_id], bodies[event.stream_id] = event.headers, b""
                if isinstance(event, DataReceived):
                    bodies[event.stream_id] += event.data
                if isinstance(event, StreamEnded):
                    self.whole.put((fields.pop(event.stream_id), bodies.pop(event.stream_id)))
                if isinstance(event, StreamEnded) and self.status:
                    h2.send_headers(event.stream_id, [(":status", str(self.status))], end_stream=True)
            connection.sendall(h2.data_to_send())
