"""Live Activities under concurrent updates. The rules of their windows are shown by ActivityWindowTests, on a clock of its own."""

import random
import threading
import time

import pytest

from companion_pushes import seconds
from companion_world import CompanionWorld, new_session
from processes import eventually

pytestmark = pytest.mark.campaign

WINDOW = 2


class Activity:
    def __init__(self, world):
        self.world, self.session = world, new_session()
        self.phone = world.phone(f"user-of-{self.session}")
        self.device = self.phone.start_activity(self.session)

    def progress(self, back_end, completed):
        data = {"elapsedSeconds": completed * 10, "todoProgress": {"completed": completed, "total": 50}}
        back_end.event(self.session, "progress_update", data, self.phone.name).expect(202)

    def pushes(self):
        return self.phone.pushes(self.device)

    def completed(self):
        """What each push says is done."""
        return [(push["payload"]["aps"]["content-state"]["todoProgress"] or {}).get("completed") for push in self.pushes()]


def check_windows(pushes):
    """Timestamps grow strictly, and no two leave within a window. When they came to Apple says a little less than when they left."""
    stamps = [push["payload"]["aps"]["timestamp"] for push in pushes]
    assert all(one < other for one, other in zip(stamps, stamps[1:])), stamps
    moments = [seconds(push["at"]) for push in pushes if push["payload"]["aps"]["event"] == "update"]
    gaps = [other - one for one, other in zip(moments, moments[1:])]
    assert all(gap > WINDOW - 0.3 for gap in gaps), gaps


def test_from_many_sides_at_once():
    """Six back ends update one activity. One update leaves in each window, and the newest state is the last to leave."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with CompanionWorld(activityUpdateSeconds=WINDOW) as world:
        activity = Activity(world)

        def push(number):
            chance, caller = random.Random(seed + number), world.back_end(f"back-end-{number}")
            for _ in range(12):
                activity.progress(caller, chance.randrange(1, 40))
                time.sleep(chance.random() * 0.2)
            caller.close()
        threads = [threading.Thread(target=push, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        last = world.back_end()
        activity.progress(last, 49)
        eventually(lambda: activity.completed()[-1] == 49, 2 * WINDOW + 2, what="the last state")
        check_windows(activity.pushes())
        last.close()
        activity.phone.close()
        assert world.broker.running
