"""Bad input: each has its exact answer, and nothing is stored. `RequestBodyTests` and `JSONObjectTests` have the values of fields."""

import json
import time
from secrets import token_hex, token_urlsafe

import pytest

from companion_pushes import seconds
from mayfly import invented_room, new_client, new_code, new_token

ABSENT = type("Absent", (), {"__repr__": lambda self: "absent"})()


@pytest.fixture
def refused(world, client):
    """Sends a request and expects that refusal; the stored rows are counted before and after."""
    def send(method, path, body, status, code, field=None, **more):
        before, jobs = world.state.counts(), world.state.jobs()
        answer = client.send(method, path, body, **more).expect(status, code, field)
        assert world.state.counts() == before, "a refused request left rows behind"
        assert world.state.jobs() <= jobs, "a refused request left a push behind"
        return answer
    return send


def create_body(**changes):
    body = {"joinid": new_code(), "expiresInSeconds": 3600, "client1": new_client(), "client1_token": new_token()}
    return {name: value for name, value in (body | changes).items() if value is not ABSENT}


def accept_body(**changes):
    body = {"joinid": new_code(), "client2": new_client(), "client2_token": new_token()}
    return {name: value for name, value in (body | changes).items() if value is not ABSENT}


def test_a_body_must_be_one_json_object(refused, client):
    duplicate = b'{"joinid":"abcd","joinid":"abce","expiresInSeconds":60,"client1":"c"}'
    refused("POST", "/api/rooms", duplicate, 400, "malformed_json")
    refused("PUT", "/api/room/token", b"{", 400, "malformed_json", bearer=client.room().roomid)


# Cause and position; and nothing of the body.
MALFORMED = {
    "BOM": (b'\xef\xbb\xbf{"note":"hunter2"}', "line 1, column 1: a byte order mark"), "UTF-16": ('{"note":"hunter2"}'.encode("utf-16"), "line 1, column 1: this byte is not UTF-8"),
    "Latin-1": (b'{"note":"hunter2 \xe9"}', "line 1, column 18: this byte is not UTF-8"), "NaN": (b'{\n "note": NaN}', "line 2, column 10: this is not a JSON value; NaN"),
    "Infinity": (b'{"note":-Infinity}', "line 1, column 10: a digit is expected"), "comma": (b'{"note":"hunter2",}', "line 1, column 19: a name in double quotes"),
    "single quotes": (b"{'note':'hunter2'}", "line 1, column 2: a name in double quotes"), "cut": (b'{"note":"hunter2', "line 1, column 17: a string is not closed"),
    "two": (b'{"note":"hunter2"} {}', "line 1, column 20: there is text after"), "list": (b' ["hunter2"]', "line 1, column 2: an object is expected"),
    "empty": (b"", "line 1, column 1: the text ends"), "raw newline": (b'{"note":"hunter2\n"}', "line 1, column 17: a string has an unescaped control character"),
    "brackets": (b'{"note":' + b"[" * 5000 + b"}", "line 1, column 5009: this is not a JSON value"), "twice": (b'{"joinid":"hunter2","joinid":"hunter2"}', "line 1, column 22: the name joinid is repeated")}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_json_is_refused_with_cause_and_position(refused, name):
    body, cause = MALFORMED[name]
    detail = refused("POST", "/api/rooms", body, 400, "malformed_json").json["detail"]
    assert cause in detail and "hunter2" not in detail and "note" not in detail


@pytest.mark.parametrize("value", [
    r'"\ud83d"', r'"\ude00 and \ud83d"', r'["\ud83d"]', r'{"\ud83d":1,"\ud83d":2}', '{"a":1,"a":2}', "[" * 7000 + "]" * 7000, '{"a":' * 2500 + "1" + "}" * 2500, "1e999999"])
def test_what_is_dropped_is_not_judged(client, value):
    """By names that are listed, or not. A repeated name doesn't matter either, if nobody reads it."""
    for name in ("summary", "unknown"):
        text = json.dumps(create_body())[:-1] + f', "{name}": {value}, "again": 1, "again": 2}}'
        answer = client.send("POST", "/api/rooms", text.encode()).expect(201).json
        assert answer.get("dropped") == (["summary"] if name == "summary" else None)


