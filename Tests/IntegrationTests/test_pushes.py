"""Pushes at Apple: their time, their content, and the effect of each answer."""

import json
import re
import time
from datetime import datetime

import pytest

import ledger
from apns_recorder import APNsRecorder
from canary import Canaries
from mayfly import Client, Socket, base64url_bytes, new_token
from processes import BUNDLE_ID, Broker, Simulator, eventually, mayfly
from world import World


def outcome(world, ref, seconds=8):
    """The one outcome of the one knock at this token, once it is in the ledger."""
    found = eventually(lambda: ledger.read(world.state).outcomes(ref), seconds, what=f"an outcome for {ref}")
    assert len(found) == 1, found
    return found[0]


def secrets_of(room):
    canaries = Canaries()
    canaries.add("room id", room.roomid, base64url_bytes(room.roomid))
    canaries.add("join code", room.code)
    for side in (room.creator, room.joiner):
        canaries.add("client id", side.client)
        canaries.add("member secret", side.member, base64url_bytes(side.member))
    return canaries


def check_push(push, room, side):
    expiry = datetime.fromisoformat(side.answer["expiresAt"].replace("Z", "+00:00")).timestamp()
    headers, payload = push["headers"], push["payload"]
    payload = json.loads(payload) if isinstance(payload, str) else payload
    handle = payload["roomId"]
    assert payload == {
        "aps": {"alert": {"body": "Your chat partner is waiting"}, "mutable-content": 1, "sound": "default"},
        "roomId": handle}
    assert len(handle) == 22 and len(base64url_bytes(handle)) == 16
    assert headers["apns-topic"] == BUNDLE_ID and headers["apns-push-type"] == "alert"
    assert headers["apns-priority"] == "10" and headers["apns-collapse-id"] == handle
    assert time.time() - 1 < int(headers["apns-expiration"]) <= expiry
    apns_id = headers["apns-id"]
    assert apns_id == apns_id.lower() and [len(part) for part in apns_id.split("-")] == [8, 4, 4, 4, 12]
    found = secrets_of(room).in_bytes(json.dumps({**push, "headers": {**headers, "authorization": ""}}).encode())
    assert not found, f"{found} in a push"
    return handle


def quickest(attempt):
    """The time of the quickest of three, since a machine may be busy for a moment, but not three times running."""
    return min(attempt() for _ in range(3))


@pytest.mark.parametrize("waiting", ["creator", "joiner"])
def test_push_within_350_ms(world, client, waiting):
    """From the join to the push at APNs. A quarter of a second is the wait after an accept."""
    def join():
        room = client.room()
        here, away = (room.joiner, room.creator) if waiting == "creator" else (room.creator, room.joiner)
        with Socket(world.broker) as socket:
            begin = time.monotonic()
            assert socket.join(room.roomid, here.client)["delivery"] == "queued"
            pushes = eventually(lambda: world.simulator.pushes(away.token), 5, 0.002, "the push")
            took = time.monotonic() - begin
        assert len(pushes) == 1
        check_push(pushes[0], room, away)
        assert outcome(world, away.ref)["status"] == 200
        assert not world.simulator.pushes(here.token)
        return took
    assert 0.25 < quickest(join) <= 0.35


def test_presence_call_pushes_too(world, client):
    def call():
        room = client.room()
        begin = time.monotonic()
        assert client.presence(room.roomid, room.joiner.client).expect(202).json == {"delivery": "queued"}
        push = eventually(lambda: world.simulator.pushes(room.creator.token), 5, 0.002, "the push")[0]
        took = time.monotonic() - begin
        check_push(push, room, room.creator)
        return took
    assert 0.25 < quickest(call) <= 0.35


def test_no_push_when_the_peer_is_present(world, client):
    room = client.room()
    with Socket(world.broker) as creator, Socket(world.broker) as joiner:
        assert creator.join(room.roomid, room.creator.client)["delivery"] == "queued"
        eventually(lambda: world.simulator.pushes(room.joiner.token), what="the push to the joiner, who is away")
        assert joiner.join(room.roomid, room.joiner.client)["delivery"] == "peer_present"
        with Socket(world.broker) as again:
            assert again.join(room.roomid, room.joiner.client)["delivery"] == "peer_present"
        time.sleep(0.5)
        assert world.simulator.pushes(room.creator.token) == []
        assert len(world.simulator.pushes(room.joiner.token)) == 1


def test_no_token_no_push(world, client):
    room = client.room(tokens=(False, True))
    with Socket(world.broker) as joiner:
        assert joiner.join(room.roomid, room.joiner.client)["delivery"] == "no_token"


# Promise: apple-learns-little
def test_a_token_in_capitals_is_the_same(world, client):
    """A handle shows neither the token nor the other side."""
    room = client.room()
    token = new_token()
    client.put_token(room.roomid, room.creator.client, token.upper()).expect(200)
    client.presence(room.roomid, room.joiner.client).expect(202)
    first = eventually(lambda: world.simulator.pushes(token), what="the push")[0]
    other = client.room()
    client.put_token(other.roomid, other.creator.client, token).expect(200)
    client.presence(other.roomid, other.joiner.client).expect(202)
    pushes = eventually(lambda: len(found := world.simulator.pushes(token)) == 2 and found, what="the other push")
    assert len({push["headers"]["apns-collapse-id"] for push in pushes}) == 2
    check_push(first, room, room.creator)


