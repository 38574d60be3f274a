"""Two users: neither can see, change or end the other's things, or learn whether they exist."""

import time
from secrets import token_hex

import pytest

import ledger
from companion_client import Device
from companion_pushes import check_approval, check_clear_approval, seconds
from companion_world import CompanionWorld, new_session
from mayfly import new_token
from processes import eventually


make_world = CompanionWorld


@pytest.fixture
def pair(world):
    alice, bob = world.user("alice-" + token_hex(4)), world.user("bob-" + token_hex(4))
    yield alice, bob
    alice.close()
    bob.close()


def test_one_token_of_two_users_is_two_rows(world, pair, back_end):
    """The phone changed hands, or somebody knows another's token. Neither registration evicts the other."""
    alice, bob = pair
    session = new_session()
    taken = Device(alice.device.token, bob.register(alice.device.token).expect(200).json)
    assert taken.id != alice.device.id and taken.ref != alice.device.ref
    assert taken.answer["handleKey"] != alice.device.answer["handleKey"]
    for user, theirs in ((alice, alice.device), (bob, taken)):
        answer = back_end.event(session, "approval_request", {}, user.name).expect(202).json
        assert answer["pushes"] == (1 if user is alice else 2)
        push = eventually(lambda: [p for p in alice.pushes() if p["payload"].get("requestId") == answer["requestId"]], what="the push")[0]
        check_approval(push, theirs, session, answer["requestId"], seconds(answer["expiresAt"]))
    with world.state.database() as database:
        rows = [row for *row, purge, expires in database.execute(
            "SELECT audience, owner, device, sealed, ref, details, purge_id, expires FROM registration")
            if purge.hex() in [ledger.token_id(each.ref, "purged", expires // 1000 + 1) for each in (alice.device, taken)]]
    assert len(rows) == 2 and all(one != other for one, other in zip(*rows)), "two rows of one token have something in common"
    # The one's end is not the other's.
    bob.delete_token(taken.id).expect(200)
    assert back_end.event(session, "question_asked", {}, alice.name).expect(202).json["pushes"] == 1
    assert alice.register(alice.device.token).expect(200).json["tokenId"] == alice.device.id


def test_another_users_token_is_ignored_as_previous_token(world, pair, back_end):
    alice, bob = pair
    session = new_session()
    activity = alice.start_activity(session)
    for kind, previous in (("activity", activity.token), ("device", alice.device.token)):
        bob.register_activity(new_token(), f"by-{kind}", session, previous=previous).expect(200)
    assert [one["activityId"] for one in alice.status().json["liveActivityTokens"]] == [f"activity-of-{session}"]
    assert back_end.event(session, "question_asked", {}, alice.name).expect(202).json["pushes"] == 2
    alice.wait(1)
    alice.wait(1, activity)
    # Nor is one's own device's token a Live Activity's.
    alice.register_activity(new_token(), "other", session, previous=alice.device.token).expect(200)
    assert alice.status().json["deviceTokenRegistered"] is True
    assert ledger.read(world.state).of(activity.ref, "token.purged") == []


# Promise: users-are-apart
def test_another_users_things_are_answered_as_unknown(world, pair, back_end):
    """Status and body are the same, so nobody learns what others have."""
    alice, bob = pair
    session = new_session()
    activity = alice.start_activity(session)
    request = back_end.event(session, "approval_request", {}, alice.name).expect(202).json["requestId"]
    for theirs, nobodys in ((alice.device.id, "tok_" + "A" * 22), (activity.id, "lat_" + "A" * 22)):
        assert bob.delete_token(theirs).expect(404, "token_not_found").body == bob.delete_token(nobodys).expect(404).body
    assert bob.approval(request).expect(404, "request_not_found").body == bob.approval("A" * 22).expect(404).body
    for exclude in (None, bob.device.token):
        assert bob.clear_approval(request, exclude).expect(200).body == bob.clear_approval("A" * 22, exclude).expect(200).body
    assert bob.respond(request, True).expect(200).body == bob.respond("A" * 22, True).expect(200).body
    with bob.socket() as socket:
        answers = [socket.ask({"type": "approval_response", "requestId": one, "approved": True}) for one in (request, "A" * 22)]
        assert answers[0] == answers[1] and answers[0]["code"] == "request_not_found"
    bob.clear_session(session).expect(200)
    bob.event(session, "task_complete", {"status": "success"}, alice.name).expect(403, "another_user")
    bob.event(session, "task_complete", {"status": "success"}).expect(202)
    assert bob.status().json["liveActivityTokens"] == []
    assert alice.status().json["liveActivityTokens"][0]["sessionId"] == session
    assert alice.approval(request).expect(200).json["status"] == "pending"
    time.sleep(0.3)
    assert [note.type for note in alice.received()] == ["approval"]
    alice.respond(request, True, bob.device.token).expect(200)
    check_clear_approval(alice.wait(2)[1], alice.device, request)
    bob.wait(2)


def test_sessions_of_one_name_are_separate_by_user(world, pair):
    """A claim by one user hands over nothing of the other's."""
    alice, bob = pair
    session = new_session()
    with alice.socket() as hers, bob.socket() as his:
        for socket, phone, name in ((hers, alice, "iphone"), (his, bob, "iphone"), (his, bob, "ipad")):
            socket.send({"type": "activity", "sessionId": session, "deviceId": name, "pushToken": phone.device.token})
            assert socket.ask({"type": "ping"}) == {"type": "pong"}
        # With another's token: it is compared with one's own alone.
        his.send({"type": "activity", "sessionId": session, "deviceId": "stolen", "pushToken": alice.device.token})
        his.send({"type": "activity", "sessionId": session, "deviceId": "last", "clientType": "desktop"})
        assert his.ask({"type": "ping"}) == {"type": "pong"}
        refused = his.ask({"type": "activity", "sessionId": session, "deviceId": "x", "userId": alice.name})
        assert (refused["type"], refused["code"]) == ("error", "another_user")
        hers.send({"type": "activity", "sessionId": session, "deviceId": "iphone", "pushToken": alice.device.token})
        assert hers.ask({"type": "ping"}) == {"type": "pong"}
    time.sleep(0.3)
    alice.wait(0)


def test_a_back_end_hears_only_its_own_answers(world, pair, back_end):
    """Both may ask any user."""
    alice, _ = pair
    other = world.back_end("another back end")
    with back_end.socket() as asked, other.socket() as silent:
        request = back_end.event(new_session(), "approval_request", {}, alice.name).expect(202).json["requestId"]
        other.approval(request).expect(404, "request_not_found")
        assert other.is_late(request) and back_end.is_late(request)
        alice.respond(request, False).expect(200)
        assert asked.news("approval_response")["approved"] is False
        with pytest.raises(TimeoutError):
            silent.receive(0.3)
    other.close()


def test_a_user_may_have_a_back_ends_name(world, pair, back_end):
    """Names of users and of back ends are separate."""
    alice, _ = pair
    user = world.phone("back-end").log_in()
    with user.socket() as socket:
        request = back_end.event(new_session(), "approval_request", {}, alice.name).expect(202).json["requestId"]
        user.approval(request).expect(404, "request_not_found")
        assert user.is_late(request)
        alice.respond(request, True).expect(200)
        with pytest.raises(TimeoutError):
            socket.receive(0.3)
    user.wait(0)
    user.close()


def test_similar_user_names_are_separate(world, back_end):
    """Names that equal another's when joined, cut or normalised."""
    base = token_hex(4)
    names = [
        f"{base}u", f"{base}U", f"{base}u ", f" {base}u", f"{base}u\0", f"{base}u\0x", f"{base}\u00e9", f"{base}e\u0301", f"{base}/u",
        f"{base}%2Fu", f"companion\0{base}u", f"{base}u" * 3]
    phones = [world.phone(name).log_in() for name in names]
    sessions = ["s", "u\0s", "\0s", "S"]
    # As a length before it, or its own end, would mix user and session up.
    activities = {(name, session): phone.start_activity(session) for phone, name in zip(phones, names) for session in sessions[:3]}
    for number, name in enumerate(names):
        assert back_end.event("s", "question_asked", {}, name).expect(202).json["pushes"] == 2
        for other, phone in enumerate(phones):
            phone.wait(int(other <= number))
    for (name, session), device in activities.items():
        phone = phones[names.index(name)]
        phone.wait(int(session == "s"), device)
    for phone in phones:
        phone.close()
