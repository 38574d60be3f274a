"""The times of pushes under a policy with send slot and jitter, as Apple sees them. `OutboxTests` has the rules, `TimingTests` what times reveal."""

import json
import tempfile
import time
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

import ledger
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
    """Checks that each room's push came once, at its time, with the values that follow from it."""
    for room in rooms:
        pushes = world.simulator.pushes(room.creator.token)
        assert len(pushes) == 1, pushes
        assert -0.005 <= arrival(pushes[0]) - times[room.creator.ref] <= LATE


@pytest.fixture(scope="module")
def timed():
    with timed_world(slot=2, jitter=1) as world:
        yield world


def test_policy_show_prints_the_chance_of_a_guess(timed, tmp_path):
    shown = mayfly("policy", "show", timed_policy(tmp_path / "policy.json", 30, 15)).stdout
    assert "(a guess at its second is right at most 1 time in 30)" in shown
    assert "cut the send slots of 2 s" in timed.broker.printed(), "windows of a second"


@pytest.mark.campaign
@pytest.mark.background
def test_a_slot_survives_a_kill():
    """kill -9 between knock and slot: each push leaves once, at the time drawn before."""
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
