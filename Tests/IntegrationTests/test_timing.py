"""When pushes leave under a policy with send slot and jitter, as Apple sees it; what their times tell is held by TimingTests."""

import json
import math
import random
import tempfile
import time
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

import ledger
from mayfly import Socket
from processes import REPOSITORY, audit_verify, eventually, mayfly
from world import World

# From the moment a push is to leave to the simulator's stamp, on a busy machine.
LATE = 0.4
DAY = 86_400_000


def timed_policy(path, slot=None, jitter=None):
    """The rooms policy with these seconds."""
    policy = json.loads((REPOSITORY / "policies/rooms.json").read_text())
    template = policy["templates"]["peer_waiting"]
    template |= {} if slot is None else {"sendSlotSeconds": slot}
    template |= {} if jitter is None else {"jitterSeconds": jitter}
    path.write_text(json.dumps(policy))
    return path


@contextmanager
def timed_world(**timing):
    with tempfile.TemporaryDirectory(prefix="mayfly-policy-") as folder:
        with World(policy=timed_policy(Path(folder) / "timed.json", **timing)) as world:
            yield world


def arrival(push):
    return datetime.fromisoformat(push["at"].replace("Z", "+00:00")).timestamp()


def sleep_into_slot(slot, into):
    """Until a slot is `into` seconds old."""
    time.sleep((into - time.time()) % slot)


def knock(client, room):
    assert client.presence(room.roomid, room.joiner.client).expect(202).json == {"delivery": "queued"}


