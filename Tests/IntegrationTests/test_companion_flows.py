"""Each flow of the seed's document, by a client written from it. The pushes are checked field by field."""

import json
import re
import time
from secrets import token_hex

import pytest

import ledger
from companion_client import ContentState, Device, Notification, PushStatus, TodoProgress, date, decode_news
from companion_pushes import (check_activity_approval, check_activity_question, check_approval, check_clear_approval, check_clear_session,
                              check_end, check_handoff, check_question, check_task, check_update, content, seconds)
from companion_world import CompanionWorld, new_session
from mayfly import new_token
from processes import eventually, mayfly

DAY = 86_400
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
NAME = r"[A-Za-z0-9_-]{22}"


make_world = CompanionWorld


@pytest.fixture
def phone(world):
    phone = world.user()
    yield phone
    phone.close()


# The six push routes.

def test_register_a_device(world):
    phone = world.phone("user-" + token_hex(6))
    assert phone.status().expect(200).json == {"deviceTokenRegistered": False, "liveActivityTokens": []}
    answer = phone.register(phone.device.token, "development").expect(200).json
    assert set(answer) == {"success", "tokenId", "ref", "expiresAt", "handleKey"} and answer["success"] is True
    assert re.fullmatch(f"tok_{NAME}", answer["tokenId"]) and re.fullmatch(r"[0-9a-f]{32}", answer["ref"])
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", answer["handleKey"])
    assert MOMENT.fullmatch(answer["expiresAt"]) and 28 * DAY < seconds(answer["expiresAt"]) - time.time() <= 30 * DAY
    assert phone.status().expect(200).json == {"deviceTokenRegistered": True, "liveActivityTokens": []}
    # Again, as apps do at each start, and in capitals: the same.
    for token in (phone.device.token, phone.device.token.upper()):
        again = phone.register(token, "development").expect(200).json
        assert (again["tokenId"], again["handleKey"]) == (answer["tokenId"], answer["handleKey"])
    assert phone.register(new_token()).expect(200).json["tokenId"] != answer["tokenId"]
    sealed = eventually(lambda: ledger.read(world.state).of(answer["ref"]), what="the entry")
    assert [entry["op"] for entry in sealed] == ["token.sealed"]
    assert seconds(answer["expiresAt"]) <= seconds(sealed[0]["until"]) <= seconds(answer["expiresAt"]) + 300


def test_register_a_live_activity(world, phone):
    session, device = new_session(), Device()
    answer = phone.register_activity(device.token, "activity-123", session).expect(200).json
    assert set(answer) == {"success", "tokenId", "ref", "expiresAt", "handleKey"} and answer["success"] is True
    assert re.fullmatch(f"lat_{NAME}", answer["tokenId"])
    assert 10 * 3600 < seconds(answer["expiresAt"]) - time.time() <= 12 * 3600
    again = phone.register_activity(device.token, "activity-123", session).expect(200).json
    assert (again["tokenId"], again["handleKey"]) == (answer["tokenId"], answer["handleKey"])
    status = phone.status().expect(200).json
    registered = status["liveActivityTokens"][0]["registeredAt"]
    assert status == {"deviceTokenRegistered": True, "liveActivityTokens": [
        {"activityId": "activity-123", "sessionId": session, "registeredAt": registered}]}
    assert PushStatus.decode(status).liveActivityTokens[0][2] == seconds(registered) and abs(seconds(registered) - time.time()) < 10


