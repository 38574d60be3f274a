"""The clocks of nodes and of their database step while they serve. No node ends, the log verifies with all its earlier checkpoints, and no push goes out
under two ids."""

import os
import random
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

from clocks import Clocks
from databases import Server
from mayfly import Client
from nodes import Deployment, Load
from processes import eventually, http_status
from verifiers import Go, ask_swift, by_python, swift_answer


def body(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


class Stepping:
    """A deployment on a server of its own. The test steps the clocks of its nodes and of the server. Apple's clock is right."""

    def __init__(self, names):
        self.folder = Path(tempfile.mkdtemp(prefix="mayfly-clocks-"))
        # The server has another user.
        self.folder.chmod(0o755)
        self.database = self.clocks("database")
        self.server = Server(environment=self.database.environment)
        self.deployment = Deployment(names, server=self.server.uri)
        self.nodes = {name: self.clocks(name) for name in names}
        self.collected = self.deployment.simulator.collected()
        self.checkpoints = []

    def clocks(self, name):
        clocks = Clocks(self.folder / name)
        (self.folder / name).chmod(0o666)
        return clocks

    def start(self):
        self.deployment.simulator.start()
        for name, node in self.deployment.nodes.items():
            node.start(**self.nodes[name].environment)
        return self

    @property
    def all(self):
        return [self.database, *self.nodes.values()]

    def right(self, now=None):
        """Somebody sets all clocks, by the database's if no time is given."""
        now = now or self.database.now
        for clocks in self.all:
            clocks.leap(now - clocks.now)

    def pushed(self):
        """The ids of all pushes so far, by token."""
        self.collected.collect()
        return self.collected.ids()

    def keep(self):
        self.collected.collect()
        node = next(iter(self.deployment.nodes.values()))
        path = node.folder / "ledger/checkpoint"
        if path.exists():
            note = path.read_bytes()
            if not self.checkpoints or self.checkpoints[-1] != note:
                self.checkpoints.append(note)

    def ended(self):
        return [f"{name}: {node.printed()[-500:]}" for name, node in self.deployment.nodes.items() if not node.running]

    def step(self, chance):
        size = chance.choice([1, 20, 59, 90, 3_600, 40_000])
        seconds = chance.uniform(-size, size)
        which = chance.randrange(6)
        if which == 0:
            self.database.leap(seconds)
        elif which == 1:
            chance.choice(list(self.nodes.values())).leap(seconds)
        elif which < 4:
            for clocks in self.all:
                clocks.leap(seconds)
        else:
            self.right()


@contextmanager
def stepping(names):
    world = Stepping(names)
    try:
        yield world.start()
    finally:
        world.deployment.__exit__()
        world.server.close()


# Promise: clock-steps-keep-the-log
@pytest.mark.background
@pytest.mark.parametrize("names, steps", [
    ("ab", 12), *(pytest.param(names, 200, marks=[pytest.mark.campaign, pytest.mark.alone]) for names in ("a", "abc"))])
def test_clocks_step_while_nodes_serve(names, steps):
    seed = int(os.environ.get("MAYFLY_TEST_SEED", random.randrange(1 << 32)))
    print(f"MAYFLY_TEST_SEED={seed}")
    chance = random.Random(seed)
    with stepping(names) as world:
        load = Load(world.deployment, threads=2)
        try:
            for _ in range(steps):
                world.step(chance)
                time.sleep(chance.uniform(0.2, 1.5))
                world.keep()
                assert not world.ended(), "\n".join(world.ended())
            # Apple refuses every push while the nodes are ahead of it.
            world.right(time.time())
            eventually(lambda: all(node.is_serving for node in world.deployment.nodes.values()), 30, what="nodes that are ready again")
            before = len(world.pushed())
            eventually(lambda: len(world.pushed()) > before, 30, what="a push once all clocks are right")
        finally:
            load.stop()
        assert not world.ended(), "\n".join(world.ended())
        first = next(iter(world.deployment.nodes.values()))
        # What was opened before the last step has its outcome now.
        time.sleep(3)
        world.keep()
        for node in world.deployment.nodes.values():
            node.stop()
        verify(first, world.checkpoints)
        by_token = world.pushed()
        assert not [token for token, ids in by_token.items() if len(ids) > 1]
        print(f"\nsteps {steps}, checkpoints {len(world.checkpoints)}, errors {dict(Counter(load.errors))}, pushes {len(by_token)}, "
              f"bursts of which the simulator forgot some {world.collected.gaps}")
        assert len(world.checkpoints) > steps // 4


def verify(node, checkpoints):
    """All verifiers, with all earlier checkpoints. What a step passes is a gap."""
    files = []
    for number, note in enumerate(checkpoints):
        files.append(node.state.prints / f"step-{number}")
        files[-1].write_bytes(note)
    folder, vkey = node.folder / "ledger", (node.folder / "ledger.vkey").read_text().strip()
    child = ask_swift(folder, vkey, files, "--allow-gaps")
    python = by_python(folder, vkey, files, allow_gaps=True)
    swift = swift_answer(child)
    assert swift[0] is None and python[0] is None, (swift[:2], python[:2])
    go = Go()
    try:
        third = go("verify", folder, vkey, *files)
    finally:
        go.close()
    assert not isinstance(third, str) or third.startswith("gaps "), third


def test_a_step_of_half_a_minute_ends_no_node():
    with stepping("ab") as world:
        for seconds in (30, -30, 50, -50) * 3:
            world.database.leap(seconds)
            # Renewals are two seconds apart.
            time.sleep(random.uniform(1, 2.5))
            assert not world.ended(), "\n".join(world.ended())
            assert all(node.is_serving for node in world.deployment.nodes.values())
            Client(world.deployment["b"].port).create().expect(201)


# Promise: wrong-clock-stores-nothing
def test_a_database_clock_that_is_wrong_is_told():
    with stepping("a") as world:
        node = world.deployment["a"]
        ready = f"{node.operator_url}/readyz"
        world.database.leap(-90)
        Client(node.port).create().expect(503)
        eventually(lambda: http_status(ready) == 503, 5, what="a node that is not ready")
        assert "clock" in body(ready)
        assert "differ by more than a minute" in node.printed() and node.metric("alarms_total") >= 1
        world.database.leap(90)
        eventually(lambda: http_status(ready) == 200, 5, what="a node that is ready again")
        Client(node.port).create().expect(201)
        # All were ahead, and are set right.
        for seconds in (7_200, -7_200):
            for clocks in world.all:
                clocks.leap(seconds)
            time.sleep(3)
        eventually(lambda: "ahead of it until" in body(ready), 5, what="readyz says when it ends")
        assert http_status(ready) == 200
