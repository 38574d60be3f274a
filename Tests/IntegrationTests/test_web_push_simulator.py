"""The simulator's Web Push face against independent senders: PyPI's http-ece encrypts and py-vapid signs. WebPushTests has what it refuses."""

import http.client
import json
import os
import socket
import ssl
import time
from urllib.parse import urlsplit

import http_ece
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded
from py_vapid import Vapid02
from py_vapid.utils import b64urldecode, b64urlencode

from processes import Simulator, State

DIALECTS = ["mozilla", "google", "apple", "microsoft", "ntfy"]
TEXT = json.dumps({"web_push": 8030, "notification": {"title": "Chat", "body": "Grüße", "navigate": "https://app.example/"}}).encode()


class Sender:
    """An application server with its VAPID key."""

    def __init__(self):
        self.vapid = Vapid02()
        self.vapid.generate_keys()

    @property
    def public_key(self):
        return b64urlencode(self.vapid.public_key.public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint))

    def message(self, subscription, text=TEXT, **claims):
        """Path, header fields and body of a push."""
        parts = urlsplit(subscription["endpoint"])
        claims = {"sub": "mailto:push@example.org", "aud": f"{parts.scheme}://{parts.netloc}", "exp": int(time.time()) + 3600} | claims
        keys = subscription["keys"]
        body = http_ece.encrypt(
            text, salt=os.urandom(16), private_key=ec.generate_private_key(ec.SECP256R1()), dh=b64urldecode(keys["p256dh"].encode()),
            auth_secret=b64urldecode(keys["auth"].encode()), version="aes128gcm")
        fields = {"ttl": "60", "urgency": "high", "topic": "A" * 22, "content-encoding": "aes128gcm"} | {
            name.lower(): value for name, value in self.vapid.sign(claims).items()}
        return parts, fields, body


def trust(simulator, protocol):
    context = ssl.create_default_context(cafile=simulator.state / "keys/simulator-ca.pem")
    context.set_alpn_protocols([protocol])
    return context


def post_http1(simulator, parts, fields, body):
    connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=10, context=trust(simulator, "http/1.1"))
    try:
        connection.request("POST", parts.path, body, fields)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def post_http2(simulator, parts, fields, body):
    with (socket.create_connection((parts.hostname, parts.port), 10) as plain,
          trust(simulator, "h2").wrap_socket(plain, server_hostname=parts.hostname) as connection):
        state = H2Connection()
        state.initiate_connection()
        state.send_headers(1, [(":method", "POST"), (":scheme", "https"), (":authority", parts.netloc), (":path", parts.path), *fields.items()])
        state.send_data(1, body, end_stream=True)
        headers, content = {}, b""
        while True:
            connection.sendall(state.data_to_send())
            data = connection.recv(65_536)
            assert data, "closed"
            for event in state.receive_data(data):
                match event:
                    case ResponseReceived():
                        headers = {name.decode(): value.decode() for name, value in event.headers}
                    case DataReceived():
                        content += event.data
                    case StreamEnded():
                        return int(headers.pop(":status")), headers, content


POSTS = {"1.1": post_http1, "2": post_http2}


@pytest.fixture(scope="module")
def simulator():
    state = State()
    simulator = Simulator(state)
    try:
        yield simulator.start()
    finally:
        simulator.kill()
        state.remove()


@pytest.mark.parametrize("version", POSTS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_foreign_sender_is_understood(simulator, dialect, version):
    sender = Sender()
    subscription = simulator.subscribe(dialect, sender.public_key)
    assert set(subscription) == {"endpoint", "expirationTime", "keys"} and set(subscription["keys"]) == {"p256dh", "auth"}
    parts, fields, body = sender.message(subscription)
    status, headers, content = POSTS[version](simulator, parts, fields, body)
    assert status == (200 if dialect == "ntfy" else 201), content
    [push] = simulator.web_pushes(subscription)
    assert push["text"].encode() == TEXT
    assert (push["dialect"], push["state"], push["ttl"], push["urgency"], push["topic"]) == (dialect, "delivered", 60, "high", "A" * 22)
    assert (push["bodyBytes"], push["http"]) == (len(body), version)
    assert b64urldecode(push["keyID"].encode()) == body[21:86]


@pytest.mark.parametrize("version", POSTS)
def test_a_foreign_sender_s_mistakes_are_refused(simulator, version):
    sender, other = Sender(), Sender()
    subscription = simulator.subscribe("apple", sender.public_key)
    for claims in ({"aud": "https://web.push.apple.com"}, {"exp": int(time.time()) + 90_000}, {"sub": "mailto:push@localhost"}):
        status, _, content = POSTS[version](simulator, *sender.message(subscription, **claims))
        assert (status, json.loads(content)) == (403, {"reason": "BadJwtToken"}), claims
    status, _, content = POSTS[version](simulator, *other.message(subscription))
    assert (status, json.loads(content)) == (400, {"reason": "VapidPkHashMismatch"})
    simulator.set_subscription(subscription, "expired")
    assert POSTS[version](simulator, *sender.message(subscription))[0] == 410
    assert simulator.web_pushes(subscription) == []


def test_a_server_without_http2_is_played(simulator):
    old = Simulator(simulator.state)
    old.more = ["--web-push-http1"]
    try:
        old.start()
        sender = Sender()
        subscription = old.subscribe("ntfy", sender.public_key)
        context = trust(old, "http/1.1")
        context.set_alpn_protocols(["h2", "http/1.1"])
        with socket.create_connection(("127.0.0.1", old.port), 10) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
            assert tls.selected_alpn_protocol() == "http/1.1"
        assert post_http1(old, *sender.message(subscription))[0] == 200
        assert [push["http"] for push in old.web_pushes()] == ["1.1"]
    finally:
        old.kill()
