"""Text in every field of every call and webhook, found nowhere: nothing that anybody is called is of use for a phone to ring."""

import json
import time

import pytest

import ledger
from call_world import CallWorld
from companion_client import Caller
from processes import eventually
from test_companion_text import Planted

pytestmark = pytest.mark.campaign


def test_text_of_calls_is_kept_nowhere():
    """Names of people, users and sessions, and the webhooks' secret; in good and bad calls, before and after a kill and a stop."""
    with CallWorld() as world:
        plant_and_search(world)


def plant_and_search(world):
    planted = Planted()
    text, token = planted.text, planted.token
    planted.canaries.add("the webhooks' secret", world.secret)
    # The broker reads it from there.
    planted.known = [f"the webhooks' secret in {world.state / 'keys/webhook.secret'}"]

    class More(dict):
        """Unknown fields, each with text, as text, nested and as a name."""
        def __init__(self, call):
            super().__init__({name: text(f"{call} {name}") for name in (
                "platform", "title", "body", "message", "fileName", "url", "name", "displayName", "avatar", "unknown")})
            self[text(f"{call}, a name")] = [text(f"{call} in a list"), {text(f"{call}, a name inside"): text(f"{call} inside")}]

    uid, caller = text("uid"), text("caller's uid")
    phone, service = world.phone(uid), world.service()
    phone.jwt, phone.token = world.users.token(uid, name=text("JWT name")), token("PushKit token")
    phone.answer = phone.call("POST", "/api/voip/token", {"uid": uid, "token": phone.token} | More("register")).expect(200).json
    planted.canaries.add("handle key", phone.answer["handleKey"])

    def body(session, **data):
        return {"trigger": "call_initiated", "data": {
            "id": text("id"), "sessionId": session, "type": "video", "initiator": {"uid": caller} | More("initiator"),
            "receiver": {"uid": uid} | More("receiver"), "receiverType": "user"} | More("data") | data} | More("webhook")

    def webhook(body, **more):
        return service.send(body if isinstance(body, bytes) else json.dumps(body).encode(), **more)
    session = text("session")
    assert webhook(body(session)).expect(200).json["rang"] == 1
    assert webhook(body(session)).expect(200).json["repeated"] is True
    assert webhook(body(text("session of another"), receiver={"uid": text("nobody's uid")})).expect(200).json["rang"] == 0
    assert webhook(body(session) | {"trigger": text("trigger")}).expect(200).json["rang"] == 0
    signed = json.dumps(body(session)).encode()
    ignored = [webhook(body(session, receiverType=text("receiver type"))).expect(200), webhook(body(session, type=text("type"))).expect(200)]
    assert [answer.json["ignored"] for answer in ignored] == ["group_call", "unknown_type"]
    refused = [
        webhook(body(text("session") * 5)), webhook(body(session, receiver=text("receiver"))), webhook(body(session, initiator={text("a name"): 1})),
        webhook(signed, signature=text("signature")), webhook(signed, signature=""), webhook(signed[:-1]), webhook(text("no JSON").encode()),
        phone.call("POST", "/api/voip/token", {"uid": text("another's uid"), "token": token("token for another")}),
        phone.call("POST", "/api/voip/token", {"uid": uid, "token": text("no token")}),
        phone.call("POST", "/api/voip/token", {"uid": uid, "token": token("with a bad environment"), "environment": text("environment")}),
        phone.call("POST", "/api/voip/token", {"uid": uid, "token": token("of another app"), "bundleId": text("bundle id")}),
        phone.call("DELETE", "/api/voip/token", {"uid": text("another's uid")}), phone.call("DELETE", "/api/voip/token", {"uid": uid, "token": text("no token")}),
        phone.call("POST", f"/api/voip/{text('path')}", {}), service.http.send("POST", f"/webhooks/{text('path')}?token={token('query')}", {})]
    assert all(answer.status >= 400 for answer in refused), [answer.status for answer in refused]
    planted.is_not_in(refused + ignored)
    Caller(world.broker, world.users.token(text("user of a bad JWT")) + "x").call("DELETE", "/api/voip/token", {}).expect(401)
    phone.wait(1)
    time.sleep(1.5)
    planted.search(world, "while the phone is registered")
    world.broker.kill()
    planted.search(world, "killed")
    world.broker.start()
    for one in (phone, service):
        one.close()
    assert webhook(body(session)).expect(200).json["repeated"] is True
    eventually(lambda: world.state.jobs() == 0, what="the end of all pushes")
    assert phone.remove_voip_token(all=True).expect(200).json["purged"] == 1
    for one in (phone, service):
        one.close()
    assert world.broker.stop() == 0
    planted.search(world, "stopped")
    assert planted.canaries.in_files(world.state / "keys") == planted.known, "the search is blind"
    assert ledger.read(world.state).check().counts()["push.delivered"] == 1
