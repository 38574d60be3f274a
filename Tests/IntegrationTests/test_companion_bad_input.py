"""Bad input to the companion: each its exact answer, nothing stored and nothing pushed; and text in every field, found nowhere."""

import base64
import hashlib
import hmac
import json
import random
import threading
import time
import urllib.request
from secrets import token_bytes, token_hex, token_urlsafe

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

import ledger
from canary import Canaries
from companion_client import Caller, Device, SessionSocket
from companion_pushes import check_approval, check_end, check_task, check_update, content, seconds
from companion_world import CompanionWorld, new_session
from mayfly import new_token
from peers import Peer
from processes import audit_verify, eventually

ABSENT = type("Absent", (), {"__repr__": lambda self: "absent"})()
REGISTRATIONS = 100
UNKNOWN = "A" * 22


@pytest.fixture(scope="module")
def world():
    with CompanionWorld() as world:
        yield world
        assert world.broker.running, "the broker ended while the tests of this file ran"


@pytest.fixture(scope="module")
def phone(world):
    phone = world.user()
    phone.start_activity("a-session")
    yield phone
    phone.close()


@pytest.fixture(scope="module")
def back_end(world):
    caller = world.back_end()
    yield caller
    caller.close()


@pytest.fixture
def nothing_kept(world):
    """No row more, and no push, after the test."""
    eventually(lambda: world.state.jobs() == 0, what="the end of earlier pushes")
    before, pushes = world.state.counts(), len(world.simulator.pushes())
    yield
    assert world.state.counts() == before, "a refused request left rows behind"
    assert world.state.jobs() == 0 and len(world.simulator.pushes()) == pushes, "a refused request left a push behind"


# Whose call it is.

ROUTES = [
    ("POST", "/api/push/register", {"deviceToken": "ab" * 32}),
    ("POST", "/api/push/live-activity/register", {"activityToken": "ab" * 32, "activityId": "a", "sessionId": "s"}),
    ("DELETE", f"/api/push/token/tok_{UNKNOWN}", None), ("GET", "/api/push/status", None),
    ("POST", "/api/push/clear-approval", {"requestId": UNKNOWN}), ("DELETE", "/api/push/session/s/notifications", None),
    ("POST", "/api/sessions/s/events", {"type": "approval_request", "data": {}}),
    ("POST", f"/api/approval/{UNKNOWN}/respond", {"approved": True}), ("GET", f"/api/approval/{UNKNOWN}", None)]


def part(value):
    return base64.urlsafe_b64encode(value if isinstance(value, bytes) else json.dumps(value).encode()).decode().rstrip("=")


def hand_made(secret, header, claims, signature=None):
    text = f"{part(header)}.{part(claims)}"
    return f"{text}.{part(hmac.new(secret.encode(), text.encode(), hashlib.sha256).digest() if signature is None else signature)}"


def bad_tokens(users):
    """Name: (code, JWT)."""
    now = int(time.time())
    secret, header, claims = users.secret, {"alg": "HS256", "typ": "JWT"}, {"sub": "mallory", "iat": now, "exp": now + 3600}
    good = users.token("mallory")
    private = ec.generate_private_key(ec.SECP256R1())
    public = private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def claimed(**changes):
        return hand_made(secret, header, {k: v for k, v in (claims | changes).items() if v is not ABSENT})
    head, body, signature = good.split(".")
    bad = {
        "foreign": jwt.encode(claims, "another secret of thirty-two bytes", "HS256"),
        "signed by nothing": hand_made("", header, claims), "alg none": hand_made(secret, {"alg": "none"}, claims, b""),
        "alg None": hand_made(secret, {"alg": "None"}, claims, b""), "alg none, signed": hand_made(secret, {"alg": "none"}, claims),
        "no alg": hand_made(secret, {"typ": "JWT"}, claims), "alg null": hand_made(secret, {"alg": None}, claims),
        "alg list": hand_made(secret, {"alg": ["HS256", "none"]}, claims), "alg hs256": hand_made(secret, {"alg": "hs256"}, claims),
        "two algs": hand_made(secret, b'{"alg":"none","alg":"HS256"}', claims),
        "HS512": jwt.encode(claims, secret.ljust(64), "HS512"), "HS384": jwt.encode(claims, secret.ljust(48), "HS384"),
        "ES256": jwt.encode(claims, private, "ES256"),
        "signed with a public key": hand_made(public.decode(), header, claims),
        "crit": hand_made(secret, header | {"crit": ["b64"], "b64": False}, claims),
        "its own key": hand_made("mine", header | {"jwk": {"kty": "oct", "k": part(b"mine")}}, claims),
        "cut signature": f"{head}.{body}.{signature[:-2]}", "no signature": f"{head}.{body}.", "two parts": f"{head}.{body}",
        "four parts": f"{good}.{signature}", "one part": head, "other claims": f"{head}.{part(claims | {'sub': 'alice'})}.{signature}",
        "padding": f"{head}.{body}.{signature}=", "not base64url": f"{head}.{body[:-1]}!.{signature}", "not a JWT": "x", "dots": "..",
        "a room id": token_urlsafe(32), "space before": f" {good}", "space after and more": f"{good} x", "claims no object": hand_made(secret, header, [1]),
        "claims no JSON": hand_made(secret, header, b"{"), "claims twice": hand_made(secret, header, b'{"sub":"a","sub":"b","exp":9999999999}'),
        "header no JSON": hand_made(secret, b"x", claims), "oversized": claimed(padding="x" * 7000),
        "no exp": claimed(exp=ABSENT), "exp null": claimed(exp=None), "exp text": claimed(exp=str(now + 60)), "exp half": claimed(exp=now + 60.5),
        "exp huge": claimed(exp=10**30), "exp true": claimed(exp=True), "exp negative": claimed(exp=-1), "exp list": claimed(exp=[now + 60]),
        "not yet": claimed(nbf=now + 600), "made tomorrow": claimed(iat=now + 86_400), "for another": claimed(aud="another"),
        "for several": claimed(aud=["another", "mayfly"]), "no sub": claimed(sub=ABSENT), "sub empty": claimed(sub=""),
        "sub long": claimed(sub="x" * 129), "sub number": claimed(sub=7), "sub null": claimed(sub=None), "sub list": claimed(sub=["mallory"]),
        "scope number": claimed(scope=1), "scope object": claimed(scope={"broker.notify": True})}
    bad = {name: ("invalid_jwt", token) for name, token in bad.items()}
    bad["expired"] = ("jwt_expired", claimed(exp=now - 40))
    bad["expired long ago"] = ("jwt_expired", claimed(exp=1))
    return bad


