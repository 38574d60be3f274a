"""Rooms by the contract: good calls, and who may make which."""

import base64
import hashlib
import json
import statistics
import time
from datetime import datetime, timezone
from secrets import token_urlsafe

import pytest

import ledger
from mayfly import Client, base64url_bytes, invented_room, new_client, new_code, new_token
from processes import REPOSITORY, eventually


def seconds_left(answer, field="expiresAt"):
    moment = datetime.fromisoformat(answer[field].replace("Z", "+00:00"))
    return (moment - datetime.now(timezone.utc)).total_seconds()


# Promise: create-and-accept
def test_create_and_accept(client):
    code, token = new_code(), new_token()
    created = client.create(code, token=token, expires=600).expect(201).json
    assert 540 < seconds_left(created) < 601
    assert created["ref"]
    accepted = client.accept(code).expect(200).json
    assert accepted["roomid"] == created["roomid"] and accepted["expiresAt"] == created["expiresAt"]
    assert accepted["member"] != created["member"] and "ref" not in accepted
    assert client.status(created["roomid"]).expect(200).json == {
        "expiresAt": created["expiresAt"], "accepted": True, "creatorPresent": False, "joinerPresent": False,
        "creatorHasToken": True, "joinerHasToken": False}


def test_pending_room_is_not_accepted(client):
    created = client.create().expect(201).json
    status = client.status(created["roomid"]).expect(200).json
    assert status["accepted"] is False and status["creatorHasToken"] is False


# Promise: room-life
def test_rooms_live_a_day_by_default(client):
    for life in (None, 604_800):
        created = client.create(expires=life).expect(201).json
        assert 86_340 < seconds_left(created, "joinExpiresAt") < 86_401, "a code lives a day at most"
        assert (life or 86_400) - 60 < seconds_left(created) < (life or 86_400) + 1
    created = client.create(expires=None, expiresInSeconds=None, joinExpiresInSeconds=60).expect(201).json
    assert 0 < seconds_left(created, "joinExpiresAt") < 61 and seconds_left(created) > 86_340


def test_an_unaccepted_room_ends_with_its_code(worlds, tmp_path):
    policy = json.loads((REPOSITORY / "policies/rooms.json").read_text())
    policy["limits"]["roomLifeSeconds"] = {"min": 1, "max": 3600, "default": 600}
    policy["limits"]["joinCode"]["lifeSeconds"]["min"] = 1
    path = tmp_path / "brief.json"
    path.write_text(json.dumps(policy))
    client = worlds(apns=False, policy=path).client()
    created = client.create(expires=None, joinExpiresInSeconds=2).expect(201).json
    assert 540 < seconds_left(created) < 601 and seconds_left(created, "joinExpiresAt") < 3
    client.status(created["roomid"]).expect(200)
    eventually(lambda: client.status(created["roomid"]).status == 404, what="the end of the room with its code")


def test_a_code_is_not_revealed_to_an_unserved_app(client):
    code = new_code()
    client.create(code).expect(201)
    answers = {client.accept(joinid, token=new_token(), bundleId="org.example.unserved").expect(400, "app_not_served").body
               for joinid in (code, new_code())}
    assert len(answers) == 1
    client.accept(code).expect(200)


def test_create_again_after_the_accept_is_refused(client):
    code, creator = new_code(), new_client()
    client.create(code, creator).expect(201)
    client.accept(code).expect(200)
    client.create(code, creator).expect(409, "join_code_in_use")


def test_a_creator_can_not_join_its_own_room(client):
    code, creator = new_code(), new_client()
    client.create(code, creator).expect(201)
    client.accept(code, creator).expect(403, "not_a_member")
    client.accept(code).expect(200)


def test_a_token_may_have_its_short_name(client):
    code, token = new_code(), new_token()
    created = client.create(code, **{"token": token}).expect(201).json
    accepted = client.send("POST", "/api/rooms/accept", {"joinid": code, "client2": new_client(), "token": token})
    assert created["ref"] != accepted.expect(200).json["ref"]


