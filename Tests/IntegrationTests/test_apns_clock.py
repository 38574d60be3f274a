"""A broker whose clock is not Apple's. `SkewedClockTests` has the rules."""

import ledger
import pytest

from clocks import Clocks
from processes import eventually
from world import World

PUSHES = 64


@pytest.mark.parametrize("ahead, told", [(0.4, False), (2, False), (300, True)])
def test_a_clock_ahead_of_apples_loses_no_push(tmp_path, ahead, told):
    clocks = Clocks(tmp_path / "clocks", ahead)
    with World(environment=clocks.environment) as world:
        client = world.client()
        rooms = [client.room() for _ in range(PUSHES)]
        for room in rooms:
            assert client.presence(room.roomid, room.joiner.client, member=room.joiner.member).expect(202).json["delivery"] == "queued"

        def outcomes():
            log = ledger.read(world.state)
            found = [entry["op"] for room in rooms for entry in log.outcomes(room.creator.ref)]
            return found if len(found) == PUSHES else None
        assert set(eventually(outcomes, 20, what="each push's outcome")) == {"push.delivered"}
        assert ("Set this machine's clock, which is ahead" in world.broker.printed()) is told
        assert "InvalidProviderToken" not in world.broker.printed()
        assert 'mayfly_pushes_refused_total{reason="InvalidProviderToken"} 0' in world.broker.metrics()
