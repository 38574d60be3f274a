"""Steps of the ratchet from outside: killed and failing at each of their calls, under leaping clocks, over days. Destroyed keys are in no file and
open no kept row; other rows still open."""

import errno
import json
import os
import re
import shutil
import threading
import time
from datetime import datetime

import pytest

from clocks import DAY, EPOCH, Clocks, environments
from faults import Faults
from key_reader import destroyed, held, keys, opens, sealing, token_rows
from mayfly import ask
from processes import REPOSITORY, Broker, Simulator, State, audit_verify, eventually

pytestmark = pytest.mark.campaign


class Life:
    """A broker with its simulator whose clocks the test moves, and faults in its folder of keys."""

    def __init__(self, template=None, **broker):
        self.state = State(keys=None if template else "throwaway")
        if template:
            shutil.copytree(template.state.folder, self.state.folder)
        self.template, self.faults = template, Faults(self.state, below="keys")
        self.clocks = template.clocks if template else Clocks(self.state.prints / "clocks")
        self.environment = environments(self.clocks.environment, self.faults.environment)
        self.simulator = template.simulator if template else Simulator(self.state)
        self.broker = Broker(self.state, self.simulator.port, **broker)

    def __enter__(self):
        if not self.template:
            self.clocks.to_next_epoch()
            self.simulator.start(**self.clocks.environment)
        return self

    def __exit__(self, *_):
        self.broker.kill()
        if not self.template:
            self.simulator.kill()
        self.state.remove()

    def start(self, wait=True):
        self.broker.start(wait=wait, **self.environment)

    @property
    def key_file(self):
        return (self.state / "keys/ratchet.key").read_bytes()

    @property
    def base(self):
        return keys(self.key_file).base

    def says(self, line, count=1):
        """Waits until the line was printed so often. A broker looks at least every ten seconds."""
        eventually(lambda: self.count(line) == count, 15, what=f"{line!r} in {self.broker.printed()}")

    def steps(self, what, base=None):
        """Waits until the ratchet has this base, by default the current one, in file, memory and database, and the spare holds zeros."""
        def is_there():
            now = int(self.clocks.now) // EPOCH - 1 if base is None else base
            with self.state.database() as database:
                recorded, = database.execute("SELECT value FROM node WHERE name = 'ratchet.steps'").fetchone()
            # None where the file became the spare while it was read.
            found = keys(self.key_file)
            return (found and found.base == now and found.steps == int.from_bytes(recorded, "big")
                    and not any((self.state / "keys/ratchet.key.new").read_bytes()))
        eventually(is_there, 15, what=f"a step ({what}): {self.broker.printed()}")

    def count(self, line):
        return len(re.findall(line, self.broker.printed()))

    def is_gone(self, earlier, what):
        """Keys that were destroyed since `earlier` are nowhere."""
        dead = destroyed(earlier, self.base)
        assert dead, f"{what}: nothing was destroyed"
        for place, content in held(self.broker.child, self.state.folder).items():
            assert not any(secret in content for secret in dead), f"{what}: destroyed keys are in {place}"

    def delivers(self, room, what):
        """Checks that a knock at the creator reaches its phone, so its token opens."""
        before = len(self.simulator.pushes(room.creator.token))
        answer = ask(self.broker, lambda client: client.presence(room.roomid, room.joiner.client, member=room.joiner.member).expect(202).json)
        assert answer["delivery"] == "queued", f"{what}: {answer}"
        # For 15 s after a start a knock waits for its peer.
        self.clocks.go_on(16)
        eventually(lambda: len(self.simulator.pushes(room.creator.token)) > before, 20, what=f"{what}: the push")

    def verify(self, what=""):
        def good():
            # The test skips hours of the clock, which are gaps of more than an hour a day.
            verified = audit_verify(self.state, more=["--allow-gaps"])
            return verified.returncode == 0 or print(verified.stdout + verified.stderr)
        eventually(good, 5, 0.3, f"a log that verifies {what}")


def rooms(life):
    """Returns a room that lives on, one whose token's keys will be destroyed, and their rows in the database."""
    lasting, short = (ask(life.broker, lambda client: client.room(expires=expires)) for expires in (6 * DAY, 60))
    rows = token_rows(life.state)
    assert opens(life.key_file, rows[short.creator.ref], short.roomid) == short.creator.token, "the reader can't read"
    return lasting, short, rows


_template, _lock = [], threading.Lock()


