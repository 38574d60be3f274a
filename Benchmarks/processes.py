"""The measured programs: each is started afresh on its cores, in a folder of its own, and ended by its own process id."""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import time
import urllib.request
from pathlib import Path

import machine
from machine import LOAD_CPU, REPOSITORY, SERVER_CPU
from users import Users

HERE = Path(__file__).resolve().parent
PROGRAMS = REPOSITORY / ".build/release"
MAYFLY, MAYFLY_BENCH = PROGRAMS / "mayfly", PROGRAMS / "mayfly-bench"
WORK = REPOSITORY / ".build/bench/work"
BODY = '{"delivery":"queued"}'
KEY_ID, TEAM_ID, TOPIC = "ABC123DEFG", "DEF123GHIJ", "com.example.app"
PROVIDER = ["--apns-key-id", KEY_ID, "--apns-team-id", TEAM_ID, "--apns-bundle-id", TOPIC]
ONE_CORE, BOTH_CORES = {SERVER_CPU}, {SERVER_CPU, LOAD_CPU}

_running = []
_next_port = [22000]


class Invalid(Exception):
    """A run that measured something else than it was meant to."""


def prepare():
    """An empty work folder, as many descriptors as allowed, and this process out of the servers' way."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.sched_setaffinity(0, {LOAD_CPU})
    return hard


def stop_all():
    while _running:
        _running[-1].stop()


def free_port():
    """Below the ports that the kernel lends to outgoing connections."""
    while True:
        port = _next_port[0]
        _next_port[0] += 1
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def folder(name):
    path = WORK / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Process:
    """A child on the given cores."""

    def __init__(self, name, command, cpus, environment=None, pipes=False):
        self.name = name
        log = open(WORK / f"{name}.log", "ab")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("MAYFLY_", "APNS_", "COMETCHAT_"))}
        mine = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cpus)  # Children inherit it. taskset would need another exec.
        try:
            self.child = subprocess.Popen(
                [str(word) for word in command], env=kept | (environment or {}), stderr=log,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL, stdout=subprocess.PIPE if pipes else log, text=True)
        finally:
            os.sched_setaffinity(0, mine)
            log.close()
        self.pid = self.child.pid
        _running.append(self)

    def stop(self):
        if self not in _running:
            return
        _running.remove(self)
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(20)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe:
                pipe.close()

    def log(self):
        return (WORK / f"{self.name}.log").read_text(errors="replace")[-2000:]

    def wait_for(self, port, within=20.0):
        end = time.monotonic() + within
        while time.monotonic() < end:
            if self.child.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise Invalid(f"{self.name} does not listen on {port}: {self.log()}")

    def cpu(self):
        """Seconds that all its threads have run, in user mode and in the kernel."""
        return cpu_seconds(self.pid)

    def written(self):
        """Bytes that it sent to the disk so far. None where only root may see it."""
        try:
            return int(re.search(r"^write_bytes: (\d+)$", Path(f"/proc/{self.pid}/io").read_text(), re.M)[1])
        except OSError:
            return None

    def memory(self):
        """Resident and proportional memory in bytes; the second is None where only root may see it."""
        resident = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        try:
            rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        except OSError:
            return resident, None
        return resident, _kib(rollup, "Pss")

    def anonymous(self):
        """Bytes of resident memory that aren't backed by a file."""
        return _kib(Path(f"/proc/{self.pid}/status").read_text(), "RssAnon")


def _kib(text, name):
    return int(re.search(rf"^{name}:\s+(\d+) kB", text, re.M)[1]) * 1024


def builds():
    """The folders of the programs to measure, by their names in a table."""
    named = {"Mayfly": PROGRAMS}
    if machine.against:
        commit = machine.said("git", "-C", machine.against, "rev-parse", "--short", "HEAD")
        named[f"Mayfly of `{commit}`" if re.fullmatch("[0-9a-f]+", commit) else "the other Mayfly"] = machine.against
    return named


def throwaway_keys(state, programs=PROGRAMS):
    subprocess.run([programs / "mayfly", "keys", "throwaway", "--state", state], check=True, stdout=subprocess.DEVNULL)


