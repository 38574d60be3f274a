"""A whole state folder put back from a snapshot: keys, database and ledger folder agree, so only something outside shows that there was more."""

import shutil
import socket

import pytest

import ledger
from log_server import LogServer
from mayfly import Client
from processes import Broker, State, audit_verify, eventually, free_port, mayfly, quiet_rooms
from test_startup_errors import start_fails, tree


def put_back(state, snapshot):
    shutil.rmtree(state.folder)
    shutil.copytree(snapshot, state.folder)


def run(broker, rooms=2):
    """One run of a broker, in which the log grows by so many rooms."""
    broker.start()
    client = Client(broker.port)
    refs = [client.room().joiner.ref for _ in range(rooms)]
    client.close()
    if refs:
        eventually(lambda: all(ledger.read(broker.state).of(ref) for ref in refs), what="the rooms in the log")
    assert broker.stop() == 0


class Stage:
    """A log that was published up to `newer`, and its state folder as it was at a snapshot before."""

    def __init__(self):
        self.state = State()
        self.broker = self.broker_with()
        run(self.broker)
        self.snapshot, self.older, self.newer = (self.state.prints / name for name in ("snapshot", "older", "newer"))
        shutil.copytree(self.state.folder, self.snapshot)
        shutil.copytree(self.state / "ledger", self.older)
        run(self.broker)
        shutil.copytree(self.state / "ledger", self.newer)
        self.sizes = [ledger.Ledger(folder, self.state.vkey).checkpoint.size for folder in (self.older, self.newer)]
        assert self.sizes[0] < self.sizes[1]

    def restore(self):
        put_back(self.state, self.snapshot)

    def broker_with(self, **options):
        return Broker(self.state, policy=quiet_rooms(self.state), **options)


@pytest.fixture(scope="module")
def history():
    stage = Stage()
    yield stage
    stage.state.remove()


@pytest.fixture
def stage(history):
    """The state folder as the snapshot has it."""
    history.restore()
    return history


@pytest.fixture
def mirrors():
    made = []

    def make(*arguments, **more):
        made.append(LogServer(*arguments, **{"port": free_port()} | more))
        return made[-1]
    yield make
    for mirror in made:
        mirror.close()


def committed(state):
    with state.database() as database:
        return database.execute("SELECT checkpoint FROM log").fetchone()[0]


def refused(broker, *words):
    """It ends before it listens, and nothing was signed or published."""
    state = broker.state
    before, head = tree(state / "ledger"), committed(state)
    printed = start_fails(broker, *words, lines=3)
    assert "ready" not in printed
    for port in (broker.port, broker.operator_port):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert tree(state / "ledger") == before and committed(state) == head, "something was signed over an old copy"
    return printed


WAYS = ["folder", *(pytest.param(way, marks=pytest.mark.campaign) for way in ("file URL", "URL", "checkpoint"))]


def option(way, folder, mirrors):
    return {"folder": {"ledger-mirror": folder}, "file URL": {"ledger-mirror": f"file://{folder}"},
            "URL": {"ledger-mirror": mirrors(folder).url + "/" if way == "URL" else None}, "checkpoint": {"not-before": folder / "checkpoint"}}[way]


@pytest.mark.parametrize("way", WAYS)
def test_a_snapshot_is_refused(stage, mirrors, way):
    options = option(way, stage.newer, mirrors)
    [flag] = [name for name in options]
    printed = refused(stage.broker_with(**options), "restored_state", f"--{flag}", *stage.sizes, "old copy")
    assert str(stage.newer) not in printed


@pytest.mark.campaign
def test_a_new_log_may_start_with_an_empty_mirror(state, mirrors, tmp_path):
    """The copy fills once the folder shows a checkpoint."""
    mirror = mirrors(tmp_path)
    broker = Broker(state, ledger_mirror=mirror.url + "/")
    broker.start()
    try:
        eventually(lambda: "it has no checkpoint" in broker.printed(), what="a word to the operator")
        assert not (state / "ledger/checkpoint").exists()
        broker.kill()
        run(Broker(state), 0)
        shutil.copy(state / "ledger/checkpoint", tmp_path)
        run(broker, 1)
        assert audit_verify(state, tmp_path / "checkpoint").returncode == 0
    finally:
        broker.kill()


@pytest.mark.campaign
def test_bad_checkpoints_are_refused(stage, tmp_path):
    for content in (b"", b"no note", bytes(70_000)):
        (tmp_path / "checkpoint").write_bytes(content)
        refused(stage.broker_with(not_before=tmp_path / "checkpoint"), "--not-before")
        if len(content) < 65_536:
            refused(stage.broker_with(ledger_mirror=tmp_path), "--ledger-mirror")