def template():
    """A state with two rooms, left by a kill; and the simulator that all copies of it use."""
    with _lock:
        if not _template:
            life = Life().__enter__()
            _template.append(life)
            life.start()
            life.lasting, life.short, life.rows = rooms(life)
            eventually(lambda: (life.state / "ledger/checkpoint").exists(), what="a first checkpoint")
            life.broker.kill()
            life.before = life.key_file
        return _template[0]


@pytest.fixture(scope="module", autouse=True)
def no_template_is_left():
    yield
    for life in _template:
        life.__exit__()


def die(life, call):
    """Starts a broker that is killed before its `call`-th change among the keys. Returns whether it came so far."""
    struck = life.faults.struck
    life.faults.arm(call, Faults.DIES, only="change")
    life.start(wait=False)
    eventually(lambda: life.broker.child.poll() is not None or life.broker.is_ready(), 20, what="a start")
    life.broker.kill()
    life.faults.disarm()
    return life.faults.struck > struck


@pytest.mark.background
def test_a_step_recovers_from_a_kill_at_each_call():
    """A start with a due step is killed before each call that changes something, and so is the next start while it cleans up."""
    left, seen = template(), []
    while True:
        with Life(left) as life:
            life.clocks.go_on(3 * EPOCH)
            if not die(life, len(seen) + 1):
                break
            what = f"killed at {life.faults.last[0]}, call {len(seen) + 1}"
            is_old, spare = life.key_file == left.before, (life.state / "keys/ratchet.key.new").read_bytes()
            assert is_old or keys(life.key_file).base > keys(left.before).base, what
            seen.append((life.faults.last[0], "old" if is_old else "new", "keys" if any(spare) else "zeros"))
            die(life, 1 + len(seen) % 3)
            assert is_old or life.key_file != left.before, f"{what}: destroyed keys are back"
            life.start()
            life.steps(what)
            life.is_gone(left.before, what)
            expired, alive = left.rows[left.short.creator.ref], token_rows(life.state)[left.lasting.creator.ref]
            for place, content in held(life.broker.child, life.state.folder).items():
                assert opens(content, expired, left.short.roomid) is None, f"{what}: {place} opens what has expired"
            assert opens(life.key_file, alive, left.lasting.roomid) == left.lasting.creator.token, what
            life.delivers(left.lasting, what)
            ask(life.broker, lambda client: client.status(left.short.roomid).expect(404))
            life.verify(what)
    # Among them: the new keys beside the old file, and the old keys beside the new file.
    places = {(file, spare) for _, file, spare in seen}
    assert places == {("old", "zeros"), ("old", "keys"), ("new", "keys"), ("new", "zeros")}, seen


@pytest.mark.background
def test_a_step_recovers_from_each_failed_call():
    """Each failure raises an alarm, the broker retries, and the step is done whole."""
    with Life() as life:
        life.start()
        lasting, short, rows = rooms(life)
        life.clocks.go_on(EPOCH)
        life.steps("the first")
        cases = [(Faults.FAILS, error, name, number) for error in (errno.EIO, errno.ENOSPC)
                 for name, number in (("pwrite", 1), ("ftruncate", 1), ("fsync", 1), ("renameat2", 1), ("fsync", 2), ("pwrite", 2),
                                      ("fdatasync", 1))]
        cases += [(Faults.DONE_AND_FAILS, errno.EIO, "renameat2", 1), (Faults.DONE_AND_FAILS, errno.EIO, "fsync", 2),
                  (Faults.WRITES_HALF_AND_FAILS, errno.ENOSPC, "pwrite", 1), (Faults.WRITES_HALF_AND_FAILS, errno.EIO, "pwrite", 2)]
        for number, (kind, error, name, call) in enumerate(cases, 1):
            what, earlier = f"{errno.errorcode[error]} at {name} {call}, kind {kind}", life.key_file
            life.faults.arm(call, kind, error, only=name)
            life.clocks.go_on(EPOCH)
            eventually(lambda: life.faults.struck == number, 15, what=what)
            life.says("keys: the ratchet can't step", number)
            life.clocks.go_on(1)
            life.says("keys: the ratchet steps again", number)
            life.steps(what)
            life.is_gone(earlier, what)
        # As long as it lasts: every try fails, and each is an alarm.
        earlier = life.key_file
        life.faults.arm(-1, Faults.FAILS, errno.EIO, only="renameat2")
        life.clocks.go_on(EPOCH)
        for _ in range(3):
            struck = life.faults.struck
            eventually(lambda: life.faults.struck > struck, 15, what="a try")
            life.clocks.go_on(1)
        assert life.key_file == earlier and life.count("keys: the ratchet can't step") == number + 1
        life.faults.disarm()
        life.clocks.go_on(1)
        life.steps("in the end")
        life.is_gone(earlier, "in the end")
        assert opens(life.key_file, rows[short.creator.ref], short.roomid) is None
        assert opens(life.key_file, rows[lasting.creator.ref], lasting.roomid) == lasting.creator.token
        life.delivers(lasting, "in the end")
        life.verify()


