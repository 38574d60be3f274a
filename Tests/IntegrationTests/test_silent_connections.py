"""Connections to Apple that a network drops without a word, as NATs and load balancers do. `SilentConnectionTests` has the rules."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from mayfly import new_client, new_code, new_token
from processes import TEAM_ID, eventually
from test_apps import ALONE, write
from world import World

APPS = 100
BUSY = 50


@pytest.fixture
def relay():
    running = []

    def start(upstream):
        script = Path(__file__).with_name("relay.py")
        child = subprocess.Popen([sys.executable, script, str(upstream)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(child)
        child.port = int(child.stdout.readline())
        return child
    yield start
    for child in running:
        child.kill()
        child.wait(10)


def freeze(relay):
    relay.stdin.write("\n")
    relay.stdin.flush()
    return int(relay.stdout.readline())


def at_each(count):
    """Each app has a key of its own, and so a connection of its own."""
    return [(f"org.example.app{number}", f"KEY{number:07}") for number in range(count)]


@pytest.fixture
def many(relay):
    """A broker with a connection for each of many apps, through a relay."""
    with World(apns=False, start=False) as world:
        apps = at_each(APPS)
        for topic, key in apps:
            file = world.state.prints / f"{topic}.json"
            file.write_text(json.dumps({"keyID": key, "teamID": TEAM_ID, "key": str(world.state / "keys/apns.p8"), "topics": [topic]}))
            world.simulator.more += ["--app", file]
        world.simulator.start()
        world.relay = relay(world.simulator.port)
        listed = write(world.state, *(f"{topic} sandbox key keys/apns.p8 {key} {TEAM_ID}" for topic, key in apps))
        changes = ALONE | {"apns_apps": listed, "apns_endpoint": f"127.0.0.1:{world.relay.port}"}
        world.broker.options |= {name.replace("_", "-"): value for name, value in changes.items()}
        world.broker.start()
        yield world


class Knock:
    """A room whose creator is away. `ring` makes a push of it."""

    def __init__(self, client, topic):
        self.token, self.joiner, code = new_token(), new_client(), new_code()
        self.room = client.create(code, new_client(), self.token, bundleId=topic, environment="sandbox").expect(201).json["roomid"]
        client.accept(code, self.joiner).expect(200)

    def ring(self, client):
        self.at = time.time()
        assert client.presence(self.room, self.joiner).expect(202).json["delivery"] == "queued"


@pytest.mark.campaign
def test_no_push_is_late_when_all_connections_die(many):
    """100 connections: one half is idle, the other half has pushes in flight when nothing passes any more."""
    client = many.client()
    topics = [topic for topic, _ in at_each(APPS)]
    warm = [Knock(client, topic) for topic in topics]
    idle = [Knock(client, topic) for topic in topics[BUSY:]]
    busy = [Knock(client, topic) for _ in range(4) for topic in topics[:BUSY]]
    for knock in warm:
        knock.ring(client)
    eventually(lambda: len(many.simulator.pushes()) == APPS, 20, what="a push of each app")
    time.sleep(1.5)

    with ThreadPoolExecutor(2) as pool:
        def ring(knocks):
            own = many.client()
            for knock in knocks:
                knock.ring(own)
        rings = [pool.submit(ring, busy[part::2]) for part in range(2)]
        # Some of the busy ones' pushes are answered, some are in flight, some come after it.
        eventually(lambda: len(many.simulator.pushes()) >= APPS + BUSY, 20, 0.005, "pushes in flight")
        assert freeze(many.relay) == APPS
        ring(idle)
        for running in rings:
            running.result(30)

    def accepted():
        pushes = many.simulator.pushes()
        return pushes if {push["token"] for push in pushes} >= {knock.token for knock in idle + busy} else None
    pushes = eventually(accepted, 20, what="every push")
    late, ids = {}, {}
    for push in pushes:
        at = datetime.fromisoformat(push["at"].replace("Z", "+00:00")).timestamp()
        late[push["token"]] = min(at, late.get(push["token"], at))
        ids.setdefault(push["token"], set()).add(push["headers"]["apns-id"])
    waits = sorted(late[knock.token] - knock.at for knock in idle + busy)
    assert waits[-1] <= 3, waits[-10:]
    # All of the idle ones, and some of the busy ones, needed the second attempt.
    assert sum(wait > 1.9 for wait in waits) >= APPS - BUSY, waits
    assert all(len(found) == 1 for found in ids.values())
    assert many.whole_log().counts()["push.delivered"] == len(warm + idle + busy)
