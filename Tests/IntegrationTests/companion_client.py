"""The seed's phone, desktop and back end, written from its document alone: routes, field names, and the app's Swift types.

It knows the server only by that document and two additions: the JWT, and the handle key of a registration.
"""

import base64
import calendar
import hashlib
import hmac
import time
from dataclasses import dataclass, field
from urllib.parse import quote

import jwt

from mayfly import Answer, Client, Socket, new_token
from processes import eventually

STATUSES = ("idle", "processing", "awaitingApproval", "awaitingAnswer", "completed", "error")


# What the app's Swift types decode. A key that isn't there is nil where the type is optional, and an error where it isn't; keys that the
# type doesn't have are passed over, as JSONDecoder does.

class DecodingError(Exception):
    pass


def _value(values, key, kind, optional=False):
    found = values.get(key)
    if found is None:
        if optional:
            return None
        raise DecodingError(f"{key} is not there")
    # A Bool is an int in Python and never one in Swift.
    if not isinstance(found, kind) or isinstance(found, bool) != (kind is bool):
        raise DecodingError(f"{key} is no {kind.__name__}: {found!r}")
    return found


@dataclass(frozen=True)
class TodoProgress:
    completed: int
    total: int
    currentTask: str | None

    @classmethod
    def decode(cls, values):
        return cls(_value(values, "completed", int), _value(values, "total", int), _value(values, "currentTask", str, True))


@dataclass(frozen=True)
class ApprovalRequest:
    requestId: str
    toolName: str
    summary: str

    @classmethod
    def decode(cls, values):
        return cls(*(_value(values, key, str) for key in ("requestId", "toolName", "summary")))


@dataclass(frozen=True)
class ContentState:
    """The ContentState of the app's ActivityAttributes."""
    status: str
    currentOperation: str | None
    elapsedSeconds: int
    todoProgress: TodoProgress | None
    approvalRequest: ApprovalRequest | None

    @classmethod
    def decode(cls, values):
        status = _value(values, "status", str)
        if status not in STATUSES:
            raise DecodingError(f"{status} is no case of the enum")
        todo, request = _value(values, "todoProgress", dict, True), _value(values, "approvalRequest", dict, True)
        return cls(
            status, _value(values, "currentOperation", str, True), _value(values, "elapsedSeconds", int),
            todo and TodoProgress.decode(todo), request and ApprovalRequest.decode(request))


# The userInfo of a notification: required keys by type.
USER_INFO = {
    "approval": {"requestId": str, "toolName": str, "expiresAt": str},
    "question": {"questionId": str, "sessionId": str},
    "complete": {"sessionId": str}, "error": {"sessionId": str},
    "clear_approval": {"clearApprovalId": str, "requestId": str, "reason": str},
    "clear_session": {"sessionId": str},
    "session_handoff": {"sessionId": str, "handedOffTo": str},
}
SILENT = ("clear_session", "session_handoff")
# What takes an approval's place on the screen, without a sound and without a badge.
CLEARED = {"approved_on_other_device": "Answered elsewhere", "timed_out": "No longer needed", "withdrawn": "No longer needed"}
CATEGORIES = {"approval": "APPROVAL_REQUEST", "question": "QUESTION_ASKED", "complete": "TASK_COMPLETE", "error": "TASK_ERROR"}


@dataclass(frozen=True)
class Notification:
    """A push to a device, shown or silent."""
    type: str
    title: str | None
    subtitle: str | None
    body: str | None
    info: dict

    @classmethod
    def decode(cls, payload):
        aps, kind = _value(payload, "aps", dict), _value(payload, "type", str)
        if kind not in USER_INFO:
            raise DecodingError(f"{kind} is no type that the app knows")
        info = {key: _value(payload, key, of) for key, of in USER_INFO[kind].items()}
        if kind in SILENT:
            if aps != {"content-available": 1}:
                raise DecodingError(f"a {kind} is silent: {aps}")
            return cls(kind, None, None, None, info)
        if kind == "clear_approval":
            body = CLEARED[info["reason"]]
            if aps != {"alert": {"body": body}, "interruption-level": "passive", "content-available": 1}:
                raise DecodingError(f"a {kind} only takes an approval's place: {aps}")
            return cls(kind, None, None, body, info)
        if aps.get("category") != CATEGORIES[kind]:
            raise DecodingError(f"the category of {kind} is {aps.get('category')}")
        alert = _value(aps, "alert", dict)
        return cls(kind, _value(alert, "title", str), _value(alert, "subtitle", str, True), _value(alert, "body", str), info)


