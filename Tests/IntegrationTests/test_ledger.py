"""The log, read by code that shares nothing with the broker's; and `mayfly audit verify` against damage."""

import json
import shutil

import pytest
from nacl.exceptions import BadSignatureError

import ledger
from mayfly import new_token
from processes import audit_verify, eventually, mayfly, quick_rooms
from world import World


DAY = 4


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "policy.json"
    path.write_text(json.dumps(quick_rooms() | {"ledger": {"hourSeconds": 2, "daySeconds": DAY, "batchSeals": 1}}))
    with World(policy=path) as world:
        yield world


@pytest.fixture(scope="module")
def told(world):
    """A log of more than 256 entries, so that there is a full tile, a partial one and a second level."""
    client = world.client()
    for number in range(70):
        if number % 20 == 0:
            client = world.client()
        room = client.room()
        client.presence(room.roomid, room.joiner.client).expect(202)
        client.put_token(room.roomid, room.joiner.client, new_token()).expect(200)
        if number % 2:
            client.delete(room.roomid).expect(200)

    def complete():
        counts = ledger.read(world.state).counts()
        # A room that is deleted before its push has left makes it fail.
        return counts["token.sealed"] == 210 and counts["push.delivered"] + counts["push.failed"] == counts["token.opened"]
    eventually(complete, 20, what="every seal and every outcome in the ledger")
    return world, room


def test_the_checker_notices_changes(told, tmp_path):
    """A changed entry, a changed tile and a changed head."""
    world, _ = told
    copy = tmp_path / "ledger"
    shutil.copytree(world.state / "ledger", copy)
    ledger.Ledger(copy, world.state.vkey).check()
    bundle, tile, checkpoint = copy / "tile/entries/000", copy / "tile/0/000", copy / "checkpoint"
    for path, notice in ((bundle, AssertionError), (tile, AssertionError), (checkpoint, BadSignatureError)):
        content = path.read_bytes()
        at = content.index(b"\n") + 1 if path == checkpoint else 100
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1:])
        with pytest.raises(notice):
            ledger.Ledger(copy, world.state.vkey).check()
        path.write_bytes(content)


def test_entries_of_one_window_are_ordered_by_id(told):
    """Ids are random, so neighbours inside a window mean nothing."""
    world, _ = told
    windows, kinds = {}, {}
    for entry in ledger.read(world.state).entries:
        if "id" in entry or "job" in entry:
            windows.setdefault(entry["at"], []).append(ledger.place(entry))
            kinds.setdefault((entry["at"], entry["op"]), []).append(entry)
    assert {op for (_, op), entries in kinds.items() if len(entries) > 10} >= {"token.sealed", "token.purged", "token.opened"}
    for places in windows.values():
        assert places == sorted(places)


def test_times_are_coarse(told):
    world, _ = told
    for entry in ledger.read(world.state).entries:
        assert len(entry["at"]) == len("2026-01-02T03:04:05Z"), entry
        if "until" in entry:
            assert ledger.seconds(entry["until"]) % DAY == 0, "the end of a day"


def test_verify_prints_one_line(told):
    world, _ = told
    done = audit_verify(world.state)
    assert done.returncode == 0 and len(done.stdout.strip().splitlines()) == 1, done.stdout + done.stderr
    assert any(character.isdigit() for character in done.stdout)


def test_verify_over_http(told):
    world, _ = told
    done = mayfly("audit", "verify", f"{world.broker.url}/audit", "--key", world.state.vkey)
    assert done.returncode == 0, done.stdout + done.stderr


def test_verify_with_earlier_checkpoints(told, tmp_path):
    world, room = told
    earlier = tmp_path / "earlier"
    earlier.write_bytes((world.state / "ledger/checkpoint").read_bytes())
    world.client().delete_token(room.roomid, room.joiner.client)
    world.client().create(token=new_token()).expect(201)
    size = ledger.read(world.state).checkpoint.size
    eventually(lambda: ledger.read(world.state).checkpoint.size > size, what="a longer log")
    assert audit_verify(world.state, earlier).returncode == 0


# Promise: exit-codes
def test_verify_notices_damage(told, tmp_path):
    """`VerifierTests` has the other kinds."""
    world, _ = told
    copy = tmp_path / "ledger"
    shutil.copytree(world.state / "ledger", copy)
    path = copy / "tile/entries/000"
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    done = mayfly("audit", "verify", copy, "--key", world.state.vkey)
    assert done.returncode == 1, done.stdout + done.stderr
    assert (done.stdout + done.stderr).strip() and "Fatal error" not in done.stderr


def test_verify_notices_another_history(told, worlds, tmp_path):
    """A checkpoint of another log, a key of another log, and a log that was cut back."""
    world, _ = told
    other = worlds(apns=False)
    foreign = tmp_path / "foreign"
    foreign.write_bytes(eventually(lambda: (other.state / "ledger/checkpoint").read_bytes(), what="a checkpoint"))
    assert audit_verify(world.state, foreign).returncode == 1
    assert mayfly("audit", "verify", world.state / "ledger", "--key", other.state.vkey).returncode == 1
    later = tmp_path / "later"
    later.write_bytes((world.state / "ledger/checkpoint").read_bytes())
    assert mayfly("audit", "verify", other.state / "ledger", "--key", other.state.vkey, "--since", later).returncode == 1


def test_a_restart_continues_the_log(worlds):
    world = worlds()
    world.client().room()
    assert world.broker.stop() == 0
    first = ledger.read(world.state)
    assert first.counts()["broker.stopped"] == 1
    world.broker.start()
    # Within the same second. Its window is published, so this run's entries belong to a later one.
    assert world.broker.stop() == 0
    second = ledger.read(world.state)
    assert second.raw[:len(first.raw)] == first.raw
    second.check()
    counts = second.counts()
    assert counts["broker.started"] == counts["broker.stopped"] == 2
    assert audit_verify(world.state).returncode == 0