def test_null_token_counts_as_absent(client):
    assert "ref" not in client.create(client1_token=None).expect(201).json


def test_tokens_may_have_other_lengths(client):
    for length in (1, 31, 80, 100):
        assert client.create(token="aB" * length).expect(201).json["ref"]


def test_a_room_names_its_environment(client):
    for environment in ("production", "sandbox", "development"):
        client.create(token=new_token(), environment=environment).expect(201)


def test_content_is_dropped_and_listed(client):
    content = {"title": "Meet me", "name": "Ann", "fileName": "plan.pdf", "unknown": 1}
    assert client.create(**content).expect(201).json["dropped"] == ["fileName", "name", "title"]
    room = client.room()
    answer = client.presence(room.roomid, room.joiner.client, message="hello", summary="s", url="u", text="t", body="b")
    assert answer.expect(202).json["dropped"] == ["body", "message", "summary", "text", "url"]
    assert "dropped" not in client.create(unknown=1).expect(201).json


def test_replace_and_withdraw_a_token(world, client):
    room = client.room()
    fresh = client.put_token(room.roomid, room.joiner.client, new_token()).expect(200).json
    assert fresh["ref"] != room.joiner.ref
    assert client.delete_token(room.roomid, room.joiner.client).expect(200).json == {"purged": 1}
    assert client.delete_token(room.roomid, room.joiner.client).expect(200).json == {"purged": 0}
    assert client.status(room.roomid).json["joinerHasToken"] is False
    assert client.status(room.roomid).json["creatorHasToken"] is True

    def purged():
        log = ledger.read(world.state)
        return [[entry["cause"] for entry in log.of(ref, "token.purged")] for ref in (room.joiner.ref, fresh["ref"])]
    eventually(lambda: purged() == [["ended"], ["ended"]], what="both purges in the ledger")


# Promise: member-acts-for-itself-alone
@pytest.mark.parametrize("call", ["put_token", "delete_token", "presence"])
def test_one_side_can_not_act_as_the_other(world, client, call):
    room = client.room()
    before = world.state.counts()
    arguments = [new_token()] if call == "put_token" else []
    act = getattr(client, call)
    act(room.roomid, room.creator.client, *arguments, member=room.joiner.member).expect(403, "not_a_member")
    act(room.roomid, new_client(), *arguments).expect(403, "not_a_member")
    act(room.roomid, new_client(), *arguments, member=room.joiner.member).expect(403, "not_a_member")
    assert world.state.counts() == before
    assert client.status(room.roomid).json["creatorHasToken"] is True


def test_presence(client):
    room = client.room(tokens=(True, False))
    assert client.presence(room.roomid, room.creator.client).expect(202).json == {"delivery": "no_token"}
    assert client.presence(room.roomid, room.joiner.client).expect(202).json == {"delivery": "peer_present"}
    assert client.presence(room.roomid, room.creator.client, leaving=True).expect(202).json == {"delivery": "none"}
    status = client.status(room.roomid).json
    assert status["joinerPresent"] is True


def test_knocks_are_throttled(client):
    room = client.room()
    assert client.presence(room.roomid, room.joiner.client).expect(202).json == {"delivery": "queued"}
    assert client.presence(room.roomid, room.joiner.client).expect(202).json == {"delivery": "throttled"}


def test_close_destroys_both_tokens_at_once(world, client):
    room = client.room()
    before = world.state.counts()
    assert client.delete(room.roomid).expect(200).json == {"purged": 2}
    client.delete(room.roomid).expect(404, "room_not_found")
    client.status(room.roomid).expect(404, "room_not_found")
    client.presence(room.roomid, room.creator.client).expect(404, "room_not_found")
    client.put_token(room.roomid, room.creator.client, new_token()).expect(404, "room_not_found")
    assert sum(world.state.counts().values()) < sum(before.values())

    def purged():
        log = ledger.read(world.state)
        return [entry["cause"] for side in (room.creator, room.joiner) for entry in log.of(side.ref, "token.purged")]
    eventually(lambda: purged() == ["ended", "ended"], what="both purges in the ledger")


