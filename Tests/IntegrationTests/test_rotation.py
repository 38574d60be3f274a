"""`mayfly keys rotate` closes the log and begins another, with another key and origin. Its refusals close nothing."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

import ledger
from mayfly import Client, new_token
from processes import ORIGIN, REPOSITORY, Broker, Simulator, State, audit_verify, eventually, mayfly, quick_rooms, shifted

NEXT = "mayfly.test/log-2"


def rotate(state, origin=NEXT, archive=None, **environment):
    return mayfly(
        "keys", "rotate", "--state", state.folder, "--origin", origin, "--archive", archive or state.parent / "closed", **environment)


def rotated(state, origin=NEXT, archive=None, **environment):
    done = rotate(state, origin, archive, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rotated_late(state, seconds):
    """Rotates with clocks that are ahead. While entries wait for their batch the command asks to be run again."""
    def is_rotated():
        done = rotate(state, **shifted(state, seconds))
        assert done.returncode == 0 or "Run this again" in done.stderr, done.stdout + done.stderr
        return done.returncode == 0
    eventually(is_rotated, 60, what="the rotation")


def refused(state, *words, status=1, **changes):
    """Checks that a rotation fails with a reason in at most three lines. Returns the names of changed files."""
    before = {path: path.read_bytes() for path in files(state) if path.suffix not in (".sqlite", ".sqlite-wal", ".sqlite-shm")}
    done = rotate(state, **changes)
    assert done.returncode == status, done.stdout + done.stderr
    assert all(str(word) in done.stderr for word in words), done.stderr
    assert len(done.stderr.splitlines()) <= 3 and "Fatal error" not in done.stderr, done.stderr
    now = {path: path.read_bytes() for path in files(state) if path.suffix not in (".sqlite", ".sqlite-wal", ".sqlite-shm")}
    changed = {path.name for path in before.keys() | now.keys() if before.get(path) != now.get(path)}
    return changed


def files(state):
    return [path for path in state.folder.rglob("*") if path.is_file()]


def archived(folder, *more):
    """The closed log, read by code that shares nothing with Mayfly, and by Mayfly."""
    log = ledger.Ledger(folder, (folder / "ledger.vkey").read_text().strip()).check()
    assert log.entries[-1]["op"] == "ledger.closed" and log.counts()["ledger.closed"] == 1
    done = mayfly("audit", "verify", folder, "--key", folder / "ledger.vkey", *more)
    assert done.returncode == 0, done.stdout + done.stderr
    return log


def current(state, *more):
    done = audit_verify(state, more=more)
    assert done.returncode == 0, done.stdout + done.stderr
    return ledger.read(state).check()


def live(log):
    """{day: how many tokens that are to be purged by its end live on after the log}, by its own entries."""
    left = Counter()
    for entry in log.entries:
        left[entry.get("until")] += {
            "bucket.carried": entry.get("live", 0), "token.sealed": 1, "token.purged": -1, "bucket.closed": -entry.get("ended", 0)}.get(entry["op"], 0)
    return {until: count for until, count in left.items() if until and count}


def pending(log):
    """Jobs without an outcome."""
    ended = {entry["job"] for entry in log.entries if entry["op"] in ("push.delivered", "push.failed")}
    return {entry["job"] for entry in log.entries if entry["op"] == "token.opened"} - ended


def continues(begun, closed):
    """Checks that the new log continues exactly what the old one leaves. Returns how many tokens live."""
    opened = begun.entries[0]
    assert opened["op"] == "ledger.opened" and opened["previous"] == closed.checkpoint.origin and opened["size"] == closed.checkpoint.size
    assert bytes.fromhex(opened["root"]) == closed.checkpoint.root and opened["jobs"] == len(pending(closed))
    assert live(begun) == live(closed)
    return sum(live(begun).values())


def seed(state):
    return (state / "keys/ledger.key").read_text().splitlines()[2]


class Template:
    """A state folder whose broker has stopped: tokens that live and some that do not, a push under way, one whose token is gone."""

    def __init__(self):
        self.state = State()
        policy = json.loads((REPOSITORY / "policies/rooms.json").read_text())
        policy["limits"]["startGraceSeconds"] = 8
        policy["ledger"] = {"hourSeconds": 1, "daySeconds": 1, "batchSeals": 1}
        path = self.state.prints / "policy.json"
        path.write_text(json.dumps(policy))
        self.broker = Broker(self.state, policy=f"companion,{path}")
        self.broker.start()
        client = Client(self.broker.port)
        self.room, self.other, gone = client.room(), client.room(), client.room()
        client.delete(gone.roomid).expect(200)
        client.close()
        assert self.broker.stop() == 0
        # For some seconds after a start pushes in older rooms wait. There is no APNs either.
        self.broker.start()
        for room in (self.room, self.other):
            assert client.presence(room.roomid, room.joiner.client).expect(202).json["delivery"] == "queued"
        client.delete(self.other.roomid).expect(200)
        client.close()
        # Entries that wait for their batch would be the next log's.
        eventually(lambda: all(ledger.read(self.state).of(side.ref, "token.purged") for side in (self.other.creator, self.other.joiner)), what="the purges in the log")
        assert self.broker.stop() == 0
        assert self.state.jobs() == 2

    def copy(self):
        state = State(keys=None)
        shutil.copytree(self.state.folder, state.folder)
        return state

    def remove(self):
        self.state.remove()


@pytest.fixture(scope="module")
def template():
    made = Template()
    yield made
    made.remove()


@pytest.fixture
def stopped(template):
    state = template.copy()
    yield state
    state.remove()


def test_a_rotation_continues_every_life_in_the_next_log(template, stopped, processes):
    """To its end."""
    state, archive, old, secret = stopped, stopped.parent / "closed", stopped.vkey, seed(stopped)
    kept = state.prints / "kept"
    shutil.copy(state / "ledger/checkpoint", kept)
    told = rotated(state)
    assert old.split("+")[0] in told and str(archive) in told and state.vkey in told and "2 tokens are stored now and live on" in told
    closed = archived(archive)
    assert (archive / "ledger.vkey").read_text().strip() == old
    assert mayfly("audit", "verify", archive, "--key", old, "--since", kept).returncode == 0
    assert closed.entries[-1]["next"] == NEXT
    # Each policy of the last start goes along, for the next end.
    assert {path.name for path in (state / "ledger/policies").iterdir()} == {path.name for path in (archive / "policies").iterdir()}
    assert len(list((state / "ledger/policies").iterdir())) == 2
    # The rotation ran the broker once more. Pushes go along, also one whose token is gone.
    assert closed.counts()["broker.started"] == 3
    (job,), (late,) = ([entry["job"] for entry in closed.of(room.creator.ref, "token.opened")] for room in (template.room, template.other))
    assert pending(closed) == {job, late}

    begun = current(state)
    assert begun.checkpoint.origin == NEXT and state.vkey.startswith(NEXT + "+")
    assert continues(begun, closed) == 2
    assert {entry["at"] for entry in begun.entries} == {closed.entries[-1]["at"]}

    # The old private key is in no file, nor are the rotation's temporary files.
    raw = base64.b64decode(secret)
    for path in [*files(state), *(path for path in archive.rglob("*") if path.is_file())]:
        assert secret.encode() not in path.read_bytes() and raw not in path.read_bytes(), path
    assert {path.name for path in (state / "keys").glob("ledger*")} == {"ledger.key"}
    assert (state / "keys/ledger.key").stat().st_mode & 0o777 == 0o600
    assert {path.name for path in state.folder.iterdir()} <= {
        "keys", "ledger", "ledger.vkey", "mayfly.sqlite", "mayfly.sqlite-wal", "mayfly.sqlite-shm"}

    assert mayfly("keys", "show", "--state", state.folder).stdout.count(state.vkey) == 1
    simulator = Simulator(state)
    broker = Broker(state, simulator.port, origin=NEXT)
    processes += [simulator, broker]
    simulator.start()
    broker.start()
    client, room = Client(broker.port), template.room
    client.status(room.roomid).expect(200)
    eventually(lambda: {job, late} <= {entry.get("job") for entry in ledger.read(state).entries}, 20, what="the outcomes of the pushes from before")
    client.delete(room.roomid).expect(200)
    eventually(lambda: all(ledger.read(state).of(side.ref, "token.purged") for side in (room.creator, room.joiner)), what="the purges in the new log")
    assert broker.stop() == 0
    log = current(state)
    assert [entry["op"] for entry in closed.of(room.creator.ref)] == ["token.sealed", "token.opened"]
    assert [entry["op"] for entry in log.of(room.creator.ref)] == ["token.purged"]
    assert {entry["job"]: entry.get("reason") for entry in log.entries if "job" in entry} == {job: None, late: "unsent"}
    proof = state.prints / "proof"
    for folder, key, ref in ((state / "ledger", state.vkey, room.creator.ref), (archive, old, template.other.creator.ref)):
        assert mayfly("audit", "prove", folder, ref, "--key", key, "--out", proof).returncode == 0
        assert "was purged" in mayfly("audit", "verify", "--proof", proof, "--key", key, "--ref", ref).stdout
    # The name of the old log does not start this one.
    broker.options["origin"] = ORIGIN
    broker.start(wait=False)
    assert broker.child.wait(15) == 2 and NEXT in broker.printed()


@pytest.mark.campaign
def test_an_origin_is_never_used_again(stopped):
    state = stopped
    for number in (2, 3, 4):
        rotated(state, f"log.test/{number}", state.parent / f"closed-{number}")
    names = [archived(state.parent / f"closed-{number}").checkpoint.origin for number in (2, 3, 4)]
    assert names == [ORIGIN, "log.test/2", "log.test/3"]
    assert current(state).checkpoint.origin == "log.test/4"
    assert [archived(state.parent / f"closed-{number}").entries[-1]["next"] for number in (2, 3, 4)] == [
        "log.test/2", "log.test/3", "log.test/4"]
    for used in (ORIGIN, "log.test/2", "log.test/3", "log.test/4"):
        refused(state, used, origin=used, archive=state.parent / "closed-5")
    assert not (state.parent / "closed-5").exists()


@pytest.mark.campaign
def test_a_waiting_seal_keeps_its_policy_in_the_next_log(state, processes):
    """The next start has a policy of shorter lives."""
    def policy(longest):
        rooms = quick_rooms() | {"ledger": {"hourSeconds": 2, "daySeconds": 20, "batchSeals": 1000}}
        rooms["limits"] |= {"roomLifeSeconds": rooms["limits"]["roomLifeSeconds"] | {"default": longest, "max": longest}}
        path = state.prints / f"rooms-{longest}.json"
        path.write_text(json.dumps(rooms))
        return path
    # The seal must still wait when the log is closed.
    time.sleep((12 - time.time()) % 20)
    broker = Broker(state, policy=policy(600_000))
    processes.append(broker)
    broker.start()
    ref = Client(broker.port).create(token=new_token()).expect(201).json["ref"]
    assert broker.stop() == 0
    rotated(state)
    broker.options |= {"policy": policy(3600), "origin": NEXT}
    broker.start()
    eventually(lambda: ledger.read(state).of(ref), 30, what="the seal in the new log")
    assert broker.stop() == 0
    current(state)


@pytest.mark.campaign
def test_a_late_rotation_purges_what_came_due(template, stopped, processes):
    """In the old log, late and excused. Nothing is overdue at its end."""
    state, broker = stopped, Broker(stopped, origin=NEXT)
    processes.append(broker)
    rotated_late(state, 2 * 3600)
    closed, begun = archived(state.parent / "closed", "--allow-gaps"), current(state)
    assert not pending(closed) and continues(begun, closed) == 0 and len(begun.entries) == 1
    purges = [entry for entry in closed.of(template.room.creator.ref) if entry["op"] == "token.purged"]
    assert [entry["cause"] for entry in purges] == ["expired"]
    done = mayfly("audit", "verify", state.parent / "closed", "--key", state.parent / "closed/ledger.vkey", "--json", "--allow-gaps")
    assert 7000 < json.loads(done.stdout)["gapSeconds"] < 7400
    broker.start(clock_offset=2 * 3600)
    assert broker.stop() == 0
    current(state)


# Refusals: nothing is closed, moved or destroyed.

@pytest.mark.campaign
def test_bad_origins_are_refused(stopped):
    for origin, status in ((ORIGIN, 1), ("log test", 2)):
        assert refused(stopped, status=status, origin=origin) == set()
        assert not (stopped.parent / "closed").exists()


@pytest.mark.campaign
def test_bad_archives_are_refused(stopped):
    full = stopped.parent / "full"
    full.mkdir()
    (full / "x").write_text("x")
    (stopped.parent / "link").symlink_to(full)
    archives = {
        "file": full / "x", "full": full, "ledger": stopped / "ledger", "keys": stopped / "keys/closed",
        "inside": stopped / "ledger/closed", "parent": stopped.parent / "none/closed", "dots": f"{full}/..",
        "link": stopped.parent / "link"}
    for place, archive in archives.items():
        assert refused(stopped, status=2 if place == "dots" else 1, archive=archive) == set(), place
        assert (full / "x").read_text() == "x"


@pytest.mark.campaign
def test_a_linked_ledger_is_refused(stopped):
    (stopped / "ledger").rename(stopped.parent / "elsewhere")
    (stopped / "ledger").symlink_to(stopped.parent / "elsewhere")
    assert refused(stopped, "A link") == set()


@pytest.mark.campaign
def test_a_file_in_the_way_is_kept(stopped):
    (stopped / "ledger.new").mkdir()
    (stopped / "ledger.new/x").write_text("x")
    assert refused(stopped, "in the way") == set()
    assert (stopped / "ledger.new/x").read_text() == "x"


@pytest.mark.campaign
def test_an_archive_on_another_file_system_is_refused(stopped):
    others = [path for path in map(Path, ("/dev/shm", "/var/tmp")) if path.is_dir() and path.stat().st_dev != stopped.folder.stat().st_dev]
    if not others:
        pytest.skip("NOT TESTED: a second file system, there is none")
    place = Path(tempfile.mkdtemp(dir=others[0]))
    try:
        assert refused(stopped, "file system", archive=place / "closed") == set()
        assert list(place.iterdir()) == []
    finally:
        shutil.rmtree(place)


@pytest.mark.campaign
def test_an_archive_may_be_an_empty_folder(stopped):
    (stopped.parent / "closed").mkdir()
    rotated(stopped, archive=f"{stopped.parent}/closed/")
    archived(stopped.parent / "closed")


def test_a_rotation_beside_a_broker_is_refused(state, processes):
    broker = Broker(state)
    processes.append(broker)
    broker.start()
    done = rotate(state)
    assert done.returncode == 1 and "another broker uses" in done.stderr
    assert broker.stop() == 0
    current(state)


def test_bad_use(stopped, state):
    for words in (["--origin", NEXT], ["--archive", stopped.parent / "closed"]):
        done = mayfly("keys", "rotate", "--state", stopped.folder, *words)
        assert done.returncode == 2 and "missing" in done.stderr
    done = rotate(state)
    assert done.returncode == 1 and "no broker has run" in done.stderr
    assert not (state / "mayfly.sqlite").exists()
    shutil.rmtree(state.folder)
    assert rotate(state).returncode == 1 and not state.folder.exists()


@pytest.mark.campaign
def test_a_state_folder_with_one_policy_can_be_rotated(stopped):
    """Older versions recorded no list of policies."""
    subprocess.run(["sqlite3", stopped / "mayfly.sqlite", "DELETE FROM node WHERE name = 'log.policies'"], check=True)
    rotated(stopped)
    archived(stopped.parent / "closed")
    current(stopped)


@pytest.mark.campaign
@pytest.mark.parametrize("damage", ["checkpoint", "policy", "companion", "ledger key", "ratchet key", "database", "start"])
def test_damage_stops_a_rotation_before_anything_is_closed(stopped, damage):
    policies = sorted((stopped / "ledger/policies").iterdir(), key=lambda path: b'"kind": "companion"' in path.read_bytes())
    path = {
        "checkpoint": stopped / "ledger/checkpoint", "policy": policies[0], "companion": policies[1],
        "ledger key": stopped / "keys/ledger.key", "ratchet key": stopped / "keys/ratchet.key",
        "database": stopped / "mayfly.sqlite", "start": stopped / "mayfly.sqlite"}[damage]
    if damage == "start":
        subprocess.run(["sqlite3", path, "DELETE FROM node WHERE name = 'log.start'"], check=True)
    else:
        content = path.read_bytes()
        path.write_bytes(bytes(30) + content[30:])
    assert refused(stopped) <= {"ratchet.key.new"}
    assert not (stopped.parent / "closed").exists()


@pytest.mark.campaign
def test_a_mounted_ledger_is_refused(template, tmp_path):
    """It can't be moved, even on the same file system. Nothing is closed."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a mount of its own needs root")
    state = State(parent=tmp_path, keys=None)
    shutil.copytree(template.state.folder, state.folder)
    before = live(current(state))
    subprocess.run(["mount", "--bind", state / "ledger", state / "ledger"], check=True)
    try:
        done = rotate(state)
        assert done.returncode == 1 and "mounted" in done.stderr, done.stderr
        assert live(current(state)) == before and not current(state).counts().get("ledger.closed")
    finally:
        subprocess.run(["umount", state / "ledger"], check=True)
    rotated(state)