def test_a_previous_token_is_destroyed(world, phone, back_end):
    session, before, other = new_session(), Device(), Device()
    before.answer = phone.register_activity(before.token, "activity", session).expect(200).json
    other.answer = phone.register_activity(other.token, "other", session).expect(200).json
    after = Device()
    after.answer = phone.register_activity(after.token, "activity", session, previous=before.token).expect(200).json
    listed = phone.status().expect(200).json["liveActivityTokens"]
    assert sorted(one["activityId"] for one in listed) == ["activity", "other"]
    assert back_end.event(session, "state_change", {"newState": "processing"}, phone.name).expect(202).json["pushes"] == 2
    check_update(phone.wait(1, after)[0], after, session, content("processing"))
    check_update(phone.wait(1, other)[0], other, session, content("processing"))
    purged = eventually(lambda: ledger.read(world.state).of(before.ref, "token.purged"), what="the purge")
    assert [entry["cause"] for entry in purged] == ["ended"]
    phone.wait(0, before)


@pytest.mark.parametrize("kind", ["device", "activity"])
def test_invalidate_a_token(world, phone, back_end, kind):
    session = new_session()
    device = phone.device if kind == "device" else phone.start_activity(session)
    assert phone.delete_token(device.id).expect(200).json == {"success": True}
    phone.delete_token(device.id).expect(404, "token_not_found")
    status = phone.status().expect(200).json
    assert status == {"deviceTokenRegistered": kind != "device", "liveActivityTokens": []}
    back_end.event(session, "approval_request", {}, phone.name).expect(202)
    phone.wait(int(kind != "device"))
    phone.wait(0, device)
    # The same token again is another registration.
    if kind == "device":
        assert phone.register(device.token).expect(200).json["tokenId"] != device.id


def test_clear_approval(world, phone, back_end):
    """By an app with its own way to answer: two of three phones are told."""
    others = [world.phone(phone.name).log_in() for _ in range(2)]
    request = back_end.event(new_session(), "approval_request", {}, phone.name).expect(202).json["requestId"]
    # A push that waits for Apple would be replaced.
    for one in (phone, *others):
        one.wait(1)
    assert phone.clear_approval(request, phone.device.token).expect(200).json == {"success": True, "devicesNotified": 2}
    for other in others:
        check_clear_approval(other.wait(2)[1], other.device, request)
        assert other.screen() == [] and other.notification_center() == {request: "Answered elsewhere"}
        other.close()
    assert [note.type for note in phone.received()] == ["approval"]
    assert phone.clear_approval(request).expect(200).json == {"success": True, "devicesNotified": 3}
    check_clear_approval(phone.wait(2)[1], phone.device, request)
    # A token that isn't this user's registration excludes nobody.
    assert phone.clear_approval(request, new_token()).expect(200).json["devicesNotified"] == 3


def test_session_notifications_are_cleared(world, phone, back_end):
    session, elsewhere = new_session(), new_session()
    activity, kept = phone.start_activity(session), phone.start_activity(elsewhere)
    question = back_end.event(session, "question_asked", {"text": "?"}, phone.name).expect(202).json["requestId"]
    # What has not left is replaced by the clearing.
    phone.wait(1)
    phone.wait(1, activity)
    assert phone.clear_session(session).expect(200).json == {"success": True, "clearedCount": 2}
    pushes = phone.wait(2)
    check_question(pushes[0], phone.device, session, question)
    check_clear_session(pushes[1], phone.device, session)
    assert phone.screen() == []
    update, end = phone.wait(2, activity)
    check_activity_question(update, activity, session)
    check_end(end, activity, session)
    assert [one["sessionId"] for one in phone.status().json["liveActivityTokens"]] == [elsewhere]
    phone.wait(0, kept)
    assert phone.clear_session(session).expect(200).json == {"success": True, "clearedCount": 1}


# Events of a session.

