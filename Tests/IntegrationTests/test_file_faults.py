"""Every call on the ledger's folder fails once: the broker runs on, or its start reports the reason. The log verifies, and no acknowledged token is
missing."""

import errno
import re
import shutil
import threading

import pytest

import ledger
from faults import Faults
from mayfly import Client, new_client, new_code, new_token
from processes import Broker, State, audit_verify, eventually, quiet_rooms

pytestmark = pytest.mark.campaign

PARTS = range(10)


class Story:
    """One state, its broker under faults, the acknowledged tokens, and the published checkpoints."""

    def __init__(self, template=None):
        self.state = State(keys=None if template else "throwaway")
        self.refs, self.kept = [], []
        if template:
            shutil.copytree(template.state.folder, self.state.folder)
            self.refs, self.kept = list(template.refs), list(template.kept)
        self.faults = Faults(self.state)
        self.broker = Broker(self.state, policy=quiet_rooms(self.state))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.broker.kill()
        self.state.remove()

    def start(self, **more):
        self.broker.start(**more, **self.faults.environment)

    def make_room(self):
        client = Client(self.broker.port, checked=False)
        self.refs.append(client.create(new_code(), token=new_token(), expires=3600).expect(201).json["ref"])
        client.close()

    def make_entries(self, count):
        """Two with each call. Until the folder can be written, the first window's are one head and all others the next."""
        client, owner = Client(self.broker.port, checked=False), new_client()
        for number in range(count // 2):
            # A side replaces its token six times.
            if number % 6 == 0:
                room = client.create(new_code(), owner, new_token(), expires=3600).expect(201).json
            self.refs.append(client.put_token(room["roomid"], owner, new_token()).expect(200).json["ref"])
        client.close()

    def published(self, what):
        try:
            eventually(lambda: self.is_published, 60, 0.05, what=f"publication after {what}")
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.broker.printed()}") from None

    @property
    def is_published(self):
        """The store has nothing left that the folder is not known to have."""
        with self.state.database() as database:
            left = "SELECT 1 FROM entry UNION ALL SELECT 1 FROM waiting UNION ALL SELECT 1 FROM unpublished"
            return database.execute(f"SELECT NOT EXISTS ({left})").fetchone()[0]

    def keep(self):
        note = self.state / "ledger/checkpoint"
        kept = self.state.prints / f"kept-{len(self.kept)}"
        if note.exists():
            kept.write_bytes(note.read_bytes())
            self.kept.append(kept)

    def verify(self, what):
        verified = audit_verify(self.state, *self.kept[-50:])
        assert verified.returncode == 0, f"{what}: {verified.stdout}{verified.stderr}{self.broker.printed()}"
        log = ledger.read(self.state)
        log.check()
        seals = {entry["id"] for entry in log.entries if entry["op"] == "token.sealed"}
        days = [int(ledger.seconds(until)) for until in log.untils]
        missing = [ref for ref in self.refs if not any(ledger.token_id(ref, "sealed", day) in seals for day in days)]
        assert not missing, f"{what}: {len(missing)} of {len(self.refs)} acknowledged tokens are not in the log"


_behind, _lock = [], threading.Lock()


def behind():
    """A state that a kill left with acknowledged entries which are in the database alone, those of a signed head and others. Its `calls`: how
    many a publication of one entry has when none is struck."""
    with _lock:
        if _behind:
            return _behind[0]
        story = Story()
        _behind.append(story)
        story.start()
        story.published("the start")
        counts = []
        for _ in range(3):
            before = story.faults.calls
            story.make_room()
            story.published("nothing")
            counts.append(story.faults.calls - before)
        story.calls = min(counts)
        story.keep()
        story.faults.arm(-1, only="rename")
        story.make_room()

        def is_ahead():
            with story.state.database() as database:
                return database.execute("SELECT EXISTS (SELECT 1 FROM unpublished)").fetchone()[0]
        eventually(is_ahead, 5, what="a head that is not published")
        story.make_room()
        story.broker.kill()
        return story


@pytest.fixture(scope="module", autouse=True)
def no_state_is_left():
    yield
    for story in _behind:
        story.state.remove()


def publication_cases():
    """How each call of a publication is struck: kind, error, number of the call, and of which name if not of all."""
    for call in range(1, behind().calls + 1):
        yield Faults.FAILS, errno.EIO, call, ""
    for name, calls in dict(mkdir=4, ftruncate=2, pwrite=3, fsync=9, fchmod=1, rename=3).items():
        for call in range(1, calls + 1):
            yield Faults.FAILS, errno.ENOSPC, call, name
            yield Faults.DONE_AND_FAILS, errno.EIO, call, name
    for call in range(1, 4):
        yield Faults.WRITES_HALF, 0, call, "pwrite"
        yield Faults.WRITES_HALF_AND_FAILS, errno.ENOSPC, call, "pwrite"


