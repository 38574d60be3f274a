"""Each flow of the seed's document, by a client written from it. The pushes are checked field by field."""

import re
import time
from secrets import token_hex

import pytest

import ledger
from call_client import IncomingCall, new_call
from call_world import CallWorld
from companion_pushes import APNS_ID, HEADERS, seconds
from mayfly import base64url_bytes, new_token
from processes import BUNDLE_ID, eventually

DAY = 86_400
NAME = r"[A-Za-z0-9_-]{22}"


make_world = CallWorld


@pytest.fixture
def phone(world):
    phone = world.phone(contacts=["alice", "carol"]).launch()
    yield phone
    phone.close()


def check_push(push, phone, session, caller, kind, sent):
    """Checks Apple's rules for a VoIP push, and decodes it like the document's app."""
    headers, payload = push["headers"], push["payload"]
    assert set(headers) <= HEADERS, set(headers) - HEADERS
    assert headers["apns-topic"] == f"{BUNDLE_ID}.voip" and headers["apns-push-type"] == "voip" and headers["apns-priority"] == "10"
    assert APNS_ID.fullmatch(headers["apns-id"]) and headers["apns-collapse-id"] == phone.handle(session, "session")
    assert sent <= int(headers["apns-expiration"]) <= time.time() + 30, "Apple keeps it longer than a phone rings"
    assert payload == {
        "aps": {"content-available": 1}, "sessionId": phone.handle(session, "session"), "callerUid": phone.handle(caller, "uid"),
        "callType": kind}
    assert all(len(base64url_bytes(payload[name])) == 16 for name in ("sessionId", "callerUid"))
    return phone.incoming(push, [session])


# Promise: seed-calls
@pytest.mark.parametrize("kind", ["audio", "video"])
def test_a_phone_rings(world, service, phone, kind):
    session, sent = new_call(), time.time()
    answer = service.initiate(session, "alice", phone.uid, kind).expect(200)
    assert answer.json == {"success": True, "rang": 1, "dropped": ["data.initiator.name", "data.receiver.name"]}
    # It leaves at once: a phone that rings late is of no use.
    call = check_push(phone.wait(seconds=1)[0], phone, session, "alice", kind, sent)
    assert call == IncomingCall(session, "alice", kind == "video")
    # A caller who isn't in the contacts.
    service.initiate(new_call(), "a stranger", phone.uid).expect(200)
    assert phone.incoming(phone.wait(2)[1]).caller == "Unknown"
    outcomes = eventually(lambda: len(found := ledger.read(world.state).outcomes(phone.answer["ref"])) == 2 and found, 8, what="outcomes")
    assert [one["op"] for one in outcomes] == ["push.delivered"] * 2
    opened = ledger.read(world.state).of(phone.answer["ref"], "token.opened")
    assert [one["template"] for one in opened] == ["incoming_call"] * 2, opened


def test_register_a_phone(world, service):
    phone = world.phone()
    answer = phone.launch(environment="development").answer
    assert set(answer) == {"success", "tokenId", "ref", "expiresAt", "handleKey"} and answer["success"] is True
    assert re.fullmatch(f"voip_{NAME}", answer["tokenId"]) and re.fullmatch(r"[0-9a-f]{32}", answer["ref"])
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", answer["handleKey"])
    assert 29 * DAY - 5 < seconds(answer["expiresAt"]) - time.time() <= 30 * DAY
    # Again, as apps do at each launch, and in capitals: the same.
    assert phone.register_voip_token(environment="development").expect(200).json == answer
    assert phone.register_voip_token(token=phone.token.upper(), environment="development").expect(200).json == answer
    sealed = eventually(lambda: ledger.read(world.state).of(answer["ref"]), what="the entry")
    assert [entry["op"] for entry in sealed] == ["token.sealed"]
    # The document's body: no environment, and nothing else.
    second = phone.register_voip_token(token=new_token()).expect(200).json
    assert second["tokenId"] != answer["tokenId"] and second["handleKey"] != answer["handleKey"]
    assert service.initiate(new_call(), "alice", phone.uid).expect(200).json["rang"] == 2
    # The names of contacts are of no use to the broker.
    assert phone.register_voip_token(displayName="Bob", name="Bob").expect(200).json["dropped"] == ["displayName", "name"]
    phone.close()


