"""The processes under test: command lines, state folders, ports. The only place that knows a flag's name."""

import json
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
import urllib.request
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path

import psycopg

from canary import given
from clocks import Clocks, environments
from databases import MOVING, Schema, row_counts, shared_server

REPOSITORY = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("MAYFLY_BINARY", REPOSITORY / ".build/debug/mayfly")).absolute()
BENCH_BINARY = Path(os.environ.get("MAYFLY_BENCH_BINARY", BINARY.with_name("mayfly-bench"))).absolute()
ORIGIN = "mayfly.test/log"
KEY_ID, TEAM_ID, BUNDLE_ID = "ABC123DEFG", "DEF123GHIJ", "com.example.app"


def eventually(question, seconds=15.0, pause=0.02, what="it"):
    """Asks until the answer is true, and returns that answer; fails after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {seconds} s; last answer: {answer!r}")
        time.sleep(pause)


_given = deque(maxlen=700)
# Several processes run tests at a time, each with its own range of ports.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])


def free_port():
    """A free port that was not among the last 700, below those that the kernel uses for outgoing connections."""
    while True:
        port = random.randrange(20_000, 21_500) + 1_500 * (_worker % 8)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.append(port)
            return port


def clean_environment(**more):
    """The tests' environment without settings of the machine they run on."""
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("MAYFLY_", "APNS_", "COMETCHAT_")) and k.lower() not in ("https_proxy", "all_proxy")}
    return kept | {k: str(v) for k, v in more.items()}


