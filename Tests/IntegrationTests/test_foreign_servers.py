"""Independent servers, Debian's nghttpd and PyPI's h2, receive the broker's pushes. Each push is checked by Apple's rules."""

import base64
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

import ledger
from canary import Canaries
from foreign_apns import H2Server, Nghttpd
from mayfly import Client, base64url_bytes
from processes import BUNDLE_ID, KEY_ID, TEAM_ID, Broker, eventually

REQUIRED = {
    ":method", ":scheme", ":authority", ":path", "authorization", "apns-topic", "apns-push-type", "apns-priority", "apns-id",
    "apns-expiration", "apns-collapse-id"}
ALLOWED = REQUIRED | {"content-type", "content-length", "user-agent"}


@contextmanager
def broker_at(state, port):
    broker = Broker(state, port)
    try:
        yield broker.start()
    finally:
        broker.kill()


def knock(client, canaries=None):
    room = client.room()
    if canaries is not None:
        canaries.add("token", bytes.fromhex(room.creator.token), bytes.fromhex(room.joiner.token))
        canaries.add("room id", room.roomid, base64url_bytes(room.roomid))
        canaries.add("member secret", room.joiner.member, room.creator.member)
    assert client.presence(room.roomid, room.joiner.client).expect(202).json == {"delivery": "queued"}
    return room


def outcome(state, room):
    found = eventually(lambda: ledger.read(state).outcomes(room.creator.ref), 10, what="the outcome")
    assert len(found) == 1
    return found[0]["op"], found[0]["status"], found[0].get("reason")


def check_no_secret_was_told(broker, canaries):
    """The broker's output, metrics and files contain no secret. There is only one level of logging."""
    metrics = broker.metrics().encode()
    assert b"mayfly" in metrics and broker.printed()
    assert canaries.in_bytes(metrics) == [] and canaries.in_files(broker.state.prints, broker.state.folder) == []


def check_provider_token(state, authorization):
    """RFC 7515, 7518: ES256 by our key, the signature R and S as they are; Apple's two header fields and two claims, and nothing else."""
    scheme, token = authorization.split(" ")
    assert scheme == "bearer"
    key = serialization.load_pem_private_key((state / "keys/apns.p8").read_bytes(), None).public_key()
    claims = jwt.decode(token, key, algorithms=["ES256"], options={"require": ["iss", "iat"]})
    assert jwt.get_unverified_header(token) == {"alg": "ES256", "kid": KEY_ID}
    assert claims == {"iss": TEAM_ID, "iat": claims["iat"]} and isinstance(claims["iat"], int)
    assert 0 <= time.time() - claims["iat"] < 3600
    parts = token.split(".")
    assert "=" not in token and len(base64url_bytes(parts[2])) == 64
    spoiled = base64.urlsafe_b64encode(base64url_bytes(parts[2])[::-1]).decode().rstrip("=")
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(".".join([*parts[:2], spoiled]), key, algorithms=["ES256"])


def check_rules(state, fields, body, room):
    """Checks each header by Apple's documentation."""
    names, headers = [name for name, _ in fields], dict(fields)
    assert len(names) == len(set(names)), "a header twice"
    assert REQUIRED <= set(names) <= ALLOWED, set(names) ^ REQUIRED
    assert all(name.startswith(":") for name in names[:4]), "pseudo-header fields come first"
    assert headers[":method"] == "POST" and headers[":scheme"] == "https" and headers[":authority"].split(":")[0] == "127.0.0.1"
    assert headers[":path"] == f"/3/device/{room.creator.token}"
    check_provider_token(state, headers["authorization"])
    assert headers["apns-topic"] == BUNDLE_ID and headers["apns-push-type"] == "alert" and headers["apns-priority"] == "10"
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", headers["apns-id"])
    assert headers["apns-expiration"].isdigit() and 100 < int(headers["apns-expiration"]) - time.time() <= 121
    assert 1 <= len(headers["apns-collapse-id"].encode()) <= 64
    payload = json.loads(body)
    assert len(body) <= 4096 and payload["aps"]["alert"] == {"body": "Your chat partner is waiting"}
    assert payload["roomId"] == headers["apns-collapse-id"]


# Apple: `:path` and `authorization` literal without indexing; these three indexed on first use only; the rest with incremental indexing.
ONCE = ("apns-id", "apns-expiration", "apns-collapse-id")


def check_representations(kinds, first):
    for name, kind in kinds.items():
        if name in (":path", "authorization"):
            assert kind in ("never", "without"), f"{name}: {kind}"
        elif name in ONCE and not first:
            assert kind in ("never", "without"), f"{name} again: {kind}"
        else:
            assert kind in ("incremental", "indexed") and (first or name in ONCE or kind == "indexed"), f"{name}: {kind}"


def test_h2_accepts_each_push(state):
    """Rules, signature and representation of many pushes, one by one and together, across a restart of the broker."""
    canaries = Canaries()
    with H2Server(state / "keys/simulator.pem") as server, broker_at(state, server.port) as broker:
        client = Client(broker.port)
        rooms = [knock(client, canaries) for _ in range(10)]
        with ThreadPoolExecutor(4) as threads:
            rooms += threads.map(lambda _: knock(Client(broker.port), canaries), range(20))
        requests = [server.request(room.creator.token) for room in rooms]
        assert [outcome(state, room) for room in rooms] == [("push.delivered", 200, None)] * 30
        assert len(server.requests) == 30 and len({one.headers["apns-id"] for one in server.requests}) == 30
        for request, room in zip(requests, rooms):
            check_rules(state, request.fields, request.body, room)
            assert bytes.fromhex(room.creator.token) not in request.block
        for connection in server.connections:
            mine = [one for one in server.requests if one.connection is connection]
            for number, request in enumerate(mine):
                check_representations(request.kinds, number == 0)
            assert connection.protocol == "h2" and connection.odd == []
            assert connection.settings[2] == 0, "ENABLE_PUSH"
        assert len({one.headers["authorization"] for one in server.requests}) == 1, "one provider token for all"
        check_no_secret_was_told(broker, canaries)
        assert broker.stop() == 0
        broker.start()
        request = server.request(knock(Client(broker.port), canaries).creator.token)
        authorizations = [one.headers["authorization"] for one in (requests[0], request)]
        issued = [jwt.decode(one.split(" ")[1], options={"verify_signature": False})["iat"] for one in authorizations]
        assert issued[0] == issued[1], "a restart is no new provider token to Apple"
        check_no_secret_was_told(broker, canaries)


