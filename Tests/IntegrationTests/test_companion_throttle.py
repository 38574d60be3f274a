"""Live Activities: one update a window, the newest state when it opens, none lost at the end, and an end that always passes."""

import random
import threading
import time

import pytest

import ledger
from companion_pushes import check_activity_approval, check_end, check_update, content, seconds
from companion_world import CompanionWorld, new_session
from mayfly import new_token
from processes import eventually

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

    def wait(self, count, seconds=2 * WINDOW + 4):
        return self.phone.wait(count, self.device, seconds)

    def elapsed(self, push):
        """Nothing says how long the session takes, and the broker counts in tens."""
        elapsed = push["payload"]["aps"]["content-state"]["elapsedSeconds"]
        assert elapsed in (0, 10)
        return elapsed

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


@pytest.mark.background
def test_a_burst(world):
    """Fifty in a moment: the first at once, the last when the window opens, and nothing else."""
    with Activity(world) as activity:
        begin = time.time()
        for number in range(50):
            answer = activity.progress(number + 1)
            assert answer["pushes"] == 1, "one that waits will be pushed"
        burst = time.time() - begin
        first, last = activity.wait(2) if burst < WINDOW else (activity.pushes()[0], eventually(
            lambda: activity.completed()[-1] == 50 and activity.pushes()[-1], 2 * WINDOW + 2, what="the last"))
        check_update(first, activity.device, activity.session, content("processing", elapsed=10, todo=(1, 50)))
        check_update(last, activity.device, activity.session, content("processing", elapsed=500, todo=(50, 50)))
        assert moment(first) - begin < 1
        check_windows(activity.pushes())
        time.sleep(WINDOW + 0.5)
        assert activity.completed()[-1] == 50 and len(activity.pushes()) <= 2 + burst // WINDOW, "nothing more comes after the newest"


@pytest.mark.background
def test_updates_that_go_on(world):
    """Each window has one, and what it says is never older than the window before."""
    with Activity(world) as activity:
        last = 0
        end = time.monotonic() + 3.5 * WINDOW
        while time.monotonic() < end:
            last += 1
            activity.progress(last, 999)
            time.sleep(0.05)
        eventually(lambda: activity.completed()[-1] == last, 2 * WINDOW + 2, what="the last state")
        check_windows(activity.pushes())
        assert activity.completed() == sorted(activity.completed())
        assert 4 <= len(activity.pushes()) <= 5, activity.completed()


@pytest.mark.background
def test_an_end_passes_at_once_and_takes_the_token(world):
    with Activity(world) as activity:
        activity.progress(1)
        # An update that has not left yet would go with the token.
        activity.wait(1)
        activity.progress(2)
        begin = time.time()
        activity.back_end.event(activity.session, "task_complete", {"status": "success"}, activity.phone.name).expect(202)
        pushes = activity.wait(2)
        check_end(pushes[1], activity.device, activity.session)
        assert moment(pushes[1]) - begin < 1, "an end waits for no window"
        check_windows(pushes)
        assert activity.phone.status().json["liveActivityTokens"] == []
        assert activity.progress(3)["pushes"] == 0
        time.sleep(WINDOW + 1)
        activity.wait(2)
        log = ledger.read(world.state)
        assert [entry["cause"] for entry in log.of(activity.device.ref, "token.purged")] == ["ended"]
        assert len(log.outcomes(activity.device.ref)) == 2


@pytest.mark.background
def test_windows_are_of_one_activity(world):
    """Two phones show the session and a third another: each has its own, and neither waits for another's."""
    with Activity(world) as activity, Activity(world) as other:
        second = activity.phone.start_activity(activity.session, "the same on a second phone")
        assert activity.progress(1)["pushes"] == 2
        assert other.progress(1)["pushes"] == 1
        for phone, device in ((activity.phone, activity.device), (activity.phone, second), (other.phone, other.device)):
            push = phone.wait(1, device)[0]
            assert time.time() - moment(push) < 2


@pytest.mark.background
def test_a_new_token_goes_on_with_its_windows(world):
    """ActivityKit gives an activity another token when it likes. That opens no window, and takes nothing that waits."""
    with Activity(world) as activity:
        activity.progress(1)
        before = activity.wait(1)[0]
        activity.progress(2)
        token, old = new_token(), activity.device.token
        activity.phone.register_activity(token, f"activity-of-{activity.session}", activity.session, previous=old).expect(200)
        activity.device.token = token
        activity.progress(3)
        after = activity.wait(1)[0]
        assert activity.completed() == [3]
        check_windows([before, after])
        assert len(activity.phone.simulator.pushes(old)) == 1


@pytest.mark.background
def test_a_state_that_waits_survives_a_new_token(world):
    with Activity(world) as activity:
        activity.progress(1)
        before = activity.wait(1)[0]
        activity.progress(2)
        token, old = new_token(), activity.device.token
        activity.phone.register_activity(token, f"activity-of-{activity.session}", activity.session, previous=old).expect(200)
        activity.device.token = token
        after = activity.wait(1)[0]
        assert activity.completed() == [2], "the last state is never dropped"
        check_windows([before, after])


@pytest.mark.background
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


@pytest.mark.background
def test_an_update_that_apple_did_not_take_yet_is_not_sent_after_a_newer_one(world):
    """They replace each other at Apple, and the last that it took is the one that a phone gets which comes back."""
    with Activity(world) as activity:
        activity.progress(1)
        activity.wait(1)
        time.sleep(WINDOW)
        world.simulator.fault(next=[{"token": activity.device.token, "reason": "ServiceUnavailable"}] * 3)
        activity.progress(2)
        time.sleep(WINDOW + 0.1)
        activity.progress(3)
        eventually(lambda: 3 in activity.completed(), 10, what="the newest")
        time.sleep(4)
        assert activity.completed()[-1] == 3, f"Apple has {activity.completed()}, in this order"


@pytest.mark.background
@pytest.mark.parametrize("is_asked_again", [False, True])
def test_an_approval_that_was_answered_while_its_update_waited(world, is_asked_again):
    """When the window opens the activity does not ask for what has its answer; it does for what has none."""
    with Activity(world) as activity:
        activity.progress(1)
        activity.wait(1)
        asked = [activity.back_end.event(activity.session, "approval_request", {}, activity.phone.name).expect(202).json["requestId"]
                 for _ in range(1 + is_asked_again)]
        activity.phone.respond(asked[0], True).expect(200)
        after = activity.wait(2)[1]
        if is_asked_again:
            check_activity_approval(after, activity.device, activity.session, asked[1], activity.elapsed(after))
        else:
            check_update(after, activity.device, activity.session, content("processing", elapsed=activity.elapsed(after)))


@pytest.mark.background
def test_elapsed_seconds_and_numbers_at_their_bounds(world):
    with Activity(world) as activity:
        data = {"elapsedSeconds": 86_400, "todoProgress": {"completed": 999, "total": 999}}
        activity.back_end.event(activity.session, "progress_update", data, activity.phone.name).expect(202)
        state = content("processing", elapsed=86_400, todo=(999, 999))
        check_update(activity.wait(1)[0], activity.device, activity.session, state)
        for wrong in ({"elapsedSeconds": 86_401}, {"elapsedSeconds": -1}, {"todoProgress": {"completed": 1000, "total": 1}}):
            answer = activity.back_end.event(activity.session, "progress_update", wrong, activity.phone.name)
            assert (answer.status, answer.code) == (400, "out_of_range"), answer
        time.sleep(WINDOW + 0.5)
        activity.wait(1)