def date(text):
    """Unix seconds, parsed like JSONDecoder's `.iso8601`, which allows no fraction of a second."""
    try:
        return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        raise DecodingError(f"{text} is no date of ISO 8601 as Foundation has it") from None


@dataclass(frozen=True)
class PushStatus:
    deviceTokenRegistered: bool
    liveActivityTokens: list[tuple[str, str, int]]

    @classmethod
    def decode(cls, values):
        return cls(_value(values, "deviceTokenRegistered", bool), [
            (_value(one, "activityId", str), _value(one, "sessionId", str), date(_value(one, "registeredAt", str)))
            for one in _value(values, "liveActivityTokens", list)])


def decode_news(message):
    """Decodes the document's WebSocket events as a foreground client does."""
    kind, session = _value(message, "type", str), _value(message, "sessionId", str)
    if kind == "approval_request":
        return kind, session, _value(message, "requestId", str), date(_value(message, "expiresAt", str))
    data = _value(message, "data", dict)
    if kind == "progress_update":
        todo = _value(data, "todoProgress", dict, True)
        return kind, session, _value(data, "elapsedSeconds", int), todo and TodoProgress.decode(todo)
    if kind == "state_change":
        return kind, session, _value(data, "previousState", str, True), _value(data, "newState", str)
    raise DecodingError(f"{kind} is no event of the document")


# Callers.

class Users:
    """Makes JWTs as the app's login would: HS256, by the secret of the configuration."""

    def __init__(self, secret, claim="sub"):
        self.secret, self.claim = secret, claim

    def token(self, user, life=3600, **claims):
        now = int(time.time())
        return jwt.encode({self.claim: user, "iat": now, "exp": now + life} | claims, self.secret, "HS256")

    def back_end(self, name="back-end", **claims):
        return self.token(name, scope="broker.notify", **claims)


class Caller:
    """A caller with one JWT. Each answer is checked against docs/openapi.yaml."""

    def __init__(self, broker, jwt, name=None, timeout=10):
        self.broker, self.jwt, self.name = broker, jwt, name
        self.http = Client(broker.port, timeout=timeout)

    def close(self):
        self.http.close()

    def call(self, method, path, body=None, **more) -> Answer:
        return self.http.send(method, path, body, **({"bearer": self.jwt} | more))

    def register(self, device_token, environment="production", **more):
        phone = {"platform": "ios", "environment": environment} if isinstance(device_token, str) else {}
        return self.call("POST", "/api/push/register", {"deviceToken": device_token} | phone | more)

    def register_activity(self, activity_token, activity, session, previous=None, **more):
        body = {"activityToken": activity_token, "activityId": activity, "sessionId": session, "platform": "ios"}
        if previous is not None:
            body["previousToken"] = previous
        return self.call("POST", "/api/push/live-activity/register", body | more)

    def delete_token(self, token_id):
        return self.call("DELETE", f"/api/push/token/{token_id}")

    def status(self):
        return self.call("GET", "/api/push/status")

    def clear_approval(self, request, exclude=None):
        body = {"requestId": request}
        if exclude is not None:
            body["excludeDeviceToken"] = exclude
        return self.call("POST", "/api/push/clear-approval", body)

    def clear_session(self, session, user=None):
        return self.call("DELETE", f"/api/push/session/{session}/notifications", user and {"userId": user})

    def respond(self, request, approved, device_token=None):
        body = {"approved": approved}
        if device_token is not None:
            body["deviceToken"] = device_token
        return self.call("POST", f"/api/approval/{quote(request, safe='')}/respond", body)

    def is_late(self, request, approved=True):
        """Whether an answer is refused as the document has it: 200, and no success."""
        answer = self.respond(request, approved).expect(200).json
        late = {"success": False, "error": "Request expired or not found", "code": "request_not_found"}
        assert answer in (late, {"success": True}), answer
        return answer == late

    def approval(self, request):
        return self.call("GET", f"/api/approval/{quote(request, safe='')}")

    def event(self, session, kind, data=None, user=None, **more):
        body = {"type": kind} | more
        if data is not None:
            body["data"] = data
        if user is not None:
            body["userId"] = user
        return self.call("POST", f"/api/sessions/{session}/events", body)

    def socket(self):
        """The session socket, authenticated."""
        socket = SessionSocket(self.broker)
        try:
            socket.send({"type": "auth", "token": self.jwt})
            socket.expect("authenticated")
        except BaseException:
            socket.connection.close()
            raise
        return socket