def test_unregistered_purges(world, client):
    room = client.room()
    world.simulator.fault(reason="Unregistered", timestamp=int(time.time() * 1000) + 1000)
    try:
        assert client.presence(room.roomid, room.joiner.client).expect(202).json == {"delivery": "queued"}
        failed = outcome(world, room.creator.ref)
    finally:
        world.simulator.fault()
    assert failed["op"] == "push.failed" and failed["status"] == 410 and failed["reason"] == "Unregistered"
    purged = eventually(lambda: ledger.read(world.state).of(room.creator.ref, "token.purged"), what="the purge")
    assert [entry["cause"] for entry in purged] == ["ended"]
    status = client.status(room.roomid).expect(200).json
    assert status["creatorHasToken"] is False and status["joinerHasToken"] is True
    assert world.simulator.pushes(room.creator.token) == []


def test_a_token_of_the_other_environment_is_reported():
    """The first one, to the operator: in the log, and by reason in the metrics. The token is in neither."""
    with World() as world:
        room = world.client().room()
        world.simulator.fault(next=[{"token": room.creator.token, "status": 400, "reason": "BadDeviceToken"}])
        assert world.client().presence(room.roomid, room.joiner.client).expect(202).json == {"delivery": "queued"}
        said = "refused a push to com.example.app with 400 BadDeviceToken: the token is invalid, or belongs to the other environment"
        eventually(lambda: said in world.broker.printed(), what="the warning")
        assert room.creator.token not in world.broker.printed()
        metrics = Client(world.broker.operator_port).send("GET", "/metrics").body.decode()
        assert re.search(r'^mayfly_pushes_refused_total\{reason="BadDeviceToken"\} [1-9]', metrics, re.M)


def test_a_ref_shows_what_became_of_its_token(world, client):
    """`mayfly audit show --ref`, for who has to show that a token was purged."""
    room = client.room()
    client.presence(room.roomid, room.joiner.client).expect(202)
    outcome(world, room.creator.ref)
    client.delete(room.roomid).expect(200)
    eventually(lambda: ledger.read(world.state).of(room.creator.ref, "token.purged"), what="the purge")
    shown = mayfly("audit", "show", world.state / "ledger", "--key", world.state.vkey, "--ref", room.creator.ref)
    assert shown.returncode == 0, shown.stderr
    places = [shown.stdout.index(step) for step in ("was sealed", "was opened", "accepted it", "was purged")]
    assert places == sorted(places), shown.stdout


def test_a_push_has_these_fields_in_this_order(state, processes):
    """As Apple's server reads them, for a broker that sends to Apple alone. Web Push must change none of it."""
    with APNsRecorder(state / "keys/simulator.pem", status=200) as recorder:
        broker = Broker(state, recorder.port)
        processes.append(broker)
        broker.start()
        client = Client(broker.port)
        for number in range(2):
            room = client.room()
            client.presence(room.roomid, room.joiner.client).expect(202)
            fields, body = recorder.whole_request(10)
            sent, handle = dict(fields), json.loads(body)["roomId"]
            own = [sent[name] for name in ("authorization", "apns-id", "apns-expiration")]
            assert fields == [
                (":method", "POST"), (":scheme", "https"), (":authority", f"127.0.0.1:{recorder.port}"),
                (":path", f"/3/device/{room.creator.token}"), ("authorization", own[0]), ("apns-topic", BUNDLE_ID),
                ("apns-push-type", "alert"), ("apns-priority", "10"), ("apns-id", own[1]), ("apns-expiration", own[2]),
                ("apns-collapse-id", handle)]
            # HPACK's table has no token, and only the first of the fields that never come again.
            unindexed = {field[0] for field in fields if not field.indexable}
            assert unindexed == {":path", "authorization"} | ({"apns-id", "apns-expiration", "apns-collapse-id"} if number else set())
            assert body == (
                b'{"aps":{"alert":{"body":"Your chat partner is waiting"},"mutable-content":1,"sound":"default"},'
                b'"roomId":"%s"}' % handle.encode())


def test_retry_has_the_same_apns_id(state, processes):
    """A server of h2's takes the request and closes without an answer. The simulator at the same address gets the retry."""
    with APNsRecorder(state / "keys/simulator.pem") as recorder:
        broker = Broker(state, recorder.port)
        processes.append(broker)
        broker.start()
        client = Client(broker.port)
        room = client.room()
        assert client.presence(room.roomid, room.joiner.client).expect(202).json == {"delivery": "queued"}
        lost = recorder.request(timeout=10)
    assert lost[":path"] == f"/3/device/{room.creator.token}"
    simulator = Simulator(state, port=recorder.port)
    processes.append(simulator)
    simulator.start()
    push = eventually(lambda: simulator.pushes(room.creator.token), 60, 0.1, "the push again")[0]
    for name in ("apns-id", "apns-collapse-id", "apns-topic", "apns-push-type", "apns-priority", "apns-expiration"):
        assert push["headers"][name] == lost[name], name
    delivered = eventually(lambda: ledger.read(state).outcomes(room.creator.ref), what="the outcome")
    assert [entry["op"] for entry in delivered] == ["push.delivered"]
