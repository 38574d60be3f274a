"""audit/linker.py on a real log with the simulator's records: what it claims is held against what the clients know."""

import json
import subprocess
import sys
import time

import pytest

import ledger
from processes import REPOSITORY, eventually


def linker(*arguments):
    command = [sys.executable, REPOSITORY / "audit/linker.py", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def linked(world, tmp_path_factory):
    """Rooms that come every two seconds, some closed, and what the linker says of each ref: {ref: (phone, likely, partner)}."""
    client, rooms = world.client(), []
    for number in range(4):
        room = client.room()
        rooms.append(room)
        side = (room.creator, room.joiner)[number % 2]
        client.presence(room.roomid, (room.joiner, room.creator)[number % 2].client).expect(202)
        eventually(lambda: world.simulator.pushes(side.token), what="the push")
        if number % 2:
            client.delete(room.roomid).expect(200)
        time.sleep(2.1)  # the slack and a window, so that no two pushes can be mistaken for one another
    eventually(lambda: ledger.read(world.state).counts()["push.delivered"] == 4, what="all outcomes in the log")
    records = tmp_path_factory.mktemp("apple") / "pushes.json"
    records.write_text(json.dumps(world.simulator.pushes()))
    header, *lines = linker("--ledger", world.state / "ledger", "--pushes", records, "--slack", 0.9, "--lives", "3600:1").splitlines()
    assert header.split() == ["ref", "phone", "likely", "the", "same", "room", "as"]
    return rooms, {line.split()[0]: line.split()[1:] for line in lines}


def test_names_the_phone_of_each_push(linked):
    rooms, said = linked
    assert len(said) == 8
    for number, room in enumerate(rooms):
        pushed, other = (room.creator, room.joiner) if number % 2 == 0 else (room.joiner, room.creator)
        assert said[pushed.ref][0] == pushed.token[:8] + "…", said[pushed.ref]
        assert said[other.ref][0] == "-", "never pushed: Apple does not know it"


def test_names_the_two_refs_of_a_closed_room(linked):
    rooms, said = linked
    for room in rooms[1::2]:
        assert said[room.creator.ref][2] == room.joiner.ref and said[room.joiner.ref][2] == room.creator.ref


def test_needs_both_files():
    done = subprocess.run([sys.executable, REPOSITORY / "audit/linker.py", "--ledger", "x"], capture_output=True, text=True)
    assert done.returncode == 2 and "go together" in done.stderr
