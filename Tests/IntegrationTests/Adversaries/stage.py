"""A broker and its simulator with clocks that the test moves, and images of the disk while they run."""

import os
import signal
import sqlite3
import struct
import tempfile
import time
from pathlib import Path

from clocks import DAY, EPOCH, Clocks, environments
from mayfly import Client
from preload import library
from processes import Broker, Simulator, State, eventually
from push_services import PushServices


# Only a broken broker takes so many seconds.
LONG = 60


class Stage:
    """A world at noon of a day to come (UTC), just after an epoch and a generation of keys began. Windows of the log are a minute, as usual.

    `switched_off`: a protection of switched_off.c. `files`: the paths that the broker opens to write are noted. `settings`: more of the
    broker's options, from its state folder. `push`: whether it sends Web Push.
    """

    def __init__(self, switched_off=None, files=False, resolution=60, settings=None, push=False):
        self.state = State()
        begin = (time.time() // DAY + 2) * DAY + DAY / 2 + 10
        self.clock = Clocks(self.state.prints / "clock", ahead=begin - time.time())
        self.simulator = Simulator(self.state)
        self.broker = Broker(self.state, self.simulator.port, resolution=resolution)
        self.broker.options |= settings(self.state) if settings else {}
        self.files = self.state.prints / "files" if files else None
        self.clients, self._is_never_scrubbed = [], False
        self.environment = self.clock.environment
        if switched_off:
            off = {"LD_PRELOAD": library("Adversaries/switched_off.c"), "TEST_SWITCHED_OFF": switched_off}
            self.environment = environments(off, self.environment)
        if files:
            self.environment = environments({"LD_PRELOAD": library("Adversaries/created_files.c"), "TEST_FILES": self.files}, self.environment)
        try:
            self.push = PushServices(self.state, self.simulator, self.broker, clock=self.clock.environment) if push else None
            self.simulator.start(**self.clock.environment)
            self.broker.start(**self.environment)
            self._wait_for_step()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.broker.kill()
        self.simulator.kill()
        self.state.remove()

    def wait_for_pushes(self):
        eventually(lambda: self.state.jobs() == 0, LONG, what="the outcome of each push")

    def crash(self):
        """The broker is killed and started again."""
        for client in self.clients:
            client.close()
        self.broker.kill()
        self.broker.start(**self.environment)

    def client(self, **more):
        self.clients.append(Client(self.broker.port, **more))
        return self.clients[-1]

    @property
    def now(self):
        return self.clock.now

    @property
    def epoch(self):
        return int(self.now // EPOCH)

    @property
    def base(self):
        """The oldest epoch that the key file has a chain of."""
        return struct.unpack(">Q", (self.state / "keys/ratchet.key").read_bytes()[24:32])[0]

    # Time.

    def pass_to(self, moment, step=50):
        """Lets time pass up to this moment, then waits until the broker has done what is due. It must get no requests meanwhile."""
        for client in self.clients:
            client.close()
        while (left := moment - self.now) > 0:
            self.clock.ahead += min(step, left)
            time.sleep(0.04)
        self._wait_for_step()
        eventually(lambda: not self._due(), LONG, what="a sweep of all that is due")

    def pass_(self, seconds, step=50):
        self.pass_to(self.now + seconds, step)

    def _wait_for_step(self):
        """Waits until this epoch's keys are in use. The broker records a step in the store once file and memory have the new keys."""
        def has_stepped():
            steps, base = struct.unpack(">QQ", (self.state / "keys/ratchet.key").read_bytes()[16:32])
            with self.state.database() as database:
                recorded = database.execute("SELECT value FROM node WHERE name = 'ratchet.steps'").fetchone()
            return base >= self.epoch - 1 and recorded is not None and recorded[0] == struct.pack(">Q", steps)
        eventually(has_stepped, LONG, what="a step of the keys")

    def settle(self):
        """A minute passes, and the write-ahead log is emptied in it, if anything asks for that."""
        before = self.clock.scrubbed
        self.pass_(15, step=5)
        self.wait_for_scrub(before)
        self.pass_(45, step=15)

    def settle_log(self):
        """Lets minutes pass until the last hour's batch is in the log, and the write-ahead log is emptied after that."""
        before = self.clock.scrubbed
        def is_behind():
            hour = int(self.now) // 3_600 * 3_600
            with self.state.database() as database:
                return database.execute(
                    "SELECT (SELECT count(*) FROM batch WHERE moment IS NOT NULL) + (SELECT count(*) FROM unpublished) "
                    "+ (SELECT count(*) FROM schedule WHERE looked < ?)", (hour,)).fetchone()[0]
        for _ in range(10):
            self.pass_(65, step=15)
            if not is_behind():
                break
        self.wait_for_scrub(before)
        self.pass_(45, step=15)

    def wait_for_scrub(self, before):
        """Waits until the write-ahead log was emptied more than `before` times. Gives up after 15 s, since it may be clean or the scrub switched off."""
        end = time.monotonic() + (0.5 if self._is_never_scrubbed else 15)
        while self.clock.scrubbed <= before:
            if time.monotonic() > end:
                self._is_never_scrubbed = True
                return
            time.sleep(0.01)

    def _due(self):
        now = int(self.now * 1000)
        with self.state.database() as database:
            return database.execute(
                "SELECT count(*) FROM room WHERE expires <= ?1 OR due <= ?1 UNION ALL SELECT count(*) FROM token WHERE expires <= ?1 "
                "UNION ALL SELECT count(*) FROM job WHERE deadline <= ?1 UNION ALL SELECT count(*) FROM registration WHERE expires <= ?1 "
                "UNION ALL SELECT count(*) FROM timer WHERE expires <= ?1", (now,)).fetchall() != [(0,)] * 5

    # Images.

    def image(self):
        """A copy of the disk at one instant, like a snapshot of the volume. The broker is stopped meanwhile."""
        process = self.broker.child.pid
        os.kill(process, signal.SIGSTOP)
        try:
            eventually(lambda: _is_stopped(process), what="the broker standing still")
            return Image(self.state, self.now)
        finally:
            os.kill(process, signal.SIGCONT)


def _is_stopped(process):
    threads = Path(f"/proc/{process}/task").iterdir()
    return all((thread / "stat").read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


class Image:
    """Database and write-ahead log, the folder of keys, the folder of the log, and what a backup of that database is (`sqlite3 .backup`).

    Each is {name: bytes}.
    """

    def __init__(self, state, now):
        self.now = now
        self.database = _read(state.folder, "mayfly.sqlite*")
        self.keys = _read(state / "keys", "ratchet.key*")
        self.ledger = _read(state / "ledger", "**/*")

    def backup(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            for name, content in self.database.items():
                (folder / name).write_bytes(content)
            with sqlite3.connect(folder / "mayfly.sqlite") as source, sqlite3.connect(folder / "backup") as copy:
                source.backup(copy)
            return {"mayfly.sqlite": (folder / "backup").read_bytes()}

    def write_ledger(self, folder):
        """The log's folder as files, for programs that read one."""
        for name, content in self.ledger.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return Path(folder)


def _read(folder, pattern):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob(pattern)) if path.is_file()}