# Promise: seed-companion
def test_approval_request(world, phone, back_end):
    session = new_session()
    activity, elsewhere = phone.start_activity(session), phone.start_activity(new_session())
    answer = back_end.event(session, "approval_request", {"toolName": "Bash", "summary": "rm -rf"}, phone.name).expect(202).json
    request, expires = answer["requestId"], seconds(answer["expiresAt"])
    assert answer == {
        "success": True, "requestId": request, "expiresAt": answer["expiresAt"], "pushes": 2, "dropped": ["data.summary", "data.toolName"]}
    assert re.fullmatch(NAME, request) and 54 < expires - time.time() <= 60
    check_approval(phone.wait(1)[0], phone.device, session, request, expires)
    check_activity_approval(phone.wait(1, activity)[0], activity, session, request)
    assert phone.state(session).approvalRequest.requestId == request
    phone.wait(0, elsewhere)
    assert phone.approval(request).expect(200).json == {
        "requestId": request, "sessionId": session, "status": "pending", "expiresAt": answer["expiresAt"]}
    assert back_end.approval(request).expect(200).json["status"] == "pending"


@pytest.mark.parametrize("approved", [True, False])
def test_answering_an_approval(world, phone, back_end, approved):
    session, other = new_session(), world.phone(phone.name).log_in()
    with back_end.socket() as socket:
        request = back_end.event(session, "approval_request", {}, phone.name).expect(202).json["requestId"]
        phone.wait(1)
        assert phone.respond(request, approved, phone.device.token).expect(200).json == {"success": True}
        assert socket.news("approval_response") == {
            "type": "approval_response", "requestId": request, "sessionId": session, "approved": approved}
    check_clear_approval(other.wait(2)[1], other.device, request)
    assert other.screen() == [] and len(phone.screen()) == 1, "the phone that answered takes its own away"
    assert phone.is_late(request)
    assert phone.badge() == other.badge() == 1, "the app of each phone sets its own badge"
    for caller in (phone, other, back_end):
        assert caller.approval(request).expect(200).json["status"] == ("approved" if approved else "denied")
    phone.wait(1)
    other.close()


def test_question(world, phone, back_end):
    session = new_session()
    activity = phone.start_activity(session)
    answer = back_end.event(session, "question_asked", {"text": "Which one?", "id": "q-1"}, phone.name).expect(202).json
    assert answer["pushes"] == 2 and answer["dropped"] == ["data.text"]
    note = check_question(phone.wait(1)[0], phone.device, session, phone.wait(1)[0]["payload"]["questionId"])
    assert re.fullmatch(NAME, note.info["questionId"])
    check_activity_question(phone.wait(1, activity)[0], activity, session)


TASKS = [
    ("task_complete", {"status": "success", "summary": "All 12 tests pass"}, True), ("task_complete", {"status": "error"}, False),
    ("task_complete", {}, False), ("claude-complete", {"status": "aborted"}, False), ("claude-complete", {"status": None}, False),
    ("task_complete", {"status": "completed"}, False), ("task_failed", {"summary": "No."}, False), ("claude-complete", {"status": "success"}, True)]


def test_task(world, back_end):
    ended = []
    for kind, data, success in TASKS:
        phone = world.user()
        ended.append(end_of_a_task(phone, back_end, kind, data, success))
        phone.close()
    for activity in ended:
        purged = eventually(lambda: ledger.read(world.state).of(activity.ref, "token.purged"), what="the purge")
        assert [entry["cause"] for entry in purged] == ["ended"]
        outcomes = eventually(lambda: ledger.read(world.state).outcomes(activity.ref), what="the outcome")
        assert [entry["op"] for entry in outcomes] == ["push.delivered"]


def end_of_a_task(phone, back_end, kind, data, success):
    """The phone's notification, and the end of the activity, whose token is gone."""
    session = new_session()
    activity, elsewhere = phone.start_activity(session), phone.start_activity(new_session())
    answer = back_end.event(session, kind, data, phone.name).expect(202).json
    assert answer["pushes"] == 2 and answer.get("dropped", []) == (["data.summary"] if "summary" in data else [])
    check_task(phone.wait(1)[0], phone.device, session, success)
    check_end(phone.wait(1, activity)[0], activity, session, success)
    assert phone.state(session).status == ("completed" if success else "error")
    # The activity's token is gone; another session's isn't.
    assert len(phone.status().json["liveActivityTokens"]) == 1
    phone.delete_token(activity.id).expect(404, "token_not_found")
    phone.wait(0, elsewhere)
    return activity