@pytest.mark.parametrize("method, path, body", ROUTES, ids=[f"{m} {p}".replace(UNKNOWN, "X") for m, p, _ in ROUTES])
def test_calls_without_a_good_jwt(world, nothing_kept, method, path, body):
    caller = Caller(world.broker, None)
    for headers in ({}, {"Authorization": "Basic YTpi"}, {"Authorization": world.users.token("mallory")},
                    {"Authorization": "Token " + world.users.token("mallory")}):
        answer = caller.call(method, path, body, headers=headers).expect(401, "no_jwt")
        assert answer.headers["www-authenticate"] == "Bearer"
    caller.call(method, f"{path}?access_token={world.users.token('mallory')}", body).expect(401, "no_jwt")
    for name, (code, token) in bad_tokens(world.users).items():
        answer = caller.call(method, path, body, bearer=token)
        assert (answer.status, answer.code) == (401, code), f"{name}: {answer.status} {answer.body}"
        assert answer.headers["www-authenticate"].startswith('Bearer error="invalid_token"'), name
        assert "mallory" not in answer.body.decode() and token not in answer.body.decode()
    caller.close()


def test_a_jwt_over_eight_kib(world, nothing_kept):
    """Whether the engine's limit for a header's length comes first or not, it is refused."""
    caller = Caller(world.broker, None)
    for size in (8_192, 20_000, 200_000):
        caller.close()
        try:
            answer = caller.call("GET", "/api/push/status", bearer=world.users.token("mallory", padding="x" * size), checked=False)
        except OSError:
            continue
        assert (answer.status, answer.code) in ((401, "invalid_jwt"), (431, answer.code)), answer
    caller.close()


def test_jwts_at_their_bounds(world):
    """Clocks may differ by half a minute; a name may have 128 bytes; of the scope one word counts."""
    now = int(time.time())
    for token in (world.users.token("a", nbf=now + 20), world.users.token("a", exp=now - 20), world.users.token("x" * 128), world.users.token("é" * 64),
                  world.users.token("a", scope=["read", "broker.notify"]), world.users.token("a", scope="broker.notifyall")):
        caller = Caller(world.broker, token)
        caller.status().expect(200)
        caller.close()
    nearly = Caller(world.broker, world.users.token("a", scope="broker.notifyall broker notify"))
    nearly.event(new_session(), "question_asked", {}, "somebody").expect(403, "another_user")
    nearly.close()


def test_a_back_end_must_say_whom_it_means(back_end, nothing_kept):
    back_end.event("s", "approval_request", {}).expect(400, "missing_field", "userId")
    with back_end.socket() as socket:
        answer = socket.ask({"type": "approval_request", "sessionId": "s", "data": {}})
        assert (answer["type"], answer["code"]) == ("error", "missing_field")


def test_sockets_without_a_good_jwt(world, nothing_kept):
    firsts = [
        ("hello", "malformed_json"), ("[]", "malformed_json"), ({"type": "ping"}, None), ({"type": "approval_request", "sessionId": "s"}, None), ({}, None),
        ({"type": "auth"}, "no_jwt"), ({"type": "auth", "token": None}, "no_jwt"), ({"type": "auth", "token": 7}, "wrong_type"),
        ({"type": "auth", "token": ""}, "invalid_jwt"), ({"type": "auth", "token": ["x"]}, "wrong_type")]
    firsts += [({"type": "auth", "token": token}, code) for code, token in bad_tokens(world.users).values()]
    for message, code in firsts:
        with SessionSocket(world.broker) as socket:
            socket.connection.send(message if isinstance(message, str) else json.dumps(message))
            close, messages = socket.closed()
            assert close == 1008 and [one["type"] for one in messages] == ["error"], (message, close, messages)
            assert code is None or messages[0]["code"] == code, (message, messages)
            assert set(messages[0]) == {"type", "code", "error"}


