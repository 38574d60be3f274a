"""Text in every field of every call and message is kept nowhere, since the companion uses none of it."""

import json
import time
from secrets import token_bytes, token_hex

import pytest

import ledger
from canary import Canaries
from companion_client import Caller, Device
from companion_world import CompanionWorld
from processes import eventually

pytestmark = pytest.mark.campaign


class Planted:
    """A different canary for each place."""

    def __init__(self):
        self.canaries, self.known = Canaries(), []

    def text(self, place):
        value = f"canary-{token_hex(10)}"
        self.canaries.add(place, value)
        return value

    def token(self, place):
        value = token_bytes(32)
        self.canaries.add(place, value)
        return value.hex()

    def is_not_in(self, answers):
        found = self.canaries.in_bytes(b"".join(answer.body + repr(answer.headers).encode() for answer in answers))
        assert not found, f"an answer contains {found}"

    def search(self, world, when):
        """Searches files, output, metrics and pushes, where only what is `known` may be. Returns the pushes."""
        found = [one for one in self.canaries.in_files(world.state.folder, world.state.prints) if one not in self.known]
        found += self.canaries.in_bytes(world.broker.metrics().encode()) if world.broker.running else []
        # A push contains no token. Its address is the token.
        pushes = [{**push, "token": ""} for push in world.simulator.pushes()]
        found += [f"{name} in a push" for name in self.canaries.in_bytes(json.dumps(pushes).encode())]
        assert not found, f"{when}: {found}"
        return pushes


def test_text_of_a_companion_is_kept_nowhere():
    """Each field of each call and message, names and paths too; in good and bad calls, before and after answers, timeouts, a kill and a stop."""
    with CompanionWorld(approvalSeconds=5, activityUpdateSeconds=1) as world:
        plant_and_search(world)


def plant_and_search(world):
    planted = Planted()
    text, token = planted.text, planted.token

    class More(dict):
        """Unknown fields, each with text, as text, number-like, nested and as a name."""
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
                   {"type": "approval_request", "sessionId": session, "data": {"requestId": text("own id") * 9}},
                   {"type": "question_asked", "sessionId": text("session") * 5, "data": {}},
                   {"type": "question_asked", "sessionId": session, "userId": text("another user")},
                   {"type": "progress_update", "sessionId": session, "data": {"elapsedSeconds": text("elapsed")}}]
        errors = [here.ask(message) for message in refused]
        here.connection.send(text("no JSON"))
        errors.append(here.receive())
        assert all(error["type"] == "error" for error in errors), errors
    call(phone, "POST", f"/api/approval/{requests[0]}/respond", {"approved": True, "deviceToken": device.token} | More("respond")).expect(200)
    call(phone, "POST", "/api/push/clear-approval", {"requestId": requests[0], "excludeDeviceToken": token("excluded token")} | More("clear"))
    call(phone, "POST", "/api/push/clear-approval", {"requestId": text("request id")}).expect(200)
    bad = [
        ("POST", "/api/push/register", {"deviceToken": text("device token") + "zz"}),
        ("POST", "/api/push/register", {"deviceToken": [token("token in a list")]}),
        ("POST", "/api/push/register", {"deviceToken": token("token of a wrong environment"), "environment": text("environment")}),
        ("POST", "/api/push/live-activity/register", {"activityToken": token("token without a session"), "activityId": text("activity")}),
        ("DELETE", f"/api/push/token/{text('token id')}", None), ("GET", f"/api/approval/{text('request id')}", None),
        ("POST", f"/api/approval/{text('request id')}/respond", {"approved": text("approved")}), ("GET", f"/api/push/{text('path')}", None),
        ("GET", f"/api/{text('path')}?token={token('token in a query')}", None),
        ("POST", path, {"type": text("type"), "userId": name}), ("POST", path, {"type": "question_asked", "userId": text("another user")}),
        ("POST", path, ('{"type":"question_asked","data":{"text":"' + text("cut short")).encode())]
    refused_calls = [call(phone, *one) for one in bad]
    assert all(answer.status >= 400 for answer in refused_calls), [answer.status for answer in refused_calls]
    planted.is_not_in(refused_calls)
    assert planted.canaries.in_bytes(json.dumps(errors).encode()) == []
    Caller(world.broker, world.users.token(text("user of a bad JWT")) + "x").status().expect(401)
    # The last update has waited for its window, and the log for its own.
    time.sleep(1.5)
    planted.search(world, "while the session lives")
    assert (world.state / "mayfly.sqlite-wal").stat().st_size > 0, "there is no log to look into"
    eventually(lambda: phone.approval(requests[1]).json["status"] == "timed_out", 10, 0.2, "the time-out")
    world.broker.kill()
    planted.search(world, "killed")
    world.broker.start()
    phone.close()
    back_end.close()
    call(phone, "DELETE", f"/api/push/session/{session}/notifications").expect(200)
    eventually(lambda: world.state.jobs() == 0, what="the end of all pushes")
    phone.delete_token(device.id).expect(200)
    time.sleep(1.5)
    kinds = {push["payload"].get("type", "activity") for push in planted.search(world, "after the session")}
    assert kinds == {"approval", "question", "clear_approval", "clear_session", "session_handoff", "activity"}
    assert world.broker.stop() == 0
    planted.search(world, "stopped")
    assert ledger.read(world.state).check().counts()["push.delivered"] > 5
    phone.close()
    back_end.close()