def mayfly(*arguments, timeout=30, **environment):
    """Runs one command to its end: a CompletedProcess with text output."""
    return told_no_token(subprocess.run(
        [BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
        env=clean_environment(**environment)))


def told_no_token(ran):
    """Returns `ran`, unless it printed a push token of these tests."""
    assert not given.is_in((ran.stdout + ran.stderr).encode()), f"{ran.args} printed a push token"
    return ran


def shifted(state, seconds):
    """The environment of a process whose clocks are `seconds` ahead from its start on."""
    if not seconds:
        return {}
    # Each process has a file of its own, since rewriting a mapped file would break its other users.
    _, path = tempfile.mkstemp(dir=state.prints, prefix="clocks-")
    return Clocks(Path(path), ahead=seconds).environment


class State:
    """A state folder with keys made by the command line, and a folder beside it for the processes' output.

    `postgres`: true for a schema in the shared server, or the URI of another server. The key file is then wrapped, or else a restart forgets
    everything.
    """

    def __init__(self, parent=None, keys="throwaway", postgres=False, wrapped=True):
        self.schema = Schema(shared_server() if postgres is True else postgres) if postgres else None
        self.parent = Path(parent or tempfile.mkdtemp(prefix="mayfly-test-"))
        self.folder = self.parent / "state"
        self.prints = Path(tempfile.mkdtemp(prefix="mayfly-prints-"))
        self.outputs = []  # of all processes that ran on it
        self.options = {"state": self.folder}
        if self.schema:
            self.options["database"] = self.schema.uri
            if wrapped:
                wrapping = self.options["wrapping-key"] = self.parent / "wrapping.key"
                wrapping.touch(0o600)
                wrapping.write_bytes(os.urandom(32))
            self._run("migrate", "--database", self.schema.uri)
        if keys:
            self._run("keys", keys, *self.flags, "--origin", ORIGIN)

    @staticmethod
    def _run(*words):
        ran = mayfly(*words)
        assert ran.returncode == 0, f"{words[:2]}: {ran.stdout}{ran.stderr}"

    @property
    def flags(self):
        """For commands that read keys and database."""
        return [part for name, value in self.options.items() for part in (f"--{name}", value)]

    def __truediv__(self, name):
        return self.folder / name

    @property
    def vkey(self):
        return (self / "ledger.vkey").read_text().strip()

    def counts(self):
        """Counts the rows that callers store. Tables of the log and of jobs are left out, since these change by themselves."""
        counts = {name: count for name, count in self._rows().items() if name not in MOVING}
        # An accept without a token adds no row.
        with self.database() as database:
            counts["accepted"] = database.execute("SELECT count(*) FROM room WHERE joiner_client IS NOT NULL").fetchone()[0]
        return counts

    def jobs(self):
        """How many pushes wait for their end."""
        return self._rows()["job"]

    def _rows(self):
        with self.database() as database:
            if self.schema:
                return row_counts(database)
            names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
            return {name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name, in names}

    def database(self):
        """A connection for `with`, which closes it."""
        return psycopg.connect(self.schema.uri, autocommit=True) if self.schema else _Reader(self / "mayfly.sqlite")

    def remove(self):
        """Deletes the folders. Fails if broker or simulator printed a push token or a part of a subscription."""
        told = given.in_files(*self.outputs)
        if self.schema:
            self.schema.drop()
        for folder in (self.prints, self.parent):
            shutil.rmtree(folder, ignore_errors=True)
        assert not told, f"{told} contain a push token"


class _Reader:
    """A read-only connection that is closed at the end of its `with`, so that no reader holds up a checkpoint."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=5)
        return self.connection

    def __exit__(self, *_):
        self.connection.close()


class Process:
    """One long-running command. Its output goes to files, and it is always ended by its own process id."""

    ready_within = 15.0
    prefix = ()  # a command that starts the binary in its own place
    binary = BINARY
    cwd = None
    descriptors = ()  # of the tests, which it inherits
    environment = {}  # at each start

    def __init__(self, state, name):
        self.state, self.name, self.child, self.starts = state, name, None, 0

    def arguments(self):
        raise NotImplementedError

    def is_ready(self):
        raise NotImplementedError

    def start(self, wait=True, clock_offset=0, **environment):
        assert not self.running, f"{self.name} already runs"
        self.starts += 1
        base = self.state.prints / f"{self.name}-{id(self)}-{self.starts}"
        with open(f"{base}.out", "wb") as out, open(f"{base}.err", "wb") as err:
            self.child = subprocess.Popen(
                [*self.prefix, self.binary, *map(str, self.arguments())], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self.cwd,
                pass_fds=self.descriptors,
                env=clean_environment(**environments(self.environment, environment, shifted(self.state, clock_offset))))
        self.out, self.err = Path(f"{base}.out"), Path(f"{base}.err")
        self.state.outputs += [self.out, self.err]
        if wait:
            def ready():
                assert self.child.poll() is None, f"{self.name} ended with {self.child.returncode}:\n{self.printed()}"
                return self.is_ready()
            try:
                eventually(ready, self.ready_within, what=f"{self.name} ready")
            except BaseException:
                self.kill()
                raise
        return self

    def printed(self):
        return self.out.read_text(errors="replace") + self.err.read_text(errors="replace")

    @property
    def running(self):
        return self.child is not None and self.child.poll() is None

    @property
    def resident(self):
        return resident(self.child.pid)

    def kill(self):
        if self.running:
            self.child.kill()
        if self.child is not None:
            self.child.wait(10)

    def stop(self):
        """Ends it as an operator would; returns the exit status."""
        if self.running:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self.name} did not stop within 15 s of SIGTERM:\n{self.printed()}")
        return self.child.returncode if self.child else None


def resident(pid):
    """Bytes of memory that a process holds at present."""
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) * 1024


def quick_rooms(seconds=1):
    """The built-in policy for rooms, with a batch of the log every `seconds` seconds."""
    policy = json.loads((REPOSITORY / "policies/rooms.json").read_text())
    return policy | {"ledger": {"hourSeconds": seconds, "daySeconds": seconds, "batchSeals": 1}}


def quiet_rooms(state):
    """A file with the policy for rooms, with a batch every second and days of UTC. A quiet log publishes nothing."""
    policy = json.loads((REPOSITORY / "policies/rooms.json").read_text())
    path = state.prints / "quiet-rooms.json"
    path.write_text(json.dumps(policy | {"ledger": {"hourSeconds": 1, "daySeconds": 86_400, "batchSeals": 1}}))
    return path


class Broker(Process):
    def __init__(self, state, apns_port=None, **changes):
        super().__init__(state, "broker")
        self.port, self.operator_port = free_port(), free_port()
        if state.schema:
            self.ready_within = 30.0  # After a kill it waits for the end of its own lease.
        self.options = {
            **state.options,
            "listen": f"127.0.0.1:{self.port}",
            "operator-listen": f"127.0.0.1:{self.operator_port}",
            "origin": ORIGIN,
            "resolution": 1,
            "apns-key-path": state / "keys/apns.p8",
            "apns-key-id": KEY_ID,
            "apns-team-id": TEAM_ID,
            "apns-bundle-id": BUNDLE_ID,
            "apns-endpoint": f"127.0.0.1:{apns_port or free_port()}",
            "apns-ca": state / "keys/simulator-ca.pem",
        }
        self.options.update({name.replace("_", "-"): value for name, value in changes.items()})
        # A file goes before the built-in policy of its name: the one for rooms is quick in tests, by default, too.
        self.cwd = Path(tempfile.mkdtemp(dir=state.prints, prefix="policies-"))
        (self.cwd / "rooms").write_text(json.dumps(quick_rooms(self.options["resolution"])))
        if "companion" in str(self.options.get("policy")):
            # Apps with accounts are served only where users are known.
            self.options = {"jwt-algorithm": "HS256", "jwt-key": state / "keys/jwt.secret"} | self.options

    def arguments(self):
        flags = [part for name, value in self.options.items() if value is not None for part in (f"--{name}", value)]
        return ["serve", *flags]

    def is_ready(self):
        return http_status(f"http://127.0.0.1:{self.operator_port}/readyz") == 200

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def operator_url(self):
        return f"http://127.0.0.1:{self.operator_port}"

    @property
    def ws_url(self):
        return f"ws://127.0.0.1:{self.port}/ws"

    def metrics(self):
        with urllib.request.urlopen(f"{self.operator_url}/metrics", timeout=5) as answer:
            return answer.read().decode()

    def metric(self, name):
        """The value of `mayfly_NAME`, with its labels if it has some. Fails if there is none."""
        return int(re.search(rf"^mayfly_{re.escape(name)} (\d+)$", self.metrics(), re.M)[1])


class Collected:
    """The pushes of a simulator, which itself keeps only the last ones. `gaps`: how many times it had forgotten some that nobody had collected."""

    KEPT = 10_000

    def __init__(self, url):
        self.url, self.pushes, self.gaps = url, set(), 0

    def collect(self):
        with urllib.request.urlopen(self.url, timeout=20) as answer:
            found = [(push["token"], push["headers"]["apns-id"], push["at"]) for push in json.load(answer) if "token" in push]
        self.gaps += len(found) == self.KEPT and found[0] not in self.pushes
        self.pushes.update(found)

    def ids(self):
        """The ids of all pushes, by token."""
        ids = {}
        for token, apns_id, _ in tuple(self.pushes):
            ids.setdefault(token, set()).add(apns_id)
        return ids

    def count(self, tokens):
        """How many pushes went to each of these tokens."""
        return Counter(token for token, _, _ in tuple(self.pushes) if token in tokens)


class Simulator(Process):
    def __init__(self, state, port=None, key=None):
        super().__init__(state, "simulator")
        self.port, self.control_port = port or free_port(), free_port()
        self.key = key or state / "keys/apns.p8"
        self.more = []

    def arguments(self):
        return [
            "apns-simulator", *self.more, "--listen", f"127.0.0.1:{self.port}", "--control", f"127.0.0.1:{self.control_port}",
            "--apns-key-path", self.key, "--apns-key-id", KEY_ID, "--apns-team-id", TEAM_ID,
            "--apns-bundle-id", BUNDLE_ID, "--certificate", self.state / "keys/simulator.pem"]

    def is_ready(self):
        return http_status(f"http://127.0.0.1:{self.control_port}/pushes") == 200

    def _control(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.control_port}{path}", data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=5) as answer:
            content = answer.read()
            return json.loads(content) if content else None

    def pushes(self, token=None):
        """APNs' accepted pushes, oldest first, or only those to `token` (hex). A test with more than the simulator keeps collects them."""
        found = [push for push in self._control("GET", "/pushes") if "token" in push]
        assert len(found) < Collected.KEPT, "the simulator may have forgotten earlier pushes"
        return [push for push in found if token in (None, push["token"])]

    def subscribe(self, dialect, key, **more):
        """A new Web Push subscription for the VAPID key `key` (base64url), as `PushSubscription.toJSON()` returns it. `more`: origin, id."""
        return self._control("POST", "/subscriptions", {"dialect": dialect, "applicationServerKey": key} | more)

    def set_subscription(self, subscription, state):
        """`state`: online, offline, expired or unsubscribed."""
        self._control("PUT", f"/subscriptions/{subscription_id(subscription)}", {"state": state})

    def web_pushes(self, subscription=None):
        """The accepted Web Push messages, oldest first, or only those to one subscription."""
        found = [push for push in self._control("GET", "/pushes") if "dialect" in push]
        return [push for push in found if subscription is None or push["subscription"] == subscription_id(subscription)]

    def collected(self):
        return Collected(f"http://127.0.0.1:{self.control_port}/pushes")

    def forget(self):
        self._control("DELETE", "/pushes")

    def fault(self, **fault):
        """Sets the faults of later answers. Without arguments the simulator answers as APNs would."""
        self._control("PUT", "/faults", fault)


def subscription_id(subscription):
    """The id of a simulated subscription, by which faults find it: `fault(token=...)`."""
    return subscription["endpoint"].rsplit("/", 1)[1]


def http_status(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def audit_verify(state, *since, timeout=60, more=()):
    """`mayfly audit verify` on the ledger folder: a CompletedProcess."""
    earlier = [part for checkpoint in since for part in ("--since", checkpoint)]
    return mayfly("audit", "verify", state / "ledger", "--key", state.vkey, *earlier, *more, timeout=timeout)


def filled(disk, left=0):
    """Fills a disk but for `left` KiB, and returns the file to delete again."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(bytes(4096))
        file.truncate(max(0, file.tell() - left * 1024))
    return filler
