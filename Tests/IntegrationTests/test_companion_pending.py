"""Several approvals, timeouts and withdrawals: what each phone and each Live Activity shows at the end."""

import time
from functools import partial

import pytest

from companion_client import Notification
from companion_pushes import check_clear_approval, check_end, seconds
from companion_world import CompanionWorld, new_session
from processes import eventually

PATIENCE = 8

make_world = partial(CompanionWorld, activityUpdateSeconds=1, approvalSeconds=PATIENCE)


class Story:
    """One user with three phones, the first of which shows the session's Live Activity."""

    def __init__(self, world):
        self.session, self.first, self.back_end = new_session(), world.user(), world.back_end()
        self.phones = [self.first] + [world.phone(self.first.name).log_in() for _ in range(2)]
        self.activity = self.first.start_activity(self.session)

    def ask(self, session=None, **data):
        answer = self.back_end.event(session or self.session, "approval_request", data, self.first.name).expect(202).json
        for phone in self.phones:
            eventually(lambda: any(push["headers"]["apns-collapse-id"] == answer["requestId"] for push in phone.pushes()), what="the approval")
        return answer["requestId"], seconds(answer["expiresAt"])

    def shows(self, request, status=None):
        """Waits until the Live Activity shows this approval, or none of them."""
        def found():
            state = self.first.state(self.session)
            shown = state.approvalRequest and state.approvalRequest.requestId
            return shown == request and state.status == (status or ("awaitingApproval" if request else "processing"))
        eventually(found, 4, what=f"the Live Activity with {request or status}")

    def centers(self, expected):
        """Waits until every phone shows these texts by collapse id. A list has one for each phone."""
        for number, phone in enumerate(self.phones):
            wanted = expected[number] if isinstance(expected, list) else expected
            eventually(lambda: phone.notification_center() == wanted, what=f"{wanted} on phone {number}")

    def close(self):
        for caller in (*self.phones, self.back_end):
            caller.close()


@pytest.fixture
def story(world):
    story = Story(world)
    yield story
    story.close()


ASKS, ELSEWHERE, OVER = "Approval Needed", "Answered elsewhere", "No longer needed"


def test_two_approvals_and_one_answer(story):
    (first, due), (second, _) = story.ask(), story.ask()
    story.shows(first)
    assert story.first.respond(first, True, story.first.device.token).expect(200).json == {"success": True}
    story.shows(second)
    # Its own app removes it from the phone that answers.
    story.centers([{first: ASKS, second: ASKS}] + [{first: ELSEWHERE, second: ASKS}] * 2)
    # A report in the middle doesn't hide it.
    story.back_end.event(story.session, "state_change", {"newState": "processing"}, story.first.name).expect(202)
    time.sleep(1.5)
    story.shows(second)
    time.sleep(max(0, due + 1 - time.time()))
    story.shows(None)
    story.centers([{first: ASKS, second: OVER}] + [{first: ELSEWHERE, second: OVER}] * 2)
    for phone in story.phones[1:]:
        pushes = {Notification.decode(push["payload"]).info["reason"]: push for push in phone.pushes()[2:]}
        check_clear_approval(pushes["approved_on_other_device"], phone.device, first)
        check_clear_approval(pushes["timed_out"], phone.device, second, "timed_out")


def test_an_answer_leaves_other_notifications(story):
    """A question and the end of another task are still there."""
    other = new_session()
    question = story.back_end.event(story.session, "question_asked", {}, story.first.name).expect(202).json["requestId"]
    story.back_end.event(other, "task_complete", {"status": "success"}, story.first.name).expect(202)
    request, _ = story.ask()
    assert story.first.respond(request, False).expect(200).json == {"success": True}
    story.centers([
        {question: "Your assistant has a question", phone.device.handle(other): "Task Complete", request: ELSEWHERE} for phone in story.phones])
    story.shows(None, "processing")