@pytest.mark.parametrize("field, code", [("joinid", "out_of_range"), ("client1", "out_of_range"), ("client1_token", "invalid_token"), ("environment", "out_of_range"), ("bundleId", "out_of_range")])
def test_what_is_read_has_no_lone_surrogate(refused, field, code):
    body = json.dumps(create_body() | {field: "SURROGATE"}).replace("SURROGATE", r"abcd\ud83d").encode()
    refused("POST", "/api/rooms", body, 400, code, field)


def test_seconds_are_rounded_down(client):
    for life, left in ((60.9, 60), (3600.5, 3600), (6.05e1, 60), (604_800.9, 604_800)):
        room = client.send("POST", "/api/rooms", create_body(expiresInSeconds=life, joinExpiresInSeconds=10.99)).expect(201).json
        assert 0 <= left - (seconds(room["expiresAt"]) - time.time()) < 3 and 0 <= 10 - (seconds(room["joinExpiresAt"]) - time.time()) < 3


def test_create(refused):
    cases = [
        ("wrong_type", "joinid", 1234), ("missing_field", "client1", ABSENT), ("invalid_token", "client1_token", "ab cd "),
        ("wrong_type", "environment", 1), ("out_of_range", "environment", "staging"), ("out_of_range", "environment", "Production"),
        ("wrong_type", "expiresInSeconds", "3600"), ("wrong_type", "expiresInSeconds", True),
        *(("out_of_range", "expiresInSeconds", bad) for bad in (-1, 0, 9, 9.99, 604_801, 2**63, 1e300)),
        *(("out_of_range", "joinExpiresInSeconds", bad) for bad in (0, 9, 3601))]
    for code, field, value in cases:
        answer = refused("POST", "/api/rooms", create_body(**{field: value}), 400, code, field)
        assert b"ab cd " not in answer.body, "the answer repeats the token"
    refused("POST", "/api/rooms", create_body(joinExpiresInSeconds=86_401, expiresInSeconds=604_800), 400, "out_of_range", "joinExpiresInSeconds")


def test_accept(refused, client):
    joinid = new_code()
    client.create(joinid).expect(201)
    refused("POST", "/api/rooms/accept", accept_body(joinid=joinid, client2_token="g0"), 400, "invalid_token", "client2_token")
    client.accept(joinid).expect(200)  # the code was not used up


@pytest.mark.parametrize("path, method, body, fields", [
    ("/api/rooms", "POST", {"joinid": "a", "expiresInSeconds": 1, "joinExpiresInSeconds": "x", "client1_token": "g", "environment": 7, "bundleId": ""},
     ["joinid", "expiresInSeconds", "joinExpiresInSeconds", "client1", "client1_token", "environment", "bundleId"]),
    ("/api/rooms/accept", "POST", {"joinid": 7, "client2": "", "client2_token": "g", "environment": "moon", "bundleId": 7},
     ["joinid", "client2", "client2_token", "environment", "bundleId"]),
    ("/api/room/token", "PUT", {"member": 7, "environment": "moon", "bundleId": 7}, ["client", "member", "token", "environment", "bundleId"]),
    ("/api/room/token", "DELETE", {"client": 7, "member": 7}, ["client", "member"]),
    ("/api/room/presence", "POST", {"client": "", "member": [], "leaving": "yes"}, ["client", "member", "leaving"])])
def test_every_bad_field_is_listed(refused, client, path, method, body, fields):
    bearer = None if "rooms" in path else client.room().roomid
    before = client.send(method, path, body, bearer=bearer)
    problem = refused(method, path, body, 400, before.code, fields[0], bearer=bearer).json
    assert list(problem["details"]) == fields and problem["details"][fields[0]] == [problem["detail"]]
    assert all(len(told) == 1 and name in told[0] for name, told in problem["details"].items())


def test_a_stranger_gets_no_errors_of_fields(refused, client):
    room, bad = client.room(), {"client": 7, "leaving": 7}
    problems = [
        refused("POST", "/api/room/presence", bad, 401, "no_capability"),
        refused("POST", "/api/room/presence", bad | {"roomid": "x"}, 401, "malformed_capability"),
        refused("POST", "/api/room/presence", bad | {"member": "x"}, 403, "not_a_member", bearer=room.roomid)]
    assert not any("details" in problem.json for problem in problems)