def drawn(world, rooms):
    """When the waiting push to each room's creator is to leave, by the ref of the token; its row has the id of the token's purge."""
    with world.state.database() as database:
        jobs = {(purge.hex(), expires // DAY + 1): time / 1000 for purge, expires, time in database.execute(
            "SELECT purge_id, expires, not_before FROM job")}
    return {room.creator.ref: time for room in rooms for (purge, day), time in jobs.items()
            if ledger.token_id(room.creator.ref, "purged", day * DAY // 1000) == purge}


def check_departures(world, rooms, times):
    """Each room's push came once, at its time, and with what follows from it."""
    for room in rooms:
        pushes = world.simulator.pushes(room.creator.token)
        assert len(pushes) == 1, pushes
        assert -0.005 <= arrival(pushes[0]) - times[room.creator.ref] <= LATE


@pytest.fixture(scope="module")
def timed():
    with timed_world(slot=2, jitter=1) as world:
        yield world


def test_arrivals(timed):
    """Knocks at random moments: what arrives stands on the boundaries, plus jitter, and all else follows from that."""
    client = timed.client()
    rooms = [client.room() for _ in range(40)]
    times, knocked = {}, {}
    for room in rooms:
        time.sleep(random.uniform(0, 0.1))
        if time.time() % 2 > 1.7:
            sleep_into_slot(2, 0)  # so that what was drawn can still be read
        knocked[room.creator.ref] = time.time()
        knock(client, room)
        times |= drawn(timed, [room])
    for room in rooms:
        ref = room.creator.ref
        assert 0 <= times[ref] % 2 < 1 and 0 < times[ref] - knocked[ref] < 3.1, "the next boundary, and less than a second more"
    eventually(lambda: all(timed.simulator.pushes(room.creator.token) for room in rooms), what="all pushes")
    check_departures(timed, rooms, times)
    for room in rooms:
        headers = timed.simulator.pushes(room.creator.token)[0]["headers"]
        assert int(headers["apns-expiration"]) == int(times[room.creator.ref] + 120 - 3 + 1e-6)
    assert len({round(at % 2, 3) for at in times.values()}) > 30, "drawn for each"


def test_who_comes_before_the_slot_is_not_pushed_to(timed):
    client = timed.client()
    here, closed, away = (client.room() for _ in range(3))
    sleep_into_slot(2, 0.1)
    for room in (here, closed, away):
        knock(client, room)
    with Socket(timed.broker) as socket:
        socket.join(here.roomid, here.creator.client)
        client.delete(closed.roomid).expect(200)
        eventually(lambda: timed.simulator.pushes(away.creator.token), what="the push to who stayed away")
        eventually(lambda: timed.state.jobs() == 0, what="an outcome for each")
    assert not timed.simulator.pushes(here.creator.token) and not timed.simulator.pushes(closed.creator.token)

    def reasons():
        log = ledger.read(timed.state)
        found = [log.outcomes(room.creator.ref) for room in (here, closed)]
        return all(found) and [[entry.get("reason") for entry in entries] for entries in found]
    assert eventually(reasons, what="both outcomes") == [["unsent"], ["unsent"]]


def test_what_the_operator_is_told(timed, tmp_path):
    shown = mayfly("policy", "show", timed_policy(tmp_path / "policy.json", 30, 15)).stdout
    assert "(a guess at its second is right at most 1 time in 30)" in shown
    assert "cut the slots of 2 s" in timed.broker.printed(), "windows of a second"


@pytest.mark.background
def test_a_kill_changes_nothing():
    """kill -9 between knock and slot: each push leaves once, at the time that was drawn before."""
    slot, jitter = 6, 2
    with timed_world(slot=slot, jitter=jitter) as world:
        client = world.client()
        rooms = [client.room() for _ in range(8)]
        sleep_into_slot(slot, 0.2)
        for room in rooms:
            knock(client, room)
        times = drawn(world, rooms)
        assert len(set(times.values())) > 2 and all(0 <= at % slot < jitter for at in times.values())
        world.broker.kill()
        world.broker.start()
        assert time.time() < min(times.values()), "this machine is too slow for this test"
        assert drawn(world, rooms) == times
        time.sleep(max(times.values()) + LATE - time.time())
        check_departures(world, rooms, times)
        eventually(lambda: world.state.jobs() == 0, what="an outcome for each")
        assert audit_verify(world.state).returncode == 0


@pytest.mark.background
def test_what_is_missed_leaves_whole_slots_later():
    slot = 4
    with timed_world(slot=slot, jitter=1) as world:
        client = world.client()
        rooms = [client.room() for _ in range(4)]
        sleep_into_slot(slot, slot - 1)
        for room in rooms:
            knock(client, room)
        times = drawn(world, rooms)
        world.broker.kill()
        time.sleep(max(times.values()) + 0.1 - time.time())
        world.broker.start()
        back = time.time()
        later = {ref: at + math.ceil((back - at) / slot) * slot for ref, at in times.items()}
        time.sleep(max(later.values()) + LATE - time.time())
        check_departures(world, rooms, later)
        assert audit_verify(world.state).returncode == 0


@pytest.mark.background
def test_the_order_in_a_slot():
    """A hundred knocks of one slot leave together, in an order that is not theirs."""
    with timed_world(slot=6) as world:
        client = world.client()
        rooms = [client.room(tokens=(True, False)) for _ in range(100)]
        sleep_into_slot(6, 0.1)
        for room in rooms:
            knock(client, room)
        times = drawn(world, rooms)
        assert len(times) == 100 and len(set(times.values())) == 1, "this machine is too slow for this test"
        pushes = eventually(lambda: len(found := world.simulator.pushes()) == 100 and found, 10, what="all pushes")
        place = {push["token"]: index for index, push in enumerate(pushes)}
        order = [place[room.creator.token] for room in rooms]
        correlation = 1 - 6 * sum((index - at) ** 2 for index, at in enumerate(order)) / (100 * (100**2 - 1))
        assert abs(correlation) < 0.62, f"knocks and pushes are ordered alike: {correlation}"  # once in 10^9 runs
        assert len({push["headers"]["apns-expiration"] for push in pushes}) == 1
        check_departures(world, rooms, times)


@pytest.mark.background
def test_a_room_that_ends_before_the_slot():
    with timed_world(slot=47) as world:
        client = world.client()
        if time.time() % 47 > 35:
            sleep_into_slot(47, 0)
        room = client.room(expires=10)
        answer = client.presence(room.roomid, room.joiner.client).expect(202).json
        assert answer == {"delivery": "no_token"} and world.state.jobs() == 0