def test_progress(world, phone, back_end):
    session = new_session()
    activity = phone.start_activity(session)
    data = {"currentOperation": "Running tests...", "elapsedSeconds": 45,
            "todoProgress": {"completed": 2, "total": 5, "currentTask": "Add unit tests"}}
    answer = back_end.event(session, "progress_update", data, phone.name).expect(202).json
    assert answer == {"success": True, "pushes": 1, "dropped": ["data.currentOperation", "data.todoProgress.currentTask"]}
    check_update(phone.wait(1, activity)[0], activity, session, content("processing", elapsed=40, todo=(2, 5)))
    phone.wait(0)


def test_elapsed_seconds_continue(world, phone, back_end):
    """An event without them counts on from the last that had them, also after a restart."""
    session = new_session()
    activity = phone.start_activity(session)
    back_end.event(session, "progress_update", {"elapsedSeconds": 1234}, phone.name).expect(202)
    began = time.time() - 1234
    phone.wait(1, activity)
    # The activity's window is 15 seconds: another one of the session has its own.
    other = phone.start_activity(session, "another")
    back_end.event(session, "state_change", {"newState": "idle"}, phone.name).expect(202)
    state = ContentState.decode(phone.wait(1, other)[0]["payload"]["aps"]["content-state"])
    assert state.elapsedSeconds in (1230, 1240) and state.elapsedSeconds <= time.time() - began + 1


def test_a_back_end_may_choose_ids_of_approvals(world, phone, back_end):
    """The ids name approvals as long as the broker knows them."""
    session, other = new_session(), world.phone(phone.name).log_in()
    own = "approval-1767312123456-k3/x" + token_hex(4)
    answer = back_end.event(session, "approval_request", {"id": own, "toolName": "Bash"}, phone.name).expect(202).json
    assert answer["dropped"] == ["data.toolName"] and re.fullmatch(NAME, answer["requestId"])
    request = answer["requestId"]
    other.wait(1)
    assert phone.clear_approval(own, phone.device.token).expect(200).json == {"success": True, "devicesNotified": 1}
    check_clear_approval(other.wait(2)[1], other.device, request)
    for caller in (phone, back_end):
        assert caller.approval(own).expect(200).json == {
            "requestId": own, "sessionId": session, "status": "pending", "expiresAt": answer["expiresAt"]}
    stranger = world.user()
    assert stranger.clear_approval(own).expect(200).json == {"success": True, "devicesNotified": 0}
    stranger.approval(own).expect(404, "request_not_found")
    assert stranger.is_late(own) and not phone.is_late(own) and phone.is_late(own)
    assert back_end.approval(request).expect(200).json["status"] == "approved"
    # On the socket, and of a question.
    named = f"q-{token_hex(4)}"
    with phone.socket() as socket:
        back_end.event(session, "approval_request", {"requestId": named}, phone.name).expect(202)
        assert socket.ask({"type": "approval_response", "requestId": named, "approved": False}) == {
            "type": "accepted", "event": "approval_response", "requestId": named, "success": True}
    back_end.event(session, "question_asked", {"questionId": named + "?", "text": "?"}, phone.name).expect(202)
    assert phone.clear_approval(named + "?").expect(200).json["devicesNotified"] == 2
    for caller in (stranger, other):
        caller.close()


