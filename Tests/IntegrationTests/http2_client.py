"""The client of `mayfly.py` over HTTP/2 without TLS, by the h2 library."""

import socket

from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError

from mayfly import Answer, Client


class Http2Client(Client):
    def exchange(self, method, path, content, fields):
        """One request on the connection, which is kept. Raises OSError where HTTP/1.1 would: at its end, and at the end of the stream."""
        try:
            if self.connection is None:
                self.connection = socket.create_connection(("127.0.0.1", self.port), self.timeout, source_address=(self.address, 0))
                self.state = H2Connection()
                self.state.initiate_connection()
            stream = self.state.get_next_available_stream_id()
            head = {":method": method, ":scheme": "http", ":authority": "push.example.org", ":path": path} | fields
            if content is not None:
                head["content-length"] = str(len(content))
            self.state.send_headers(stream, [(name.lower(), value) for name, value in head.items()], end_stream=content is None)
            if content is not None:
                self.state.send_data(stream, content, end_stream=True)
            return self.answer(stream)
        except ProtocolError as error:
            raise ConnectionError(repr(error)) from error

    def answer(self, stream):
        headers, body = {}, b""
        while True:
            self.connection.sendall(self.state.data_to_send())
            if not (data := self.connection.recv(65_536)):
                raise ConnectionError("closed")
            for event in self.state.receive_data(data):
                match event:
                    case ResponseReceived(stream_id=number) if number == stream:
                        headers = {name.decode(): value.decode() for name, value in event.headers}
                    case DataReceived(stream_id=number):
                        self.state.acknowledge_received_data(event.flow_controlled_length, number)
                        body += event.data
                    case StreamEnded(stream_id=number) if number == stream:
                        return Answer(int(headers.pop(":status")), headers, body)
                    case StreamReset() | ConnectionTerminated():
                        raise ConnectionError(repr(event))