@pytest.mark.background
def test_other_names_of_the_old_key_file_hold_zeros():
    """A hard link and an open descriptor from before a step. A second name of the spare never gets the next keys."""
    with Life() as life:
        life.start()
        thief = life.state.parent / "thief"
        thief.mkdir()
        os.link(life.state / "keys/ratchet.key", thief / "file")
        os.link(life.state / "keys/ratchet.key.new", thief / "spare")
        size = len(life.key_file)
        with open(life.state / "keys/ratchet.key", "rb") as kept:
            assert keys((thief / "file").read_bytes())
            for number in range(3):
                life.clocks.go_on(EPOCH)
                life.steps(f"step {number}")
                assert (thief / "file").read_bytes() == bytes(size), f"the first file's second name after step {number}"
                assert not any((thief / "spare").read_bytes()), f"the spare's second name after step {number}"
                assert kept.read() == bytes(size) if number == 0 else True, "an open descriptor"


# Promise: step-waits-for-nobody
@pytest.mark.background
def test_a_refused_start_still_steps():
    """While the log's folder can't be written no start succeeds, but keys are destroyed on time."""
    with Life() as life:
        life.faults = Faults(life.state, below="ledger")
        life.environment = environments(life.clocks.environment, life.faults.environment)
        life.start()
        rooms(life)
        life.faults.arm(-1, only="rename")
        ask(life.broker, lambda client: client.room(expires=60))

        def is_ahead():
            with life.state.database() as database:
                return database.execute("SELECT EXISTS (SELECT 1 FROM unpublished)").fetchone()[0]
        eventually(is_ahead, what="a head that is not published")
        life.broker.kill()
        earlier = life.key_file
        for _ in range(2):
            life.clocks.go_on(2 * EPOCH)
            life.start(wait=False)
            assert life.broker.child.wait(15) == 1 and "Input/output error" in life.broker.printed(), life.broker.printed()
            assert life.base == int(life.clocks.now) // EPOCH - 1, "a start that was refused has not stepped"
        dead = destroyed(earlier, life.base)
        files = {path.name: path.read_bytes() for path in (life.state / "keys").glob("ratchet.key*")}
        assert dead and len(files) == 2 and not [name for name, content in files.items() for secret in dead if secret in content]
        life.faults.disarm()
        life.start()
        life.steps("a start at last")
        life.verify("after starts that were refused")


@pytest.mark.background
def test_a_clock_a_day_ahead_expires_rooms_at_once():
    """It raises an alarm. The keys follow in a minute, a restart keeps the time, and nothing comes back when the clock is set right."""
    with Life() as life:
        life.start()
        lasting, short, rows = rooms(life)
        earlier = life.key_file
        life.clocks.leap(DAY)
        life.clocks.go_on(11)
        life.says("clock: the wall clock stepped by 86[0-9]{3} s; the keys follow in a minute")
        ask(life.broker, lambda client: client.status(short.roomid).expect(404))
        eventually(lambda: short.creator.ref not in token_rows(life.state), what="the purge")
        life.clocks.go_on(35)
        time.sleep(0.3)
        assert life.key_file == earlier, "the keys are held for a minute"
        life.clocks.go_on(20)
        life.steps("a minute after the leap")
        base = life.base
        life.is_gone(earlier, "after the leap")
        assert opens(life.key_file, rows[short.creator.ref], short.roomid) is None
        assert opens(life.key_file, rows[lasting.creator.ref], lasting.roomid) == lasting.creator.token

        def nothing_is_back(what):
            ask(life.broker, lambda client: client.presence(short.roomid, short.joiner.client, member=short.joiner.member).expect(404))
            assert short.creator.ref not in token_rows(life.state) and life.base >= base, what
            assert not life.simulator.pushes(short.creator.token), what
        nothing_is_back("after the leap")
        assert life.broker.stop() == 0
        life.clocks.leap(-DAY)
        life.start()
        nothing_is_back("with the clock put right over a restart")
        room = ask(life.broker, lambda client: client.create(expires=10).expect(201).json)
        ahead = datetime.fromisoformat(room["expiresAt"].replace("Z", "+00:00")).timestamp() - life.clocks.now
        assert DAY - 60 < ahead < DAY + 60, "broker time went back, or on"
        # Broker time runs at half speed, so ten seconds take twenty.
        life.clocks.go_on(15)
        ask(life.broker, lambda client: client.status(room["roomid"]).expect(200))
        life.clocks.go_on(10)
        ask(life.broker, lambda client: client.status(room["roomid"]).expect(404))
        nothing_is_back("at half the pace")
        life.verify("after leaps")