def test_open_sockets_hear_events_without_their_text(world, phone, back_end):
    """Those of the user only."""
    session, stranger = new_session(), world.user()
    with phone.socket() as screen, stranger.socket() as another:
        data = {"currentOperation": "Running tests...", "elapsedSeconds": 45,
                "todoProgress": {"completed": 2, "total": 5, "currentTask": "Add unit tests"}}
        back_end.event(session, "progress_update", data, phone.name).expect(202)
        assert decode_news(screen.receive()) == ("progress_update", session, 45, TodoProgress(2, 5, None))
        back_end.event(session, "state_change", {"previousState": "idle", "newState": "processing"}, phone.name).expect(202)
        assert decode_news(screen.receive()) == ("state_change", session, "idle", "processing")
        asked = back_end.event(session, "approval_request", {"toolName": "Bash", "summary": "rm -rf"}, phone.name).expect(202).json
        told = screen.receive()
        assert decode_news(told) == ("approval_request", session, asked["requestId"], date(asked["expiresAt"]))
        assert set(told) == {"type", "sessionId", "requestId", "expiresAt"}
        # A caller's own events come back too, before their answer.
        screen.send({"type": "state_change", "sessionId": session, "data": {"newState": "idle", "previousState": "my own words"}})
        assert decode_news(screen.receive()) == ("state_change", session, None, "idle")
        screen.expect("accepted")
        with pytest.raises(TimeoutError):
            another.receive(0.2)
    stranger.close()


def test_state_change(phone, back_end):
    for state in ("idle", "processing", "awaitingApproval", "awaitingAnswer", "completed", "error"):
        session = new_session()
        activity = phone.start_activity(session)
        answer = back_end.event(session, "state_change", {"previousState": "idle", "newState": state}, phone.name).expect(202).json
        assert answer == {"success": True, "pushes": 1}
        check_update(phone.wait(1, activity)[0], activity, session, content(state))


def test_a_users_own_jwt_may_send_events(world, phone):
    """The app's desktop has no back end's JWT."""
    for more in ({}, {"user": phone.name}):
        phone.event(new_session(), "task_complete", {"status": "success"}, **more).expect(202)
    phone.wait(2)


def test_a_repeated_event_happens_once(world, phone, back_end):
    session = new_session()
    first = back_end.event(session, "approval_request", {}, phone.name, eventId="event-1").expect(202).json
    again = back_end.event(session, "approval_request", {}, phone.name, eventId="event-1").expect(202).json
    # A repeat after a lost answer gets the same answer, and nobody is asked twice.
    assert again == {"success": True, "requestId": first["requestId"], "expiresAt": first["expiresAt"], "pushes": 0, "repeated": True}
    phone.wait(1)
    with back_end.socket() as socket:
        answer = socket.ask({"type": "approval_request", "sessionId": session, "userId": phone.name, "eventId": "event-1", "data": {}})
        assert (answer["requestId"], answer["repeated"]) == (first["requestId"], True)
    # The name counts within its session, and its user.
    assert "repeated" not in back_end.event(new_session(), "approval_request", {}, phone.name, eventId="event-1").expect(202).json
    other = world.user()
    assert "repeated" not in back_end.event(session, "approval_request", {}, other.name, eventId="event-1").expect(202).json
    assert [note.info["requestId"] for note in phone.received()][0] == first["requestId"]
    other.close()


def test_a_user_without_registrations_gets_no_push(back_end):
    answer = back_end.event(new_session(), "approval_request", {}, "nobody-" + token_hex(4)).expect(202).json
    assert answer["pushes"] == 0 and answer["requestId"]
    assert back_end.approval(answer["requestId"]).expect(200).json["status"] == "pending"


