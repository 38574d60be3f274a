"""What an Android app with UnifiedPush does, in Python (3.10, PyPI's http-ece). Android's connector library makes the keys and decrypts by itself; here
`Room` and `on_message` show that part, too. docs/web-push.md explains the rest."""

import base64
import hashlib
import hmac
import json
import os
import secrets
import urllib.request

import http_ece
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

# The app's own texts, by template, in the reader's language.
TEXTS = {"peer_waiting": "wartet auf dich"}
CREATOR = 1


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Room:
    """A room and its instance at the distributor. Each room has an endpoint of its own, so a broker can't see which rooms share a phone. The distributor
    and its server can."""

    def __init__(self, nickname):
        self.nickname, self.instance = nickname, secrets.token_hex(8)
        self.code, self.client = "".join(secrets.choice("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for _ in range(10)), secrets.token_hex(8)
        self.key, self.auth = ec.generate_private_key(ec.SECP256R1()), os.urandom(16)
        self.roomid = self.member = None

    def token(self, endpoint):
        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return {"endpoint": endpoint, "keys": {"p256dh": base64url(point), "auth": base64url(self.auth)}}

    @property
    def handle(self):
        """What pushes to this side name the room by. Only a member can compute it."""
        if self.roomid:
            key = base64.urlsafe_b64decode(self.roomid + "=")
            return base64url(hmac.digest(key, b"mayfly/v1 handleroom" + bytes([CREATOR]), hashlib.sha256)[:16])


class App:
    """`register(instance, vapid)` asks the distributor, which calls `on_new_endpoint` then or later. `show(nickname, text)` makes a notification."""

    def __init__(self, broker, register, show):
        self.broker, self.register, self.show = broker, register, show
        self.rooms = {}  # By instance. An app keeps them in its encrypted storage.

    def make_room(self, nickname):
        """The other person gets `code`. The room exists once the distributor has an endpoint."""
        room = Room(nickname)
        self.rooms[room.instance] = room
        self.register(room.instance, self.call("GET", "/api/push")["webPush"]["applicationServerKey"])
        return room

    def on_new_endpoint(self, instance, endpoint):
        room = self.rooms[instance]
        if room.roomid:
            body = {"client": room.client, "member": room.member, "token": room.token(endpoint)}
            self.call("PUT", "/api/room/token", body, room.roomid)
        else:  # After a lost answer, the same call returns the same room.
            made = self.call("POST", "/api/rooms", {"joinid": room.code, "client1": room.client, "client1_token": room.token(endpoint)})
            room.roomid, room.member = made["roomid"], made["member"]

    def on_message(self, instance, body):
        key, auth = self.rooms[instance].key, self.rooms[instance].auth
        try:
            notification = json.loads(http_ece.decrypt(body, private_key=key, auth_secret=auth, version="aes128gcm"))["notification"]
        except (http_ece.ECEException, ValueError):
            return  # Anyone who knows an endpoint may send to it.
        data = notification["data"]
        for room in self.rooms.values():
            if room.handle == data["roomId"]:
                self.show(room.nickname, TEXTS.get(data["template"], notification["title"]))

    def on_unregistered(self, instance):
        """The user removed the distributor."""
        room = self.rooms[instance]
        if room.roomid:  # None before the first endpoint.
            self.call("DELETE", "/api/room/token", {"client": room.client, "member": room.member}, room.roomid)

    def call(self, method, path, body=None, bearer=None):
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {bearer}"} if bearer else {})
        request = urllib.request.Request(self.broker + path, json.dumps(body).encode() if body else None, headers, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)
