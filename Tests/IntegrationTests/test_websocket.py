"""WebSocket clients that were not written here, through PyPI's `websockets`."""

import json
import threading
import time
from secrets import token_urlsafe

import pytest
from websockets.exceptions import ConnectionClosed

from mayfly import Socket, invented_room


def refused(world, message, code, *fields):
    """The error message and the close code of a first message that is refused, with all fields at fault."""
    with Socket(world.broker) as socket:
        socket.connection.send(message if isinstance(message, str) else json.dumps(message))
        close, messages = socket.closed()
        assert [m["type"] for m in messages] == ["error"], messages
        assert messages[0]["code"] == code and messages[0]["error"], messages
        assert set(messages[0]) - {"details"} == {"type", "code", "error"}
        assert list(messages[0].get("details", {})) == list(fields), messages
        assert not fields or messages[0]["details"][fields[0]] == [messages[0]["error"]], messages
        assert close == 1008, close


# Promise: socket-tells-of-the-peer
def test_two_sides_meet(world, client):
    room = client.room()
    with Socket(world.broker) as creator:
        joined = creator.join(room.roomid, room.creator.client, room.creator.member)
        assert joined == {
            "type": "joined", "expiresAt": room.creator.answer["expiresAt"], "peerPresent": False, "delivery": "queued"}
        with Socket(world.broker) as joiner:
            joined = joiner.join(room.roomid, room.joiner.client)
            assert joined["peerPresent"] is True and joined["delivery"] == "peer_present"
            assert creator.receive() == {"type": "peer_joined"}
            status = client.status(room.roomid).json
            assert status["creatorPresent"] and status["joinerPresent"]
            joiner.send({"type": "leave_room"})
            assert joiner.closed() == (1000, [])
        assert creator.receive(timeout=8) == {"type": "peer_left"}


# Promise: socket-tells-of-the-accept
def test_creator_hears_of_the_accept(world, client):
    created = client.create("code-of-the-accept", "creator").expect(201).json
    with Socket(world.broker) as creator:
        assert creator.join(created["roomid"], "creator")["delivery"] == "no_token"
        client.accept("code-of-the-accept").expect(200)
        assert creator.receive() == {"type": "peer_accepted"}


# Promise: socket-tells-of-the-end
def test_close_reaches_open_sockets(world, client):
    room = client.room()
    with Socket(world.broker) as creator, Socket(world.broker) as joiner:
        creator.join(room.roomid, room.creator.client)
        joiner.join(room.roomid, room.joiner.client)
        client.delete(room.roomid).expect(200)
        for socket in (creator, joiner):
            close, messages = socket.closed()
            assert close == 1000 and messages[-1] == {"type": "room_closed"}


@pytest.mark.campaign
@pytest.mark.background
def test_expiry_reaches_open_sockets(world):
    room = world.client().room(expires=10)
    with Socket(world.broker) as creator:
        creator.join(room.roomid, room.creator.client)
        close, messages = creator.closed()
        assert close == 1000 and messages[-1] == {"type": "room_closed"}


def test_two_sockets_of_one_side_count_as_one_presence(world, client):
    room = client.room()
    with Socket(world.broker) as creator, Socket(world.broker) as first:
        creator.join(room.roomid, room.creator.client)
        first.join(room.roomid, room.joiner.client)
        creator.expect("peer_joined")
        with Socket(world.broker) as second:
            second.join(room.roomid, room.joiner.client)
        assert client.status(room.roomid).json["joinerPresent"] is True
        with pytest.raises(TimeoutError):
            creator.receive(timeout=0.5)


def test_ping_message(world, client):
    room = client.room()
    with Socket(world.broker) as socket:
        socket.join(room.roomid, room.creator.client)
        socket.send({"type": "ping"})
        assert socket.receive() == {"type": "pong"}
        assert socket.connection.ping().wait(5), "no pong to a ping frame"


def test_refused_first_messages(world, client):
    room = client.room()
    good = {"type": "join_room", "roomid": room.roomid, "client": room.creator.client}
    refused(world, "hello", "malformed_json")
    refused(world, "[]", "malformed_json")
    refused(world, '{"type":"join_room","type":"join_room"}', "malformed_json")
    refused(world, {"roomid": room.roomid, "client": "c"}, "missing_field", "type")
    refused(world, {"type": "join_room", "client": "c"}, "missing_field", "roomid")
    refused(world, {"type": "join_room", "roomid": room.roomid}, "missing_field", "client")
    refused(world, good | {"client": 7}, "wrong_type", "client")
    refused(world, good | {"client": "x" * 129}, "out_of_range", "client")
    refused(world, {"type": "join_room", "client": 7, "member": 7}, "missing_field", "roomid", "client", "member")
    refused(world, good | {"roomid": room.roomid[:-1]}, "malformed_capability")
    for roomid in (token_urlsafe(32), invented_room()):
        refused(world, good | {"roomid": roomid}, "room_not_found")
    refused(world, good | {"client": "somebody-else"}, "not_a_member")
    refused(world, good | {"member": room.joiner.member}, "not_a_member")
    status = client.status(room.roomid).json
    assert not status["creatorPresent"] and not status["joinerPresent"]


