"""Rooms and tokens end a second late at most, also over a restart. Pushes end in two minutes, whatever the clock does."""

import json
import time
from datetime import datetime

import pytest

import ledger
from clocks import Clocks
from mayfly import Client, new_client, new_code, new_token
from processes import Broker, audit_verify, eventually, quick_rooms
from world import World


def moment(answer):
    return datetime.fromisoformat(answer["expiresAt"].replace("Z", "+00:00")).timestamp()


def sleep_until(instant):
    time.sleep(max(0, instant - time.time()))


def test_a_room_of_two_seconds_expires(tmp_path):
    """An accepted room with two tokens, and a pending room with one: rows, answers and log."""
    policy = quick_rooms()
    policy["limits"]["roomLifeSeconds"]["min"] = policy["limits"]["joinCode"]["lifeSeconds"]["min"] = 1
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy))
    with World(policy=path) as world:
        client = world.client()
        empty = world.state.counts()
        code = new_code()
        room = client.room(expires=2)
        pending = client.create(code, token=new_token(), expires=2).expect(201).json
        stored = world.state.counts()
        assert stored["room"] == 2 and stored["token"] == 3, stored
        # Answers name the second, without its fraction.
        end = max(moment(room.creator.answer), moment(pending)) + 1
        sleep_until(moment(room.creator.answer) - 0.5)
        client.status(room.roomid).expect(200)
        sleep_until(end + 0.05)
        client.status(room.roomid).expect(404, "room_not_found")
        client.status(pending["roomid"]).expect(404, "room_not_found")
        for used in (code, room.code):
            client.accept(used).expect(404, "room_not_found")
        sleep_until(end + 1)
        assert world.state.counts() == empty, "rows are still there a second after the end"
        client.create(room.code, new_client()).expect(201)  # a used code ends with its room
        refs = (room.creator.ref, room.joiner.ref, pending["ref"])

        def purges():
            log = ledger.read(world.state)
            found = [log.of(ref, "token.purged") for ref in refs]
            return all(found) and found
        for entries in eventually(purges, 4, what="three purges in the ledger"):
            assert [entry["cause"] for entry in entries] == ["expired"]
            assert ledger.seconds(entries[0]["at"]) <= end + 1
        verified = audit_verify(world.state)
        assert verified.returncode == 0, verified.stdout + verified.stderr


def test_rooms_that_expire_during_an_outage_are_purged_at_the_start(state, processes):
    """After a quarter of an hour, before the first answer. The log excuses the delay."""
    broker = Broker(state)
    processes.append(broker)
    broker.start()
    client = Client(broker.port)
    empty = state.counts()
    room = client.room(expires=60)
    lasting = client.room(expires=3600)
    code = new_code()
    client.create(code, expires=300).expect(201)
    client.close()
    assert broker.stop() == 0
    broker.start(clock_offset=900)
    client.status(room.roomid).expect(404, "room_not_found")
    client.accept(code).expect(404, "room_not_found")
    assert client.status(lasting.roomid).expect(200).json["creatorHasToken"] is True
    client.create(room.code, new_client()).expect(201)  # ten minutes later a used code is free

    def purged():
        log = ledger.read(state)
        return [[e["cause"] for e in log.of(side.ref, "token.purged")] for side in (room.creator, room.joiner)]
    eventually(lambda: purged() == [["expired"], ["expired"]], what="both purges in the ledger")
    log = ledger.read(state)
    log.check()
    assert any(entry["op"] == "keys.ratcheted" for entry in log.entries), "an hour of keys has passed"
    verified = audit_verify(state)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    client.close()
    assert broker.stop() == 0
    # Two hours, so that one of the UTC days has more than one of them, also around midnight.
    broker.start(clock_offset=8300)
    eventually(lambda: state.counts() == empty, what="an empty store")
    eventually(lambda: ledger.read(state).of(lasting.creator.ref, "token.purged"), what="the last purges in the ledger")
    # Verifiers fail a log with more than an hour of gaps in a day, unless gaps are allowed.
    verified = audit_verify(state)
    assert verified.returncode == 1 and "no broker ran for more than 3600 s" in verified.stderr, verified.stdout + verified.stderr
    verified = audit_verify(state, more=["--allow-gaps"])
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.campaign
def test_a_clock_set_back_does_not_extend_pushes():
    """No push is tried, and no token kept open, beyond two minutes."""
    with World(start=False) as world:
        clocks = Clocks(world.state.prints / "clocks")
        world.broker.start(**clocks.environment)
        clocks.leap(-300)
        world.simulator.fault(always=[{"reason": "InternalServerError"}])
        client, code, token = world.client(), new_code(), new_token()
        room = client.create(code, new_client(), token).expect(201).json
        client.accept(code, (joiner := new_client())).expect(200)
        assert client.presence(room["roomid"], joiner).expect(202).json["delivery"] == "queued"
        for _ in range(5):
            time.sleep(0.2)
            clocks.go_on(31)
        [failed] = eventually(lambda: ledger.read(world.state).outcomes(room["ref"]), 8, what="the outcome")
        assert (failed["op"], failed["reason"]) == ("push.failed", "InternalServerError")
        world.simulator.fault()
        clocks.go_on(31)
        time.sleep(0.3)
        assert world.simulator.pushes(token) == []