def test_a_token_unknown_to_apple_is_destroyed(world, phone, back_end):
    """With the first push to it. The user's other tokens and another user's registration of it stay."""
    session, other, device = new_session(), world.user(), phone.device
    activity = phone.start_activity(new_session())
    theirs = other.register(device.token).expect(200).json
    world.simulator.fault(next=[{"token": device.token, "reason": "Unregistered", "timestamp": int(time.time() * 1000) + 1000}])
    back_end.event(session, "question_asked", {}, phone.name).expect(202)
    purged = eventually(lambda: ledger.read(world.state).of(device.ref, "token.purged"), what="the purge")
    assert [entry["cause"] for entry in purged] == ["ended"]
    status = phone.status().json
    assert status["deviceTokenRegistered"] is False and len(status["liveActivityTokens"]) == 1
    phone.delete_token(device.id).expect(404, "token_not_found")
    phone.delete_token(activity.id).expect(200)
    assert back_end.event(session, "question_asked", {}, phone.name).expect(202).json["pushes"] == 0
    assert ledger.read(world.state).of(theirs["ref"], "token.purged") == [] and other.status().json["deviceTokenRegistered"] is True
    # A phone that gets its old token back is welcome.
    phone.device.answer = phone.register(device.token).expect(200).json
    back_end.event(session, "task_complete", {}, phone.name).expect(202)
    phone.wait(1)
    other.close()


# The same over a socket.

def test_events_over_a_socket(world, phone, back_end):
    session = new_session()
    activity = phone.start_activity(session)
    with back_end.socket() as socket, phone.socket() as screen:
        assert socket.ask({"type": "ping"}) == {"type": "pong"}
        answer = socket.ask({
            "type": "progress_update", "sessionId": session, "userId": phone.name, "eventId": "e-1",
            "data": {"currentOperation": "Running tests...", "elapsedSeconds": 45, "todoProgress": {"completed": 2, "total": 5}}})
        assert answer == {
            "type": "accepted", "event": "progress_update", "sessionId": session, "eventId": "e-1", "success": True, "pushes": 1,
            "dropped": ["data.currentOperation"]}
        check_update(phone.wait(1, activity)[0], activity, session, content("processing", elapsed=40, todo=(2, 5)))
        answer = socket.ask({"type": "approval_request", "sessionId": session, "userId": phone.name, "data": {"toolName": "Bash"}})
        request = answer["requestId"]
        assert answer["type"] == "accepted" and answer["dropped"] == ["data.toolName"]
        check_approval(phone.wait(1)[0], phone.device, session, request, seconds(answer["expiresAt"]))
        screen.send({"type": "approval_response", "requestId": request, "approved": True, "pushToken": phone.device.token})
        told = socket.news("approval_response")
        assert told == {"type": "approval_response", "requestId": request, "sessionId": session, "approved": True}
        answers = [screen.receive() for _ in range(4)]
        assert [answer["type"] for answer in answers[:2]] == ["progress_update", "approval_request"]
        assert {"type": "accepted", "event": "approval_response", "requestId": request, "success": True} in answers
        assert told in answers, "the user's other sockets hear of the answer"
        refused = screen.ask({"type": "approval_response", "requestId": request, "approved": False})
        assert (refused["type"], refused["code"], refused["error"]) == ("error", "request_not_found", "Request expired or not found")
        assert socket.ask({"type": "claude-complete", "sessionId": session, "userId": phone.name, "data": {"status": "success"}})["pushes"] == 2
    assert [note.type for note in map(Notification.decode, (push["payload"] for push in phone.wait(2)))] == ["approval", "complete"]
    check_end(phone.wait(2, activity)[1], activity, session)