class Engine(Process):
    """Mayfly's HTTP server with a handler that returns a constant. `under`: the words of a program that runs it."""

    def __init__(self, name, certificate=None, under=()):
        self.port = free_port()
        tls = ["--tls-certificate", certificate, "--tls-key", certificate] if certificate else []
        super().__init__(name, [*under, MAYFLY_BENCH, "engine", "--listen", f"127.0.0.1:{self.port}", *tls], ONE_CORE)
        self.wait_for(self.port, 120 if under else 20)


class Nginx(Process):
    """One nginx worker that returns the same body from memory."""

    def __init__(self, name, certificate=None):
        self.port = free_port()
        home = folder(name)
        tls = f"ssl_certificate {certificate}; ssl_certificate_key {certificate};" if certificate else ""
        (home / "nginx.conf").write_text(f"""
            daemon off; master_process off; worker_processes 1; pid {home}/pid; error_log {home}/error.log;
            events {{ worker_connections 8192; }}
            http {{
                access_log off; default_type application/json;
                keepalive_timeout 3600s; keepalive_requests 1000000000;
                client_body_temp_path {home}/a; proxy_temp_path {home}/b; fastcgi_temp_path {home}/c;
                uwsgi_temp_path {home}/d; scgi_temp_path {home}/e;
                server {{
                    listen 127.0.0.1:{self.port} {"ssl http2" if certificate else ""} backlog=4096; {tls}
                    ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets off;
                    location / {{ return 200 '{BODY}'; }}
                }}
            }}""")
        super().__init__(name, ["nginx", "-e", home / "error.log", "-c", home / "nginx.conf", "-p", home], ONE_CORE)
        self.wait_for(self.port)


class Simulator(Process):
    """`mayfly apns-simulator` as Apple's production service, for the throw-away keys in `state`. `record`: a file that counts all pushes."""

    # A push adds two lines to the record: `accepted` and `answered`, each after its apns-id.
    RECORDED_BYTES = 92

    def __init__(self, name, state, cpus, port=None, record=None):
        self.port, self.control_port = port or free_port(), free_port()
        super().__init__(name, [
            MAYFLY, "apns-simulator", "--production", "--listen", f"127.0.0.1:{self.port}", "--control", f"127.0.0.1:{self.control_port}",
            "--certificate", state / "keys/simulator.pem", *PROVIDER, "--apns-key-path", state / "keys/apns.p8",
            *(["--record", record] if record else [])], cpus)
        self.record = record
        self.wait_for(self.control_port)

    def count(self):
        """Accepted pushes in the record."""
        return self.record.stat().st_size // self.RECORDED_BYTES

    def _ask(self, method):
        asked = urllib.request.Request(f"http://127.0.0.1:{self.control_port}/pushes", method=method)
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.read()

    def listed(self):
        """The latest 10,000 accepted pushes, as JSON (docs/simulator.md)."""
        return self._ask("GET")

    def pushes(self):
        return json.loads(self.listed())

    def forget(self):
        self._ask("DELETE")