def test_close_of_a_pending_room_frees_nothing_to_guess(client):
    code = new_code()
    created = client.create(code, token=new_token()).expect(201).json
    assert client.delete(created["roomid"]).expect(200).json == {"purged": 1}
    client.accept(code).expect(404, "room_not_found")


# Promise: stranger-learns-nothing
def test_unknown_expired_and_closed_are_alike(world):
    """Body and headers alike, and no difference in time that a stranger could use."""
    client = world.client()
    room, closed_code = client.room(), new_code()
    client.delete(room.roomid).expect(200)
    pending = client.create(closed_code).expect(201).json
    client.delete(pending["roomid"]).expect(200)
    shapes, times = set(), {"unknown": [], "closed": []}
    for _ in range(40):
        for name, roomid in (("unknown", invented_room()), ("closed", room.roomid)):
            begin = time.perf_counter()
            answer = client.status(roomid).expect(404, "room_not_found")
            times[name].append(time.perf_counter() - begin)
            shapes.add((answer.body, tuple(sorted(k for k in answer.headers if k != "date"))))
    assert len(shapes) == 1
    unknown, closed = (statistics.median(values) for values in times.values())
    assert abs(unknown - closed) < 0.5 * max(unknown, closed) + 0.0005
    bodies = {world.client().accept(code).expect(404, "room_not_found").body for code in (new_code(), closed_code)}
    assert len(bodies) == 1


def test_room_ids_with_another_end_are_unknown(world):
    """All calls answer alike: to another end of a room that lives, to an end that can't be, and to an id of the old form."""
    client = world.client()
    room = client.room()
    raw = base64url_bytes(room.roomid)
    end = int.from_bytes(raw[:6], "big")
    assert abs(end / 1000 - time.time() - seconds_left(room.creator.answer)) < 2
    ends = (0, int(time.time() * 1000) - 1, end - 1, end + 1, end + 61 * 86_400_000, (1 << 48) - 1)
    ids = [base64.urlsafe_b64encode(other.to_bytes(6, "big") + raw[6:]).decode().rstrip("=") for other in ends]
    side = {"client": room.creator.client, "member": room.creator.member}
    calls = (("GET", "/api/room", None), ("DELETE", "/api/room", None), ("POST", "/api/room/presence", side),
             ("DELETE", "/api/room/token", side), ("PUT", "/api/room/token", side | {"token": new_token()}))
    for method, path, body in calls:
        shapes = set()
        for roomid in (invented_room(), token_urlsafe(32), *ids):
            answer = client.send(method, path, body, bearer=roomid).expect(404, "room_not_found")
            shapes.add((answer.body, tuple(sorted(k for k in answer.headers if k != "date"))))
        assert len(shapes) == 1, (method, path, shapes)
    assert client.status(room.roomid).expect(200).json["creatorHasToken"] is True


# Promise: capability-in-header-or-body
def test_capability_only_in_the_header(client):
    room = client.room()
    client.send("GET", f"/api/room?roomid={room.roomid}").expect(401, "no_capability")
    client.send("GET", f"/api/room/{room.roomid}").expect(404, "not_found")
    client.send("DELETE", "/api/room", {"roomid": room.roomid}).expect(401, "no_capability")
    client.status(room.roomid).expect(200)


# Promise: problem-json
def test_routes_and_methods(client):
    client.send("GET", "/").expect(404, "not_found")
    client.send("GET", "/api/unknown").expect(404, "not_found")
    answer = client.send("GET", "/api/rooms").expect(405, "method_not_allowed")
    assert answer.headers["allow"].replace(" ", "").split(",") == ["POST"]
    answer = client.send("PATCH", "/api/room").expect(405, "method_not_allowed")
    assert {"GET", "DELETE"} <= set(answer.headers["allow"].replace(" ", "").split(","))