def test_handoff(world, phone):
    """Phone, desktop, phone: the device that had the session releases it. A desktop without a push token is not told."""
    session, other = new_session(), world.phone(phone.name).log_in()
    with phone.socket() as here, other.socket() as there:
        claim = {"type": "activity", "sessionId": session}
        here.send(claim | {"deviceId": "iphone", "pushToken": phone.device.token})
        here.send(claim | {"deviceId": "iphone", "pushToken": phone.device.token})
        assert here.ask({"type": "ping"}) == {"type": "pong"}
        phone.wait(0)
        # Without a type, as a client may that only claims.
        there.send({"sessionId": session, "deviceId": "macbook", "clientType": "desktop"})
        check_handoff(phone.wait(1)[0], phone.device, session, "desktop")
        assert there.ask({"type": "ping"}) == {"type": "pong"}
        here.send(claim | {"deviceId": "iphone", "clientType": "ios", "pushToken": phone.device.token})
        assert here.ask({"type": "ping"}) == {"type": "pong"}
        there.send(claim | {"deviceId": "ipad", "pushToken": other.device.token})
        check_handoff(phone.wait(2)[1], phone.device, session, "ios")
        # Any message claims, an event too.
        here.send({"type": "state_change", "sessionId": session, "data": {"newState": "idle"}, "deviceId": "browser", "clientType": "web"})
        check_handoff(other.wait(1)[0], other.device, session, "web")
        here.send({"type": "ping", "sessionId": session, "deviceId": "iphone", "pushToken": phone.device.token})
        # An ended session can't be handed over.
        here.send({"type": "task_complete", "sessionId": session, "data": {}})
        phone.wait(3)
        there.send(claim | {"deviceId": "ipad", "pushToken": other.device.token})
        assert there.ask({"type": "ping"}) == {"type": "pong"}
    time.sleep(0.2)
    phone.wait(3)
    other.wait(2)
    other.close()


def test_the_drill_counts_what_opens_for_a_user(world, phone, back_end):
    """`mayfly drill` beside the running broker prints how much opens, with and without a name, and no content."""
    session = new_session()
    activity = phone.start_activity(session)
    request = back_end.event(session, "approval_request", {}, phone.name).expect(202).json["requestId"]

    def drill(*question):
        ran = mayfly("drill", *world.state.flags, *question)
        assert ran.returncode == 0, ran.stderr
        lines = ran.stdout.splitlines()
        assert "--json" in question or len(lines) <= 24 and max(map(len, lines)) <= 79, lines
        for secret in (phone.name, session, activity.token, phone.device.token, request, phone.device.answer["handleKey"]):
            assert secret not in ran.stdout + ran.stderr
        return "--json" in question and {
            each["subject"]: (each["held"], each["opens"], each["because"]) for each in json.loads(ran.stdout)["findings"]}
    assert drill("--user", phone.name, "--json") == {
        "devices": (1, 1, "by the user's name"), "live_activities": (1, 1, "with their names"), "phones": (0, 0, "none is registered"),
        "printer_devices": (0, 0, "none is registered"), "approvals": (1, 1, "1 pending"),
        "sessions": (None, 1, "by names that open; others can be tried")}
    drill("--user", phone.name)
    assert drill("--user", "nobody-", "--json").keys() == {"users"}

    # Earlier rows are still there; this user's come on top. The approval names the user, so the user's tokens open without a name.
    def everything():
        drill()
        return drill("--json")
    before = everything()
    assert before["audience_tokens"][1] >= 2 and before["users"][1] >= 1 and before["approvals"][1] >= 1 and before["sessions"][1] >= 1
    other = world.user()
    quiet = everything()
    assert quiet["audience_tokens"][:2] == (before["audience_tokens"][0] + 1, before["audience_tokens"][1])
    back_end.event(new_session(), "approval_request", {}, other.name, eventId=new_session()).expect(202)
    named = everything()
    for subject, held in {"audience_tokens": 0, "users": None, "approvals": 1, "activity_names": 0, "sessions": 1}.items():
        assert named[subject][0] == (None if held is None else quiet[subject][0] + held), subject
        assert named[subject][1] == quiet[subject][1] + (subject != "activity_names"), subject
    assert named["named_events"][:2] == (quiet["named_events"][0] + 1, 0)
    assert drill("--token", other.device.token, "--json")["audience_tokens"][1:] == (1, "one of those that open alone")
    assert drill("--token", new_token(), "--json")["audience_tokens"][1:] == (0, "only its owner recognises this one")
    other.close()


def test_the_log_verifies(world):
    """Runs last."""
    counts = world.whole_log().counts()
    assert counts["token.opened"] > 30 and counts["push.failed"] >= 1, counts
