"""The seed's phone, and the service that sends its webhooks, from its document alone: its routes, its field names, its signature.

Nothing here knows the server but by that document and the two things that were added to it: the JWT, and the handle key of a registration.
"""

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass

from companion_client import Caller, DecodingError, handle
from mayfly import Answer, Client, new_token
from processes import eventually


@dataclass(frozen=True)
class IncomingCall:
    """What the app's PushKit delegate passes to CallKit. Handles are replaced by the names of its contact list."""
    session: str
    caller: str
    has_video: bool

    @classmethod
    def decode(cls, payload, key, sessions, contacts):
        """`sessions` may be empty. The app then asks its own service for the call by the session's handle, after it has informed CallKit."""
        def text(name):
            if not isinstance(payload.get(name), str):
                raise DecodingError(f"{name} is no string: {payload.get(name)!r}")
            return payload[name]
        if text("callType") not in ("audio", "video"):
            raise DecodingError(f"{payload['callType']} is no type of call")
        named = {handle(key, contact, "uid"): contact for contact in contacts}
        known = {handle(key, session, "session"): session for session in sessions}
        return cls(known.get(text("sessionId"), text("sessionId")), named.get(text("callerUid"), "Unknown"), payload["callType"] == "video")


class PhoneThatRings(Caller):
    """One phone of a user, with a PushKit token of its own."""

    def __init__(self, broker, simulator, jwt, uid, contacts=()):
        super().__init__(broker, jwt, uid)
        self.simulator, self.uid, self.contacts, self.token, self.answer = simulator, uid, contacts, new_token(), None

    def register_voip_token(self, uid=None, token=None, **more):
        return self.call("POST", "/api/voip/token", {"uid": uid or self.uid, "token": token or self.token} | more)

    def remove_voip_token(self, uid=None, **more):
        return self.call("DELETE", "/api/voip/token", {"uid": uid or self.uid} | more)

    def launch(self, **more):
        self.answer = self.register_voip_token(**more).expect(200).json
        return self

    def handle(self, name, kind):
        return handle(self.answer["handleKey"], name, kind)

    def pushes(self):
        return self.simulator.pushes(self.token)

    def wait(self, count=1, seconds=8):
        """That many pushes, and no more of them than that when they are there."""
        eventually(lambda: len(self.pushes()) >= count, seconds, what=f"{count} pushes")
        pushes = self.pushes()
        assert len(pushes) == count, f"{len(pushes)} pushes where {count} were to come"
        return pushes

    def incoming(self, push, sessions=()):
        return IncomingCall.decode(push["payload"], self.answer["handleKey"], sessions, self.contacts)


class CallingService:
    """Sends webhooks, signed byte for byte."""

    ROUTE = "/webhooks/call"

    def __init__(self, broker, secret, timeout=10):
        self.http, self.secret = Client(broker.port, timeout=timeout), secret

    def close(self):
        self.http.close()

    def sign(self, body, secret=None):
        return hmac.new((secret or self.secret).encode(), body, hashlib.sha256).hexdigest()

    def body(self, session, caller, receiver, kind="video", trigger="call_initiated", receiver_type="user", names=("Alice", "Bob"), **more):
        return json.dumps({"trigger": trigger, "data": {
            "id": session, "sessionId": session, "type": kind, "initiator": {"uid": caller, "name": names[0]},
            "receiver": {"uid": receiver, "name": names[1]}, "receiverType": receiver_type} | more}).encode()

    def send(self, body, signature=None, headers=None, **more) -> Answer:
        """`signature`: another than the right one; "" for none."""
        signature = self.sign(body) if signature is None else signature
        fields = {"X-CometChat-Signature": signature} if signature else {}
        return self.http.send("POST", self.ROUTE, body, headers=fields | (headers or {}), **more)

    def initiate(self, session, caller, receiver, kind="video", **more):
        return self.send(self.body(session, caller, receiver, kind, **more))


def new_call():
    return "session-" + secrets.token_hex(8)
