"""Two phones and a desktop of one user: each sees the others' actions in time, also across a kill -9."""

import threading
import time
from contextlib import contextmanager

import pytest

import ledger
from companion_client import Notification
from companion_pushes import check_clear_approval, check_clear_session, check_end, check_task, seconds
from companion_world import CompanionWorld, new_session
from processes import eventually

# The shortest that a policy may name.
PATIENCE = 5


def make_world():
    return CompanionWorld(approvalSeconds=PATIENCE, answerKeptSeconds=2)


class Desk:
    """One user: two phones, a desktop, and the back end that works for him."""

    def __init__(self, world):
        self.world, self.session = world, new_session()
        self.first = world.user()
        self.user = self.first.name
        self.second = world.phone(self.user).log_in()
        self.back_end = world.back_end("back-end-of-" + self.user)
        self.callers = [self.first, self.second, self.back_end]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for caller in self.callers:
            caller.close()

    def ask(self):
        """An approval, on both screens: its request and when it times out."""
        answer = self.back_end.event(self.session, "approval_request", {}, self.user).expect(202).json
        for phone in (self.first, self.second):
            phone.wait(1)
            assert [note.info["requestId"] for note in phone.screen()] == [answer["requestId"]]
        return answer["requestId"], seconds(answer["expiresAt"])

    def status(self, request):
        return self.back_end.approval(request).expect(200).json["status"]


@pytest.fixture
def desk(world):
    with Desk(world) as desk:
        yield desk


def slow(world, milliseconds=1500):
    """Apple answers slowly from now on, so that a kill comes between acceptance and delivery."""
    world.simulator.fault(delayMs=milliseconds)


@contextmanager
def killed_in_the_middle(**limits):
    """A broker of its own. It is killed after the calls inside are accepted and before their pushes are delivered, and starts again."""
    with CompanionWorld(**limits) as world, Desk(world) as desk:
        yield desk
        for caller in desk.callers:
            caller.close()
        world.simulator.fault()


def crash(desk):
    desk.world.broker.kill()
    for caller in desk.callers:
        caller.close()
    desk.world.simulator.fault()
    desk.world.broker.start()


def once(phone, count, device=None, seconds=8):
    """Waits for so many different pushes. One that Apple had accepted before the kill may come twice, by the same id."""
    def found():
        by_id = {push["headers"]["apns-id"]: push for push in phone.pushes(device)}
        return len(by_id) >= count and list(by_id.values())
    pushes = eventually(found, seconds, what=f"{count} pushes")
    assert len(pushes) == count, [push["payload"] for push in pushes]
    return pushes


def published(state, ref):
    """The log, if the token's purge is in it."""
    log = ledger.read(state).check()
    return log if log.of(ref, "token.purged") else None


# In one life of the broker.

def test_an_approval_on_one_phone_clears_the_other(desk):
    with desk.back_end.socket() as back_end, desk.second.socket() as second:
        request, _ = desk.ask()
        assert desk.first.respond(request, True, desk.first.device.token).expect(200).json == {"success": True}
        for socket in (back_end, second):
            assert socket.news("approval_response") == {
                "type": "approval_response", "requestId": request, "sessionId": desk.session, "approved": True}
    check_clear_approval(desk.second.wait(2)[1], desk.second.device, request)
    assert desk.second.screen() == []
    assert desk.second.is_late(request, False)
    assert desk.status(request) == "approved"
    time.sleep(0.3)
    assert [note.type for note in desk.first.received()] == ["approval"], "the phone that answered is told nothing"


def test_an_answer_at_the_desktop_clears_both_phones(desk):
    """A desktop has no push token, so no phone is left out."""
    request, _ = desk.ask()
    with desk.world.phone(desk.user).socket() as desktop:
        answer = desktop.ask({"type": "approval_response", "requestId": request, "approved": False})
        assert answer["type"] == "accepted"
    for phone in (desk.first, desk.second):
        check_clear_approval(phone.wait(2)[1], phone.device, request)
    assert desk.status(request) == "denied"


def test_of_two_answers_at_once_one_counts(desk):
    """The other phone is told that it is too late."""
    request, _ = desk.ask()
    answers, gate = {}, threading.Barrier(2)

    def answer(phone, approved):
        gate.wait()
        answers[approved] = phone.respond(request, approved, phone.device.token).expect(200).json["success"]
    threads = [threading.Thread(target=answer, args=one) for one in ((desk.first, True), (desk.second, False))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers.values()) == [False, True], answers
    approved = answers[True]
    assert desk.status(request) == ("approved" if approved else "denied")
    late = desk.second if approved else desk.first
    check_clear_approval(late.wait(2)[1], late.device, request)
    time.sleep(0.2)
    (desk.first if approved else desk.second).wait(1)


def test_an_unsent_approval_is_not_shown_after_its_answer(desk):
    """Apple is busy. The other phone gets only the push that there is nothing to answer."""
    desk.world.simulator.fault(next=[{"token": desk.second.device.token, "reason": "ServiceUnavailable"}])
    request = desk.back_end.event(desk.session, "approval_request", {}, desk.user).expect(202).json["requestId"]
    desk.first.wait(1)
    desk.first.respond(request, True, desk.first.device.token).expect(200)
    eventually(lambda: desk.world.state.jobs() == 0, what="the end of all pushes")
    assert desk.second.screen() == [], f"an approval that was answered is on the screen: {[note.type for note in desk.second.received()]}"