def say(kind, error, call, only):
    return f"{errno.errorcode.get(error, 'no error')} at {only or 'any'} call {call}, kind {kind}"


@pytest.mark.background
@pytest.mark.parametrize("part", PARTS)
def test_a_publication_recovers_from_each_failed_call(part):
    with Story() as story:
        story.start()
        story.published("the start")
        for number, case in enumerate(list(publication_cases())[part::len(PARTS)]):
            kind, error, call, only = case
            struck = story.faults.struck
            story.faults.arm(call, kind, error, only)
            story.make_room()
            eventually(lambda: story.faults.struck > struck or story.is_published, 10, what=f"a publication, or {say(*case)}")
            if number % 3 == 0 and not story.is_published:
                # The next try fails too, somewhere else.
                story.faults.arm(call // 2 + 1)
            story.published(say(*case))
            assert story.broker.running, f"{say(*case)}: {story.broker.printed()}"
            assert story.faults.struck > struck, f"never came: {say(*case)}"
            story.faults.disarm()
            story.keep()
        failures = re.findall("ledger: can't publish .*", story.broker.printed())
        eventually(lambda: story.broker.printed().count("ledger: publishing again") == len(failures), what="an end of each failure")
        assert failures
        for failure in failures:
            assert re.search("Input/output error|No space left on device", failure), failure
        assert story.broker.stop() == 0
        story.keep()
        story.verify(f"part {part}")


@pytest.mark.background
def test_a_large_publication_recovers_from_failed_calls():
    """Full tiles, more files than are synced one by one, and partial tiles to be removed."""
    cases = [
        (Faults.FAILS, errno.EIO, 1, "syncfs"), (Faults.DONE_AND_FAILS, errno.EIO, 1, "syncfs"),
        (Faults.WRITES_HALF_AND_FAILS, errno.ENOSPC, 6, "pwrite"), (Faults.FAILS, errno.EIO, 6, "rename"),
        (Faults.FAILS, errno.EIO, 1, "opendir"), (Faults.FAILS, errno.EIO, 2, "readdir"), (Faults.FAILS, errno.EIO, 1, "lstat"),
        (Faults.FAILS, errno.EACCES, 1, "unlink"), (Faults.FAILS, errno.EIO, 1, "rmdir")]
    with Story() as story:
        story.start()
        story.make_room()
        story.published("the start")
        for case in cases:
            kind, error, call, only = case
            # Nothing is published until enough waits.
            story.faults.arm(-1, only="rename")
            story.make_entries(1800)
            struck = story.faults.struck
            story.faults.arm(call, kind, error, only)
            story.published(say(*case))
            assert story.faults.struck > struck, f"never came: {say(*case)}"
            story.faults.disarm()
            story.keep()
        assert story.broker.stop() == 0
        story.verify("large publications")


# Names of calls at which a start is killed; all of its calls fail.
STARTS = [("fails", "")] * 5 + [("dies", name) for name in ("fsync", "pwrite", "ftruncate", "mkdir", "fchmod", "rename", "unlink")]


@pytest.mark.background
@pytest.mark.parametrize("part", range(len(STARTS)))
def test_a_start_recovers_from_each_failed_call(part):
    """A start compares, repairs and tidies the folder. If it can't continue it says why, and the next one can."""
    kind, only = STARTS[part]
    call, stride, ended = (part + 1, 5, 0) if kind == "fails" else (1, 1, 0)
    while True:
        with Story(behind()) as story:
            story.faults.arm(call, Faults.FAILS if kind == "fails" else Faults.DIES, errno.EIO, only)
            story.broker.start(wait=False, **story.faults.environment)
            eventually(lambda: story.broker.child.poll() is not None or story.broker.is_ready(), 20, what=f"a start, call {call}")
            if not story.faults.struck:
                break
            what = f"start with {kind} at call {call} ({story.faults.last})"
            if not story.broker.running:
                ended += 1
                told, status = story.broker.printed(), story.broker.child.returncode
                if kind == "dies":
                    assert status == 137, f"{what}: {told}"
                else:
                    assert status == 1, f"{what}: {told}"
                    assert "Input/output error" in told and str(story.state / "ledger") in told, f"{what}: {told}"
                    assert "Fatal error" not in told and len(told.splitlines()) <= 4, f"{what}: {told}"
                story.keep()
                story.broker.start()
            story.published(what)
            story.broker.kill()
            story.verify(what)
        call += stride
    assert ended >= 1 or only in ("unlink", "mkdir"), "nothing was ever struck"
    assert kind == "dies" or call > 100, call