def test_the_ledger_is_served_unchanged(world, client):
    client.room()
    served = eventually(lambda: client.send("GET", "/audit/checkpoint").expect(200).body, what="a checkpoint")
    log = ledger.Ledger(world.state / "ledger", world.state.vkey, served)
    tiles, width = divmod(log.checkpoint.size, 256)
    assert width, "this test reads a partial tile"
    tile = client.send("GET", f"/audit/tile/0/{tiles:03}.p/{width}").expect(200)
    assert tile.body == b"".join(log.hashes[tiles * 256:])
    assert tile.headers["content-type"] == "application/octet-stream"
    policy = next(entry["policy"] for entry in log.entries if entry["op"] == "policy.loaded")
    assert hashlib.sha256(client.send("GET", f"/audit/policies/{policy}.json").expect(200).body).hexdigest() == policy
    client.send("POST", "/audit/checkpoint", {}).expect(405, "method_not_allowed")


def test_only_the_ledger_is_served(world, client):
    for path in ("/audit/../keys/ratchet.key", "/audit/%2e%2e/keys/ratchet.key"):
        answer = client.send("GET", path)
        assert answer.status in (400, 404), answer
        assert (world.state / "keys/ratchet.key").read_bytes()[:16] not in answer.body


# Promise: operator-listener
def test_operator_listener(world, client):
    operator = Client(world.broker.operator_port)
    assert operator.send("GET", "/healthz").expect(200).body.strip() == b"ok"
    operator.send("GET", "/readyz").expect(200)
    metrics = operator.send("GET", "/metrics").expect(200).body.decode()
    lines = [line for line in metrics.splitlines() if line and not line.startswith("#")]
    assert lines and all(line.startswith("mayfly_") and float(line.rsplit(" ", 1)[1]) >= 0 for line in lines)
    assert 'mayfly_build_info{version="' in metrics
    operator.send("POST", "/api/rooms", {}, checked=False).expect(404, "not_found")
    for path in ("/healthz", "/readyz", "/metrics"):
        client.send("GET", path, checked=False).expect(404, "not_found")


# Promise: retry-after
def test_guessing_codes_is_slowed(world):
    """One address soon gets 429 with Retry-After, also for a right guess. Another address is not limited."""
    stranger, code = world.client(), new_code()
    stranger.create(code).expect(201)
    for _ in range(400):
        answer = stranger.accept(new_code())
        if answer.status == 429:
            break
        answer.expect(404, "room_not_found")
    answer.expect(429, "too_many_requests")
    assert int(answer.headers["retry-after"]) >= 1
    stranger.accept(code).expect(429, "too_many_requests")
    world.client().accept(code).expect(200)


def test_creating_rooms_is_limited(worlds, tmp_path):
    """By the policy in force: here the operator's own, with a small budget."""
    policy = json.loads((REPOSITORY / "policies/rooms.json").read_text())
    policy["limits"]["creations"]["perAddress"] = {"count": 5, "seconds": 600}
    policy["name"] = "small"
    path = tmp_path / "small.json"
    path.write_text(json.dumps(policy))
    world = worlds(apns=False, policy=path)
    greedy, code, creator = world.client(), new_code(), new_client()
    first = greedy.create(code, creator).expect(201).json
    for _ in range(4):
        greedy.create().expect(201)
    before = world.state.counts()
    answer = greedy.create(token=new_token()).expect(429, "too_many_requests")
    assert 1 <= int(answer.headers["retry-after"]) <= 600
    assert world.state.counts() == before
    assert greedy.create(code, creator).expect(200).json == first  # a lost answer costs nothing
    greedy.accept(code).expect(200)
    world.client().create().expect(201)
    eventually(lambda: ledger.read(world.state).counts()["policy.loaded"], what="the policy in the ledger")
    loaded = [entry for entry in ledger.read(world.state).entries if entry["op"] == "policy.loaded"]
    assert [(entry["name"], entry["policy"]) for entry in loaded] == [("small", hashlib.sha256(path.read_bytes()).hexdigest())]