def test_a_phone_is_removed(world, service, phone):
    others = [world.phone(phone.uid).launch() for _ in range(2)]
    assert phone.remove_voip_token(token=phone.token).expect(200).json == {"success": True, "purged": 1}
    assert phone.remove_voip_token(token=phone.token).expect(200).json == {"success": True, "purged": 0}
    assert service.initiate(new_call(), "alice", phone.uid).expect(200).json["rang"] == 2
    # A push that is still queued when its token goes is not sent.
    for other in others:
        other.wait(1)
    # An empty variable or a field of another name must not log all phones out.
    for other in ({}, {"token": None}, {"tokenId": "voip_1"}, {"deviceToken": phone.token}, {"all": False}, {"all": None}):
        missing = phone.call("DELETE", "/api/voip/token", {"uid": phone.uid} | other).expect(400, "missing_field", "token")
        assert missing.json["detail"] == "The field token is missing. Add it, or send all: true for all tokens of the uid."
    phone.remove_voip_token(all="yes").expect(400, "wrong_type", "all")
    phone.remove_voip_token(all=True, token=phone.token).expect(400, "out_of_range", "all")
    # Unknown fields are ignored.
    assert phone.remove_voip_token(all=True, token=None, tokenId="voip_1").expect(200).json == {"success": True, "purged": 2}
    assert service.initiate(new_call(), "alice", phone.uid).expect(200).json["rang"] == 0
    for other in others:
        purged = eventually(lambda: ledger.read(world.state).of(other.answer["ref"], "token.purged"), what="the purge")
        assert [entry["cause"] for entry in purged] == ["ended"]
        other.close()
    assert phone.pushes() == []


def test_a_new_token_replaces_the_old(world, service, phone):
    """PushKit gives the app another token. The phone rings once, by the new one."""
    old, handle_key = phone.token, phone.answer["handleKey"]
    phone.token = new_token()
    answer = phone.launch(previousToken=old).answer
    assert answer["handleKey"] == handle_key, "handles of contacts stay"
    assert service.initiate(new_call(), "alice", phone.uid).expect(200).json["rang"] == 1
    phone.wait(1)
    assert world.simulator.pushes(old) == []
    # A previous token that is unknown or another user's replaces nothing.
    other = world.phone().launch()
    phone.register_voip_token(previousToken=other.token).expect(200)
    phone.register_voip_token(previousToken=old).expect(200)
    phone.register_voip_token(previousToken=None).expect(200)
    assert service.initiate(new_call(), "alice", other.uid).expect(200).json["rang"] == 1
    phone.register_voip_token(previousToken="xyz").expect(400, "invalid_token", "previousToken")
    other.close()


def test_every_bad_field_is_listed(phone):
    body = {"uid": "", "token": "xyz", "previousToken": 7, "environment": "moon", "bundleId": ""}
    answer = phone.call("POST", "/api/voip/token", body).expect(400, "out_of_range", "uid").json
    assert sorted(answer["details"]) == sorted(body) and answer["details"]["uid"] == [answer["detail"]]
    answer = phone.call("DELETE", "/api/voip/token", {"token": "xyz"}).expect(400, "missing_field", "uid").json
    assert sorted(answer["details"]) == ["token", "uid"]


def test_null_counts_as_absent(phone):
    body = {"uid": phone.uid, "token": phone.token, "previousToken": None, "environment": None, "bundleId": None}
    phone.call("POST", "/api/voip/token", body).expect(200)


def test_another_users_phone_can_not_be_removed(world, service, phone):
    stranger, back_end = world.phone(), world.back_end()
    stranger.register_voip_token(uid=phone.uid).expect(403, "another_user")
    stranger.remove_voip_token(uid=phone.uid, all=True).expect(403, "another_user")
    stranger.remove_voip_token(uid=phone.uid, token=phone.token).expect(403, "another_user")
    assert service.initiate(new_call(), "alice", phone.uid).expect(200).json["rang"] == 1
    # An app's own back end may: it knows its users.
    body = {"uid": phone.uid, "token": new_token()}
    back_end.call("POST", "/api/voip/token", body).expect(200)
    assert service.initiate(new_call(), "alice", phone.uid).expect(200).json["rang"] == 2
    assert back_end.call("DELETE", "/api/voip/token", body).expect(200).json["purged"] == 1
    for caller in (stranger, back_end):
        caller.close()


def test_alert_and_call_tokens_are_separate(world, service, phone):
    """One user registers the same bytes for both. Neither gets the other's pushes or ends with it."""
    phone.call("POST", "/api/push/register", {"deviceToken": phone.token, "platform": "ios"}).expect(200)
    assert service.initiate(new_call(), "alice", phone.uid).expect(200).json["rang"] == 1
    back_end = world.back_end()
    event = {"userId": phone.uid, "type": "question_asked", "data": {}}
    assert back_end.call("POST", "/api/sessions/s/events", event).expect(202).json["pushes"] == 1
    eventually(lambda: len(phone.pushes()) == 2, what="both pushes")
    assert {push["headers"]["apns-push-type"] for push in phone.pushes()} == {"voip", "alert"}
    assert phone.remove_voip_token(all=True).expect(200).json["purged"] == 1
    assert back_end.call("POST", "/api/sessions/s/events", event).expect(202).json["pushes"] == 1
    assert phone.call("GET", "/api/push/status").expect(200).json["deviceTokenRegistered"] is True
    back_end.close()