@pytest.mark.parametrize("message", [{"type": "ping"}, {"type": "leave_room"}, {"type": "chat", "text": "hi"}])
def test_speaks_wrong_first(world, message):
    with Socket(world.broker) as socket:
        socket.send(message)
        close, messages = socket.closed()
        assert close == 1008 and [m["type"] for m in messages] == ["error"]


def test_third_client_is_refused(world, client):
    room = client.room()
    with Socket(world.broker) as creator:
        creator.join(room.roomid, room.creator.client)
        refused(world, {"type": "join_room", "roomid": room.roomid, "client": "a third"}, "not_a_member")


def test_side_that_used_its_member_secret_needs_it(world, client):
    room = client.room()
    with Socket(world.broker) as socket:
        socket.join(room.roomid, room.creator.client, room.creator.member)
    refused(world, {"type": "join_room", "roomid": room.roomid, "client": room.creator.client}, "member_required")


@pytest.mark.campaign
@pytest.mark.background
def test_a_silent_socket_is_closed(world):
    with Socket(world.broker) as socket:
        begin = time.monotonic()
        assert socket.closed(timeout=14) == (1008, [])
        assert 9 < time.monotonic() - begin < 12


@pytest.mark.parametrize("joined", [False, True])
def test_binary_message(world, client, joined):
    room = client.room()
    with Socket(world.broker) as socket:
        if joined:
            socket.join(room.roomid, room.creator.client)
        socket.connection.send(b"\x00\x01")
        assert socket.closed()[0] == 1003


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("size", [16 * 1024 + 1, 1024 * 1024])
def test_message_too_large(world, client, joined, size):
    room = client.room()
    with Socket(world.broker) as socket:
        if joined:
            socket.join(room.roomid, room.creator.client)
        try:
            socket.connection.send(json.dumps({"type": "ping", "x": "y" * size}))
        except (ConnectionClosed, OSError):
            pass
        assert socket.closed()[0] == 1009


def test_message_too_large_in_pieces(world, client):
    room = client.room()
    with Socket(world.broker) as socket:
        socket.join(room.roomid, room.creator.client)
        try:
            socket.connection.send(["x" * 1000] * 40)
        except (ConnectionClosed, OSError):
            pass
        assert socket.closed()[0] == 1009


def test_pings_for_ever(world, client):
    room = client.room()
    with Socket(world.broker) as socket:
        socket.join(room.roomid, room.creator.client)
        try:
            for _ in range(300):
                socket.connection.ping()
        except (ConnectionClosed, OSError):
            pass
        assert socket.closed()[0] == 1008


def test_pings_within_reason(world, client):
    room = client.room()
    with Socket(world.broker) as socket:
        socket.join(room.roomid, room.creator.client)
        for _ in range(50):
            assert socket.connection.ping().wait(5)
        socket.send({"type": "ping"})
        assert socket.receive() == {"type": "pong"}


def test_not_an_upgrade(client):
    answer = client.send("GET", "/ws").expect(426, "upgrade_required")
    assert answer.headers["upgrade"] == "websocket"


def test_a_stop_closes_with_1001(worlds):
    world = worlds()
    room = world.client().room()
    with Socket(world.broker) as socket:
        socket.join(room.roomid, room.creator.client)
        assert world.broker.stop() == 0
        assert socket.closed()[0] == 1001


def test_joined_comes_before_news_of_the_peer(world, client):
    """Both sides join at the same moment."""
    for _ in range(15):
        room = client.room()
        sides = [(room.creator.client, room.creator.member), (room.joiner.client, room.joiner.member)]
        with Socket(world.broker) as one, Socket(world.broker) as other:
            firsts = []

            def join(socket, side):
                socket.send({"type": "join_room", "roomid": room.roomid, "client": side[0], "member": side[1]})
                firsts.append(socket.receive()["type"])
            joins = [threading.Thread(target=join, args=pair) for pair in zip((one, other), sides)]
            for thread in joins:
                thread.start()
            for thread in joins:
                thread.join()
            assert firsts == ["joined", "joined"]
