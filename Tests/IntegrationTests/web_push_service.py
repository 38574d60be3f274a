"""A Web Push service on Python's http.server, HTTP/1.1 over TLS, and what its subscribers open with PyPI's http_ece. It knows the broker from RFC 8030,
8291 and 8292 alone."""

import base64
import hmac
import json
import os
import re
import ssl
import threading
import time
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import http_ece
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from py_vapid import Vapid02

from processes import mayfly


def base64url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def make_vapid_key(path, besides=None):
    """Returns its public key and its number in sealed addresses. One of 256 has the number of another: that one isn't taken."""
    while True:
        path.unlink(missing_ok=True)
        public = re.search(r"subscribe with (\S+)", mayfly("push", "keys", path).stdout)[1]
        number = sha256(base64.urlsafe_b64decode(public + "=")).digest()[0]
        if number != besides:
            return public, number


def point_of(private_key):
    return private_key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


@dataclass
class Message:
    path: str
    headers: dict
    body: bytes
    at: float = field(default_factory=time.monotonic)
    is_answered: bool = False


class Subscriber:
    """A browser with a subscription at a service."""

    def __init__(self, service, path=None):
        self.service, self.path = service, path or "/up/" + base64url(os.urandom(16))
        self.new_keys()

    def new_keys(self):
        self.key, self.auth = ec.generate_private_key(ec.SECP256R1()), os.urandom(16)
        return self

    @property
    def point(self):
        return point_of(self.key)

    @property
    def endpoint(self):
        return f"https://{self.service.host}:{self.service.port}{self.path}"

    def json(self):
        """What PushSubscription.toJSON() returns."""
        return {"endpoint": self.endpoint, "expirationTime": None, "keys": {"p256dh": base64url(self.point), "auth": base64url(self.auth)}}

    def open(self, message):
        text = http_ece.decrypt(message.body, private_key=self.key, auth_secret=self.auth, version="aes128gcm")
        return json.loads(text)

    def message_keys(self, message):
        """What only sender and subscriber of a message can derive (RFC 8291 section 3.4): the shared secret, and all keys from it."""
        salt, point = message.body[:16], message.body[21:86]
        shared = self.key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point))
        extract = hmac.digest(self.auth, shared, "sha256")
        material = hmac.digest(extract, b"WebPush: info\0" + self.point + point + b"\1", "sha256")
        pseudo = hmac.digest(salt, material, "sha256")
        content, nonce = (hmac.digest(pseudo, b"Content-Encoding: " + name + b"\0\1", "sha256") for name in (b"aes128gcm", b"nonce"))
        return shared, extract, material, pseudo, content[:16], nonce[:12]

    def messages(self):
        return [message for message in list(self.service.messages) if message.path == self.path]


class WebPushService:
    """`answers`: {path: [(status, headers, body?), ...]}, the last of which stays; 201 for other paths. A header that is None is left out.
    `loses`: asked at each message whether its answer gets lost."""

    def __init__(self, certificate, host="localhost", address="127.0.0.1", port=0):
        self.host, self.messages, self.answers, self.connections = host, [], {}, 0
        self.loses = lambda: False
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                service.connections += 1
                super().setup()

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                message = Message(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                service.messages.append(message)
                if service.loses():
                    self.close_connection = True
                    return
                waiting = service.answers.get(self.path, [(201, {})])
                status, headers, *body = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                self.send_response(status)
                for name, value in ({"content-length": "0"} | headers).items():
                    if value is not None:
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"".join(body))
                message.is_answered = True

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self.server = Server((address, port), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.path, certificate.key)
        context.set_alpn_protocols(["http/1.1"])
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def check_vapid(message, origin, public_key, contact):
    """Verifies the header with py_vapid, and the rules of RFC 8292."""
    scheme, rest = message.headers["authorization"].split(" ", 1)
    fields = dict(part.strip().split("=", 1) for part in rest.split(","))
    assert scheme == "vapid" and fields["k"] == public_key
    assert Vapid02.verify(message.headers["authorization"])
    head, claims, _ = fields["t"].split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))) == {"typ": "JWT", "alg": "ES256"}
    claims = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert claims["aud"] == origin and claims["sub"] == contact and claims["exp"] % 21_600 == 0
    assert 12 * 3_600 <= claims["exp"] - time.time() <= 18 * 3_600
