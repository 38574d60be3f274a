"""Bad input to the companion: each its exact answer, nothing stored and nothing pushed. JWTs: test_companion_jwts.py."""

import http.client
import json
import random
import threading
from secrets import token_hex

import pytest

from companion_client import NEWS, SessionSocket
from companion_pushes import check_approval, check_end, check_task, check_update, content, seconds
from companion_world import ROUTES, UNKNOWN, CompanionWorld, new_session
from mayfly import new_token
from processes import BUNDLE_ID

ABSENT = type("Absent", (), {"__repr__": lambda self: "absent"})()


make_world = CompanionWorld


@pytest.fixture(scope="module")
def phone(world):
    phone = world.user()
    phone.start_activity("a-session")
    yield phone
    phone.close()


# Values of fields.

def text_field(field, most=128):
    return [("wrong_type", field, bad) for bad in (7, 1.5, True, [], ["x"], {}, {"x": 1})] + [
        ("out_of_range", field, bad) for bad in ("", "x" * (most + 1), "é" * (most // 2 + 1))]


def token_field(field):
    return [("wrong_type", field, bad) for bad in (7, True, ["ab"])] + [
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
        missing("activityToken") + token_field("activityToken") + [("wrong_type", "activityToken", {"endpoint": "https://a.example/"})]
        + [("wrong_type", "previousToken", {"endpoint": "https://a.example/"})] + missing("activityId") + text_field("activityId") + missing("sessionId")
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


def test_duplicate_names_are_refused(phone, nothing_kept):
    twice = b'{"type":"progress_update","data":{"elapsedSeconds":10,"elapsedSeconds":20}}'
    phone.call("POST", "/api/sessions/s/events", twice).expect(400, "malformed_json")
    twice = b'{"type":"progress_update","data":{"todoProgress":{"completed":1,"completed":2,"total":3}}}'
    assert phone.call("POST", "/api/sessions/s/events", twice).status == 400


# Promise: body-limit
def test_bodies_over_their_limit(phone, nothing_kept):
    """16 KiB; 256 KiB for events."""
    for size in (16_400, 262_144):
        body = json.dumps({"type": "question_asked", "data": {"text": "x" * size}}).encode()
        for method, path, _ in ROUTES:
            if method == "POST" and (size > 16_400 or not path.endswith("/events")):
                phone.call(method, path, body).expect(413, "body_too_large")


# Values of `toolInput` that are dropped, whatever they are.
CONTENT = {
    "16 levels": "[" * 16 + "]" * 16, "100,000 levels": "[" * 100_000 + "]" * 100_000, "20,000 objects": '{"a":' * 20_000 + "1" + "}" * 20_000, "20 KiB": json.dumps("x" * 20_480),
    "half an emoji": r'"\ud83d"', "half an emoji in a name": r'{"\ude00":1}', "repeated names": '{"a":1,"a":2}', "256 KiB": json.dumps("x" * 261_000)}


# Promise: content-dropped
@pytest.mark.parametrize("name", CONTENT)
def test_content_of_events_is_dropped_unread(phone, name):
    event = lambda more: f'{{"type":"state_change",{more}"data":{{"newState":"idle","toolInput":{CONTENT[name]}}}}}'.encode()
    assert phone.call("POST", "/api/sessions/s/events", event("")).expect(202).json["dropped"] == ["data.toolInput"]
    with phone.socket() as socket:
        socket.connection.send(event('"sessionId":"s",').decode())
        while (answer := socket.receive())["type"] in NEWS:
            pass
        assert answer["type"] == "accepted" and answer["dropped"] == ["data.toolInput"]


def test_a_body_of_many_names_gets_a_short_answer(phone):
    many = ',"":0' * 50_000
    event = lambda more: f'{{"type":"progress_update",{more}"data":{{"todoProgress":{{"completed":1,"total":2{many}}}}}}}'
    answer = phone.call("POST", "/api/sessions/s/events", event("").encode()).expect(202)
    assert answer.json["dropped"] == ["data.todoProgress.*"]
    with phone.socket() as socket:
        socket.connection.send(event('"sessionId":"s",'))
        while (answer := socket.receive())["type"] in NEWS:
            pass
        assert answer["type"] == "accepted" and answer["dropped"] == ["data.todoProgress.*"]


def test_a_body_of_256_kib_is_accepted_in_any_framing(phone):
    head, tail = b'{"type":"state_change","data":{"newState":"idle","toolInput":"', b'"}}'
    whole = head + b"x" * (262_144 - len(head) - len(tail)) + tail
    phone.call("POST", "/api/sessions/s/events", whole).expect(202)
    phone.call("POST", "/api/sessions/s/events", whole + b" ").expect(413, "body_too_large")
    for body, status in ((whole, 202), (whole + b" ", 413)):
        connection = http.client.HTTPConnection("127.0.0.1", phone.broker.port, timeout=10)
        parts = (body[at:at + 9_000] for at in range(0, len(body), 9_000))
        connection.request("POST", "/api/sessions/s/events", parts, {"Authorization": f"Bearer {phone.jwt}"}, encode_chunked=True)
        assert connection.getresponse().status == status
        connection.close()


def test_messages_over_their_limit(world, phone):
    """16 KiB before authentication, then 256 KiB."""
    with SessionSocket(world.broker) as socket:
        socket.send({"type": "auth", "token": phone.jwt, "note": "x" * 16_384})
        assert socket.closed()[0] == 1009
    with phone.socket() as socket:
        for _ in range(20):
            socket.send({"type": "ping", "note": "x" * 262_000})
        for _ in range(20):
            socket.expect("pong")
        socket.send({"type": "ping", "note": "x" * 262_144})
        assert socket.closed()[0] == 1009


PROGRESS = [
    ("wrong_type", "data.elapsedSeconds", {"elapsedSeconds": bad}) for bad in ("45", True, [45], {})] + [
    ("out_of_range", "data.elapsedSeconds", {"elapsedSeconds": bad}) for bad in (-1, -0.5, 86_401, 2**31, 2**63, 2**64, -(2**63), 10**300, 1e300)] + [
    ("wrong_type", "data.todoProgress", {"todoProgress": bad}) for bad in (1, "2/5", [2, 5], True)] + [
    ("missing_field", "data.todoProgress.total", {"todoProgress": {"completed": 1}}),
    ("missing_field", "data.todoProgress.completed", {"todoProgress": {"total": 1}})] + [
    ("wrong_type", f"data.todoProgress.{name}", {"todoProgress": {"completed": 1, "total": 1} | {name: bad}})
    for name in ("completed", "total") for bad in ("1", 1.5, True, [], {})] + [
    ("out_of_range", f"data.todoProgress.{name}", {"todoProgress": {"completed": 1, "total": 1} | {name: bad}})
    for name in ("completed", "total") for bad in (-1, 1000, 2**63, 10**40)] + [
    ("out_of_range", "data.todoProgress.completed", {"todoProgress": {"completed": done, "total": total}}) for done, total in ((1, 0), (4, 3))]
STATES = [("missing_field", "data.newState", {}), ("missing_field", "data.newState", {"newState": None})] + [
    ("wrong_type", "data.newState", {"newState": bad}) for bad in (1, True, ["idle"], {})] + [
    ("out_of_range", "data.newState", {"newState": bad}) for bad in ("", "Idle", "idle ", "flying", "x" * 4000)]
OWN_IDS = [("wrong_type", "data.requestId", {"requestId": bad}) for bad in (1, True, [], {})] + [
    ("out_of_range", "data.requestId", {"requestId": bad}) for bad in ("", "x" * 129)] + [("wrong_type", "data.id", {"id": 7})]


@pytest.mark.parametrize("over", ["http", "socket"])
@pytest.mark.parametrize("kind, wrong", [
    ("progress_update", PROGRESS), ("state_change", STATES), ("approval_request", OWN_IDS)])
def test_bad_event_data_is_refused(world, phone, nothing_kept, kind, wrong, over):
    """For a session with a Live Activity and for one without."""
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


def test_sessions_in_paths(phone, nothing_kept):
    for name, (session, status) in SESSIONS_OF_PATHS.items():
        for answer in (phone.event(session, "question_asked", {}), phone.clear_session(session)):
            assert answer.status in (status if isinstance(status, tuple) else (status,)), (name, answer.body)
            assert answer.code in ("out_of_range", "not_found"), name


def test_a_session_has_one_name_in_every_encoding(phone):
    """In a path, percent-encoded, in a body and in a message. A slash and a percent sign are part of the name."""
    session = "a/b %é" + token_hex(4)
    encoded = session.replace("%", "%25").replace("/", "%2F").replace(" ", "%20").replace("é", "%C3%A9")
    activity = phone.start_activity(session)
    assert phone.event(encoded, "state_change", {"newState": "idle"}).expect(202).json["pushes"] == 1
    check_update(phone.wait(1, activity)[0], activity, session, content("idle"))
    with phone.socket() as socket:
        assert socket.ask({"type": "task_complete", "sessionId": session, "data": {"status": "success"}})["pushes"] == 2
    check_end(phone.wait(2, activity)[1], activity, session)


def test_unknown_methods_and_paths_are_refused(phone, nothing_kept):
    for method, path, body in ROUTES:
        for wrong in {"GET", "POST", "PUT", "DELETE"} - {method}:
            phone.call(wrong, path, body if wrong != "GET" else None).expect(405, "method_not_allowed")
    for path in ("/api/push/", "/api/push/token", "/api/push/token/", "/api/push/token/a/b", "/api/approval", "/api/sessions/s",
                 "/api/sessions/s/events/1", "/api/push/session/s", "/api/push/session/s/notifications/", "/api/Push/status"):
        answer = phone.call("GET", path)
        assert answer.status in (404, 405), (path, answer)


# Ids.

BAD_IDS = [UNKNOWN, "", "x", "A" * 21, "A" * 23, "A" * 400, "*" * 22, "..", "%00" * 22, "1", "approval-123", "A" * 21 + "B"]


def test_unknown_ids_are_not_found(phone, nothing_kept):
    for bad in BAD_IDS:
        if bad:
            assert phone.is_late(bad)
            phone.approval(bad).expect(404, "request_not_found")
        assert phone.clear_approval(bad).expect(200).json == {"success": True, "devicesNotified": 0}
        for prefix in ("tok_", "lat_", "") if bad != ".." else ("tok_",):
            if prefix + bad:
                phone.delete_token(prefix + bad).expect(404, "token_not_found")
    with phone.socket() as socket:
        for bad in BAD_IDS:
            answer = socket.ask({"type": "approval_response", "requestId": bad, "approved": True})
            assert (answer["type"], answer["code"]) == ("error", "request_not_found"), (bad, answer)
            assert answer["error"] == "Request expired or not found"


def test_each_error_names_its_message(phone, nothing_kept):
    """`to` distinguishes several messages under way, and contains nothing that the client made up."""
    messages = [
        ({"type": "approval_response", "requestId": UNKNOWN, "approved": True}, "approval_response"),
        ({"type": "my own words", "deviceId": "d"}, "claim"), ({"type": "progress_update", "sessionId": "s", "data": 7}, "progress_update"),
        ({"type": "my own words", "sessionId": "s"}, None), ({"type": "task_failed", "deviceId": "d"}, "task_failed"), ({}, None)]
    with phone.socket() as socket:
        for message, _ in messages:
            socket.send(message)
        answers = [socket.expect("error") for _ in messages]
    assert [answer.get("to") for answer in answers] == [name for _, name in messages]
    assert "my own words" not in str(answers)


def test_a_topic_is_refused_as_bundle_id(world, phone, nothing_kept):
    """No push could leave with that suffix. An earlier registration stays."""
    activity = phone.activities["a-session"]
    topic = f"{BUNDLE_ID}.push-type.liveactivity"
    for token in (activity.token, new_token()):
        phone.register_activity(token, "activity-of-a-session", "a-session", bundleId=topic).expect(400, "app_not_served")
    phone.register(new_token(), bundleId=topic).expect(400, "app_not_served")


def test_a_question_can_not_be_approved(phone, back_end):
    question = back_end.event(new_session(), "question_asked", {}, phone.name).expect(202).json["requestId"]
    assert phone.is_late(question)
    assert phone.clear_approval(question).expect(200).json["devicesNotified"] == 0


def test_the_first_of_many_answers_counts(world, back_end):
    """A hundred at a time."""
    user = world.user()
    answer = back_end.event(new_session(), "approval_request", {}, user.name).expect(202).json
    # A push that has not left when its approval ends is not sent.
    user.wait(1)
    said = []

    def answer_often(number):
        caller = world.phone(user.name)
        for _ in range(20):
            said.append((caller.is_late(answer["requestId"], number % 2 == 0), number % 2 == 0))
        caller.close()
    threads = [threading.Thread(target=answer_often, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(is_late for is_late, _ in said) == [False] + [True] * 99
    approved = next(approved for is_late, approved in said if not is_late)
    assert user.approval(answer["requestId"]).json["status"] == ("approved" if approved else "denied")
    user.wait(2)
    user.close()


# Order.

def test_events_out_of_order_are_pushed_as_they_come(world, back_end):
    """An end before any start, events after an end, and a second end, without an activity."""
    user, session = world.user(), new_session()

    def event(kind, data={}):
        return back_end.event(session, kind, data, user.name).expect(202).json
    assert event("task_complete", {"status": "error"})["pushes"] == 1
    # A push that has not left is replaced by the next one of its session.
    user.wait(1)
    assert event("progress_update", {"elapsedSeconds": 10})["pushes"] == 0
    assert event("state_change", {"newState": "processing"})["pushes"] == 0
    activity = user.start_activity(session)
    assert event("task_failed")["pushes"] == 2
    check_end(user.wait(1, activity)[0], activity, session, success=False)
    user.wait(2)
    for kind, data in (("progress_update", {"elapsedSeconds": 20}), ("state_change", {"newState": "idle"})):
        assert event(kind, data)["pushes"] == 0
    assert event("claude-complete", {"status": "success"})["pushes"] == 1
    user.wait(3)
    asked = event("approval_request")
    assert asked["pushes"] == 1
    pushes = user.wait(4)
    for push, success in zip(pushes, (False, False, True)):
        check_task(push, user.device, session, success)
    check_approval(pushes[3], user.device, session, asked["requestId"], seconds(asked["expiresAt"]))
    # Its session is over, and the approval is still to be answered.
    assert event("task_complete")["pushes"] == 1
    user.respond(asked["requestId"], True, user.device.token).expect(200)
    # The same activity again, which starts over.
    again = user.start_activity(session)
    event("progress_update", {"elapsedSeconds": 30, "todoProgress": {"completed": 2, "total": 2}})
    check_update(user.wait(1, again)[0], again, session, content("processing", elapsed=30, todo=(2, 2)))
    user.wait(1, activity)
    user.close()


# Anything at all.

@pytest.mark.campaign
def test_random_bodies_and_messages_are_answered(world, phone):
    """None with a 5xx, and the socket stays open."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    user = world.phone("fuzzer-" + token_hex(4))
    names = [
        "type", "data", "sessionId", "userId", "eventId", "requestId", "approved", "deviceToken", "activityToken", "activityId", "previousToken",
        "excludeDeviceToken", "environment", "bundleId", "pushToken", "deviceId", "clientType", "token", "elapsedSeconds", "todoProgress",
        "newState"]
    words = [
        "approval_request", "progress_update", "state_change", "task_complete", "ping", "ios", "desktop", "sandbox", "idle", user.name, "s",
        "ab" * 32, UNKNOWN, "", "\0", "é" * 64, "\u202e", "a" * 129]

    def fields(count, depth=0):
        return {name: anything(depth + 1) for name in chance.sample(names, count)}

    def anything(depth):
        kind = chance.randrange(9 if depth < 3 else 6)
        if kind < 3:
            return chance.choice(words)
        if kind < 6:
            return chance.choice([0, -1, 1, 45, 2**63, 10**30, 1.5, -0.0, 1e300, True, False, None, chance.randrange(1000)])
        return [anything(depth + 1) for _ in range(3)] if kind == 6 else fields(4 * (kind - 6), depth)
    paths = [path for method, path, _ in ROUTES if method == "POST"]
    statuses = set()
    for _ in range(400):
        body = fields(chance.randrange(2, 12))
        statuses.add(user.call("POST", chance.choice(paths), body, checked=False).status)
    assert statuses <= {200, 202, 400, 403, 404, 409, 413, 429}, f"seed {seed}: {statuses}"
    with user.socket() as socket:
        for number in range(150):
            body = fields(chance.randrange(2, 12))
            # A client's activity has no answer, so another message shows when it was read.
            socket.send(body)
            socket.send({"type": "state_change", "sessionId": f"marker-{number}", "data": {"newState": "idle"}})
            while (message := socket.receive()).get("sessionId") != f"marker-{number}" or message["type"] != "accepted":
                assert message["type"] in ("error", "pong", "accepted", *NEWS), message
                assert message.get("code") not in ("storage_unavailable", "ledger_unavailable"), (body, message)
    user.close()
