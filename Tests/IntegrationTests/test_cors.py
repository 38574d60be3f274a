"""CORS over the wire: what web pages of configured origins may read, and what others get. In a browser: test_javascript_client.py."""

import pytest

from mayfly import Client, new_code, new_token
from peers import Peer
from processes import Broker
from world import World

FOREIGN = "https://foreign.example"


def make_world():
    return World(apns=False, policy="rooms,companion", cors_origins="https://app.example, http://localhost:3000")


def headers(answer):
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control") or name == "vary"}


def test_answers_to_an_allowed_page(world):
    client, own = world.client(checked=False), {"Origin": "https://app.example"}
    marks = {"vary": "Origin", "access-control-allow-origin": "https://app.example", "access-control-expose-headers": "Retry-After"}
    made = client.send("POST", "/api/rooms", {"joinid": new_code(), "client1": "c"}, headers=own).expect(201)
    assert headers(made) == marks
    for method, path, body, status in (
        ("GET", "/api/room", None, 401), ("POST", "/api/rooms", {}, 400), ("POST", "/api/rooms/accept", {"joinid": new_code(), "client2": "c"}, 404),
        ("GET", "/api/none", None, 404), ("PUT", "/api/rooms", None, 405), ("OPTIONS", "/api/rooms", None, 405), ("GET", "/api/push/status", None, 401),
    ):
        assert headers(client.send(method, path, body, headers=own).expect(status)) == marks, (method, path)
    # A refusal with a time to wait, which the page may read.
    room = client.room()
    for _ in range(8):
        answer = client.send("PUT", "/api/room/token", {"client": room.joiner.client, "token": new_token()}, bearer=room.roomid, headers=own)
    assert answer.status == 429 and "retry-after" in answer.headers and headers(answer) == marks


def test_what_the_server_refuses_unread(world):
    """A page may read why, whatever its origin: the answer is the same for everyone."""
    client = world.client(checked=False)
    answer = client.send("POST", "/api/rooms", {"joinid": "x" * 20_000}, headers={"Origin": "https://app.example"}).expect(413)
    assert headers(answer) == {"access-control-allow-origin": "*", "access-control-expose-headers": "Retry-After"}


def test_preflights(world):
    client = world.client(checked=False)
    ask = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization,content-type"}
    for path in ("/api/room/token", "/api/push/register", "/api/none"):
        answer = client.send("OPTIONS", path, headers=ask | {"Origin": "https://app.example"}).expect(204)
        assert answer.body == b"" and "content-length" not in answer.headers
        assert headers(answer) == {
            "vary": "Origin", "access-control-allow-origin": "https://app.example", "access-control-allow-methods": "GET, POST, PUT, PATCH, DELETE",
            "access-control-allow-headers": "authorization, content-type", "access-control-max-age": "7200"}
    assert headers(client.send("OPTIONS", "/api/rooms", headers=ask | {"Origin": FOREIGN}).expect(405)) == {"vary": "Origin"}


def test_other_origins_and_paths_are_unmarked(world):
    client = world.client(checked=False)
    assert headers(client.send("GET", "/api/room", headers={"Origin": FOREIGN}).expect(401)) == {"vary": "Origin"}
    assert headers(client.send("GET", "/api/room").expect(401)) == {}
    own = {"Origin": "https://app.example", "Access-Control-Request-Method": "GET"}
    for method, path, status in (("GET", "/audit/", 200), ("GET", "/audit/checkpoint", 200), ("OPTIONS", "/audit/", 405), ("OPTIONS", "/webhooks/call", 405)):
        assert headers(client.send(method, path, headers=own).expect(status)) == {}, path
    operator = Client(world.broker.operator_port, checked=False)
    assert headers(operator.send("GET", "/healthz", headers=own).expect(200)) == headers(operator.send("OPTIONS", "/metrics", headers=own).expect(405)) == {}


def test_without_the_setting_nothing_is_marked(worlds):
    world = worlds(apns=False)
    client = world.client(checked=False)
    ask = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    assert headers(client.send("OPTIONS", "/api/rooms", headers=ask).expect(405)) == {}
    assert headers(client.send("GET", "/api/room", headers=ask).expect(401)) == {}
    assert handshake(world, FOREIGN) == 101


def handshake(world, origin, path="/ws", host="broker.test"):
    with Peer(world.broker.port) as peer:
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                 "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", *([f"Origin: {origin}"] if origin is not None else [])]
        peer.send(("\r\n".join(lines) + "\r\n\r\n").encode())
        return peer.answer().status


def test_sockets_of_foreign_pages_are_refused(world):
    for path in ("/ws", "/ws/sessions"):
        for origin in (None, "https://app.example", "https://broker.test", "http://broker.test"):
            assert handshake(world, origin, path) == 101, (path, origin)
        for origin in (FOREIGN, "null", "", "https://app.example.org"):
            assert handshake(world, origin, path) == 403, (path, origin)
    assert handshake(world, "https://broker.test:8443", host="broker.test:8443") == 101
    plain = world.client().send("GET", "/ws", headers={"Origin": FOREIGN}).expect(403)
    assert plain.code == "foreign_origin" and headers(plain) == {}
    assert world.client().send("GET", "/ws", headers={"Origin": "https://app.example"}).expect(426).code == "upgrade_required"


@pytest.mark.parametrize("origins", ["*", "https://app.example,*", "https://app.example/", "http://app.example", "app.example", "https://app.example:443"])
def test_an_invalid_origin_stops_the_start(state, origins):
    broker = Broker(state, cors_origins=origins)
    broker.start(wait=False)
    assert broker.child.wait(15) == 2
    said = broker.printed()
    assert "--cors-origins (MAYFLY_CORS_ORIGINS)" in said and f"Number {origins.count(',') + 1} of {origins.count(',') + 1} is not one" in said
    assert "app.example" not in said