@pytest.mark.parametrize("own", [True, False])
def test_a_back_end_withdraws_an_approval(world, story, own):
    named = f"approval-{new_session()}"
    (request, due), (kept, _) = story.ask(id=named), story.ask()
    stranger = world.back_end("another back end")
    assert stranger.clear_approval(named if own else request).expect(200).json["devicesNotified"] == 0
    with story.first.socket() as screen, story.back_end.socket() as agent:
        assert story.back_end.clear_approval(named if own else request).expect(200).json == {"success": True, "devicesNotified": 3}
        for socket in (screen, agent):
            assert socket.news("approval_timeout") == {
                "type": "approval_timeout", "requestId": request, "sessionId": story.session,
                "message": "The approval is no longer needed", "withdrawn": True}
    for caller in (story.first, story.back_end):
        assert caller.approval(request).expect(200).json["status"] == "withdrawn"
    story.shows(kept)
    story.centers({request: OVER, kept: ASKS})
    for phone in story.phones:
        check_clear_approval(phone.wait(3)[2], phone.device, request, "withdrawn")
    # Again, and too late: nothing follows.
    assert story.back_end.clear_approval(request).expect(200).json == {"success": True, "devicesNotified": 0}
    assert story.first.is_late(request)
    assert story.first.respond(kept, True).expect(200).json == {"success": True}
    assert story.back_end.clear_approval(kept).expect(200).json == {"success": True, "devicesNotified": 0}
    time.sleep(max(0, due + 0.5 - time.time()))
    for phone in story.phones:
        phone.wait(4)
    story.centers({request: OVER, kept: ELSEWHERE})
    stranger.close()


@pytest.mark.parametrize("named", [True, False])
def test_a_back_end_ends_a_session(world, story, named):
    other = new_session()
    (first, due), (second, _), (kept, _) = story.ask(), story.ask(), story.ask(other)
    stranger = world.user()
    stranger.clear_session(story.session, story.first.name).expect(403, "another_user")
    assert stranger.clear_session(story.session).expect(200).json["clearedCount"] == 1
    answer = story.back_end.clear_session(story.session, story.first.name if named else None).expect(200).json
    assert answer == {"success": True, "clearedCount": 4}, "three phones and a Live Activity"
    for request in (first, second):
        assert story.back_end.approval(request).expect(200).json["status"] == "withdrawn"
    assert story.back_end.approval(kept).expect(200).json["status"] == "pending"
    story.centers({first: OVER, second: OVER, kept: ASKS})
    eventually(lambda: story.first.pushes(story.activity)[-1]["payload"]["aps"]["event"] == "end", what="the end of the Live Activity")
    check_end(story.first.pushes(story.activity)[-1], story.activity, story.session)
    for phone in story.phones:
        eventually(lambda: [note.type for note in phone.received()].count("clear_session") == 1, what="the silent push")
        # A running app removes them.
        assert [note.info["requestId"] for note in phone.screen()] == [kept]
    time.sleep(max(0, due + 0.5 - time.time()))
    assert story.back_end.approval(first).expect(200).json["status"] == "withdrawn", "its timer has ended"
    story.centers({first: OVER, second: OVER, kept: OVER})
    stranger.close()


def test_a_back_end_names_the_user_of_a_session(world, story):
    """If it has asked nobody, or two users, in a session of that name."""
    for caller in (story.back_end, world.back_end("another back end")):
        caller.clear_session(story.session).expect(400, "missing_field", "userId")
    other = world.user()
    story.back_end.event(story.session, "approval_request", {}, other.name).expect(202)
    request, _ = story.ask()
    story.back_end.clear_session(story.session).expect(400, "missing_field", "userId")
    assert story.back_end.approval(request).expect(200).json["status"] == "pending"
    assert story.back_end.clear_session(story.session, story.first.name).expect(200).json["clearedCount"] == 4
    assert story.back_end.approval(request).expect(200).json["status"] == "withdrawn"
    other.close()


def test_the_log_has_each_kind_of_clearing(world, story):
    (answered, _), (withdrawn, _) = story.ask(), story.ask()
    assert story.first.respond(answered, True).expect(200).json == {"success": True}
    story.back_end.clear_approval(withdrawn).expect(200)
    story.back_end.clear_session(story.session, story.first.name).expect(200)
    wanted = {"approval_request", "clear_approval", "approval_over", "clear_session"}
    # Before their batch is published, the log verifies without them.
    eventually(lambda: wanted <= {entry.get("template") for entry in world.whole_log().entries}, 30, 0.2, "the clearing pushes in the log")