def test_a_socket_ends_with_its_jwt(world):
    phone = world.phone("user-" + token_hex(4))
    phone.jwt = world.users.token(phone.name, life=1)
    with SessionSocket(world.broker) as socket:
        socket.send({"type": "auth", "token": phone.jwt})
        expires = seconds(socket.expect("authenticated")["expiresAt"])
        assert expires - time.time() <= 1 + 30
        if expires - time.time() < 5:
            close, messages = socket.closed()
            assert close == 1008 and messages == [] and time.time() > expires - 0.1
    phone.close()


# What is in the fields.

def text_field(field, most=128):
    return [("wrong_type", field, bad) for bad in (7, 1.5, True, [], ["x"], {}, {"x": 1})] + [
        ("out_of_range", field, bad) for bad in ("", "x" * (most + 1), "é" * (most // 2 + 1))]


def token_field(field):
    return [("wrong_type", field, bad) for bad in (7, True, ["ab"], {})] + [
        ("invalid_token", field, bad) for bad in ("", "a", "abc", "zz", "0xab", "ab cd ", "４２", "ab" * 101, "ab\n", "é")]


def missing(field):
    return [("missing_field", field, bad) for bad in (ABSENT, None)]


ENVIRONMENT = [("wrong_type", "environment", bad) for bad in (1, [], {}, False)] + [
    ("out_of_range", "environment", bad) for bad in ("", "staging", "Production", "development ")]
EVENT = [("wrong_type", "type", bad) for bad in (1, [], {}, True)] + [
    ("out_of_range", "type", bad) for bad in ("", "approval", "APPROVAL_REQUEST", "approval_request ", "approval_response", "x" * 5000)]
EVENT += missing("type") + [("wrong_type", "data", bad) for bad in (1, "x", [], [{}], True)]
EVENT += text_field("userId") + text_field("eventId")
CALLS = {
    "register": ("POST", "/api/push/register", {"deviceToken": "ab" * 32, "platform": "ios"},
                 missing("deviceToken") + token_field("deviceToken") + ENVIRONMENT),
    "live activity": (
        "POST", "/api/push/live-activity/register", {"activityToken": "ab" * 32, "activityId": "a", "sessionId": "s"},
        missing("activityToken") + token_field("activityToken") + missing("activityId") + text_field("activityId") + missing("sessionId")
        + text_field("sessionId") + token_field("previousToken") + ENVIRONMENT),
    "clear approval": (
        "POST", "/api/push/clear-approval", {"requestId": UNKNOWN},
        missing("requestId") + [("wrong_type", "requestId", bad) for bad in (1, True, [], {})] + token_field("excludeDeviceToken")),
    "respond": (
        "POST", f"/api/approval/{UNKNOWN}/respond", {"approved": True},
        missing("approved") + [("wrong_type", "approved", bad) for bad in (1, 0, "true", "yes", [], {})] + token_field("deviceToken")),
    "event": ("POST", "/api/sessions/s/events", {"type": "approval_request", "data": {}}, EVENT),
}


@pytest.mark.parametrize("name", CALLS)
def test_fields_of_calls(world, phone, nothing_kept, name):
    method, path, good, wrong = CALLS[name]
    for code, field, value in wrong:
        body = {key: one for key, one in (good | {field: value}).items() if one is not ABSENT}
        answer = phone.call(method, path, body)
        assert (answer.status, answer.json.get("code"), answer.json.get("field")) == (400, code, field), (field, value, answer.body)
        assert not isinstance(value, str) or value in ("", "true", "a") or value not in answer.json["detail"].split(), "the answer says it back"


def deep(levels):
    return b'{"type":"question_asked","data":{"x":' + b"[" * levels + b"]" * levels + b"}}"


NOT_JSON = {
    "nothing": b"", "blank": b"  \n", "half": b'{"type":"question_asked"', "array": b"[]", "text": b'"type"', "number": b"1", "null": b"null",
    "form": b"type=question_asked", "trailing": b'{"type":"question_asked"} x', "two": b'{"type":"question_asked"}{}',
    "duplicate": b'{"type":"question_asked","type":"task_failed"}', "escaped duplicate": b'{"type":"question_asked","t\\u0079pe":"task_failed"}',
    "deep": deep(40), "very deep": deep(7000), "deep objects": b'{"a":' * 1500 + b"1" + b"}" * 1500,
    "latin-1": b'{"type":"question_asked","data":{"text":"caf\xe9"}}', "lone surrogate": b'{"type":"\\ud800"}',
    "nan": b'{"type":"progress_update","data":{"elapsedSeconds":NaN}}', "leading zero": b'{"type":"progress_update","data":{"elapsedSeconds":010}}',
    "duplicate in data": b'{"type":"progress_update","data":{"elapsedSeconds":10,"elapsedSeconds":20}}',
    "duplicate in todoProgress": b'{"type":"progress_update","data":{"todoProgress":{"completed":1,"completed":2,"total":3}}}',
    "nul": b'{"type":"question_asked"}\x00',
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_not_one_json_object(phone, nothing_kept, name):
    answer = phone.call("POST", "/api/sessions/s/events", NOT_JSON[name])
    field = None if answer.code == "malformed_json" else answer.json.get("field")
    assert answer.status == 400 and (answer.code, field) in (
        ("malformed_json", None), ("out_of_range", "type"), ("wrong_type", "data.todoProgress")), answer.body


def test_bodies_over_16_kib(phone, nothing_kept):
    body = json.dumps({"type": "question_asked", "data": {"text": "x" * 16_400}}).encode()
    for method, path, _ in ROUTES:
        if method == "POST":
            phone.call(method, path, body).expect(413, "body_too_large")


PROGRESS = [
    ("wrong_type", "data.elapsedSeconds", {"elapsedSeconds": bad}) for bad in ("45", 45.5, True, [45], {}, 1e3 + 0.5)] + [
    ("out_of_range", "data.elapsedSeconds", {"elapsedSeconds": bad}) for bad in (-1, 86_401, 2**31, 2**63, 2**64, -(2**63), 10**300)] + [
    ("wrong_type", "data.todoProgress", {"todoProgress": bad}) for bad in (1, "2/5", [2, 5], True)] + [
    ("missing_field", "data.todoProgress.total", {"todoProgress": {"completed": 1}}),
    ("missing_field", "data.todoProgress.completed", {"todoProgress": {"total": 1}})] + [
    ("wrong_type", f"data.todoProgress.{name}", {"todoProgress": {"completed": 1, "total": 1} | {name: bad}})
    for name in ("completed", "total") for bad in ("1", 1.5, True, [], {})] + [
    ("out_of_range", f"data.todoProgress.{name}", {"todoProgress": {"completed": 1, "total": 1} | {name: bad}})
    for name in ("completed", "total") for bad in (-1, 1000, 2**63, 10**40)]
STATES = [("missing_field", "data.newState", {}), ("missing_field", "data.newState", {"newState": None})] + [
    ("wrong_type", "data.newState", {"newState": bad}) for bad in (1, True, ["idle"], {})] + [
    ("out_of_range", "data.newState", {"newState": bad}) for bad in ("", "Idle", "idle ", "flying", "x" * 4000)]
STATUSES = [("wrong_type", "data.status", {"status": bad}) for bad in (1, True, [], {})] + [
    ("out_of_range", "data.status", {"status": bad}) for bad in ("", "Success", "maybe", "x" * 4000)]


@pytest.mark.parametrize("over", ["http", "socket"])
@pytest.mark.parametrize("kind, wrong", [
    ("progress_update", PROGRESS), ("state_change", STATES), ("task_complete", STATUSES), ("claude-complete", STATUSES)])
def test_data_of_events(world, phone, nothing_kept, kind, wrong, over):
    """For a session with a Live Activity, where they would be pushed, and for one without."""
    found = []
    with phone.socket() as socket:
        for code, field, data in wrong:
            for session in ("a-session", "another"):
                if over == "http":
                    answer = phone.event(session, kind, data)
                    status, said = answer.status, answer.json
                else:
                    said = socket.ask({"type": kind, "sessionId": session, "data": data})
                    status = 400 if said["type"] == "error" else 202
                    said.setdefault("field", field)
                if (status, said.get("code"), said.get("field")) != (400, code, field):
                    found.append(f"{data!r:.80}: {status} {said}, not {code} {field}")
    assert not found, "\n".join(found)


SESSIONS_OF_PATHS = {
    "129 bytes": ("x" * 129, 400), "129 bytes, encoded": ("%C3%A9" * 65, 400), "half a percent": ("abc%2", 400), "no hex": ("%zz", 400),
    "no UTF-8": ("%ff%fe", 400), "surrogate": ("%ed%a0%80", 400), "overlong": ("%c0%af", 400), "empty": ("", (400, 404))}


@pytest.mark.parametrize("name", SESSIONS_OF_PATHS)
def test_sessions_in_paths(phone, nothing_kept, name):
    session, status = SESSIONS_OF_PATHS[name]
    for answer in (phone.event(session, "question_asked", {}), phone.clear_session(session)):
        assert answer.status in (status if isinstance(status, tuple) else (status,)), answer.body
        assert answer.code in ("out_of_range", "not_found")


def test_a_session_is_the_same_however_it_is_written(phone):
    """In a path, encoded in one, in a body and in a message; a slash and a percent sign are part of its name."""
    session = "a/b %é" + token_hex(4)
    encoded = session.replace("%", "%25").replace("/", "%2F").replace(" ", "%20").replace("é", "%C3%A9")
    activity = phone.start_activity(session)
    assert phone.event(encoded, "state_change", {"newState": "idle"}).expect(202).json["pushes"] == 1
    check_update(phone.wait(1, activity)[0], activity, session, content("idle"))
    with phone.socket() as socket:
        assert socket.ask({"type": "task_complete", "sessionId": session, "data": {}})["pushes"] == 2
    check_end(phone.wait(2, activity)[1], activity, session)


def test_methods_and_paths_that_are_not_there(phone, nothing_kept):
    for method, path, body in ROUTES:
        for wrong in {"GET", "POST", "PUT", "DELETE"} - {method}:
            phone.call(wrong, path, body if wrong != "GET" else None).expect(405, "method_not_allowed")
    for path in ("/api/push", "/api/push/", "/api/push/token", "/api/push/token/", "/api/push/token/a/b", "/api/approval", "/api/sessions/s",
                 "/api/sessions/s/events/1", "/api/push/session/s", "/api/push/session/s/notifications/", "/api/Push/status"):
        answer = phone.call("GET", path)
        assert answer.status in (404, 405), (path, answer)


# Ids.

BAD_IDS = [UNKNOWN, "", "x", "A" * 21, "A" * 23, "A" * 400, "*" * 22, "..", "%00" * 22, "1", "approval-123", "A" * 21 + "B"]


def test_ids_that_are_nobodys(phone, nothing_kept):
    for bad in BAD_IDS:
        if bad:
            phone.respond(bad, True).expect(404, "request_not_found")
            phone.approval(bad).expect(404, "request_not_found")
        phone.clear_approval(bad).expect(404, "request_not_found")
        for prefix in ("tok_", "lat_", "") if bad != ".." else ("tok_",):
            if prefix + bad:
                phone.delete_token(prefix + bad).expect(404, "token_not_found")
    with phone.socket() as socket:
        for bad in BAD_IDS:
            answer = socket.ask({"type": "approval_response", "requestId": bad, "approved": True})
            assert (answer["type"], answer["code"]) == ("error", "request_not_found"), (bad, answer)
            assert answer["error"] == "Request expired or not found"


def test_a_question_is_no_approval(phone, back_end):
    question = back_end.event(new_session(), "question_asked", {}, phone.name).expect(202).json["requestId"]
    phone.respond(question, True).expect(404, "request_not_found")
    phone.clear_approval(question).expect(404, "request_not_found")


def test_repeated_answers(world, back_end):
    """A hundred at a time, of which one counts."""
    user = world.user()
    answer = back_end.event(new_session(), "approval_request", {}, user.name).expect(202).json
    said = []

    def answer_often(number):
        caller = world.phone(user.name)
        for _ in range(20):
            said.append((caller.respond(answer["requestId"], number % 2 == 0).status, number % 2 == 0))
        caller.close()
    threads = [threading.Thread(target=answer_often, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(status for status, _ in said) == [200] + [404] * 99
    approved = next(approved for status, approved in said if status == 200)
    assert user.approval(answer["requestId"]).json["status"] == ("approved" if approved else "denied")
    user.wait(2)
    user.close()


# Order.

def test_events_out_of_order(world, back_end):
    """An end before anything began, what comes after an end, and another end: pushed as they come, and no activity is there."""
    user, session = world.user(), new_session()

    def event(kind, data={}):
        return back_end.event(session, kind, data, user.name).expect(202).json
    assert event("task_complete", {"status": "error"})["pushes"] == 1
    assert event("progress_update", {"elapsedSeconds": 10})["pushes"] == 0
    assert event("state_change", {"newState": "processing"})["pushes"] == 0
    activity = user.start_activity(session)
    assert event("task_failed")["pushes"] == 2
    check_end(user.wait(1, activity)[0], activity, session, success=False)
    for kind, data in (("progress_update", {"elapsedSeconds": 20}), ("state_change", {"newState": "idle"})):
        assert event(kind, data)["pushes"] == 0
    assert event("claude-complete", {"status": "success"})["pushes"] == 1
    asked = event("approval_request")
    assert asked["pushes"] == 1
    pushes = user.wait(4)
    for push, success in zip(pushes, (False, False, True)):
        check_task(push, user.device, session, success)
    check_approval(pushes[3], user.device, session, asked["requestId"], seconds(asked["expiresAt"]))
    # Its session is over, and the approval is still to be answered.
    assert event("task_complete")["pushes"] == 1
    user.respond(asked["requestId"], True, user.device.token).expect(200)
    # The same activity again: it begins anew.
    again = user.start_activity(session)
    event("progress_update", {"elapsedSeconds": 30, "todoProgress": {"completed": 3, "total": 2}})
    check_update(user.wait(1, again)[0], again, session, content("processing", elapsed=30, todo=(3, 2)))
    user.wait(1, activity)
    user.close()


# Very many.

@pytest.mark.background
@pytest.mark.parametrize("kind", ["devices", "activities"])
def test_ten_thousand_registrations_by_one_user(kind):
    """A hundred, as the policy says, however many come at once; the same ones may come again, and others are not in the way."""
    with CompanionWorld() as world:
        register_very_often(world, kind)


def register_very_often(world, kind):
    name, total, taken, refused = "user-" + token_hex(6), 10_000 if kind == "devices" else 1_000, [], []
    before = world.state.counts()["registration"]

    path = "/api/push/register" if kind == "devices" else "/api/push/live-activity/register"

    def body(token):
        return {"deviceToken": token} if kind == "devices" else {"activityToken": token, "activityId": "activity", "sessionId": "session"}

    def register(caller):
        return caller.call("POST", path, body(new_token()))

    def many(count):
        """Twenty-five at a time on one connection, so that it is the broker who works."""
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {world.users.token(name)}\r\nContent-Length: "
        with Peer(world.broker.port, timeout=30) as peer:
            while count > 0:
                tokens = [new_token() for _ in range(min(25, count))]
                count -= len(tokens)
                bodies = [json.dumps(body(token)) for token in tokens]
                peer.send("".join(f"{head}{len(text)}\r\n\r\n{text}" for text in bodies).encode())
                for token in tokens:
                    answer = peer.answer()
                    if answer.status == 200:
                        taken.append((token, answer.json))
                    else:
                        assert (answer.status, answer.code) == (409, "too_many_registrations"), answer
                        refused.append(token)
    threads = [threading.Thread(target=many, args=(total // 8,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == REGISTRATIONS and len(refused) == total - REGISTRATIONS
    assert world.state.counts()["registration"] == before + REGISTRATIONS
    user = world.phone(name)
    token, answer = taken[0]
    if kind == "devices":
        assert user.register(token).expect(200).json["tokenId"] == answer["tokenId"]
        user.start_activity("session")
    else:
        assert len(user.status().json["liveActivityTokens"]) == REGISTRATIONS
        user.register_activity(new_token(), "activity", "session", previous=token).expect(200)
        user.log_in()
    user.delete_token(taken[1][1]["tokenId"]).expect(200)
    register(user).expect(200)
    register(user).expect(409, "too_many_registrations")
    user.close()
    world.user().close()


@pytest.mark.parametrize("kind", ["device", "activity"])
def test_one_token_many_times_at_once(world, kind):
    """An app that registers twice, or again because it heard nothing: one row, one name, one handle key, whoever came first."""
    name, token, before, answers = "user-" + token_hex(6), new_token(), world.state.counts()["registration"], []
    gate = threading.Barrier(8)

    def register():
        caller = world.phone(name)
        caller.status()
        gate.wait()
        for _ in range(5):
            answer = caller.register(token) if kind == "device" else caller.register_activity(token, "activity", "session")
            answers.append(answer.expect(200).json)
        caller.close()
    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 40 and len({(answer["tokenId"], answer["handleKey"]) for answer in answers}) == 1
    assert world.state.counts()["registration"] == before + 1


@pytest.mark.background
def test_events_beyond_what_the_policy_lets():
    """So many for one user in a time, whoever sends them and however; no other user is in the way of it."""
    with CompanionWorld(eventsPerUser={"count": 20, "seconds": 60}) as world:
        back_end, user, other = world.back_end(), world.user(), world.user()
        for number in range(20):
            (back_end if number % 2 else user).event(new_session(), "state_change", {"newState": "idle"}, user.name).expect(202)
        for caller in (back_end, user, world.back_end("another back end")):
            answer = caller.event(new_session(), "approval_request", {}, user.name).expect(429, "too_many_requests")
            assert 1 <= int(answer.headers["retry-after"]) <= 60
        with user.socket() as socket:
            answer = socket.ask({"type": "task_complete", "sessionId": "s", "data": {}})
            assert (answer["type"], answer["code"]) == ("error", "too_many_requests")
        assert back_end.event(new_session(), "task_complete", {}, other.name).expect(202).json["pushes"] == 1
        other.wait(1)
        user.wait(0)
        user.clear_session("s").expect(200)


@pytest.mark.background
def test_pushes_to_one_token_beyond_what_the_policy_lets():
    """Who registers another's token shares it with its owner: the answer says what was not pushed. An end still passes."""
    with CompanionWorld(tokenPushes={"count": 10, "seconds": 60}, activityUpdateSeconds=1) as world:
        back_end, user, thief = world.back_end(), world.user(), world.phone("thief-" + token_hex(4))
        thief.register(user.device.token).expect(200)
        told = [back_end.event(new_session(), "question_asked", {}, thief.name).expect(202).json for _ in range(15)]
        assert sum(answer["pushes"] for answer in told) == 10 and sum(answer.get("throttled", 0) for answer in told) == 5
        answer = back_end.event(new_session(), "approval_request", {}, user.name).expect(202).json
        assert (answer["pushes"], answer["throttled"]) == (0, 1)
        other = world.user(user.name)
        assert back_end.event(new_session(), "question_asked", {}, user.name).expect(202).json["pushes"] == 1
        other.wait(1)
        user.wait(10)
        # Live Activities: as many updates, and the end.
        session = new_session()
        activity = user.start_activity(session)
        sent = time.monotonic() + 14
        while len(user.pushes(activity)) < 10 and time.monotonic() < sent:
            back_end.event(session, "state_change", {"newState": random.choice(["idle", "processing"])}, user.name).expect(202)
            time.sleep(0.2)
        for _ in range(12):
            back_end.event(session, "state_change", {"newState": "processing"}, user.name).expect(202)
            time.sleep(0.2)
        assert len(user.pushes(activity)) == 10, f"{len(user.pushes(activity))} updates, and the policy lets 10"
        back_end.event(session, "task_failed", {}, user.name).expect(202)
        check_end(user.wait(11, activity)[10], activity, session, success=False)


# Text.

class Planted:
    """A canary for each place, none of them twice."""

    def __init__(self):
        self.canaries = Canaries()

    def text(self, place):
        value = f"canary-{token_hex(10)}"
        self.canaries.add(place, value)
        return value

    def token(self, place):
        value = token_bytes(32)
        self.canaries.add(place, value)
        return value.hex()


@pytest.mark.background
def test_text_in_every_field_is_found_nowhere():
    """Each field of each call and message, its names and paths too; sent rightly and wrongly, answered and timed out; killed and stopped."""
    with CompanionWorld(approvalSeconds=5, activityUpdateSeconds=1) as world:
        plant_and_search(world)


def plant_and_search(world):
    planted = Planted()
    text, token = planted.text, planted.token

    class More(dict):
        """Fields that nobody asked for, each with text, as text, number-like, nested and as a name."""
        def __init__(self, call):
            super().__init__({name: text(f"{call} {name}") for name in (
                "platform", "title", "body", "summary", "toolName", "message", "fileName", "url", "name", "unknown")})
            self[text(f"{call}, a name")] = [text(f"{call} in a list"), {text(f"{call}, a name inside"): text(f"{call} inside")}]
    name = text("user")
    phone, back_end = world.phone(name), world.back_end(text("back end"))
    phone.jwt = world.users.token(name, name=text("JWT name"), email=text("JWT email"))
    answers = []

    def call(caller, method, path, body=None):
        answer = caller.call(method, path, body)
        answers.append(answer)
        return answer
    session, device = text("session"), Device(token("device token"))
    device.answer = call(phone, "POST", "/api/push/register", {"deviceToken": device.token} | More("register")).expect(200).json
    old, activity = token("previous token"), token("activity token")
    for one, more in ((old, {}), (activity, {"previousToken": old})):
        call(phone, "POST", "/api/push/live-activity/register", {
            "activityToken": one, "activityId": text("activity"), "sessionId": session} | more | More("live activity")).expect(200)
    path, requests = f"/api/sessions/{session}/events", []
    for kind, data in (
            ("approval_request", {}), ("approval_request", {}), ("question_asked", {}), ("state_change", {"newState": "processing"}),
            ("progress_update", {"elapsedSeconds": 7, "todoProgress": {"completed": 1, "total": 2, "currentTask": text("current task")}}),
            ("progress_update", {"currentOperation": text("current operation")})):
        body = {"type": kind, "userId": name, "eventId": text("event id"), "data": data | {
            "toolName": text("tool"), "summary": text("summary"), "text": text("question"), "id": text("id"), "previousState": text("state")}
            | More("data")} | More("event")
        answer = call(back_end, "POST", path, body).expect(202).json
        requests += [answer["requestId"]] if kind == "approval_request" else []
    with back_end.socket() as there, phone.socket() as here:
        there.send({"type": "question_asked", "sessionId": session, "userId": name, "eventId": text("event id"), "deviceId": text("device id"),
                    "clientType": "desktop", "data": {"text": text("question")} | More("data of a message")} | More("message"))
        there.expect("accepted")
        here.send({"type": text("type"), "sessionId": session, "deviceId": text("device id"), "pushToken": device.token} | More("claim"))
        here.send({"type": text("type"), "sessionId": session, "deviceId": text("device id"), "pushToken": token("foreign push token")})
        refused = [{"type": text("type")}, {"type": "approval_response", "requestId": text("request id"), "approved": True},
                   {"type": "ping", "sessionId": session, "deviceId": text("device id"), "clientType": text("client type")},
                   {"type": "state_change", "sessionId": session, "data": {"newState": text("new state")}},
                   {"type": "task_complete", "sessionId": session, "data": {"status": text("status")}},
                   {"type": "question_asked", "sessionId": text("session") * 5, "data": {}},
                   {"type": "question_asked", "sessionId": session, "userId": text("another user")},
                   {"type": "progress_update", "sessionId": session, "data": {"elapsedSeconds": text("elapsed")}}]
        errors = [here.ask(message) for message in refused]
        here.connection.send(text("no JSON"))
        errors.append(here.receive())
        assert all(error["type"] == "error" for error in errors), errors
    call(phone, "POST", f"/api/approval/{requests[0]}/respond", {"approved": True, "deviceToken": device.token} | More("respond")).expect(200)
    call(phone, "POST", "/api/push/clear-approval", {"requestId": requests[0], "excludeDeviceToken": token("excluded token")} | More("clear"))
    bad = [
        ("POST", "/api/push/register", {"deviceToken": text("device token") + "zz"}), ("POST", "/api/push/register", {"deviceToken": [token("token in a list")]}),
        ("POST", "/api/push/register", {"deviceToken": token("token of a wrong environment"), "environment": text("environment")}),
        ("POST", "/api/push/live-activity/register", {"activityToken": token("token without a session"), "activityId": text("activity")}),
        ("DELETE", f"/api/push/token/{text('token id')}", None), ("GET", f"/api/approval/{text('request id')}", None),
        ("POST", f"/api/approval/{text('request id')}/respond", {"approved": text("approved")}), ("GET", f"/api/push/{text('path')}", None),
        ("GET", f"/api/{text('path')}?token={token('token in a query')}", None),
        ("POST", "/api/push/clear-approval", {"requestId": text("request id")}),
        ("POST", path, {"type": text("type"), "userId": name}), ("POST", path, {"type": "question_asked", "userId": text("another user")}),
        ("POST", path, ('{"type":"question_asked","data":{"text":"' + text("cut short")).encode())]
    refused_calls = [call(phone, *one) for one in bad]
    assert all(answer.status >= 400 for answer in refused_calls), [answer.status for answer in refused_calls]
    said = planted.canaries.in_bytes(b"".join(answer.body + repr(answer.headers).encode() for answer in refused_calls) + json.dumps(errors).encode())
    assert said == [], f"an error says back {said}"
    Caller(world.broker, world.users.token(text("user of a bad JWT")) + "x").status().expect(401)
    time.sleep(2.5)

    def search(when):
        found = planted.canaries.in_files(world.state.folder, world.state.prints)
        found += planted.canaries.in_bytes(urllib.request.urlopen(f"{world.broker.operator_url}/metrics").read()) if world.broker.running else []
        # A push is addressed by its token, and that is all it says of it.
        pushes = [{**push, "token": ""} for push in world.simulator.pushes()]
        found += [f"{name} in a push" for name in planted.canaries.in_bytes(json.dumps(pushes).encode())]
        assert not found, f"{when}: {found}"
        return pushes
    search("while the session lives")
    assert (world.state / "mayfly.sqlite-wal").stat().st_size > 0, "there is no log to look into"
    eventually(lambda: phone.approval(requests[1]).json["status"] == "timed_out", 10, 0.2, "the time-out")
    world.broker.kill()
    search("killed")
    world.broker.start()
    phone.close()
    back_end.close()
    call(phone, "DELETE", f"/api/push/session/{session}/notifications").expect(200)
    eventually(lambda: world.state.jobs() == 0, what="the end of all pushes")
    phone.delete_token(device.id).expect(200)
    time.sleep(1.5)
    kinds = {push["payload"].get("type", "activity") for push in search("after the session")}
    assert kinds == {"approval", "question", "clear_approval", "clear_session", "session_handoff", "activity"}
    assert world.broker.stop() == 0
    search("stopped")
    assert ledger.read(world.state).check().counts()["push.delivered"] > 5
    phone.close()
    back_end.close()


# Anything at all.

def test_random_bodies_and_messages(world, phone):
    """Bodies with anything in any field: each is answered, none with 5xx, and the socket stays."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    user = world.phone("fuzzer-" + token_hex(4))
    names = ["type", "data", "sessionId", "userId", "eventId", "requestId", "approved", "deviceToken", "activityToken", "activityId", "previousToken",
             "excludeDeviceToken", "environment", "bundleId", "pushToken", "deviceId", "clientType", "token", "elapsedSeconds", "todoProgress", "newState"]
    words = ["approval_request", "progress_update", "state_change", "task_complete", "ping", "ios", "desktop", "sandbox", "idle", user.name, "s", "ab" * 32,
             UNKNOWN, "", "\0", "é" * 64, "\u202e", "a" * 129]

    def anything(depth=0):
        kind = chance.randrange(9 if depth < 3 else 6)
        return [
            lambda: chance.choice(words), lambda: chance.choice([0, -1, 1, 45, 2**63, 10**30, 1.5, -0.0, 1e300]), lambda: chance.choice([True, False, None]),
            lambda: chance.choice(words), lambda: chance.choice(words), lambda: chance.randrange(1000), lambda: [anything(depth + 1) for _ in range(3)],
            lambda: {name: anything(depth + 1) for name in chance.sample(names, 4)}, lambda: {name: anything(depth + 1) for name in chance.sample(names, 8)}][kind]()
    paths = [path for method, path, _ in ROUTES if method == "POST"]
    statuses = set()
    for _ in range(400):
        body = {name: anything() for name in chance.sample(names, chance.randrange(2, 12))}
        statuses.add(user.call("POST", chance.choice(paths), body, checked=False).status)
    assert statuses <= {200, 202, 400, 403, 404, 409, 429}, f"seed {seed}: {statuses}"
    with user.socket() as socket:
        for number in range(150):
            body = {name: anything() for name in chance.sample(names, chance.randrange(2, 12))}
            # What only says that a client is at work has no answer: hence one more, to know when it was read.
            socket.send(body)
            socket.send({"type": "state_change", "sessionId": f"marker-{number}", "data": {"newState": "idle"}})
            while (message := socket.receive()).get("sessionId") != f"marker-{number}":
                assert message["type"] in ("error", "pong", "accepted", "approval_response", "approval_timeout"), message
                assert message.get("code") not in ("storage_unavailable", "ledger_unavailable"), (body, message)
    user.close()


def test_the_log_holds(world):
    """Runs last: refusals are in it, a few for all of them, with their causes and without a word of what was sent."""
    eventually(lambda: world.state.jobs() == 0, what="the end of all pushes")
    time.sleep(1.5)
    log = ledger.read(world.state).check()
    refused = [entry for entry in log.entries if entry["op"] == "request.refused"]
    assert {"unauthorized", "forbidden"} <= {entry["cause"] for entry in refused}
    assert len({(entry["at"], entry["cause"]) for entry in refused}) == len(refused), "more than one entry a window and cause"
    verified = audit_verify(world.state)
    assert verified.returncode == 0, verified.stdout + verified.stderr
