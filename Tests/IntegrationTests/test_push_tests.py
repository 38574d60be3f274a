"""`POST /api/push/test`: members and users push to their own addresses, to see whether pushes arrive."""

import time
from contextlib import closing

import pytest

import ledger
from call_world import CallWorld
from companion_client import Caller
from companion_world import CompanionWorld
from mayfly import Socket, invented_room, new_client, new_token
from monitor_world import MonitorWorld, new_printer
from processes import eventually
from test_web_push import TEXT, PushWorld, message
from web_push_service import Subscriber


def refused(answer):
    """The usual refusal of a share."""
    answer.expect(429, "too_many_requests")
    assert answer.headers["retry-after"] == "3600"
    return answer


def ask(caller, app, **more):
    return caller.call("POST", "/api/push/test", {"app": app} | more)


# Promise: test-push-limit
def test_a_member_gets_its_own_push_three_times_an_hour(world, client):
    room = client.room()
    creator, mine = room.creator, {"member": room.creator.member}
    with Socket(world.broker) as socket:
        socket.join(room.roomid, creator.client, creator.member)
        assert client.test_push(room.roomid, creator.client, **mine).expect(202).json == {"delivery": "queued"}
        [push] = eventually(lambda: world.simulator.pushes(creator.token), what="the push")
    assert push["payload"]["aps"]["alert"] == {"body": TEXT}
    # The room id may travel in the body.
    body = {"client": creator.client, "roomid": room.roomid} | mine
    for _ in range(2):
        client.send("POST", "/api/push/test", body).expect(202)
    eventually(lambda: len(world.simulator.pushes(creator.token)) == 3, what="the other pushes")
    refused(client.test_push(room.roomid, creator.client, **mine))
    # Neither a token in between nor another room is a way around.
    client.put_token(room.roomid, creator.client, new_token(), **mine).expect(200)
    client.put_token(room.roomid, creator.client, creator.token, **mine).expect(200)
    refused(client.test_push(room.roomid, creator.client, **mine))
    other = client.room((False, True))
    client.put_token(other.roomid, other.creator.client, creator.token).expect(200)
    refused(client.test_push(other.roomid, other.creator.client))
    # The peer got only the knock of the creator's socket, and its own tests are left.
    eventually(lambda: world.simulator.pushes(room.joiner.token), what="the knock")
    assert client.test_push(room.roomid, room.joiner.client).expect(202).json == {"delivery": "queued"}
    eventually(lambda: len(world.simulator.pushes(room.joiner.token)) == 2, what="the peer's push")
    assert len(world.simulator.pushes(creator.token)) == 3


def test_a_test_costs_no_knock(world, client):
    room = client.room()
    client.test_push(room.roomid, room.creator.client).expect(202)
    eventually(lambda: world.simulator.pushes(room.creator.token), what="the test")
    assert client.presence(room.roomid, room.joiner.client).expect(202).json == {"delivery": "queued"}
    client.test_push(room.roomid, room.creator.client).expect(202)
    eventually(lambda: len(world.simulator.pushes(room.creator.token)) == 3, what="the knock and another test")


# Promise: test-push-own-address
def test_nobody_tests_another_sides_address(world, client):
    room = client.room((True, False))
    creator = room.creator.client
    client.delete_token(room.roomid, room.joiner.client, member=room.joiner.member).expect(200)
    # A side without an address learns nothing about the other's.
    assert client.test_push(room.roomid, room.joiner.client, member=room.joiner.member).expect(202).json == {"delivery": "no_token"}
    client.test_push(room.roomid, new_client()).expect(403, "not_a_member")
    client.test_push(room.roomid, creator, member=room.joiner.member).expect(403, "not_a_member")
    client.test_push(room.roomid, room.joiner.client).expect(403, "member_required")
    client.test_push(invented_room(), creator).expect(404, "room_not_found")
    client.test_push("x", creator).expect(401, "malformed_capability")
    client.send("POST", "/api/push/test").expect(401, "no_capability")
    client.send("POST", "/api/push/test", {"client": creator}).expect(401, "no_capability")
    client.send("POST", "/api/push/test", {}, bearer=room.roomid).expect(400, "missing_field", "client")
    client.send("POST", "/api/push/test", {"app": "rooms"}, bearer=room.roomid).expect(400, "out_of_range", "app")
    client.send("POST", "/api/push/test", {"app": 1}, bearer=room.roomid).expect(400, "wrong_type", "app")
    client.send("POST", "/api/push/test", {"app": "companion"}, bearer=room.roomid).expect(404, "audiences_off")
    assert world.simulator.pushes(room.creator.token) == []
    client.delete(room.roomid).expect(200)
    client.test_push(room.roomid, creator).expect(404, "room_not_found")


def test_a_dead_address_is_purged(world, client):
    room = client.room()
    world.simulator.fault(reason="Unregistered", token=room.creator.token, timestamp=int(time.time() * 1000) + 1000)
    try:
        client.test_push(room.roomid, room.creator.client).expect(202)
        eventually(lambda: not client.status(room.roomid).json["creatorHasToken"], what="the purge")
    finally:
        world.simulator.fault()
    assert client.test_push(room.roomid, room.creator.client).expect(202).json == {"delivery": "no_token"}