@pytest.mark.campaign
def test_streams_wait_for_the_first_answer(state):
    """One stream until the first answer, then as many as the server's settings allow."""
    canaries = Canaries()
    with H2Server(state / "keys/simulator.pem", streams=5, holds=True) as server, broker_at(state, server.port) as broker:
        client = Client(broker.port)
        rooms = [knock(client, canaries) for _ in range(8)]
        eventually(lambda: server.requests, what="the first push")
        time.sleep(0.7)
        for connection in server.connections:
            assert connection.most_before_an_answer <= 1
        connection = server.requests[0].connection
        assert len(connection.open) == 1
        server.answer(1)
        eventually(lambda: len(connection.open) == 5, what="five streams at a time")
        time.sleep(0.3)
        assert connection.most_open == 5 and connection.most_before_an_answer == 1
        server.holds = False
        server.answer()
        assert [outcome(state, room) for room in rooms] == [("push.delivered", 200, None)] * 8
        assert all(connection.most_open <= 5 and connection.most_before_an_answer <= 1 for connection in server.connections)
        check_no_secret_was_told(broker, canaries)


@pytest.mark.campaign
def test_a_refused_provider_token_opens_no_more_streams(state):
    """A refusal of the provider token is an answer, and not one that opens more streams. No push is lost by it."""
    canaries = Canaries()
    with H2Server(state / "keys/simulator.pem", holds=True) as server, broker_at(state, server.port) as broker:
        client = Client(broker.port)
        rooms = [knock(client, canaries) for _ in range(4)]
        for room in rooms:
            eventually(lambda: server.held, 10, what="a push")
            time.sleep(0.1)
            assert all(len(connection.open) <= 1 for connection in server.connections)
            server.answer(1, 403, b'{"reason":"InvalidProviderToken"}')
        server.holds = False
        assert [outcome(state, room) for room in rooms] == [("push.delivered", 200, None)] * 4
        assert broker.printed().count("InvalidProviderToken") == 1, "a line for each push would fill a disk"
        for room in rooms:
            assert client.status(room.roomid).expect(200).json["creatorHasToken"] is True
        check_no_secret_was_told(broker, canaries)


@pytest.mark.campaign
def test_nghttpd_accepts_each_push(state, tmp_path):
    """Its log of frames shows the pseudo-header fields, the never-indexed fields, and only frames that Apple accepts."""
    canaries = Canaries()
    with Nghttpd(state / "keys/simulator.pem", tmp_path / "nghttpd") as server, broker_at(state, server.port) as broker:
        client = Client(broker.port)
        rooms = [knock(client, canaries) for _ in range(12)]
        assert [outcome(state, room) for room in rooms] == [("push.delivered", 200, None)] * 12
        eventually(lambda: len(server.requests()) == 12, what="twelve requests in nghttpd's log")
        by_path = {dict((name, value) for name, value, _ in request)[":path"]: request for request in server.requests()}
        for number, request in enumerate(server.requests()):
            sensitive = {name for name, _, never in request if never}
            assert sensitive & {":path", "authorization"} == {":path", "authorization"}
            assert not sensitive & (REQUIRED - {":path", "authorization", *ONCE})
            assert number > 0 or not sensitive & set(ONCE), "the first use is indexed"
            assert number == 0 or sensitive >= set(ONCE)
        for room in rooms:
            fields = [(name, value) for name, value, _ in by_path[f"/3/device/{room.creator.token}"]]
            payload = json.dumps({
                "aps": {"alert": {"body": "Your chat partner is waiting"}}, "roomId": dict(fields)["apns-collapse-id"]}).encode()
            check_rules(state, fields, payload, room)
        printed = server.printed()
        assert "The negotiated protocol: h2" in printed
        assert re.search(r"recv SETTINGS frame.*\n.*\n(.*\n)*?.*SETTINGS_ENABLE_PUSH\(0x02\):0", printed)
        frames = server.frames()
        assert set(frames) <= {"SETTINGS", "WINDOW_UPDATE", "HEADERS", "DATA", "PING"}, set(frames)
        assert frames.count("HEADERS") == 12 == frames.count("DATA"), "one frame for each part of a push"
        assert "PRIORITY" not in printed.replace("NO_RFC7540_PRIORITIES", "") and "END_HEADERS | PADDED" not in printed
        check_no_secret_was_told(broker, canaries)


@pytest.mark.campaign
def test_nghttpds_404_fails_the_push_and_keeps_the_token(state, tmp_path):
    """The HTML page carries no reason of Apple's."""
    canaries = Canaries()
    with Nghttpd(state / "keys/simulator.pem", tmp_path / "nghttpd", echoes=False) as server:
        with broker_at(state, server.port) as broker:
            client = Client(broker.port)
            room = knock(client, canaries)
            assert outcome(state, room) == ("push.failed", 404, "other")
            assert client.status(room.roomid).expect(200).json["creatorHasToken"] is True
            check_no_secret_was_told(broker, canaries)