class Broker(Process):
    """`mayfly serve` with throw-away keys, budgets that never refuse and a window of a minute. By default `apns_port` is a closed port.

    `users`: it also knows users, by the throw-away secret, under the built-in policy for that `kind` of app. `policy`: of rooms, a file or the name
    of a built-in one. `certificate`: PEM, for TLS. `database`: a URI of PostgreSQL. Then the broker is a node, and `state` is a copy of the first node's.
    `under`: the words of a program that runs it. `programs`: the folder of its build. `window`: of the log, seconds. `more`: other settings.
    """

    def __init__(
            self, name, cpus=ONE_CORE, state=None, apns_port=9, users=False, kind="companion", policy=HERE / "policy.json", host="127.0.0.1",
            certificate=None, database=None, under=(), programs=PROGRAMS, window=60, more=()):
        self.state = state or folder(name)
        if not state:
            throwaway_keys(self.state, programs)
        self.port, self.operator_port = free_port(), free_port()
        self.secret = self.state / "keys/jwt.secret"
        known = ["--jwt-algorithm", "HS256", "--jwt-key", self.secret] if users else []
        known += ["--webhook-secrets", self.state / "keys/webhook.secret"] if kind == "calls" else []
        tls = ["--tls-certificate", certificate, "--tls-key", certificate] if certificate else []
        # The simulator's certificate names loopback.
        stored = [
            "--database", database, "--node", name, "--node-listen", f"127.0.0.1:{free_port()}", "--node-certificate",
            self.state / "keys/simulator.pem", "--node-ca", self.state / "keys/simulator-ca.pem"] if database else []
        self.started = time.monotonic()
        super().__init__(name, [
            *under, programs / "mayfly", "serve", "--state", self.state, *stored, "--listen", f"{host}:{self.port}", *tls,
            "--operator-listen", f"127.0.0.1:{self.operator_port}", "--resolution", window, "--policy",
            f"{kind + ',' if users else ''}{policy}", *known, *more, *PROVIDER,
            "--apns-key-path", self.state / "keys/apns.p8", "--apns-endpoint", f"127.0.0.1:{apns_port}",
            "--apns-ca", self.state / "keys/simulator-ca.pem"], cpus)
        self.ready_after = self._wait_until_ready(120 if under else 20) - self.started

    def _wait_until_ready(self, within):
        while time.monotonic() < self.started + within and self.child.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.operator_port), timeout=2) as asked:
                    asked.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    if asked.recv(64).startswith(b"HTTP/1.1 200"):
                        return time.monotonic()
            except OSError:
                pass
            time.sleep(0.0005)
        raise Invalid(f"{self.name} does not become ready: {self.log()}")

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.operator_port}/metrics", timeout=20) as answer:
            return answer.read().decode()

    def database(self):
        """A read-only connection, which its `with` closes."""
        return contextlib.closing(sqlite3.connect(f"file:{self.state}/mayfly.sqlite?mode=ro", uri=True, timeout=10))

    def settle(self, within=60):
        """Waits until no push is under way and no update waits. Returns how many updates waited at first."""
        with self.database() as database:
            end, first = time.monotonic() + within, None
            while True:
                jobs, waits = database.execute(
                    "SELECT (SELECT count(*) FROM job), (SELECT count(*) FROM registration WHERE waiting IS NOT NULL)").fetchone()
                first = waits if first is None else first
                if not jobs and not waits:
                    return first
                if time.monotonic() > end:
                    raise Invalid(f"pushes of {self.name} have no end")
                time.sleep(0.02)

    def commits(self):
        """Transactions so far: the counter in the WAL index's header, https://sqlite.org/walformat.html, 2.1."""
        with open(self.state / "mayfly.sqlite-shm", "rb") as index:
            return struct.unpack_from("=I", index.read(16), 8)[0]


@contextlib.contextmanager
def accounts(name, kind="companion"):
    """A simulator beside the load, and on the other core a broker that knows users, who are its callers."""
    state = folder(name)
    throwaway_keys(state)
    simulator = Simulator(f"{name}-apns", state, {LOAD_CPU})
    broker = users = None
    try:
        broker = Broker(name, state=state, apns_port=simulator.port, users=True, kind=kind)
        users = Users(broker.port, broker.secret)
        yield simulator, broker, users
    finally:
        for process in (users, broker, simulator):
            if process:
                process.stop()


def node():
    """How Debian's Node is run here: installed, or unpacked by scripts/unpack-node and mounted where it expects its files."""
    unpacked = REPOSITORY / ".build/bench/node"
    if not (unpacked / "done").exists():
        return ["nodejs"]
    libraries = next((unpacked / "usr/lib").glob("*-linux-gnu*"))
    script = (
        f'mount --bind "{unpacked}/usr/share" /usr/share && exec env NODE_PATH=/usr/share/nodejs:"{libraries}/nodejs" '
        f'LD_LIBRARY_PATH="{libraries}" "{unpacked}/usr/bin/node" "$@"')
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "node"]


class Express(Process):
    """The rooms service as it is usually built."""

    def __init__(self, name, cpus=ONE_CORE):
        self.port = free_port()
        command = [*node(), HERE / "express/server.js", self.port, folder(name) / "rooms.sqlite"]
        super().__init__(name, command, cpus, {"NODE_ENV": "production"})
        self.wait_for(self.port)