def test_a_token_that_apple_no_longer_knows_is_purged(world, service, phone):
    other = world.phone(phone.uid).launch()
    world.simulator.fault(token=phone.token, status=410, reason="Unregistered", timestamp=int(time.time() * 1000) + 60_000)
    try:
        assert service.initiate(new_call(), "alice", phone.uid).expect(200).json["rang"] == 2
        other.wait(1)
        purged = eventually(lambda: ledger.read(world.state).of(phone.answer["ref"], "token.purged"), what="the purge")
        assert [entry["cause"] for entry in purged] == ["ended"]
    finally:
        world.simulator.fault()
    assert service.initiate(new_call(), "alice", phone.uid).expect(200).json["rang"] == 1
    other.close()


def test_a_webhook_does_not_wait_for_apple(world, service, phone):
    """While Apple is unavailable, the calling service gets its answer, and the phone rings later. The end of the call doesn't stop the push."""
    world.simulator.fault(token=phone.token, status=503, reason="ServiceUnavailable")
    try:
        session, begin = new_call(), time.monotonic()
        assert service.initiate(session, "alice", phone.uid).expect(200).json["rang"] == 1
        assert time.monotonic() - begin < 0.9
        time.sleep(0.5)
        assert phone.pushes() == []
        service.initiate(session, "alice", phone.uid, trigger="call_ended").expect(200)
    finally:
        world.simulator.fault()
    phone.wait(1, seconds=25)


def test_a_second_session_rings_again(service, phone):
    """The end of a call rings nobody."""
    first, second = new_call(), new_call()
    for session in (first, second):
        assert service.initiate(session, "alice", phone.uid).expect(200).json["rang"] == 1
        for trigger in ("call_ended", "call_rejected", "call_busy"):
            answer = service.initiate(session, "alice", phone.uid, trigger=trigger).expect(200)
            assert answer.json == {"success": True, "rang": 0, "ignored": "other_trigger"}
    assert {push["payload"]["sessionId"] for push in phone.wait(2)} == {phone.handle(session, "session") for session in (first, second)}


def test_pushes_of_one_call_share_only_their_time(world, service, phone):
    """As Apple sees them."""
    other = world.phone(phone.uid).launch()
    service.initiate(new_call(), "alice", phone.uid).expect(200)
    [first], [second] = phone.wait(), other.wait()
    for name in ("sessionId", "callerUid"):
        assert first["payload"][name] != second["payload"][name]
    assert first["headers"]["apns-collapse-id"] != second["headers"]["apns-collapse-id"]
    other.close()


BAD = [("wrong_type", "uid", 7), ("wrong_type", "uid", ["bob"]), ("missing_field", "uid", None), ("out_of_range", "uid", ""),
       ("out_of_range", "uid", "u" * 129), ("missing_field", "token", None), ("wrong_type", "token", 7), ("invalid_token", "token", "xyz"),
       ("invalid_token", "token", ""), ("invalid_token", "token", "ab" * 101), ("out_of_range", "environment", "staging"),
       ("wrong_type", "environment", 7), ("out_of_range", "bundleId", "")]


@pytest.mark.parametrize("code,field,value", BAD)
def test_bad_registrations(phone, code, field, value):
    body = {"uid": phone.uid, "token": "ab" * 32, "environment": "production"} | {field: value}
    phone.call("POST", "/api/voip/token", body).expect(400, code, field)
    # Of a deletion neither the app nor the environment is asked.
    if field in ("uid", "token"):
        phone.call("DELETE", "/api/voip/token", body).expect(400, code, field)


def test_a_registration_needs_a_jwt(world, phone):
    for method in ("POST", "DELETE"):
        body = {"uid": phone.uid, "token": phone.token}
        phone.call(method, "/api/voip/token", body, bearer=None).expect(401, "no_jwt")
        phone.call(method, "/api/voip/token", body, bearer=world.users.token(phone.uid, life=-60)).expect(401, "jwt_expired")
        phone.call(method, "/api/voip/token", body, bearer=phone.jwt[:-2] + "xx").expect(401, "invalid_jwt")
    phone.call("POST", "/api/voip/token", {"uid": phone.uid, "token": phone.token, "bundleId": "org.another.app"}).expect(400, "app_not_served")
    assert phone.remove_voip_token(all=True).expect(200).json["purged"] == 1


def test_a_topic_is_refused_as_bundle_id(service, phone):
    """No push could leave with that suffix. The phone still rings by its earlier registration."""
    phone.register_voip_token(bundleId=f"{BUNDLE_ID}.voip").expect(400, "app_not_served")
    assert service.initiate(new_call(), "alice", phone.uid).expect(200).json["rang"] == 1
    assert phone.wait()[0]["headers"]["apns-topic"] == f"{BUNDLE_ID}.voip"


def test_a_users_phones_are_limited_by_the_policy(world):
    phone = world.phone("user-" + token_hex(6))
    for _ in range(100):
        phone.register_voip_token(token=new_token()).expect(200)
    phone.register_voip_token().expect(409, "too_many_registrations")
    phone.remove_voip_token(all=True).expect(200)
    phone.launch()
    phone.close()
