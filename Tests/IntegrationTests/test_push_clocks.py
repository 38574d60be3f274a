"""A clock is set while pushes wait: no push is tried, and no token kept open, beyond two minutes."""

import time

import pytest

import ledger
from clocks import Clocks
from mayfly import new_client, new_code, new_token
from processes import eventually
from world import World

pytestmark = pytest.mark.campaign


def test_a_clock_set_back_does_not_extend_pushes():
    with World(start=False) as world:
        clocks = Clocks(world.state.prints / "clocks")
        world.broker.start(**clocks.environment)
        clocks.leap(-300)
        world.simulator.fault(always=[{"reason": "InternalServerError"}])
        client, code, token = world.client(), new_code(), new_token()
        room = client.create(code, new_client(), token).expect(201).json
        client.accept(code, (joiner := new_client())).expect(200)
        assert client.presence(room["roomid"], joiner).expect(202).json["delivery"] == "queued"
        for _ in range(5):
            time.sleep(0.2)
            clocks.go_on(31)
        [failed] = eventually(lambda: ledger.read(world.state).outcomes(room["ref"]), 8, what="the outcome")
        assert (failed["op"], failed["reason"]) == ("push.failed", "InternalServerError")
        world.simulator.fault()
        clocks.go_on(31)
        time.sleep(0.3)
        assert world.simulator.pushes(token) == []
