"""A phone whose app is suspended is pushed to, and one that answers is not. With real sockets."""

import time

import pytest

from mayfly import Socket
from processes import eventually
from raw_socket import RawSocket


def suspended(world, room):
    """The creator's socket, open and silent, longer ago than its join proves anything."""
    creator = RawSocket(world.broker)
    creator.join(room.roomid, room.creator)
    time.sleep(2.2)
    return creator


def only_push(world, side, begin, within):
    """The only push to this side, which came in time."""
    eventually(lambda: world.simulator.pushes(side.token), within - (time.monotonic() - begin), 0.01, "the push")
    time.sleep(1)
    assert len(world.simulator.pushes(side.token)) == 1


@pytest.mark.background
def test_suspended_app_is_pushed_to(world):
    room = world.client().room()
    with suspended(world, room), Socket(world.broker) as joiner:
        begin = time.monotonic()
        joined = joiner.join(room.roomid, room.joiner.client)
        assert joined["peerPresent"] is True and joined["delivery"] == "peer_present"
        assert time.monotonic() - begin < 1, "joined goes out at once"
        assert joiner.receive(timeout=5) == {"type": "peer_left", "delivery": "queued"}
        only_push(world, room.creator, begin, 5)
        with pytest.raises(TimeoutError):
            joiner.receive(timeout=0.1)


@pytest.mark.background
@pytest.mark.parametrize("offset", [0, 0.7, 1.4, 2.1, 5])
def test_app_suspended_after_an_answer_is_pushed_to(world, offset):
    """The app answers one ping and is silent from then on. The joiner comes back `offset` seconds later and waits."""
    room = world.client().room()
    with suspended(world, room) as creator, RawSocket(world.broker) as earlier, Socket(world.broker) as joiner:
        earlier.join(room.roomid, room.joiner)
        creator.answer_ping()
        answered = time.monotonic()
        earlier.send({"type": "leave_room"})
        assert earlier.receive() is None
        time.sleep(max(0, answered + offset - time.monotonic()))
        begin = time.monotonic()
        assert joiner.join(room.roomid, room.joiner.client, member=room.joiner.member)["delivery"] == "peer_present"
        assert joiner.receive(timeout=5) == {"type": "peer_left", "delivery": "queued"}
        only_push(world, room.creator, begin, 5)
        with pytest.raises(TimeoutError):
            joiner.receive(timeout=0.1)


@pytest.mark.background
@pytest.mark.parametrize("how", ["1000", "1001", "leave_room"])
def test_a_client_that_leaves_is_not_pushed_to(world, how):
    client = world.client()
    room = client.room()
    with RawSocket(world.broker) as creator, RawSocket(world.broker) as joiner:
        creator.join(room.roomid, room.creator)
        joiner.join(room.roomid, room.joiner)
        if how == "leave_room":
            creator.send({"type": "leave_room"})
        else:
            creator.close(int(how))
        assert joiner.receive(seconds=3) == {"type": "peer_left"}
        time.sleep(6)
        assert world.simulator.pushes(room.creator.token) == []
        assert client.status(room.roomid).json["creatorPresent"] is False
        assert client.presence(room.roomid, room.joiner.client, member=room.joiner.member).expect(202).json == {
            "delivery": "queued"}
        assert joiner.messages(0.5) == []


@pytest.mark.background
@pytest.mark.parametrize("how", ["reset", "1002", "end"])
def test_connection_that_breaks_is_followed_by_a_push(world, how):
    room = world.client().room()
    with RawSocket(world.broker) as creator, RawSocket(world.broker) as joiner:
        creator.join(room.roomid, room.creator)
        joiner.join(room.roomid, room.joiner)
        begin = time.monotonic()
        if how == "reset":
            creator.reset()
        elif how == "end":
            creator.tcp.close()
        else:
            creator.close(int(how))
        assert joiner.receive(seconds=9) == {"type": "peer_left", "delivery": "queued"}
        assert 4.5 < time.monotonic() - begin
        only_push(world, room.creator, begin, 9)
