"""Bad input: each its exact answer, and nothing stored."""

import http.client
import json
import socket
from secrets import token_hex, token_urlsafe

import pytest

from mayfly import new_client, new_code, new_token

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


NOT_JSON = {
    "nothing": b"", "blank": b"  \n", "half": b'{"joinid":"abcd"', "array": b"[]", "text": b'"joinid"', "number": b"1",
    "null": b"null", "form": b"joinid=abcd&client1=x", "trailing": b'{"a":1} x', "two": b'{"a":1}{"b":2}',
    "duplicate": b'{"joinid":"abcd","joinid":"abce","expiresInSeconds":60,"client1":"c"}',
    "escaped duplicate": b'{"joinid":"abcd","join\\u0069d":"abce","expiresInSeconds":60,"client1":"c"}',
    "deep": b'{"x":' + b"[" * 20 + b"]" * 20 + b"}", "very deep": b"[" * 16000,
    "latin-1": b'{"joinid":"abcd","expiresInSeconds":60,"client1":"caf\xe9"}',
    "overlong": b'{"joinid":"abcd","expiresInSeconds":60,"client1":"\xc0\xaf"}',
    "lone surrogate": b'{"joinid":"abcd","expiresInSeconds":60,"client1":"\\ud800"}',
    "single quotes": b"{'a':1}", "comment": b'{"a":1/**/}', "trailing comma": b'{"a":1,}', "control": b'{"a":"\x01"}',
    "leading zero": b'{"expiresInSeconds":060}', "nan": b'{"expiresInSeconds":NaN}', "nul": b'{"a":1}\x00',
    "byte order mark": b'\xef\xbb\xbf{"a":1}', "utf-16": '{"a":1}'.encode("utf-16"),
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_create_with_what_is_not_one_json_object(refused, name):
    refused("POST", "/api/rooms", NOT_JSON[name], 400, "malformed_json")


@pytest.mark.parametrize("path, method", [
    ("/api/rooms/accept", "POST"), ("/api/room/token", "PUT"), ("/api/room/token", "DELETE"), ("/api/room/presence", "POST")])
def test_other_calls_with_what_is_not_json(refused, client, path, method):
    room = client.room()
    refused(method, path, b"{", 400, "malformed_json", bearer=None if "rooms" in path else room.roomid)


CREATE = [
    ("wrong_type", "joinid", dict(joinid=1234)),
    ("wrong_type", "joinid", dict(joinid=["abcd"])),
    ("wrong_type", "client1", dict(client1={})),
    ("wrong_type", "client1", dict(client1=True)),
    ("wrong_type", "client1_token", dict(client1_token=12)),
    ("wrong_type", "client1_token", dict(client1_token=["aa"])),
    ("wrong_type", "environment", dict(environment=1)),
    ("wrong_type", "expiresInSeconds", dict(expiresInSeconds="3600")),
    ("wrong_type", "expiresInSeconds", dict(expiresInSeconds=3600.5)),
    ("wrong_type", "expiresInSeconds", dict(expiresInSeconds=True)),
    ("wrong_type", "expiresInSeconds", dict(expiresInSeconds=[60])),
    ("wrong_type", "joinExpiresInSeconds", dict(joinExpiresInSeconds="60")),
    ("wrong_type", "joinExpiresInSeconds", dict(joinExpiresInSeconds=60.5)),
    ("missing_field", "joinid", dict(joinid=ABSENT)),
    ("missing_field", "joinid", dict(joinid=None)),
    ("missing_field", "client1", dict(client1=ABSENT)),
    ("missing_field", "client1", dict(client1=None)),
    ("out_of_range", "expiresInSeconds", dict(expiresInSeconds=0)),
    ("out_of_range", "expiresInSeconds", dict(expiresInSeconds=-1)),
    ("out_of_range", "expiresInSeconds", dict(expiresInSeconds=9)),
    ("out_of_range", "expiresInSeconds", dict(expiresInSeconds=604_801)),
    ("out_of_range", "expiresInSeconds", dict(expiresInSeconds=2**63)),
    ("out_of_range", "expiresInSeconds", dict(expiresInSeconds=-(2**80))),
    ("out_of_range", "joinExpiresInSeconds", dict(joinExpiresInSeconds=0)),
    ("out_of_range", "joinExpiresInSeconds", dict(joinExpiresInSeconds=9)),
    ("out_of_range", "joinExpiresInSeconds", dict(joinExpiresInSeconds=86_401, expiresInSeconds=604_800)),
    ("out_of_range", "joinExpiresInSeconds", dict(joinExpiresInSeconds=61, expiresInSeconds=60)),
    ("out_of_range", "joinid", dict(joinid="")),
    ("out_of_range", "joinid", dict(joinid="abc")),
    ("out_of_range", "joinid", dict(joinid="a" * 65)),
    ("out_of_range", "joinid", dict(joinid="ab cd")),
    ("out_of_range", "joinid", dict(joinid="abcd\n")),
    ("out_of_range", "joinid", dict(joinid="abcdé")),
    ("out_of_range", "joinid", dict(joinid="abcd\u007f")),
    ("out_of_range", "client1", dict(client1="")),
    ("out_of_range", "client1", dict(client1="x" * 129)),
    ("out_of_range", "client1", dict(client1="é" * 65)),
    ("out_of_range", "environment", dict(environment="staging")),
    ("out_of_range", "environment", dict(environment="Production")),
    ("out_of_range", "token", dict(token="aa")),
    ("invalid_token", "client1_token", dict(client1_token="")),
    ("invalid_token", "client1_token", dict(client1_token="abc")),
    ("invalid_token", "client1_token", dict(client1_token="zz")),
    ("invalid_token", "client1_token", dict(client1_token="0xab")),
    ("invalid_token", "client1_token", dict(client1_token="ab cd ")),
    ("invalid_token", "client1_token", dict(client1_token="ab" * 101)),
    ("invalid_token", "client1_token", dict(client1_token="４２")),
    ("invalid_token", "token", dict(client1_token=ABSENT, token="abc")),
]


@pytest.mark.parametrize("code, field, changes", CREATE, ids=[f"{f}={list(c.values())[0]!r:.24}" for _, f, c in CREATE])
def test_create(refused, code, field, changes):
    answer = refused("POST", "/api/rooms", create_body(**changes), 400, code, field)
    secret = changes.get("client1_token")
    if isinstance(secret, str) and len(secret) > 1:
        assert secret.encode() not in answer.body, "the answer repeats the token"


ACCEPT = [
    ("wrong_type", "joinid", dict(joinid=1234)),
    ("wrong_type", "client2", dict(client2=7)),
    ("wrong_type", "client2_token", dict(client2_token=7)),
    ("missing_field", "joinid", dict(joinid=ABSENT)),
    ("missing_field", "client2", dict(client2=ABSENT)),
    ("missing_field", "client2", dict(client2=None)),
    ("out_of_range", "joinid", dict(joinid="abc")),
    ("out_of_range", "joinid", dict(joinid="a" * 65)),
    ("out_of_range", "client2", dict(client2="")),
    ("out_of_range", "client2", dict(client2="x" * 129)),
    ("out_of_range", "environment", dict(environment="")),
    ("out_of_range", "token", dict(token="aa")),
    ("invalid_token", "client2_token", dict(client2_token="")),
    ("invalid_token", "client2_token", dict(client2_token="a")),
    ("invalid_token", "client2_token", dict(client2_token="g0")),
    ("invalid_token", "client2_token", dict(client2_token="ab" * 101)),
]


@pytest.mark.parametrize("code, field, changes", ACCEPT, ids=[f"{f}={list(c.values())[0]!r:.24}" for _, f, c in ACCEPT])
def test_accept(refused, client, code, field, changes):
    joinid = new_code()
    client.create(joinid).expect(201)
    refused("POST", "/api/rooms/accept", accept_body(**({"joinid": joinid} | changes)), 400, code, field)
    client.accept(joinid).expect(200)  # the code was not used up


@pytest.mark.parametrize("path, method, body, fields", [
    ("/api/rooms", "POST", {"joinid": "a", "expiresInSeconds": 1, "joinExpiresInSeconds": "x", "client1_token": "g", "environment": 7, "bundleId": ""},
     ["joinid", "expiresInSeconds", "joinExpiresInSeconds", "client1", "client1_token", "environment", "bundleId"]),
    ("/api/rooms/accept", "POST", {"joinid": 7, "client2": "", "client2_token": "g", "environment": "moon", "bundleId": 7},
     ["joinid", "client2", "client2_token", "environment", "bundleId"]),
    ("/api/room/token", "PUT", {"member": 7, "environment": "moon", "bundleId": 7}, ["client", "member", "token", "environment", "bundleId"]),
    ("/api/room/token", "DELETE", {"client": 7, "member": 7}, ["client", "member"]),
    ("/api/room/presence", "POST", {"client": "", "member": [], "leaving": "yes"}, ["client", "member", "leaving"])])
def test_every_field_at_fault_is_told(refused, client, path, method, body, fields):
    bearer = None if "rooms" in path else client.room().roomid
    before = client.send(method, path, body, bearer=bearer)
    problem = refused(method, path, body, 400, before.code, fields[0], bearer=bearer).json
    assert list(problem["details"]) == fields and problem["details"][fields[0]] == [problem["detail"]]
    assert all(len(told) == 1 and name in told[0] for name, told in problem["details"].items())


def test_who_may_not_is_told_that_alone(refused, client):
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


def test_chunked_body_over_16_kib(world):
    before = world.state.counts()
    connection = http.client.HTTPConnection("127.0.0.1", world.broker.port, timeout=10)
    try:
        connection.request("POST", "/api/rooms", iter([b" " * 1024] * 17), {"Content-Type": "application/json"},
                           encode_chunked=True)
    except OSError:
        pass  # it may stop reading as soon as it knows
    answer = connection.getresponse()
    assert answer.status == 413 and json.loads(answer.read())["code"] == "body_too_large"
    connection.close()
    assert world.state.counts() == before


def test_announced_body_over_16_kib_is_refused_before_it_is_sent(world):
    with socket.create_connection(("127.0.0.1", world.broker.port), 5) as connection:
        connection.sendall(b"POST /api/rooms HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


RAW = {
    "two lengths": b"POST /api/rooms HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": b"POST /api/rooms HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "signed length": b"POST /api/rooms HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n{}",
    "no host": b"GET /api/room HTTP/1.1\r\n\r\n",
    "space before colon": b"GET /api/room HTTP/1.1\r\nHost : x\r\n\r\n",
    "folded": b"GET /api/room HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "not http": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\r\n\r\n",
}


@pytest.mark.parametrize("name", RAW)
def test_malformed_http(world, name):
    before = world.state.counts()
    with socket.create_connection(("127.0.0.1", world.broker.port), 5) as connection:
        connection.sendall(RAW[name])
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert world.state.counts() == before


MEMBER_CALLS = [
    ("GET", "/api/room", None), ("DELETE", "/api/room", None), ("PUT", "/api/room/token", {"client": "c", "token": "aa"}),
    ("DELETE", "/api/room/token", {"client": "c"}), ("POST", "/api/room/presence", {"client": "c"})]


@pytest.mark.parametrize("method, path, body", MEMBER_CALLS)
def test_room_ids_that_open_nothing(refused, client, method, path, body):
    room = client.room()
    answer = refused(method, path, body, 401, "no_capability")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    for other in ("Basic YTpi", "Bearer", "Bearer ", room.roomid):
        refused(method, path, body, 401, "no_capability", headers={"Authorization": other})
    for roomid in ("x", room.roomid[:-1], room.roomid + "A", room.roomid + "=", token_hex(32), "*" * 43,
                   room.roomid[:-1] + ("B" if room.roomid[-1] != "B" else "C")):
        refused(method, path, body, 401, "malformed_capability", bearer=roomid)
    refused(method, path, body, 404, "room_not_found", bearer=token_urlsafe(32))
    assert client.status(room.roomid).expect(200).json["joinerHasToken"] is True


def test_foreign_room_id(refused, client):
    mine, theirs = client.room(), client.room()
    refused("PUT", "/api/room/token", {"client": mine.creator.client, "token": "aa"}, 403, "not_a_member",
            bearer=theirs.roomid)
    refused("DELETE", "/api/room/token", {"client": mine.creator.client, "member": mine.creator.member}, 403,
            "not_a_member", bearer=theirs.roomid)
    refused("POST", "/api/room/presence", {"client": mine.joiner.client}, 403, "not_a_member", bearer=theirs.roomid)


def test_third_client(refused, client):
    room = client.room()
    refused("POST", "/api/rooms/accept", accept_body(joinid=room.code), 409, "room_already_accepted")
    for method, path, more in (("PUT", "/api/room/token", {"token": "aa"}), ("DELETE", "/api/room/token", {}),
                               ("POST", "/api/room/presence", {})):
        refused(method, path, {"client": new_client()} | more, 403, "not_a_member", bearer=room.roomid)


def test_other_sides_client_id_without_its_member_secret(refused, client):
    """Client ids may be guessed. Once a side has used its secret, its id alone opens nothing."""
    room = client.room()
    client.presence(room.roomid, room.creator.client, member=room.creator.member).expect(202)
    body = {"client": room.creator.client}
    refused("DELETE", "/api/room/token", body, 403, "member_required", bearer=room.roomid)
    refused("PUT", "/api/room/token", body | {"token": "aa"}, 403, "member_required", bearer=room.roomid)
    refused("DELETE", "/api/room/token", body | {"member": room.joiner.member}, 403, "not_a_member", bearer=room.roomid)
    refused("DELETE", "/api/room/token", body | {"member": token_urlsafe(32)}, 403, "not_a_member", bearer=room.roomid)


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
