"""The simulator against an APNs client that was not written here: PyPI's aioapns."""

import asyncio
import ssl
import time
from uuid import uuid4

import jwt
import pytest
from aioapns import APNs, NotificationRequest, PushType
from aioapns.connection import APNsProductionClientProtocol, JWTAuthorizationHeaderProvider

from mayfly import new_token
from processes import BUNDLE_ID, KEY_ID, TEAM_ID, Simulator, State

ALERT = {"aps": {"alert": {"body": "hello"}}}


@pytest.fixture(scope="module")
def simulator():
    state = State()
    simulator = Simulator(state)
    try:
        yield simulator.start()
    finally:
        simulator.kill()
        state.remove()


def send(simulator, requests, **client):
    """Sends through one aioapns client, one after the other; returns its results."""
    async def run():
        class Protocol(APNsProductionClientProtocol):
            APNS_SERVER, APNS_PORT = "127.0.0.1", simulator.port
        settings = {
            "key": (simulator.state / "keys/apns.p8").read_text(), "key_id": KEY_ID, "team_id": TEAM_ID,
            "topic": BUNDLE_ID, "ssl_context": ssl.create_default_context(cafile=simulator.state / "keys/simulator-ca.pem"),
            "err_func": quiet, "max_connection_attempts": 1}
        apns = APNs(**(settings | client))
        apns.pool.protocol_class = Protocol
        try:
            return [await asyncio.wait_for(apns.send_notification(request), 10) for request in requests]
        finally:
            apns.pool.close()

    async def quiet(request, result):
        pass
    return asyncio.run(run())


def request(token=None, message=ALERT, **more):
    more.setdefault("push_type", PushType.ALERT)
    return NotificationRequest(device_token=new_token() if token is None else token, message=message, **more)


GOOD = {
    "alert": dict(),
    "alert at priority 5": dict(priority=5),
    "kept for a day": dict(time_to_live=86400, priority=10),
    "one attempt": dict(time_to_live=0),
    "collapsing": dict(collapse_key="c" * 64),
    "background": dict(push_type=PushType.BACKGROUND, priority=5, message={"aps": {"content-available": 1}}),
    "voip": dict(push_type=PushType.VOIP, priority=10, apns_topic=BUNDLE_ID + ".voip", message={"aps": {}, "call": "x" * 4500}),
    "live activity": dict(
        push_type=PushType.LIVEACTIVITY, priority=10, apns_topic=BUNDLE_ID + ".push-type.liveactivity",
        message={"aps": {"timestamp": int(time.time()), "event": "update", "content-state": {"step": 1}}}),
    "short token": dict(token="ab"),
    "long token": dict(token="ab" * 100),
}


@pytest.mark.parametrize("name", ["alert", *(pytest.param(name, marks=pytest.mark.campaign) for name in GOOD if name != "alert")])
def test_good_push_is_accepted(simulator, name):
    one = request(**GOOD[name])
    (result,) = send(simulator, [one])
    assert result.is_successful, (result.status, result.description)
    assert result.notification_id == one.notification_id
    pushes = [push for push in simulator.pushes() if push["headers"]["apns-id"] == one.notification_id]
    assert [push["token"] for push in pushes] == [one.device_token]


def test_many_on_one_connection(simulator):
    requests = [request() for _ in range(50)]
    assert all(result.is_successful for result in send(simulator, requests))
    accepted = {push["token"] for push in simulator.pushes()}
    assert accepted >= {one.device_token for one in requests}


BAD = {
    "token is not hex": ("400", "BadDeviceToken", dict(token="not-a-token")),
    "token of odd length": ("400", "BadDeviceToken", dict(token="abc")),
    "token too long": ("400", "BadDeviceToken", dict(token="ab" * 101)),
    "priority unknown": ("400", "BadPriority", dict(priority=7)),
    "background in a hurry": ("400", "BadPriority", dict(
        push_type=PushType.BACKGROUND, priority=10, message={"aps": {"content-available": 1}})),
    "topic of another app": ("400", "TopicDisallowed", dict(apns_topic="com.example.other")),
    "collapse id of 65 bytes": ("400", "BadCollapseId", dict(collapse_key="c" * 65)),
    "collapse id of 66 bytes in 33 characters": ("400", "BadCollapseId", dict(collapse_key="é" * 33)),
    "payload over 4096 bytes": ("413", "PayloadTooLarge", dict(message={"aps": {"alert": "x" * 4096}})),
    "voip payload over 5120 bytes": ("413", "PayloadTooLarge", dict(
        push_type=PushType.VOIP, apns_topic=BUNDLE_ID + ".voip", message={"aps": {}, "x": "x" * 5120})),
}


@pytest.mark.campaign
@pytest.mark.parametrize("name", BAD)
def test_bad_push_is_refused_for_its_reason(simulator, name):
    status, reason, changes = BAD[name]
    before = len(simulator.pushes())
    one, good = request(**changes), request()
    # A good push first: the connection has its full number of streams, and lives on after the refusal.
    first, result, last = send(simulator, [request(), one, good])
    assert first.is_successful and last.is_successful
    assert (result.status, result.description) == (status, reason)
    assert len(simulator.pushes()) == before + 2


@pytest.mark.campaign
def test_wrong_provider(simulator):
    other = State()
    try:
        wrong_key = (other / "keys/apns.p8").read_text()
    finally:
        other.remove()
    for change in ({"key": wrong_key}, {"key_id": "XXXXXXXXXX"}, {"team_id": "XXXXXXXXXX"}):
        (result,) = send(simulator, [request()], **change)
        assert (result.status, result.description) == ("403", "InvalidProviderToken"), change


@pytest.mark.campaign
@pytest.mark.parametrize("age, reason", [(2 * 3600, "ExpiredProviderToken"), (-3600, "InvalidProviderToken")])
def test_provider_token_out_of_time(simulator, monkeypatch, age, reason):
    def stale(self):
        claims = {"iss": self.team_id, "iat": int(time.time()) - age}
        return "bearer " + jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": self.key_id})
    monkeypatch.setattr(JWTAuthorizationHeaderProvider, "get_header", stale)
    (result,) = send(simulator, [request()])
    assert (result.status, result.description) == ("403", reason)


@pytest.mark.campaign
def test_no_provider_token(simulator, monkeypatch):
    monkeypatch.setattr(JWTAuthorizationHeaderProvider, "get_header", lambda self: "")
    (result,) = send(simulator, [request()])
    assert (result.status, result.description) == ("403", "MissingProviderToken")


@pytest.mark.campaign
@pytest.mark.parametrize("status, reason", [
    ("410", "Unregistered"), ("429", "TooManyRequests"), ("503", "ServiceUnavailable"), ("500", "InternalServerError")])
def test_faults_on_demand(simulator, status, reason):
    simulator.fault(reason=reason)
    try:
        (result,) = send(simulator, [request()])
    finally:
        simulator.fault()
    assert (result.status, result.description) == (status, reason)
    if status == "410":
        assert int(result.timestamp) > 1_500_000_000_000, "milliseconds"
    assert send(simulator, [request()])[0].is_successful


@pytest.mark.campaign
def test_forgetting(simulator):
    one = request(notification_id=str(uuid4()))
    send(simulator, [one])
    assert simulator.pushes(one.device_token)
    simulator.forget()
    assert simulator.pushes() == []