def test_null_counts_as_absent(client):
    code = new_code()
    nulls = {"environment": None, "bundleId": None, "token": None}
    created = client.send("POST", "/api/rooms", {
        "joinid": code, "client1": "a", "expiresInSeconds": None, "joinExpiresInSeconds": None, "client1_token": None} | nulls).expect(201).json
    client.send("POST", "/api/rooms/accept", {"joinid": code, "client2": "b", "client2_token": None} | nulls).expect(200)
    side = {"client": "a", "member": None, "roomid": None}
    client.send("POST", "/api/room/presence", side | {"leaving": None}, bearer=created["roomid"]).expect(202)
    client.send("PUT", "/api/room/token", side | {"token": new_token(), "environment": None, "bundleId": None}, bearer=created["roomid"]).expect(200)
    client.send("DELETE", "/api/room/token", side, bearer=created["roomid"]).expect(200)


def test_join_codes_that_do_not_fit(refused, client):
    code = new_code()
    client.create(code).expect(201)
    refused("POST", "/api/rooms", create_body(joinid=code), 409, "join_code_in_use")
    refused("POST", "/api/rooms/accept", accept_body(), 404, "room_not_found")
    client.accept(code).expect(200)
    refused("POST", "/api/rooms", create_body(joinid=code), 409, "join_code_in_use")
    refused("POST", "/api/rooms/accept", accept_body(joinid=code), 409, "room_already_accepted")


# Promise: body-limit
def test_body_over_16_kib(refused, client):
    body = json.dumps(create_body()).encode()
    refused("POST", "/api/rooms", body + b" " * (16 * 1024 + 1 - len(body)), 413, "body_too_large")
    client.send("POST", "/api/rooms", body + b" " * (16 * 1024 - len(body))).expect(201)


MEMBER_CALLS = [
    ("GET", "/api/room", None), ("DELETE", "/api/room", None), ("PUT", "/api/room/token", {"client": "c", "token": "aa"}),
    ("DELETE", "/api/room/token", {"client": "c"}), ("POST", "/api/room/presence", {"client": "c"})]


@pytest.mark.parametrize("method, path, body", MEMBER_CALLS)
def test_bad_room_ids_open_nothing(refused, client, method, path, body):
    room = client.room()
    answer = refused(method, path, body, 401, "no_capability")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    for other in ("Basic YTpi", "Bearer", "Bearer ", room.roomid):
        refused(method, path, body, 401, "no_capability", headers={"Authorization": other})
    for roomid in ("x", room.roomid[:-1], room.roomid + "A", room.roomid + "=", token_hex(32), "*" * 43,
                   room.roomid[:-1] + ("B" if room.roomid[-1] != "B" else "C")):
        refused(method, path, body, 401, "malformed_capability", bearer=roomid)
    for roomid in (token_urlsafe(32), invented_room()):
        refused(method, path, body, 404, "room_not_found", bearer=roomid)
    assert client.status(room.roomid).expect(200).json["joinerHasToken"] is True


def test_foreign_room_id(refused, client):
    mine, theirs = client.room(), client.room()
    refused("PUT", "/api/room/token", {"client": mine.creator.client, "token": "aa"}, 403, "not_a_member",
            bearer=theirs.roomid)
    refused("DELETE", "/api/room/token", {"client": mine.creator.client, "member": mine.creator.member}, 403,
            "not_a_member", bearer=theirs.roomid)
    refused("POST", "/api/room/presence", {"client": mine.joiner.client}, 403, "not_a_member", bearer=theirs.roomid)


@pytest.mark.parametrize("method, path", [(m, p) for m, p, b in MEMBER_CALLS if b])
def test_fields_of_member_calls(refused, client, method, path):
    room = client.room()
    good = {"client": room.creator.client} | ({"token": "aa"} if method == "PUT" else {})

    def bad(code, field, **changes):
        body = {name: value for name, value in (good | changes).items() if value is not ABSENT}
        refused(method, path, body, 400, code, field, bearer=room.roomid)
    bad("missing_field", "client", client=ABSENT)
    bad("missing_field", "client", client=None)
    bad("wrong_type", "client", client=1)
    bad("out_of_range", "client", client="")
    bad("out_of_range", "client", client="x" * 129)
    bad("wrong_type", "member", member=1)
    if method == "PUT":
        bad("missing_field", "token", token=ABSENT)
        bad("missing_field", "token", token=None)
        bad("wrong_type", "token", token=1)
        for token in ("", "a", "xy", "ab" * 101):
            bad("invalid_token", "token", token=token)
    if path.endswith("presence"):
        bad("wrong_type", "leaving", leaving="yes")
        bad("wrong_type", "leaving", leaving=1)
