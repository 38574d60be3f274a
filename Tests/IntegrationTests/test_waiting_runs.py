"""Seals that wait for their batch: kill -9 at any call of a merge or of a freeze. Afterwards whole commits are there, and the log has each entry once."""

import random
import shutil
import sqlite3
import subprocess

import pytest

import ledger
import waiting
from clocks import environments
from mayfly import Client, new_code, new_token
from preload import library
from processes import BENCH_BINARY, REPOSITORY, Broker, State, audit_verify, clean_environment, eventually, shifted

pytestmark = pytest.mark.campaign

HOUR = 3600


def killed_at(call):
    """The environment of a process that is killed before its n-th change to a file."""
    return {"LD_PRELOAD": library("kill_at.c"), "KILL_AT": call}


def test_a_kill_in_a_merge_leaves_whole_commits(tmp_path):
    """Commits of 150 rooms, each with a merge. A token's row and its seal are there together or not at all."""
    chance, largest, slices, tries = random.Random(39), 0, set(), 0
    # From the making of the tables on.
    for call in sorted(chance.sample(range(40, 6_000), 60)):
        path = tmp_path / f"{call}.sqlite"
        ran = subprocess.run(
            [BENCH_BINARY, "rows", "--database", path, "--pairs-per-transaction", "150", "--seconds", "20"], capture_output=True, text=True,
            timeout=60, env=clean_environment(**killed_at(call)))
        assert ran.returncode == -9, f"call {call}: {ran.stderr}"
        with sqlite3.connect(path) as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'waiting'").fetchone():
                continue
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            found = waiting.runs(database)
            (tokens,) = database.execute("SELECT count(*) FROM token").fetchone()
        database.close()
        assert sum(map(len, found.values())) == tokens, f"call {call}"
        tries += 1
        largest = max(largest, tokens)
        slices |= {run.number for run in found}
    print(f"{tries} kills, up to {largest} seals in runs {sorted(slices)}")
    assert tries > 50 and largest > 3_000 and len(slices) > 1


class Template:
    """A stopped broker whose seals wait in several runs for the next hour."""

    def __init__(self):
        self.state = State()
        self.broker = Broker(self.state, policy=REPOSITORY / "policies/rooms.json")
        self.broker.start()
        client = Client(self.broker.port, checked=False)
        self.refs = [client.create(new_code(), token=new_token(), expires=2 * 86_400).expect(201).json["ref"] for _ in range(90)]
        self.refs += [client.create(new_code(), token=new_token(), expires=20_000).expect(201).json["ref"] for _ in range(260)]
        client.close()
        assert self.broker.stop() == 0
        with self.state.database() as database:
            found = waiting.runs(database)
        assert len(found) == 3 and sum(map(len, found.values())) == 350, {run: len(ids) for run, ids in found.items()}
        self.kept = self.state.prints / "kept"
        shutil.copy(self.state / "ledger/checkpoint", self.kept)

    def sealed(self, state):
        """The refs whose seal is in the log."""
        log = ledger.read(state)
        log.check()
        seals = [entry["id"] for entry in log.entries if entry["op"] == "token.sealed"]
        assert len(set(seals)) == len(seals)
        days = [int(ledger.seconds(until)) for until in log.untils]
        return {ref for ref in self.refs if any(ledger.token_id(ref, "sealed", day) in seals for day in days)}


@pytest.fixture(scope="module")
def template():
    made = Template()
    yield made
    made.state.remove()


def test_a_kill_in_a_freeze_or_a_publication_loses_and_repeats_nothing(template):
    """A start an hour later freezes the batch, completes it, merges its runs into the log and deletes them."""
    call, stages = 20, set()
    while True:
        state = State(keys=None)
        try:
            shutil.copytree(template.state.folder, state.folder)
            broker = Broker(state, policy=REPOSITORY / "policies/rooms.json")
            broker.start(wait=False, **environments(shifted(state, HOUR), killed_at(call)))

            def is_over():
                return broker.child.poll() is not None or (state / "ledger/checkpoint").exists() and len(template.sealed(state)) == 260
            eventually(is_over, 30, 0.05, f"a kill at call {call}, or the publication")
            # The kill may come in the stop.
            if broker.stop() == 0:
                break
            assert broker.child.returncode == -9, broker.printed()
            with state.database() as database:
                left = waiting.runs(database)
                frozen = database.execute("SELECT count(moment), count(window_start) FROM batch").fetchone()
            stages.add((frozen, sum(map(len, left.values()))))
            broker.start(clock_offset=HOUR)
            eventually(lambda: len(template.sealed(state)) == 260, 30, 0.05, f"the publication after a kill at call {call}")
            assert broker.stop() == 0
            with state.database() as database:
                assert {run.batch for run in waiting.runs(database)} == {2}, "the long tokens' batch"
            # The hour between the two starts is a gap.
            verified = audit_verify(state, template.kept, more=("--allow-gaps",))
            assert verified.returncode == 0, f"call {call}: {verified.stdout}{verified.stderr}"
        finally:
            state.remove()
        call += 7
    print(f"stages of {call // 7 - 2} kills: {sorted(stages)}")
    assert ((0, 0), 350) in stages and ((1, 1), 350) in stages and ((0, 0), 90) in stages, stages


def test_a_damaged_run_is_reported_and_not_published(state, processes):
    """Rooms are made on, later seals are stored apart, and the alarm comes long before the batch is due."""
    broker = Broker(state, policy=REPOSITORY / "policies/rooms.json")
    processes.append(broker)
    broker.start()

    def make(count):
        client = Client(broker.port, checked=False)
        for _ in range(count):
            client.create(new_code(), token=new_token(), expires=20_000).expect(201)
        client.close()
    make(40)
    assert broker.stop() == 0
    with sqlite3.connect(state / "mayfly.sqlite") as database:
        database.execute("UPDATE waiting SET bytes = zeroblob(length(bytes))")
    database.close()
    broker.start()
    alarms = broker.metric("alarms_total")
    make(40)
    eventually(lambda: "entries that wait for the log are damaged" in broker.printed(), what="a line for the operator")
    assert broker.metric("alarms_total") > alarms
    assert broker.printed().count("are damaged in the database") == 1, broker.printed()
    assert broker.stop() == 0
    broker.start(clock_offset=HOUR)
    eventually(lambda: "can't publish (the database is damaged" in broker.printed(), what="a refusal")
    make(1)
    broker.kill()
    assert not [entry for entry in ledger.read(state).entries if entry["op"] == "token.sealed"]
