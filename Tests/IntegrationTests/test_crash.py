"""kill -9 under load, at random moments: nothing acknowledged is lost, nothing is done twice, the log stays one log."""

import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.client import HTTPException

import pytest

import ledger
from mayfly import Client, new_client, new_code, new_token
from processes import audit_verify, eventually, subscription_id

pytestmark = pytest.mark.campaign

KILLS = int(os.environ.get("MAYFLY_TEST_KILLS", 20))
WORKERS = 4


@dataclass
class Story:
    """One worker's calls for one room, and which of them were acknowledged."""
    code: str = field(default_factory=new_code)
    creator: str = field(default_factory=new_client)
    joiner: str = field(default_factory=new_client)
    tokens: tuple = None
    created: dict | None = None
    accepted: dict | None = None
    knocks_asked: int = 0
    knocks_queued: int = 0
    delete_asked: bool = False
    deleted: bool = False


def work(world, stories, seed):
    """Rooms one after the other, until the broker goes away."""
    chance, client = random.Random(seed), Client(world.broker.port, timeout=5, checked=False)
    try:
        while True:
            # Each address is a phone's or a browser's.
            story = Story(tokens=tuple(chance.choice((new_token, world.push.subscribe))() for _ in range(2)))
            stories.append(story)
            story.created = client.create(story.code, story.creator, story.tokens[0]).expect(201).json
            if chance.random() < 0.1:
                continue
            story.accepted = client.accept(story.code, story.joiner, story.tokens[1]).expect(200).json
            roomid = story.created["roomid"]
            if chance.random() < 0.5:
                story.knocks_asked += 1
                delivery = client.presence(roomid, story.joiner).expect(202).json["delivery"]
                story.knocks_queued += delivery == "queued"
            if chance.random() < 0.3:
                story.delete_asked = True
                client.delete(roomid).expect(200)
                story.deleted = True
    except (OSError, HTTPException):
        pass  # killed
    finally:
        client.close()


def check(client, story):
    """Checks that acknowledged calls still hold."""
    if story.created is None:
        return
    answer = client.status(story.created["roomid"])
    if story.deleted:
        answer.expect(404, "room_not_found")
    elif not story.delete_asked:
        status = answer.expect(200).json
        assert status["creatorHasToken"]
        if story.accepted:
            assert status["accepted"] and status["joinerHasToken"]


# Promise: durable-before-answered
def test_acknowledged_operations_survive_twenty_kills(worlds):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    world, stories, checkpoints = worlds(web_push=True), [], []

    def verify():
        verified = audit_verify(world.state, *checkpoints)
        assert verified.returncode == 0, f"after {len(checkpoints)} kills, seed {seed}: {verified.stdout}{verified.stderr}"
        kept = world.state.prints / f"checkpoint-{len(checkpoints)}"
        kept.write_bytes((world.state / "ledger/checkpoint").read_bytes())
        checkpoints.append(kept)

    eventually(lambda: (world.state / "ledger/checkpoint").exists(), what="a first checkpoint")
    for _ in range(KILLS):
        fresh = [[] for _ in range(WORKERS)]
        workers = [threading.Thread(target=work, args=(world, mine, chance.random())) for mine in fresh]
        for worker in workers:
            worker.start()
        time.sleep(chance.uniform(0.05, 1.3))
        assert world.broker.running
        world.broker.kill()
        for worker in workers:
            worker.join(10)
            assert not worker.is_alive()
        verify()
        world.broker.start()
        fresh = [story for mine in fresh for story in mine]
        client = world.client(checked=False)
        for story in fresh + chance.sample(stories, min(20, len(stories))):
            check(client, story)
        client.close()
        stories += fresh
    client = world.client(checked=False)
    for story in stories:
        check(client, story)
    repeated = [story for story in stories if story.created and not story.accepted and not story.delete_asked]
    for story in repeated:
        answer = client.create(story.code, story.creator, story.tokens[0])
        if answer.status == 409:
            continue  # the accept was done, and its answer lost
        assert answer.expect(200).json == story.created

    eventually(lambda: world.state.jobs() == 0, 45, 0.5, "an outcome for every knock")
    # A log that is being written can look complete while its last window is not there yet.
    assert world.broker.stop() == 0
    log = ledger.read(world.state)
    counts = log.counts()
    assert counts["token.opened"] == counts["push.delivered"] + counts["push.failed"], counts
    log.check()
    verify()

    acknowledged = Counter()
    pushed, topics = {}, {}
    for push in world.simulator.pushes():
        pushed.setdefault(push["token"], set()).add(push["headers"]["apns-id"])
    for push in world.simulator.web_pushes():
        topics.setdefault(push["subscription"], []).append(push["topic"])
    for story in stories:
        if story.created is None:
            continue
        ref = story.created["ref"]
        assert len(log.of(ref, "token.sealed")) == 1
        outcomes = log.outcomes(ref)
        assert story.knocks_queued <= len(outcomes) <= story.knocks_asked, f"{story} has {outcomes}"
        if isinstance(story.tokens[0], str):
            assert len(pushed.get(story.tokens[0], ())) <= story.knocks_asked, "one knock, two notifications"
        else:
            taken = topics.get(subscription_id(story.tokens[0]), [])
            # A message may come again if a kill lost its answer. Then it takes the place of the first.
            delivered = sum(entry["op"] == "push.delivered" for entry in outcomes)
            assert len(set(taken)) <= 1 and delivered <= len(taken), f"{len(taken)} messages, {delivered} delivered"
            acknowledged.update(browsers=len(taken))
        purged = log.of(ref, "token.purged")
        if story.deleted:
            assert [entry["cause"] for entry in purged] == ["ended"]
        elif not story.delete_asked:
            assert purged == []
        acknowledged.update(created=1, accepted=bool(story.accepted), queued=story.knocks_queued, deleted=story.deleted)
    print(f"acknowledged over {KILLS} kills: {dict(acknowledged)}; {len(log.entries)} entries")
    assert min(acknowledged[kind] for kind in ("created", "accepted", "queued", "deleted", "browsers")) >= KILLS, acknowledged
