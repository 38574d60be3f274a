"""A bystander that makes rooms, accepts and knocks at a steady rate, from an address of its own. `Bystander` starts this file as a separate process. A
request's latency counts from its due time."""

import json
import select
import socket
import ssl
import sys
import time
from collections import deque

from steady import Connections, post

CONNECTIONS = 16


class Bystander:
    def __init__(self, port, rate, seconds, source="127.0.0.2", http2=False):
        from courier import PYTHON
        from machine import LOAD_CPU
        from processes import Process

        self.process = Process(
            f"bystander-{port}", [PYTHON, __file__, port, rate, seconds, source, "h2" if http2 else "h1"], {LOAD_CPU}, pipes=True)

    def end(self):
        """Returns [(milliseconds until the answer; status; the token that was knocked at, or null; `delivery`)]."""
        told, _ = self.process.child.communicate(timeout=120)
        self.process.stop()
        return json.loads(told)


class Lives:
    """The bystander's requests in turn: a create, its accept, and a knock at the absent creator."""

    def __init__(self):
        self.prefix, self.made, self.accepted, self.created = f"by-{time.time_ns()}", deque(), deque(), 0

    def next(self):
        if self.accepted:
            token, room = self.accepted.popleft()
            return ("knock", token), "/api/room/presence", {"client": "ben"}, room
        if self.made:
            number, token = self.made.popleft()
            return ("accept", token), "/api/rooms/accept", {"joinid": f"{self.prefix}-{number}", "client2": "ben"}, None
        self.created += 1
        token = f"{time.time_ns():032x}"
        body = {"joinid": f"{self.prefix}-{self.created}", "expiresInSeconds": 600, "client1": "ann", "client1_token": token}
        return ("create", token, self.created), "/api/rooms", body, None

    def answered(self, key, status, body):
        """Returns (status; the token that was knocked at; `delivery`)."""
        told = json.loads(body) if body else {}
        if key[0] == "create" and status == 201:
            self.made.append((key[2], key[1]))
        if key[0] == "accept" and status == 200:
            self.accepted.append((key[1], told["roomid"]))
        is_knock = key[0] == "knock"
        return status, key[1] if is_knock else None, told.get("delivery") or told.get("code") if is_knock else None


def over_http1(port, rate, seconds, source):
    lives, end, seen = Lives(), time.monotonic() + seconds, []

    def requests():
        while time.monotonic() < end:
            key, path, body, bearer = lives.next()
            yield key, post(path, body, bearer)

    host = "::1" if ":" in source else "127.0.0.1"
    for asked in Connections(port, count=CONNECTIONS, host=host, source=source).ask(requests(), rate):
        seen.append((round((asked.answered - asked.due) * 1000, 3), *lives.answered(asked.key, asked.status, asked.body)))
    return seen


def over_http2(port, rate, seconds, source):
    """The same, all on one connection."""
    import h2.config
    import h2.connection
    import h2.events

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    wire = context.wrap_socket(socket.create_connection(("127.0.0.1", port), source_address=(source, 0)))
    http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    http.initiate_connection()
    lives, seen, under_way = Lives(), [], {}
    due = time.monotonic()
    end = due + seconds

    def ask():
        key, path, body, bearer = lives.next()
        stream, content = http.get_next_available_stream_id(), json.dumps(body).encode()
        headers = [(":method", "POST"), (":scheme", "https"), (":path", path), (":authority", "bench"), ("content-type", "application/json")]
        http.send_headers(stream, headers + ([("authorization", f"Bearer {bearer}")] if bearer else []))
        http.send_data(stream, content, end_stream=True)
        under_way[stream] = [key, due, 0, b""]

    def answered(stream):
        key, asked, status, body = under_way.pop(stream)
        seen.append((round((time.monotonic() - asked) * 1000, 3), *lives.answered(key, status, body)))

    while due < end or under_way:
        while due < end and due <= time.monotonic():
            ask()
            due += 1 / rate
        wire.sendall(http.data_to_send())
        wait = max(0, due - time.monotonic()) if due < end else 1
        if not wire.pending() and not select.select([wire], [], [], wait)[0]:
            continue
        for event in http.receive_data(wire.recv(65_536)):
            match event:
                case h2.events.ResponseReceived(stream_id=stream):
                    under_way[stream][2] = int(dict(event.headers)[":status"])
                case h2.events.DataReceived(stream_id=stream):
                    under_way[stream][3] += event.data
                    http.acknowledge_received_data(event.flow_controlled_length, stream)
                case h2.events.StreamEnded(stream_id=stream) | h2.events.StreamReset(stream_id=stream):
                    answered(stream)
                case h2.events.ConnectionTerminated():
                    raise SystemExit("the broker ended the bystander's connection")
    return seen


if __name__ == "__main__":
    port, rate, seconds, source, version = sys.argv[1:]
    measure = over_http2 if version == "h2" else over_http1
    print(json.dumps(measure(int(port), float(rate), float(seconds), source)))
