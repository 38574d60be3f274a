"""The simulator against an independent APNs client, PyPI's aioapns. RulesTests, ProviderTokenTests and ReasonTests have what it refuses."""

import asyncio
import ssl
import time

import pytest
from aioapns import APNs, NotificationRequest, PushType
from aioapns.connection import APNsProductionClientProtocol

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
