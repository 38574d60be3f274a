"""The limits of sockets and events, and registrations under a changed policy."""

import contextlib
from contextlib import ExitStack

from companion_client import SessionSocket
from companion_world import CompanionWorld, new_session
from mayfly import Client
from processes import eventually

make_world = CompanionWorld


def test_another_lifetime_in_the_policy_keeps_registrations():
    """Earlier registrations with a longer or shorter life are pushed to, shown, renewed and deleted as before."""
    with CompanionWorld(deviceLifeSeconds=172_800) as world, ExitStack() as callers:
        phone, other = world.user(), world.user()
        for one in (phone, other):
            one.close()
        world.broker.stop()
        world.broker.options["policy"] = "rooms,companion"
        world.broker.start()
        back_end = callers.enter_context(contextlib.closing(world.back_end()))
        for one in (phone, other):
            one.http = callers.enter_context(contextlib.closing(Client(world.broker.port)))
            assert back_end.event(new_session(), "task_complete", {"status": "success"}, one.name).expect(202).json["pushes"] == 1
            assert one.status().expect(200).json["deviceTokenRegistered"]
        renewed = phone.register(phone.device.token).expect(200).json
        assert renewed["tokenId"] == phone.device.id and renewed["expiresAt"] > phone.device.answer["expiresAt"]
        other.delete_token(other.device.id).expect(200)
        assert back_end.event(new_session(), "task_complete", {"status": "success"}, other.name).expect(202).json["pushes"] == 0
        assert world.state.counts()["registration"] == 1


def test_a_user_has_sixty_four_sockets_at_most(world):
    """One more is refused, and the others keep hearing. A back end has no limit."""
    user, back_end, other = world.user(), world.back_end(), world.user()
    with ExitStack() as stack:
        sockets = [stack.enter_context(user.socket()) for _ in range(64)]
        refused = stack.enter_context(SessionSocket(world.broker))
        refused.send({"type": "auth", "token": user.jwt})
        answer = refused.expect("error")
        assert answer["code"] == "too_many_sockets" and "64" in answer["error"]
        assert refused.closed() == (1008, [])
        for caller in [other] + [back_end] * 70:
            stack.enter_context(caller.socket())
        request = back_end.event(new_session(), "approval_request", {}, user.name).expect(202).json["requestId"]
        user.respond(request, True).expect(200)
        for socket in sockets:
            assert socket.news("approval_response")["requestId"] == request
        sockets[0].connection.close()
        eventually(lambda: comes_in(user), what="room for another socket")
    for caller in (user, back_end, other):
        caller.close()


def comes_in(user):
    try:
        user.socket().connection.close()
    except AssertionError:
        return False
    return True


def test_a_users_events_are_limited():
    """Whoever sends them and however. Other users are not limited."""
    with CompanionWorld(eventsPerUser={"count": 20, "seconds": 60}) as world:
        back_end, user, other = world.back_end(), world.user(), world.user()
        # The registration was one.
        for number in range(19):
            (back_end if number % 2 else user).event(new_session(), "state_change", {"newState": "idle"}, user.name).expect(202)
        for caller in (back_end, user, world.back_end("another back end")):
            answer = caller.event(new_session(), "approval_request", {}, user.name).expect(429, "too_many_requests")
            assert 1 <= int(answer.headers["retry-after"]) <= 60
        with user.socket() as socket:
            answer = socket.ask({"type": "task_complete", "sessionId": "s", "data": {}})
            assert (answer["type"], answer["to"], answer["code"]) == ("error", "task_complete", "too_many_requests")
            assert 1 <= answer["retryAfterSeconds"] <= 60 and f"in {answer['retryAfterSeconds']} s" in answer["error"]
        assert back_end.event(new_session(), "task_complete", {}, other.name).expect(202).json["pushes"] == 1
        other.wait(1)
        user.wait(0)
        user.clear_session("s").expect(429, "too_many_requests")