def test_bad_use(stage, tmp_path):
    for value in ("http://mirror.example/audit/", "https://mirror.example/?a=b", "https://user:name@mirror.example/"):
        start_fails(stage.broker_with(ledger_mirror=value), "--ledger-mirror", "https://", status=2)
    start_fails(stage.broker_with(ledger_mirror=tmp_path / "none"), "--ledger-mirror", "neither a folder")
    start_fails(stage.broker_with(not_before=tmp_path / "none"), "--not-before")


@pytest.mark.campaign
@pytest.mark.parametrize("trouble", ["down", "broken", "empty"])
def test_an_unreadable_mirror_stops_publication_only(stage, mirrors, tmp_path, trouble):
    """Rooms are served and nothing is signed until the copy can be read."""
    mirror = mirrors(tmp_path if trouble == "empty" else stage.older, status=503 if trouble == "broken" else None)
    url = mirror.url + "/"
    if trouble == "down":
        mirror.close()
    before, head = tree(stage.state / "ledger"), committed(stage.state)
    broker = stage.broker_with(ledger_mirror=url)
    broker.start()
    try:
        client = Client(broker.port)
        room = client.room()
        eventually(lambda: broker.metric("ledger_entries_waiting") > 0, what="entries that wait")
        client.room()
        assert committed(stage.state) == head
        now = tree(stage.state / "ledger")
        assert {path: now[path] for path in before} == before and ledger.read(stage.state).of(room.creator.ref) == []
        [line] = [line for line in broker.printed().splitlines() if "can't publish" in line]
        assert "--ledger-mirror" in line and url not in line and broker.metric("alarms_total") > 0
        if trouble == "down":
            mirrors(stage.older, port=mirror.server_port)
        elif trouble == "broken":
            mirror.status = None
        else:
            shutil.copy(stage.older / "checkpoint", tmp_path)
        eventually(lambda: ledger.read(stage.state).of(room.creator.ref), 15, what="the seal in the ledger")
        client.close()
        eventually(lambda: "publishing again" in broker.printed(), what="a line about the next publication")
        assert broker.stop() == 0
        assert audit_verify(stage.state, stage.older / "checkpoint").returncode == 0
    finally:
        broker.kill()


@pytest.mark.campaign
def test_a_mirror_that_contradicts_later_stops_publication(stage, mirrors):
    """It was unreadable at the start. Nothing is signed, and the log line and alarm name the mirror."""
    mirror = mirrors(stage.newer, status=503)
    head = committed(stage.state)
    broker = stage.broker_with(ledger_mirror=mirror.url + "/")
    broker.start()
    try:
        Client(broker.port).room()
        eventually(lambda: "can't publish" in broker.printed(), what="a word of the silent copy")
        mirror.status = None
        eventually(lambda: "restored_state" in broker.printed(), 15, what="a word of the snapshot")
        asked = len(mirror.asked)
        eventually(lambda: len(mirror.asked) > asked + 1, what="two more tries")
        assert broker.printed().count("restored_state") == 1 and committed(stage.state) == head
        assert broker.stop() == 0 and committed(stage.state) == head
    finally:
        broker.kill()


@pytest.mark.campaign
def test_a_rotation_of_a_snapshot_is_refused(stage, tmp_path):
    for flags in (("--ledger-mirror", stage.newer), ("--not-before", stage.newer / "checkpoint")):
        before, head = tree(stage.state / "ledger"), committed(stage.state)
        words = ("keys", "rotate", "--state", stage.state.folder, "--origin", "mayfly.test/next", "--archive", tmp_path / "closed")
        done = mayfly(*words, *flags)
        assert done.returncode == 1 and "restored_state" in done.stderr and len(done.stderr.splitlines()) <= 3, done.stderr
        assert tree(stage.state / "ledger") == before and committed(stage.state) == head and not (tmp_path / "closed").exists()
    done = mayfly(*words, "--ledger-mirror", stage.older)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "closed/checkpoint").exists()


@pytest.mark.campaign
def test_the_key_file_of_a_snapshot_is_not_stale(stage):
    """It is as old as the database beside it. `stale_keys` compares these two, so it can't notice a snapshot."""
    broker = stage.broker_with()
    broker.start(clock_offset=1000)
    assert broker.stop() == 0 and "stale_keys" not in broker.printed()
