"""Calls of apps with accounts, good and bad: one user after the other with phones, Live Activities, a back end and sockets."""

import base64
import hmac
import json
import time
from functools import partial
from itertools import count
from secrets import token_bytes

from companion_world import UNKNOWN
from memory_load import Call

# The shortest times that a policy may set: what waits is to leave while it is looked on.
LIMITS = {"activityUpdateSeconds": 1, "approvalSeconds": 5}


def encoded(part):
    return base64.urlsafe_b64encode(part).rstrip(b"=")


class Login:
    """Signs JWTs, most of them good, and remembers what is secret in them: the user, the user's own name, the signature. The rest is alike in
    all of them."""

    def __init__(self, known, secret):
        self.known, self.secret = known, secret

    def jwt(self, user, life=3600, algorithm="HS256", signature=None, **claims):
        now = int(time.time())
        claims = {"name": self.known.word("text"), "sub": user, "iat": now, "exp": now + life} | claims
        text = b".".join(encoded(json.dumps(part).encode()) for part in ({"alg": algorithm, "typ": "JWT"}, claims))
        signature = hmac.digest(self.secret, text, "sha256") if signature is None else signature
        self.known.secret("JWT", signature, encoded(signature))
        return (text + b"." + encoded(signature)).decode()

    def bad(self):
        """JWTs that are refused."""
        user = partial(self.known.word, "user id")
        yield self.jwt(user(), signature=token_bytes(32))
        yield self.jwt(user(), life=-3600)
        yield self.jwt(user(), algorithm="none")
        yield self.jwt(user(), aud=self.known.word("text"))
        yield self.jwt(user() * 9)
        yield self.jwt(user(), text="x" * 8_000)
        yield self.jwt(user()) + self.known.word("text")
        yield self.jwt(user()).replace(".", "-", 1)