# Time-outs. They wait, and do so together.


@pytest.mark.campaign
@pytest.mark.background
def test_an_answer_at_the_timeout_has_one_end(world):
    """Thirty approvals. Everyone hears of the same end."""
    with Desk(world) as desk, desk.back_end.socket() as back_end:
        asked = [desk.back_end.event(new_session(), "approval_request", {}, desk.user).expect(202).json for _ in range(30)]
        ends = {}
        for number, answer in enumerate(asked):
            time.sleep(max(0, seconds(answer["expiresAt"]) + (number % 7 - 5) * 0.004 - time.time()))
            said = desk.first.respond(answer["requestId"], True, desk.first.device.token)
            ends[answer["requestId"]] = "approved" if said.expect(200).json["success"] else "timed_out"
        told = {}
        for _ in asked:
            message = back_end.receive(5)
            assert message["requestId"] not in told, "told twice"
            told[message["requestId"]] = {"approval_response": "approved", "approval_timeout": "timed_out"}[message["type"]]
        assert told == ends, "the back end was told of another end"
        print(f"{sum(end == 'approved' for end in ends.values())} of {len(ends)} answers came in time")
        eventually(lambda: world.state.jobs() == 0, what="the end of all pushes")
        for phone in (desk.first, desk.second):
            reasons = {note.info["requestId"]: note.info["reason"] for note in phone.received() if note.type == "clear_approval"}
            due = {request: "timed_out" if end == "timed_out" else "approved_on_other_device" for request, end in ends.items()
                   if phone is desk.second or end == "timed_out"}
            assert reasons == due


@pytest.mark.background
def test_a_desktop_clears_and_completes_sessions(world):
    with Desk(world) as desk:
        activity = desk.first.start_activity(desk.session)
        other = desk.second.start_activity(desk.session)
        desk.back_end.event(desk.session, "question_asked", {}, desk.user).expect(202)
        for phone in (desk.first, desk.second):
            phone.wait(1)
        desktop = desk.world.phone(desk.user)
        assert desktop.clear_session(desk.session).expect(200).json == {"success": True, "clearedCount": 4}
        for phone, device in ((desk.first, activity), (desk.second, other)):
            check_clear_session(phone.wait(2)[1], phone.device, desk.session)
            check_end(phone.wait(2, device)[1], device, desk.session)
            assert phone.screen() == []
        assert desktop.status().json["liveActivityTokens"] == []
        desktop.close()


# kill -9 in the middle of each.

@pytest.mark.background
def test_an_accepted_approval_survives_a_kill():
    """Both phones are asked, and the timeout comes from the next process."""
    with killed_in_the_middle(approvalSeconds=PATIENCE) as desk:
        slow(desk.world)
        answer = desk.back_end.event(desk.session, "approval_request", {}, desk.user).expect(202).json
        request, expires = answer["requestId"], seconds(answer["expiresAt"])
        crash(desk)
        assert desk.status(request) == "pending"
        with desk.back_end.socket() as back_end:
            assert back_end.news("approval_timeout", 10)["requestId"] == request
        assert time.time() > expires - 0.2
        for phone in (desk.first, desk.second):
            pushes = once(phone, 2)
            assert [Notification.decode(push["payload"]).type for push in pushes] == ["approval", "clear_approval"]
            check_clear_approval(pushes[1], phone.device, request, "timed_out")
        assert desk.status(request) == "timed_out"


@pytest.mark.campaign
@pytest.mark.background
def test_an_approval_answered_before_a_kill_is_never_shown():
    """Apple had taken neither push."""
    with killed_in_the_middle() as desk:
        slow(desk.world, 3000)
        request = desk.back_end.event(desk.session, "approval_request", {}, desk.user).expect(202).json["requestId"]
        desk.first.respond(request, True).expect(200)
        crash(desk)
        eventually(lambda: desk.world.state.jobs() == 0, 15, what="the end of all pushes")
        for phone in (desk.first, desk.second):
            assert phone.screen() == [], f"an approval that was answered is on the screen: {[note.type for note in phone.received()]}"


@pytest.mark.campaign
@pytest.mark.background
@pytest.mark.parametrize("how", ["complete", "cleared"])
def test_the_end_of_a_session_survives_a_kill(how):
    """The activity's token is destroyed before the kill, and its last push still leaves."""
    with killed_in_the_middle() as desk:
        activity = desk.first.start_activity(desk.session)
        slow(desk.world)
        if how == "complete":
            desk.back_end.event(desk.session, "task_complete", {"status": "error"}, desk.user).expect(202)
        else:
            assert desk.second.clear_session(desk.session).expect(200).json["clearedCount"] == 3
        crash(desk)
        for phone in (desk.first, desk.second):
            push = once(phone, 1)[0]
            if how == "complete":
                check_task(push, phone.device, desk.session, success=False)
            else:
                check_clear_session(push, phone.device, desk.session)
        check_end(once(desk.first, 1, activity)[0], activity, desk.session, success=how == "cleared")
        assert desk.first.status().json["liveActivityTokens"] == []
        desk.first.delete_token(activity.id).expect(404, "token_not_found")
        eventually(lambda: desk.world.state.jobs() == 0, what="the end of all pushes")
        log = eventually(lambda: published(desk.world.state, activity.ref), 8, what="the purge in the log")
        assert [entry["cause"] for entry in log.of(activity.ref, "token.purged")] == ["ended"]
