"""`mayfly keys rotate` into a folder of the user's, inside one that the user can't write: the moved files, and crashes within."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from processes import BINARY, State, clean_environment
from test_rotation import NEXT, archived, continues, current, template  # noqa: F401
from test_rotation_crashes import disturbed, stage  # noqa: F401

pytestmark = pytest.mark.campaign

NOBODY = 65534


class Foreign:
    """A state folder of a user without rights, and an empty archive of theirs in a folder that they can't write."""

    def __init__(self, template):
        self.root = Path(tempfile.mkdtemp(prefix="mayfly-foreign-"))
        self.root.chmod(0o755)
        self.state = State(parent=self.root / "home", keys=None)
        shutil.copytree(template.state.folder, self.state.folder)
        self.archive = self.root / "srv/closed"
        self.archive.mkdir(parents=True)
        self.user = []
        if os.geteuid() == 0:
            self.user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            for path in (self.root / "home", *self.state.parent.rglob("*"), self.archive):
                os.chown(path, NOBODY, NOBODY)
        self.archive.parent.chmod(0o555)

    def rotate(self, **environment):
        return subprocess.run(
            [*self.user, BINARY, "keys", "rotate", "--state", self.state.folder, "--origin", NEXT, "--archive", self.archive],
            capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL, env=clean_environment(**environment))

    def check(self):
        closed, begun = archived(self.archive), current(self.state)
        assert continues(begun, closed) == 2
        assert {path.name for path in self.archive.iterdir()} == {"checkpoint", "tile", "policies", "ledger.vkey"}
        assert not [path for path in self.root.rglob("*.new") if path.name != "ratchet.key.new"]

    def remove(self):
        if self.root.exists():
            self.archive.parent.chmod(0o755)
            self.state.remove()
            shutil.rmtree(self.root)


@pytest.fixture
def foreigners(template):
    made = []

    def make():
        made.append(Foreign(template))
        return made[-1]
    yield make
    for foreign in made:
        foreign.remove()


def test_the_archive_may_be_in_anothers_folder(foreigners):
    foreign = foreigners()
    owner = foreign.archive.stat().st_uid
    probe = subprocess.run([*foreign.user, "mkdir", foreign.archive.parent / "x"], capture_output=True)
    assert probe.returncode != 0, "the archive's parent can be written"
    done = foreign.rotate()
    assert done.returncode == 0, done.stdout + done.stderr
    foreign.check()
    assert foreign.archive.stat().st_uid == owner
    again = foreign.rotate()
    assert again.returncode == 0 and again.stdout == done.stdout, again.stderr


def test_an_unwritable_archive_is_refused(foreigners):
    """Nothing is closed, since it could not be moved."""
    foreign = foreigners()
    foreign.archive.chmod(0o555)
    done = foreign.rotate()
    assert done.returncode == 1 and str(foreign.archive) in done.stderr, done.stderr
    assert stage(foreign.state) is None and not current(foreign.state).counts().get("ledger.closed")
    assert not (foreign.state / "ledger.new").exists()
    foreign.archive.chmod(0o755)
    assert foreign.rotate().returncode == 0
    foreign.check()


def cut_off(foreigners, disturbed, call):
    """Each run that is killed once the archive holds something and before it holds the log, from that change to a file on."""
    while True:
        foreign = foreigners()
        done = foreign.rotate(**disturbed("KILL_AT", call))
        assert done.returncode == -9, done.stdout + done.stderr
        there = {path.name for path in foreign.archive.iterdir()}
        if "checkpoint" in there:
            break
        step = 1 if stage(foreign.state) == "moving" else 4
        if there:
            yield foreign, there
        foreign.remove()
        call += step


def test_a_move_into_an_archive_survives_a_kill(foreigners, disturbed):
    """The log is in two places then. The next run continues."""
    seen = []
    # The number of calls before the first move differs between runs, so one sweep can step over it.
    for _ in range(4):
        for foreign, there in cut_off(foreigners, disturbed, 100):
            assert "ledger.vkey" in there and (foreign.state / "ledger/checkpoint").exists()
            done = foreign.rotate()
            assert done.returncode == 0, done.stdout + done.stderr
            foreign.check()
            seen.append(there)
        if {"ledger.vkey"} in seen and {"ledger.vkey", "policies", "tile"} in seen:
            return
    raise AssertionError(f"never cut off at the first or after the third move: {seen}")


def test_a_file_in_the_archive_is_never_replaced(foreigners, disturbed):
    """Somebody made it meanwhile. It isn't taken for the log's either."""
    for foreign, _ in cut_off(foreigners, disturbed, 100):
        (foreign.archive / "checkpoint").write_text("x")
        done = foreign.rotate()
        assert done.returncode == 1 and "in the way" in done.stderr, done.stderr
        assert (foreign.archive / "checkpoint").read_text() == "x"
        (foreign.archive / "checkpoint").unlink()
        assert foreign.rotate().returncode == 0
        foreign.check()
        break
