"""Fixtures: a broker with its simulator, on free loopback ports, with throw-away keys in a folder that goes away."""

import pytest

from mayfly import Client
from processes import BINARY, Broker, Simulator, State


def pytest_sessionstart(session):
    if not BINARY.exists():
        pytest.exit(f"no binary at {BINARY}: run `swift build` first, or set MAYFLY_BINARY", returncode=2)


class World:
    """A state folder, its broker and its simulator."""

    def __init__(self, apns=True, **broker):
        self.state = State()
        self.simulator = Simulator(self.state)
        self.broker = Broker(self.state, self.simulator.port, **broker)
        try:
            if apns:
                self.simulator.start()
            self.broker.start()
        except BaseException:
            self.close()
            raise

    def client(self, **more):
        return Client(self.broker.port, **more)

    def close(self):
        self.broker.kill()
        self.simulator.kill()
        self.state.remove()


@pytest.fixture(scope="module")
def world():
    """One broker for the tests of a file; they use rooms and addresses of their own."""
    world = World()
    yield world
    still_running = world.broker.running
    world.close()
    assert still_running, "the broker ended while the tests of this file ran"


@pytest.fixture
def worlds():
    """Makes worlds for one test, and ends them."""
    made = []

    def make(**more):
        made.append(World(**more))
        return made[-1]
    yield make
    for world in made:
        world.close()


@pytest.fixture
def client(world):
    client = world.client()
    yield client
    client.close()


@pytest.fixture
def state():
    """A state folder with throw-away keys and nothing running."""
    state = State()
    yield state
    state.remove()


@pytest.fixture
def processes():
    """Processes added to this list are ended after the test."""
    started = []
    yield started
    for process in started:
        process.kill()