def test_the_log_has_tests_like_other_pushes(world, client):
    """Each opening has its outcome, and the verifiers accept the log."""
    room = client.room()
    for side in (room.creator, room.joiner):
        client.test_push(room.roomid, side.client, member=side.member).expect(202)
    eventually(lambda: all(world.simulator.pushes(side.token) for side in (room.creator, room.joiner)), what="the tests")
    delivered = len(world.simulator.pushes())
    eventually(lambda: ledger.read(world.state).counts()["push.delivered"] >= delivered, 20, what="the outcomes in the log")
    opened = [entry for entry in world.whole_log().entries if entry["op"] == "token.opened"]
    assert len(opened) >= delivered >= 2 and {entry["template"] for entry in opened} == {"peer_waiting"}


def test_a_browser_gets_its_own_push():
    with PushWorld(services=1) as world, closing(world.client()) as client:
        browser = Subscriber(world.service)
        created = client.create(client1="page", token=browser.json()).expect(201).json
        test = lambda: client.test_push(created["roomid"], "page", member=created["member"])
        assert test().expect(202).json == {"delivery": "queued"}
        assert browser.open(message(browser))["notification"]["title"] == TEXT
        for _ in range(2):
            test().expect(202)
        refused(test())
        eventually(lambda: len(browser.messages()) == 3, what="the messages")
        # The same endpoint with other keys is the same address.
        client.put_token(created["roomid"], "page", browser.new_keys().json(), member=created["member"]).expect(200)
        refused(test())
        world.whole_log()
        assert len(browser.messages()) == 3


@pytest.mark.parametrize("postgres", [False, True])
def test_a_users_devices_get_their_own_push(postgres):
    with CompanionWorld(postgres=postgres) as world:
        alice, bob = world.user(), world.user()
        alice.start_activity("session")
        second = alice.register(new_token()).expect(200).json
        receipt = ask(alice, "companion").expect(202).json
        assert receipt == {"success": True, "pushes": 2}
        [note] = eventually(alice.received, what="the push")
        assert (note.type, note.title) == ("complete", "Task Complete")
        alice.delete_token(second["tokenId"]).expect(200)
        for count in (2, 3):
            ask(alice, "companion").expect(202)
            # One that still waits is replaced by the next.
            alice.wait(count)
        refused(ask(alice, "companion"))
        # Registering anew is no way around, and a new device has tests of its own.
        alice.delete_token(alice.device.id).expect(200)
        alice.log_in()
        refused(ask(alice, "companion"))
        alice.register(new_token()).expect(200)
        assert ask(alice, "companion").expect(202).json == {"success": True, "pushes": 1, "throttled": 1}
        assert ask(bob, "companion").expect(202).json == {"success": True, "pushes": 1}
        for nobody in (world.phone("nobody"), world.back_end()):
            assert ask(nobody, "companion").expect(202).json == {"success": True, "pushes": 0}
        ask(Caller(world.broker, None), "companion").expect(401, "no_jwt")
        ask(Caller(world.broker, "x"), "companion").expect(401, "invalid_jwt")
        ask(alice, "calls").expect(404, "audiences_off")
        world.whole_log()
        assert len(bob.pushes()) == 1 and len(alice.pushes()) == 3
        assert alice.pushes(alice.activities["session"]) == []


def test_a_monitors_devices_get_their_own_push():
    with MonitorWorld() as world:
        printer, tokens = new_printer(), [new_token() for _ in range(3)]
        alice, bob = world.user(), world.user()
        for user, token, watched in ((alice, tokens[0], printer), (alice, tokens[1], new_printer()), (bob, tokens[2], printer)):
            user.call("POST", "/api/devices/register", {"apnsToken": token, "printerPrefix": watched}).expect(200)
        assert ask(alice, "monitor", printerPrefix=printer).expect(202).json == {"success": True, "pushes": 1}
        eventually(lambda: world.simulator.pushes(tokens[0]), what="the push")
        assert ask(alice, "monitor").expect(202).json == {"success": True, "pushes": 0}
        ask(alice, "monitor", printerPrefix="").expect(400, "out_of_range", "printerPrefix")
        world.whole_log()
        assert [len(world.simulator.pushes(token)) for token in tokens] == [1, 0, 0]


def test_a_users_own_phone_rings():
    with CallWorld() as world:
        token, other = new_token(), new_token()
        alice, bob = (Caller(world.broker, world.users.token(name)) for name in ("alice", "bob"))
        for caller, uid, own in ((alice, "alice", token), (bob, "bob", other)):
            caller.call("POST", "/api/voip/token", {"uid": uid, "token": own}).expect(200)
        assert ask(alice, "calls").expect(202).json == {"success": True, "pushes": 1}
        eventually(lambda: world.simulator.pushes(token), what="the call")
        world.whole_log()
        assert world.simulator.pushes(other) == []
