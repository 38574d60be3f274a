"""Live Activities: one update a window, whoever sends at once. The rules of a window: `ActivityWindowTests`."""

import random
import threading
import time

import pytest

from companion_pushes import seconds
from companion_world import CompanionWorld, new_session
from processes import eventually

pytestmark = pytest.mark.campaign
WINDOW = 2


@pytest.fixture(scope="module")
def world():
    with CompanionWorld(activityUpdateSeconds=WINDOW) as world:
        yield world
        assert world.broker.running, "the broker ended while the tests of this file ran"


class Activity:
    def __init__(self, world):
        self.world, self.session = world, new_session()
        self.phone = world.phone(f"user-of-{self.session}")
        self.device = self.phone.start_activity(self.session)
        self.back_end = world.back_end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.phone.close()
        self.back_end.close()

    def progress(self, completed, total=50, back_end=None):
        data = {"elapsedSeconds": completed * 10, "todoProgress": {"completed": completed, "total": total}}
        return (back_end or self.back_end).event(self.session, "progress_update", data, self.phone.name).expect(202).json

    def pushes(self):
        return self.phone.pushes(self.device)

    def completed(self):
        """What each push says is done."""
        return [(push["payload"]["aps"]["content-state"]["todoProgress"] or {}).get("completed") for push in self.pushes()]


def check_windows(pushes):
    """Timestamps grow strictly, and no two leave within a window. When they came to Apple says a little less than when they left."""
    stamps = [push["payload"]["aps"]["timestamp"] for push in pushes]
    assert all(one < other for one, other in zip(stamps, stamps[1:])), stamps
    moments = [moment(push) for push in pushes if push["payload"]["aps"]["event"] == "update"]
    gaps = [other - one for one, other in zip(moments, moments[1:])]
    assert all(gap > WINDOW - 0.3 for gap in gaps), gaps


def moment(push):
    return seconds(push["at"])


def test_from_many_sides_at_once(world):
    """Six back ends at one activity: whatever the order, one a window, and the state that came last is the one that stays."""
    with Activity(world) as activity:
        seed = random.randrange(2**32)
        print(f"seed {seed}")

        def push(number):
            chance, caller = random.Random(seed + number), world.back_end(f"back-end-{number}")
            for _ in range(12):
                activity.progress(chance.randrange(1, 40), 50, caller)
                time.sleep(chance.random() * 0.2)
            caller.close()
        threads = [threading.Thread(target=push, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        activity.progress(49)
        eventually(lambda: activity.completed()[-1] == 49, 2 * WINDOW + 2, what="the last state")
        check_windows(activity.pushes())