NEWS = ("approval_request", "approval_response", "approval_timeout", "progress_update", "state_change")


class SessionSocket(Socket):
    """`/ws/sessions`."""

    def __init__(self, broker):
        class Place:
            ws_url = f"ws://127.0.0.1:{broker.port}/ws/sessions"
        super().__init__(Place)

    def ask(self, message):
        """Returns the answer to one message. News may come before it."""
        self.send(message)
        while (answer := self.receive())["type"] in NEWS:
            pass
        return answer

    def news(self, kind, timeout=5):
        """Returns the next message of that type and skips others."""
        end = time.monotonic() + timeout
        while True:
            message = self.receive(max(0.01, end - time.monotonic()))
            if message["type"] == kind:
                return message


# The phone.

def handle(key, session, kind="session"):
    """The handle of a session in the pushes to one registration."""
    key = base64.urlsafe_b64decode(key + "=" * (-len(key) % 4))
    code = hmac.new(key, b"mayfly/v1 handle" + kind.encode() + b"\0" + session.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(code[:16]).decode().rstrip("=")


@dataclass
class Device:
    """A phone's or an activity's token, as it was registered."""
    token: str = field(default_factory=new_token)
    answer: dict | None = None

    @property
    def id(self):
        return self.answer["tokenId"]

    @property
    def ref(self):
        return self.answer["ref"]

    def handle(self, session, kind="session"):
        return handle(self.answer["handleKey"], session, kind)


class Phone(Caller):
    """One phone of one user: its registrations, and its screen after the received pushes."""

    def __init__(self, broker, simulator, jwt, name=None):
        super().__init__(broker, jwt, name)
        self.simulator = simulator
        self.device = Device()
        self.activities = {}

    def log_in(self):
        self.device.answer = self.register(self.device.token).expect(200).json
        return self

    def start_activity(self, session, activity=None, device=None):
        device, activity = device or Device(), activity or f"activity-of-{session}"
        device.answer = self.register_activity(device.token, activity, session).expect(200).json
        self.activities[session] = device
        return device

    def pushes(self, device=None):
        """The pushes that Apple accepted for it, oldest first."""
        return self.simulator.pushes((device or self.device).token)

    def wait(self, count, device=None, seconds=5):
        """Waits for exactly so many pushes."""
        pushes = eventually(lambda: len(found := self.pushes(device)) >= count and found or (not count and found == []), seconds,
                            what=f"{count} pushes")
        pushes = pushes if isinstance(pushes, list) else []
        assert len(pushes) == count, f"{len(pushes)} pushes, not {count}: {[push['payload'] for push in pushes]}"
        return pushes

    def received(self):
        return [Notification.decode(push["payload"]) for push in self.pushes()]

    def screen(self):
        """What a running app leaves on the screen. A later push replaces an earlier one with its collapse id; clearing ones remove some."""
        shown = {}
        for push in self.pushes():
            note, place = Notification.decode(push["payload"]), push["headers"]["apns-collapse-id"]
            if note.type == "clear_approval":
                gone = {note.info["clearApprovalId"], note.info["requestId"]}
                shown = {key: one for key, one in shown.items() if one.info.get("requestId") not in gone}
            elif note.type == "clear_session":
                shown = {key: one for key, one in shown.items() if one.info.get("sessionId") != note.info["sessionId"]}
            elif note.type != "session_handoff":
                shown[place] = note
        return list(shown.values())

    def notification_center(self):
        """What the phone shows while the app doesn't run: by collapse id, the text. A badge of 0 empties it, as on iOS."""
        shown = {}
        for push in self.pushes():
            aps = push["payload"]["aps"]
            if aps.get("badge") == 0:
                shown = {}
            if "alert" in aps:
                shown[push["headers"]["apns-collapse-id"]] = aps["alert"].get("title") or aps["alert"]["body"]
        return shown

    def badge(self):
        """The number on the app's icon, by the last push that sets one."""
        badges = [push["payload"]["aps"]["badge"] for push in self.pushes() if "badge" in push["payload"]["aps"]]
        return badges[-1] if badges else 0

    def state(self, session):
        """The Live Activity's content state after the newest update that iOS would accept. None before the first."""
        newest, state = -1, None
        for push in self.pushes(self.activities[session]):
            aps = push["payload"]["aps"]
            if aps["timestamp"] > newest:
                newest, state = aps["timestamp"], ContentState.decode(aps["content-state"])
        return state