@pytest.mark.background
def test_a_clock_an_hour_back_revives_nothing():
    """It raises an alarm. Broker time runs at half speed, and keys are still destroyed."""
    with Life() as life:
        life.start()
        lasting, short, _ = rooms(life)
        life.clocks.go_on(3 * EPOCH)
        life.steps("before the leap")
        earlier = life.key_file
        life.clocks.leap(-3600)
        life.clocks.go_on(11)
        life.says("clock: the wall clock stepped by -3[56][0-9]{2} s; broker time runs at half speed")
        room = ask(life.broker, lambda client: client.room(expires=60))
        life.clocks.go_on(100)
        ask(life.broker, lambda client: client.status(room.roomid).expect(200))
        life.clocks.go_on(30)

        def both_are_gone():
            for gone in (short, room):
                ask(life.broker, lambda client: client.status(gone.roomid).expect(404))
                ask(life.broker, lambda client: client.presence(gone.roomid, gone.joiner.client, member=gone.joiner.member).expect(404))
                assert not life.simulator.pushes(gone.creator.token)
        both_are_gone()
        life.clocks.go_on(2 * EPOCH)
        # The clock stood at the beginning of an epoch before it went back, and half of 730 s have passed since.
        life.steps("at half the pace", keys(earlier).base + 1)
        life.is_gone(earlier, "with the clock an hour back")
        assert life.broker.stop() == 0
        life.start()
        both_are_gone()
        life.delivers(lasting, "with the clock an hour back")
        life.verify("with the clock an hour back")


@pytest.mark.background
def test_generations_over_three_days():
    """An old key file opens nothing sealed a day later. A generation is dropped when nothing sealed in it can live."""
    policy = json.loads((REPOSITORY / "policies/rooms.json").read_text())
    policy["name"], policy["limits"]["roomLifeSeconds"]["max"] = "a-day", DAY
    with Life() as life:
        life.broker.options["policy"] = life.state.prints / "policy.json"
        life.broker.options["policy"].write_text(json.dumps(policy))
        life.start()
        first = ask(life.broker, lambda client: client.room(expires=DAY))
        day_one, row_one = life.key_file, token_rows(life.state)[first.creator.ref]
        assert list(keys(day_one).generations) == [1]
        assert opens(day_one, row_one, first.roomid) == first.creator.token

        def half_a_day():
            life.clocks.go_on(DAY // 2)
            life.steps("half a day later")
            return list(keys(life.key_file).generations)
        half_a_day()
        assert half_a_day()[-1] == 2, "after a day another generation"
        second = ask(life.broker, lambda client: client.room(expires=DAY))
        row_two = token_rows(life.state)[second.creator.ref]
        assert row_two["generation"] == 2
        assert opens(life.key_file, row_two, second.roomid) == second.creator.token
        assert opens(day_one, row_two, second.roomid) is None, "a key file of the first day opens what was sealed on the second"
        day_two = life.key_file
        lives = [half_a_day() for _ in range(4)]
        assert lives[0][0] == 1 and lives[-1][0] > 1 and lives[-1][-1] == 4, lives
        assert keys(life.key_file).generations.keys().isdisjoint(keys(day_one).generations)
        # Its keys are nowhere: neither at the old base nor stepped to the new one.
        life.is_gone(day_one, "generation 1")
        chain = keys(day_two).generations[1][1]
        for _ in range(keys(day_two).base, life.base + 3):
            for place, content in held(life.broker.child, life.state.folder).items():
                assert chain not in content, f"generation 1 lives on in {place}"
            chain = sealing.derive(chain, "chain")
        life.verify("over three days")