def companion(secret, patient_until, known, sockets):
    """Users, one after the other, as `memory_load.rooms`. `patient_until()`: until when an approval may be left to its time-out."""
    login = Login(known, secret)
    for turn in count():
        user, service, session, activity = (known.word(kind) for kind in ("user id", "user id", "session", "activity"))
        jwt, back_end = login.jwt(user), login.jwt(service, scope="broker.notify")
        # Some have each letter of their names escaped.
        name = session if turn % 5 else "".join(f"%{ord(letter):02x}" for letter in session)
        events = f"/api/sessions/{name}/events"

        def event(kind, data=None, **more):
            return Call("POST", events, {"type": kind, "userId": user, "data": data or {}} | more, back_end)

        def registered(answer):
            known.capability("handle key", answer["handleKey"])
            return answer["tokenId"]

        def activity_call(token, **more):
            body = {"activityToken": token, "activityId": activity, "sessionId": session}
            return Call("POST", "/api/push/live-activity/register", body | more, jwt)

        phone, live = known.address(), known.token()
        device = {"deviceToken": phone, "platform": "ios", "displayName": known.word("text")}
        phone_id = registered((yield Call("POST", "/api/push/register", device, jwt, ("", "chunks", "pieces")[turn % 3])))
        live_id = registered((yield activity_call(live)))
        yield event("state_change", {"newState": "processing", "previousState": known.word("text")})
        # The first one's window is open, so this one waits for it.
        yield event("progress_update", {"elapsedSeconds": 50, "todoProgress": {"completed": 1, "total": 3, "currentTask": known.word("text")}})
        match turn % 13:
            case 0:
                # The first of all, so that its time is over soon.
                asked = yield event("approval_request", {known.word("text"): known.word("text")})
                yield Call("POST", f"/api/approval/{asked['requestId']}/respond", {"approved": True}, login.jwt(known.word("user id")))
                yield Call("POST", "/api/push/clear-approval", {"requestId": asked["requestId"], "excludeDeviceToken": phone}, jwt)
                if time.monotonic() > patient_until():
                    yield Call("POST", f"/api/approval/{asked['requestId']}/respond", {"approved": False}, jwt)
            case 1:
                registered((yield activity_call(known.token(), previousToken=live, text=known.word("text"))))
                yield Call("GET", "/api/push/status", bearer=jwt)
            case 2 | 8:
                asked = yield event("approval_request", {"toolName": known.word("text"), "summary": known.word("text")}, eventId=known.word("event"))
                answer = Call("POST", f"/api/approval/{asked['requestId']}/respond", {
                    "approved": turn % 2 == 0, "deviceToken": (phone, known.address())[turn % 4 // 2], "message": known.word("text")}, jwt)
                yield Call("GET", f"/api/approval/{asked['requestId']}", bearer=back_end)
                yield answer
                yield answer
                yield Call("GET", f"/api/approval/{asked['requestId']}", bearer=jwt)
            case 3:
                # Renewed as it was, and in another environment.
                registered((yield Call("POST", "/api/push/register", device, jwt)))
                registered((yield Call("POST", "/api/push/register", device | {"environment": "development"}, jwt)))
                yield Call("GET", "/api/push/status", bearer=jwt)
            case 4 | 10:
                request = known.word("event")
                asked = yield event("approval_request", {"summary": known.word("text")})
                claim = {"type": "activity", "sessionId": session, "deviceId": known.word("device"), "clientType": "ios", "pushToken": phone}
                sockets(known.turn, "/ws/sessions", service, [
                    ({"type": "auth", "token": back_end}, "authenticated"),
                    ({"type": "question_asked", "sessionId": session, "userId": user, "eventId": request, "data": {"question": known.word("text")}},
                     "accepted"), ({"type": "ping"}, "pong")])
                sockets(known.turn, "/ws/sessions", user, [
                    ({"type": "auth", "token": jwt}, "authenticated"), (claim, None),
                    ({"type": "approval_response", "requestId": asked["requestId"], "approved": True, "pushToken": phone}, "accepted"),
                    (claim | {"deviceId": known.word("device"), "clientType": "desktop", "type": known.word("text")}, None),
                    ({"type": "ping", "sessionId": session}, "pong")])
            case 5:
                for bad in login.bad():
                    yield Call("GET", "/api/push/status", bearer=bad)
                yield Call("POST", "/api/push/register", {"deviceToken": known.address(), "name": known.word("text")}, next(login.bad()))
            case 6:
                for bad in (login.jwt(known.word("user id"), life=-60), next(login.bad())):
                    sockets(known.turn, "/ws/sessions", None, [({"type": "auth", "token": bad}, "error")] if turn % 2 else [
                        ({"type": "question_asked", "sessionId": known.word("session"), "token": bad, "text": known.word("text")}, "error")])
                sockets(known.turn, "/ws/sessions", None, [
                    ({"type": "auth", "token": login.jwt(user)}, "authenticated"),
                    ({"type": "question_asked", "sessionId": session, "data": {"question": known.word("text") + "x" * 20_000}}, None)])
            case 7:
                # As long as may be, and longer; and broken off.
                for size in (15_000, 17_000):
                    body = {"deviceToken": known.token(100), "text": known.word("text") + "x" * size}
                    yield Call("POST", "/api/push/register", body, jwt, "continued")
                body = {"text": known.word("text"), "deviceToken": known.address()}
                yield Call("POST", "/api/push/register", body, jwt, ("cut", "reset")[turn // 13 % 2])
                body = json.dumps({"type": "question_asked", "userId": known.word("user id"), "data": {"question": known.word("text")}}).encode()
                yield Call("POST", events, body[:-1], back_end)
            case 9:
                # Secrets in wrong places and spellings, and those of others.
                escaped = "".join(f"\\u{ord(letter):04x}" for letter in known.word("text"))
                yield Call("POST", events, b'{"type":"question_asked","data":{"question":"%s"}}' % escaped.encode(), jwt)
                yield Call("GET", f"/api/push/status?token={jwt}&device={known.token()}")
                yield Call("DELETE", f"/api/push/token/{known.token()}", bearer=jwt)
                yield Call("DELETE", f"/api/push/token/{phone_id}", bearer=login.jwt(known.word("user id")))
                yield Call("POST", events, {"type": known.word("text"), "userId": user}, back_end)
                yield Call("POST", events, {"type": "state_change", "data": {"newState": known.word("text")}}, jwt)
                yield Call("POST", events, {"type": "question_asked", "userId": known.word("user id")}, jwt)
            case 11:
                yield Call("DELETE", f"/api/push/token/{live_id}", bearer=jwt)
                yield Call("DELETE", f"/api/push/token/tok_{UNKNOWN}", bearer=jwt)
                yield Call("HEAD", "/api/push/status", bearer=jwt)
            case 12:
                asked = {"eventId": known.word("event")}
                yield event("question_asked", {"question": known.word("text")}, **asked)
                yield event("question_asked", {"question": known.word("text")}, **asked)
                yield Call("DELETE", f"/api/push/session/{name}/notifications", bearer=jwt)
        match turn % 4:
            case 0:
                yield event("task_complete", {"status": "success", "summary": known.word("text")})
            case 1:
                yield event("task_failed", {"error": known.word("text")})
            case 2:
                yield Call("DELETE", f"/api/push/token/{phone_id}", bearer=jwt)
        known.next_turn()
