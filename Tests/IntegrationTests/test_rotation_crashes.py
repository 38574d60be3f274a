"""`mayfly keys rotate` that is cut off, or whose disk is full: run again it finishes."""

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ledger
from preload import library
from processes import ORIGIN, Broker, State, eventually, filled
from test_rotation import (  # noqa: F401
    NEXT, archived, continues, current, files, live, pending, rotate, rotated, rotated_late, seed, stopped, template)

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def disturbed():
    """The environment of a process that is killed before its n-th change to a file (KILL_AT), or whose n-th change fails (FAIL_AT)."""
    return lambda kind, call: {"LD_PRELOAD": library("kill_at.c"), kind: call}


def stage(state):
    """The stage of a rotation under way, by the store."""
    with state.database() as database:
        row = database.execute("SELECT value FROM node WHERE name = 'log.rotation'").fetchone()
    return row[0].split(b"\n")[0].decode() if row and row[0] else None


def disturb(template, environment):
    """Cuts a rotation off, tries what must not work then, and finishes it. Returns the stage of the cut, or None if the rotation was complete."""
    state = template.copy()
    try:
        archive, secret, old = state.parent / "closed", seed(state), state.vkey
        done = rotate(state, **environment)
        if done.returncode == 0:
            assert stage(state) is None and continues(current(state), archived(archive)) == 2
            return None
        if "KILL_AT" in environment:
            assert done.returncode == -9, done.stdout + done.stderr
        else:
            assert done.returncode == 1 and done.stderr.strip() and "Fatal error" not in done.stderr, done.stdout + done.stderr
        found = stage(state)
        # Whatever was signed and shown by then stays true.
        shown = [path for path in (archive / "checkpoint", state / "ledger/checkpoint") if path.exists()]
        kept = [(path.parent, shutil.copy(path, state.prints / f"kept-{number}")) for number, path in enumerate(shown)]
        alive = any(secret in path.read_text(errors="replace") for path in (state / "keys").glob("ledger*"))
        assert alive or archive.exists() and (archive / "ledger.vkey").exists(), "a log that is not put away lost its key"
        if found:
            broker = Broker(state, origin=None)
            broker.start(wait=False)
            assert broker.child.wait(15) == 1 and "keys rotate" in broker.printed(), broker.printed()
            other = rotate(state, origin="log.test/another")
            assert other.returncode == 1 and NEXT in other.stderr, other.stderr
        rotated(state)
        assert stage(state) is None
        closed, begun = archived(archive), current(state)
        assert continues(begun, closed) == 2
        for folder, checkpoint in kept:
            note = Path(checkpoint).read_bytes()
            log = closed if note.split(b"\n")[0].decode() == ORIGIN else begun
            head = ledger.Checkpoint(note, old if log is closed else state.vkey)
            assert ledger.root_of(log.hashes[:head.size]) == head.root, "two heads of one size"
        for path in files(state) + [path for path in archive.rglob("*") if path.is_file()]:
            assert secret.encode() not in path.read_bytes(), path
        assert {path.name for path in (state / "keys").glob("ledger*")} == {"ledger.key"}
        assert sorted(path.name for path in state.parent.iterdir()) == ["closed", "state"]
        assert not [path for path in state.parent.rglob("*.new") if path.name != "ratchet.key.new"]
        return found or "open"
    finally:
        state.remove()


def test_cut_off_at_any_step(template, disturbed):
    """Run again it finishes; a broker does not start in between; never two heads of one size, never a key lost before its time.

    Of about 240 changes to files a fifth, others each time; once the log is recorded as closed, every fourth. Then some of them fail.
    """
    stages, call = [], random.randint(1, 10)
    print(f"from call {call}")
    with ThreadPoolExecutor(4) as threads:
        while None not in stages:
            stride = 7 if "closing" not in stages else 4
            batch = [call + stride * number for number in range(4)]
            stages += threads.map(lambda number: disturb(template, disturbed("KILL_AT", number)), batch)
            call = batch[-1] + stride
        counts = {name: stages.count(name) for name in ("open", "closing", "moving")}
        # How many of the stage's calls are left for the smaller steps depends on where it began.
        assert all(count > 2 for count in counts.values()), counts
        failing = random.sample(range(1, call), 20)
        print(f"failing {failing}")
        assert any(threads.map(lambda number: disturb(template, disturbed("FAIL_AT", number)), failing))


def cut_off_in(wanted, template, state, disturbed, step):
    """Kills rotations, each `step` calls later, until one leaves `state` in the wanted stage. Returns False if one came to its end first."""
    for call in range(1, 10_000, step):
        shutil.rmtree(state.folder)
        shutil.rmtree(state.parent / "closed", ignore_errors=True)
        shutil.copytree(template.state.folder, state.folder)
        done = rotate(state, **disturbed("KILL_AT", call))
        if done.returncode == 0:
            return False
        assert done.returncode == -9, done.stdout + done.stderr
        if stage(state) == wanted:
            return True


@pytest.mark.parametrize("wanted", ["closing", "moving"])
def test_a_cut_rotation_can_be_finished_hours_later(template, disturbed, stopped, processes, wanted):
    """Tokens that came due meanwhile are purged by the next start, in the new log, and excused."""
    state = stopped
    # The calls of a stage differ between runs, so large steps can miss one.
    assert any(cut_off_in(wanted, template, state, disturbed, step) for step in (20, 7, 3, 1))
    later = 3 * 3600
    rotated_late(state, later)
    assert continues(current(state), archived(state.parent / "closed")) == 2
    broker = Broker(state, origin=NEXT)
    processes.append(broker)
    broker.start(clock_offset=later)
    eventually(lambda: not live(ledger.read(state)), 60, what="the purges")
    assert broker.stop() == 0
    log = current(state, "--allow-gaps")
    assert log.counts()["token.purged"] == 2 and not pending(log)


@pytest.mark.parametrize("left", [0, 40, 80, 100, 120, 160])
def test_a_rotation_on_a_full_disk_can_be_repeated(template, small_disk, left):
    """It fails with a message, and succeeds once there is space. `left` KiB are free at first."""
    state = State(parent=small_disk, keys=None)
    shutil.copytree(template.state.folder, state.folder)
    filler = filled(small_disk, left)
    done = rotate(state)
    if done.returncode != 0:
        assert done.returncode == 1 and len(done.stderr.splitlines()) <= 3 and "Fatal error" not in done.stderr, done.stderr
        assert done.stderr.strip(), "not a word of it"
    filler.unlink()
    rotated(state)
    assert continues(current(state), archived(small_disk / "closed")) == 2
    assert left or done.returncode == 1
