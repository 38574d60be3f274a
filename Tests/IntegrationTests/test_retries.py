"""The connection breaks before the answer: a repeated call has the contract's answer."""

import json
import socket
import struct
import time

import ledger
from mayfly import new_client, new_code, new_token
from processes import eventually


def cut_off(world, method, path, body=None, bearer=None, kept=None):
    """Sends a whole request (or its first `kept` bytes) and resets the connection without reading a byte."""
    content = b"" if body is None else json.dumps(body).encode()
    bearer = f"Authorization: Bearer {bearer}\r\n" if bearer else ""
    request = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{bearer}Content-Length: {len(content)}\r\n\r\n".encode() + content
    before = world.state.counts()
    connection = socket.create_connection(("127.0.0.1", world.broker.port), 5)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.sendall(request[:kept])
    if kept is None:
        eventually(lambda: world.state.counts() != before, what=f"{method} {path} in the store")
    connection.close()


def test_a_create_may_be_repeated(world, client):
    body = {"joinid": new_code(), "expiresInSeconds": 3600, "client1": new_client(), "client1_token": new_token()}
    cut_off(world, "POST", "/api/rooms", body)
    after = world.state.counts()
    first = client.send("POST", "/api/rooms", body).expect(200).json
    assert client.send("POST", "/api/rooms", body).expect(200).json == first
    assert first["ref"] and world.state.counts() == after
    assert client.accept(body["joinid"]).expect(200).json["roomid"] == first["roomid"]
    sealed = eventually(lambda: ledger.read(world.state).of(first["ref"], "token.sealed"), what="the seal in the ledger")
    assert len(sealed) == 1


def test_a_create_cut_short_leaves_nothing(world, client):
    body = {"joinid": new_code(), "expiresInSeconds": 3600, "client1": new_client()}
    before = world.state.counts()
    cut_off(world, "POST", "/api/rooms", body, kept=90)
    time.sleep(0.2)
    assert world.state.counts() == before
    client.send("POST", "/api/rooms", body).expect(201)


def test_an_accept_may_be_repeated(world, client):
    body = {"joinid": new_code(), "client2": new_client(), "client2_token": new_token()}
    created = client.create(body["joinid"], token=new_token()).expect(201).json
    cut_off(world, "POST", "/api/rooms/accept", body)
    after = world.state.counts()
    first = client.send("POST", "/api/rooms/accept", body).expect(200).json
    assert client.send("POST", "/api/rooms/accept", body).expect(200).json == first
    assert first["roomid"] == created["roomid"] and first["ref"] and world.state.counts() == after
    client.presence(first["roomid"], body["client2"], member=first["member"]).expect(202)
    sealed = eventually(lambda: ledger.read(world.state).of(first["ref"], "token.sealed"), what="the seal in the ledger")
    assert len(sealed) == 1


def test_a_lost_answer_is_repeated_to_its_client_only(world, client):
    """The lost answer belongs to the client that asked for it, and to nobody else."""
    body = {"joinid": new_code(), "client2": new_client()}
    client.create(body["joinid"]).expect(201)
    cut_off(world, "POST", "/api/rooms/accept", body)
    client.accept(body["joinid"]).expect(409, "room_already_accepted")
    client.send("POST", "/api/rooms/accept", body).expect(200)


def test_a_delete_may_be_repeated(world, client):
    room = client.room()
    cut_off(world, "DELETE", "/api/room", bearer=room.roomid)
    client.delete(room.roomid).expect(404, "room_not_found")
    client.status(room.roomid).expect(404, "room_not_found")

    def purged():
        log = ledger.read(world.state)
        return [[e["cause"] for e in log.of(side.ref, "token.purged")] for side in (room.creator, room.joiner)]
    eventually(lambda: purged() == [["ended"], ["ended"]], what="both purges in the ledger, once")


def test_calls_may_be_repeated_after_a_kill(worlds):
    """The broker is killed between the operation and the repeat."""
    world = worlds()
    client = world.client()
    pending = {"joinid": new_code(), "expiresInSeconds": 3600, "client1": new_client(), "client1_token": new_token()}
    accept = {"joinid": new_code(), "client2": new_client(), "client2_token": new_token()}
    client.create(accept["joinid"]).expect(201)
    doomed = client.room()
    cut_off(world, "POST", "/api/rooms", pending)
    cut_off(world, "POST", "/api/rooms/accept", accept)
    cut_off(world, "DELETE", "/api/room", bearer=doomed.roomid)
    client.close()
    world.broker.kill()
    world.broker.start()
    first = client.send("POST", "/api/rooms", pending).expect(200).json
    assert client.send("POST", "/api/rooms", pending).expect(200).json == first
    second = client.send("POST", "/api/rooms/accept", accept).expect(200).json
    assert client.send("POST", "/api/rooms/accept", accept).expect(200).json == second
    client.delete(doomed.roomid).expect(404, "room_not_found")
