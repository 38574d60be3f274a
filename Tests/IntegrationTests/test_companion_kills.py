"""kill -9 at random moments while users register, ask, answer and end: acknowledged calls last, and no push is repeated."""

import json
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.client import HTTPException

import pytest

import ledger
from companion_client import Notification
from companion_world import CompanionWorld, new_session
from processes import audit_verify, eventually

pytestmark = [pytest.mark.campaign, pytest.mark.alone]

TYPES = {"approval_request": "approval", "clear_approval": "clear_approval", "task_complete": "complete"}  # by template
KILLS = int(os.environ.get("MAYFLY_TEST_KILLS", 5))
WORKERS = 4


@dataclass
class Tale:
    """One user's calls, in this order, and the received answers. A phone in `tokens` is never deleted."""
    phone: object
    session: str = field(default_factory=new_session)
    registered: bool = False
    activity: object = None
    asked: dict | None = None
    asks: int = 0
    answered: bool | None = None
    answering: bool = False
    ended: bool = False
    ending: bool = False


def play(world, back_end, tales, seed):
    """Users one after the other, until the broker goes away."""
    chance = random.Random(seed)
    try:
        while True:
            tale = Tale(world.phone(f"user-{chance.randrange(2**64):x}"))
            tales.append(tale)
            if chance.random() < 0.5:
                tale.phone.device.token = world.push.subscribe()
            tale.phone.log_in()
            tale.registered = True
            tale.activity = tale.phone.start_activity(tale.session)
            tale.asks += 1
            tale.asked = back_end.event(tale.session, "approval_request", {}, tale.phone.name, eventId="asked").expect(202).json
            if chance.random() < 0.6:
                tale.answering = True
                tale.phone.respond(tale.asked["requestId"], True).expect(200)
                tale.answered = True
            if chance.random() < 0.5:
                tale.ending = True
                back_end.event(tale.session, "task_complete", {"status": "success"}, tale.phone.name, eventId="ended").expect(202)
                tale.ended = True
            tale.phone.close()
    except (OSError, HTTPException):
        tale.phone.close()
        back_end.close()


def check(tale):
    """Acknowledged calls still hold. Others may be repeated under their ids, and then happen once."""
    status = tale.phone.status().expect(200).json
    assert status["deviceTokenRegistered"] or not tale.registered
    if tale.activity is not None and not tale.ending:
        assert [one["sessionId"] for one in status["liveActivityTokens"]] == [tale.session]
    if tale.ended:
        assert status["liveActivityTokens"] == []
    if tale.asked is not None:
        said = tale.phone.approval(tale.asked["requestId"]).expect(200).json["status"]
        assert said == "approved" if tale.answered else said in (("pending", "approved") if tale.answering else ("pending",))
    tale.phone.close()


def test_acknowledged_calls_survive_kills():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with CompanionWorld(web_push=True) as world:
        tales = []
        for number in range(KILLS):
            fresh = [[] for _ in range(WORKERS)]
            threads = [threading.Thread(target=play, args=(world, world.back_end(), mine, chance.random())) for mine in fresh]
            for thread in threads:
                thread.start()
            time.sleep(chance.uniform(0.05, 0.7))
            world.restart()
            for thread in threads:
                thread.join(10)
                assert not thread.is_alive()
            tales += [tale for mine in fresh for tale in mine]
            for tale in [tale for mine in fresh for tale in mine] + chance.sample(tales, min(10, len(tales))):
                check(tale)
        back_end = world.back_end()
        for tale in tales:
            check(tale)
            # Calls without an answer are repeated.
            if tale.registered and tale.asked is None and tale.asks:
                tale.asked = back_end.event(tale.session, "approval_request", {}, tale.phone.name, eventId="asked").expect(202).json
            elif tale.ending and not tale.ended:
                back_end.event(tale.session, "task_complete", {"status": "success"}, tale.phone.name, eventId="ended").expect(202)
        eventually(lambda: world.state.jobs() == 0, 45, 0.2, "the end of all pushes")
        check_pushes(world, tales)
        assert world.broker.stop() == 0
        verified = audit_verify(world.state)
        assert verified.returncode == 0, f"seed {seed}: {verified.stdout}{verified.stderr}"
        counts = ledger.read(world.state).check().counts()
        assert counts["token.opened"] == counts["push.delivered"] + counts["push.failed"], counts


def types(world, tale, by_token):
    """How many notifications of each type came. A browser's message that came again, because a kill lost its answer, took the place of the first."""
    token = tale.phone.device.token
    if isinstance(token, str):
        return Counter(Notification.decode(payload).type for payload in by_token.get(token, {}).values())
    shown = {(push["topic"], json.loads(push["text"])["notification"]["data"]["template"]) for push in world.simulator.web_pushes(token)}
    return Counter(TYPES[template] for _, template in shown)


def check_pushes(world, tales):
    by_token, pushes = {}, world.simulator.pushes()
    assert len(pushes) < 10_000, "the simulator remembers no more than that"
    for push in pushes:
        by_token.setdefault(push["token"], {})[push["headers"]["apns-id"]] = push["payload"]
    acknowledged = Counter()
    for tale in tales:
        if not tale.registered:
            continue
        kinds = types(world, tale, by_token)
        # The answer may have replaced the question before Apple accepted that.
        if tale.asked is not None:
            assert kinds["approval"] == 1 or tale.answering and kinds["approval"] == 0, f"{tale}: {kinds}"
        if tale.answering:
            assert kinds["clear_approval"] == 1 or not tale.answered and kinds["clear_approval"] == 0, f"{tale}: {kinds}"
        assert kinds["complete"] == int(tale.ending), f"{tale}: {kinds}"
        if tale.activity is not None and tale.ending:
            events = Counter(payload["aps"]["event"] for payload in by_token.get(tale.activity.token, {}).values())
            assert events["end"] == 1, f"{tale}: {events}"
        acknowledged.update(browsers=not isinstance(tale.phone.device.token, str) and kinds.total())
        acknowledged.update(registered=1, asked=tale.asked is not None, answered=bool(tale.answered), ended=tale.ended)
    print(f"over {KILLS} kills: {dict(acknowledged)}")
    assert min(acknowledged[what] for what in ("registered", "asked", "answered", "ended", "browsers")) >= KILLS, acknowledged
