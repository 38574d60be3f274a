"""Shares at the broker: one caller's repeats and floods don't affect others, nor grow the public log beyond the budget."""

import json
import threading
import time
from pathlib import Path

import pytest

import ledger
from mayfly import Client, new_token, other_address
from processes import eventually, mayfly
from world import World

LIMIT = 40


def policy(folder):
    """The rooms policy with small budgets."""
    text = json.loads((Path(__file__).parents[2] / "policies/rooms.json").read_text())
    text["limits"]["creations"]["perAddress"] = {"count": LIMIT, "seconds": 600}
    path = folder / "policy.json"
    path.write_text(json.dumps(text))
    return path


@pytest.fixture
def world(tmp_path):
    with World(resolution=1, policy=policy(tmp_path)) as world:
        yield world


def entries(world):
    """How many entries the log has: those that wait and those that are published."""
    with world.state.database() as database:
        waiting = database.execute("SELECT count(*) FROM entry").fetchone()[0]
    checkpoint = world.state / "ledger/checkpoint"
    return waiting + (int(checkpoint.read_text().split("\n")[1]) if checkpoint.exists() else 0)


def settled(world):
    """The size of the log once everything is published."""
    def quiet():
        with world.state.database() as database:
            waiting = database.execute("SELECT count(*) FROM entry").fetchone()[0]
        return waiting == 0
    eventually(quiet, 10)
    return entries(world)


class Bystander:
    """Makes rooms and knocks from an address of its own, and records every answer."""

    def __init__(self, world):
        self.client, self.answers, self.ended = Client(world.broker.port), [], False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ended and len(self.answers) < LIMIT // 2:
            room = self.client.room(tokens=(True, False))
            self.answers.append(self.client.presence(room.roomid, room.joiner.client))
            time.sleep(0.1)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended = True
        self.thread.join()
        self.client.close()
        # A busy machine answers few in that time.
        assert self.answers
        for answer in self.answers:
            assert answer.expect(202).json["delivery"] == "queued", answer.body


def log(world):
    settled(world)
    return ledger.Ledger(world.state / "ledger", world.state.vkey).entries


# Promise: others-notice-nothing
def test_a_flooding_network_stops_no_other(world):
    flood = other_address()
    with Bystander(world):
        refused = 0

        def attack():
            nonlocal refused
            client = Client(world.broker.port, address=flood)
            end = time.monotonic() + 3
            while time.monotonic() < end:
                created = client.create(token=new_token())
                assert created.status in (201, 429), created.body
                refused += created.status == 429
            client.close()

        threads = [threading.Thread(target=attack) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert refused > 100


def test_knocks_add_to_the_log_no_faster_than_creations(world):
    """A network can't knock at more rooms than it may make. Further knocks are throttled, and the log does not grow."""
    maker, flood = [world.client() for _ in range(3)], world.client()
    rooms = [client.room(tokens=(True, False)) for client in maker for _ in range(LIMIT * 2 // 3)]
    found = [flood.presence(room.roomid, room.joiner.client).expect(202).json["delivery"] for room in rooms]
    assert found == ["queued"] * LIMIT + ["throttled"] * (len(rooms) - LIMIT)


def test_a_back_end_has_a_larger_share(tmp_path):
    with World(resolution=1, policy=policy(tmp_path), environment={
            "MAYFLY_BACKENDS": "127.9.0.0/16,10.0.0.7", "MAYFLY_BACKEND_CREATIONS": 60}) as world:
        own = Client(world.broker.port, address="127.9.3.4")
        assert [own.create().status for _ in range(62)] == [201] * 60 + [429] * 2
        # Another address of the same network shares its share.
        Client(world.broker.port, address="127.9.3.5").create().expect(429, "too_many_requests")
        world.client(address="127.8.3.5").create().expect(201)


@pytest.mark.parametrize("words", [("--backends", "10.0.0.0/33"), ("--backends", "example.org"), ("--backend-creations", "0"),
                                   ("--backends", "certificates")])
def test_a_bad_back_end_setting_is_refused(world, words):
    ran = mayfly("serve", "--state", world.state.folder, *words)
    assert ran.returncode == 2 and words[0] in ran.stderr and "is not a flag" not in ran.stderr, ran.stderr


# Promise: short-codes-have-shares
def test_one_address_leaves_short_codes_to_others():
    """A sixth of a million codes is guessed soon, so few of them may wait. One address can't have them all."""
    codes = map("{:06}".format, range(10**6))
    with World(resolution=1) as world:
        greedy = world.client()
        made = 0
        while (last := greedy.create(next(codes))).status == 201:
            made += 1
        last.expect(429, "too_many_requests")
        assert int(last.headers["retry-after"]) > 0 and made == 200
        # Only codes that can be guessed are scarce.
        greedy.create().expect(201)
        for other in (world.client(), world.client()):
            assert [other.create(next(codes)).status for _ in range(100)] == [201] * 100


def test_a_back_end_has_a_larger_share_of_short_codes():
    codes = map("{:06}".format, range(10**6))
    with World(resolution=1, environment={"MAYFLY_BACKENDS": "127.9.0.0/16"}) as world:
        own = Client(world.broker.port, address="127.9.3.4")
        statuses = [own.create(next(codes)).status for _ in range(400)]
        # Half of what is free at each moment is a third of all.
        assert statuses == [201] * 333 + [429] * 67
