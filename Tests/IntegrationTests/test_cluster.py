"""packaging/cluster/run: nodes behind HAProxy and a PostgreSQL that fails over by Patroni lose nothing, whatever is killed."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from contextlib import closing, suppress
from functools import cached_property
from http.client import HTTPException
from pathlib import Path

import pytest
from websockets.exceptions import WebSocketException

from canary import given
from mayfly import Client, Socket, new_client, new_code, new_token
from processes import BINARY, REPOSITORY, Collected, clean_environment, eventually, http_status, mayfly, quick_rooms
from test_nodes import Load

SCRIPT = REPOSITORY / "packaging/cluster/run"
NODES, SERVERS, PORTS = ("node-1", "node-2", "node-3"), ("db-1", "db-2"), 30
TOOLS = f"{REPOSITORY}/.build:{os.environ['PATH']}:/usr/sbin"
pytestmark = [
    pytest.mark.campaign,
    pytest.mark.alone,
    pytest.mark.skipif(not all(shutil.which(name, path=TOOLS) for name in ("etcd", "patroni", "haproxy", "setpriv")),
                       reason="NOT TESTED: a cluster needs etcd, Patroni and HAProxy: run scripts/setup cluster")]


class Cluster:
    """A running cluster. `port` and `ws_url` are HAProxy's; `serving` is what Load asks for. `words`: more arguments of the script, for its first port."""

    def __init__(self, words=lambda base: ()):
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.parent = Path(tempfile.mkdtemp(prefix="mayfly-cluster-test-", dir=memory))
        self.parent.chmod(0o755)
        self.folder = self.parent / "cluster"
        (self.parent / "rooms.json").write_text(json.dumps(quick_rooms()))
        self.prints = self.parent / "prints"
        with open(self.prints, "wb") as prints:
            for base in random.sample(range(27_000, 32_000, PORTS), 5):  # the script refuses ports that are taken
                self.port = base
                self.child = subprocess.Popen(
                    [SCRIPT, "--state", self.folder, "--port", str(base), "--set", "MAYFLY_RESOLUTION=1",
                     "--set", f"MAYFLY_POLICY={self.parent / 'rooms.json'}", *words(base)],
                    stdin=subprocess.DEVNULL, stdout=prints, stderr=prints, env=clean_environment(MAYFLY_BINARY=BINARY))
                with suppress(subprocess.TimeoutExpired):
                    self.child.wait(2)
                if self.child.poll() is None:
                    break
        try:
            self.until(lambda: "the cluster runs" in self.told(), "the start", 120)
        except BaseException:
            print(self.told())
            self.close()
            raise

    @property
    def serving(self):
        return self

    @property
    def ws_url(self):
        return f"ws://127.0.0.1:{self.port}/ws"

    def told(self):
        return self.prints.read_text()

    def until(self, question, what, seconds=60):
        def asked():
            assert self.child.poll() is None, f"the script ended:\n{self.told()}"
            return question()
        return eventually(asked, seconds, 0.1, what)

    def operator(self, node):
        """The address of a node's operator listener."""
        return re.search(r"operators +(.+) \(", self.told())[1].split(", ")[NODES.index(node)]

    # MARK: What is killed

    def pid(self, name):
        return int((self.folder / name / "pid").read_text())

    def postmaster(self, name):
        return int((self.folder / name / "data/postmaster.pid").read_text().split()[0])

    def kill_node(self, name):
        """The script starts it again."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: self.pid(name) != pid, f"another start of {name}")

    def serves(self, name):
        return http_status(f"http://{self.operator(name)}/readyz") == 200

    def kill_primary(self):
        """Kills the primary and its Patroni, and holds them until the standby is promoted: a machine that went away."""
        primary, standby = self.roles()
        assert primary and standby, "no synchronous standby to be promoted"
        hold = self.folder / primary / "hold"
        hold.touch()
        for pid in (self.pid(primary), self.postmaster(primary)):
            os.kill(pid, signal.SIGKILL)
        self.until(lambda: self.roles()[0] == standby, "the promotion")
        hold.unlink()

    def segments(self, name):
        """The write-ahead log's files of a server, oldest first."""
        return sorted(path.name for path in (self.folder / name / "data/pg_wal").iterdir() if re.fullmatch("[0-9A-F]{24}", path.name))

    def roles(self):
        """Returns the names of primary and synchronous standby, None for a missing one."""
        found = {"primary": None, "sync": None}
        for name in SERVERS:
            for role in found:
                if self.patroni(name, role) == 200:
                    found[role] = name
        return found["primary"], found["sync"]

    def patroni(self, name, path, *words):
        """The status of a call of Patroni's at a server. `words`: more of curl's."""
        folder = self.folder / name
        address = re.search(r"connect_address: (\S+)", (folder / "patroni.yml").read_text())[1]
        return curl(f"https://{address}/{path}", "--cacert", folder / "db-ca.pem", "--cert", folder / "server.crt", "--key", folder / "server.key", *words)

    def is_whole(self):
        return all(map(self.serves, NODES)) and all(self.roles())

    # MARK: What is checked

    def checkpoint(self):
        """The log's head, as whichever node answers publishes it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/audit/checkpoint", timeout=10) as answer:
            return answer.read()

    @cached_property
    def collected(self):
        return Collected(re.search(r"pushes +(\S+)", self.told())[1])

    def stop(self):
        """Ends the script. No process may remain. SIGINT would do nothing if a shell has started this test in the background."""
        pids = [self.pid(path.parent.name) for path in self.folder.glob("*/pid")] + [self.postmaster(name) for name in SERVERS]
        self.child.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.child.wait(120)
        assert self.child.poll() == 0, self.told()
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    def verify(self, checkpoints):
        """Verifies the longest log, which must continue all these checkpoints."""
        node = max(NODES, key=lambda name: int((self.folder / name / "ledger/checkpoint").read_text().split("\n")[1]))
        files = []
        for number, note in enumerate(checkpoints):
            path = self.parent / f"checkpoint-{number}"
            path.write_bytes(note)
            files += ["--since", path]
        ran = mayfly("audit", "verify", self.folder / node / "ledger", "--key", (self.folder / node / "ledger.vkey").read_text().strip(), *files,
                     timeout=300)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def end(self, checkpoints):
        """Ends the cluster. The log continues these checkpoints, no push had two ids, and no process wrote a token down. For tests that knock once
        for each token. Returns the ids of all pushes, by token."""
        self.collected.collect()
        checkpoints.append(self.checkpoint())
        self.stop()
        self.verify(checkpoints)
        ids = self.collected.ids()
        different = [token for token, all_ids in ids.items() if len(all_ids) > 1]
        assert not self.collected.gaps, "this test has not seen all pushes"
        assert not different, f"{len(different)} tokens got one knock's push with different apns-ids"
        told = given.in_files(*self.folder.glob("*/log"))
        assert not told, f"{told} contain a push token"
        return ids

    def close(self):
        if self.child.poll() is None:
            self.child.terminate()
            self.child.wait(120)
        if not os.environ.get("MAYFLY_KEEP_CLUSTER"):
            shutil.rmtree(self.parent, ignore_errors=True)


def curl(url, *words):
    """The status of an answer, 0 without one."""
    done = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "3", *words, url], capture_output=True, text=True)
    return int(done.stdout or 0)


class Refused(Exception):
    """An answer that acknowledges nothing."""


class GentleLoad(Load):
    """Waits after each story, and longer after a failure, so that two cores are enough for the whole cluster."""

    pause = 0.03

    def client(self):
        return Client(self.deployment.port, timeout=15, checked=False)

    def call(self):
        client = None
        while not self.ends:
            client = client or self.client()
            try:
                self.story(client)
                time.sleep(self.pause)
            except (OSError, HTTPException, WebSocketException, Refused) as error:
                self.errors[str(error) if isinstance(error, Refused) else type(error).__name__] += 1
                client.close()
                client = None
                time.sleep(0.2)

    def story(self, client):
        start = time.monotonic()
        code, creator, joiner = new_code(), new_client(), new_client()
        roomid = acknowledged(client.create(code, creator, new_token(), 3600)).json["roomid"]
        self.rooms.append((roomid, False))
        acknowledged(client.accept(code, joiner, new_token()))
        self.rooms.append((roomid, True))
        acknowledged(client.presence(roomid, joiner))
        self.times.append((start, time.monotonic()))


def acknowledged(answer):
    if answer.status not in (200, 201, 202):
        # HAProxy's own answers are HTML.
        raise Refused(f"{answer.status} {answer.code if b'{' in answer.body else 'no node'}")
    return answer


@pytest.fixture
def cluster():
    cluster = Cluster()
    yield cluster
    cluster.close()


def kill_all(cluster, rounds):
    """Each round kills every node in turn and then the primary, under load. All that was acknowledged must be there."""
    load, checkpoints, kills = GentleLoad(cluster), [], 0
    try:
        for _ in range(rounds):
            for victim in (*NODES, "primary"):
                cluster.until(cluster.is_whole, "a whole cluster", 180)
                time.sleep(3)
                checkpoints.append(cluster.checkpoint())
                cluster.collected.collect()
                begun = time.monotonic()
                cluster.kill_primary() if victim == "primary" else cluster.kill_node(victim)
                made = len(load.times)
                cluster.until(lambda: len(load.times) > made + 20, f"service after the end of {victim}", 90)
                kills += 1
                print(f"{victim} killed: {gap(load, begun):.1f} s without service", flush=True)
        cluster.until(cluster.is_whole, "a whole cluster", 180)
        time.sleep(3)
    finally:
        load.stop()
    accepted = dict(sorted(load.rooms))  # with True after False
    with closing(Client(cluster.port, checked=False, timeout=30)) as client:
        lost = [roomid for roomid, is_accepted in accepted.items()
                if (answer := client.status(roomid)).status != 200 or is_accepted and not answer.json["accepted"]]
    assert not lost, f"{len(lost)} of {len(accepted)} acknowledged rooms are lost"
    time.sleep(20)  # for pushes that are tried again
    ids = cluster.end(checkpoints)
    print(f"kills {kills}; rooms {len(accepted)}, pushes {len(cluster.collected.pushes)}, errors {dict(load.errors)}; "
          f"longest gap {load.gap:.1f} s, p99 {load.p99() * 1000:.0f} ms")
    assert len(ids) > len(load.times) * 0.9, "few pushes: this test would prove nothing"


def gap(load, since):
    ends = sorted(end for _, end in list(load.times) if end > since)
    return max((b - a for a, b in zip([since, *ends], ends)), default=0)


def test_a_dozen_kills_lose_nothing(cluster):
    kill_all(cluster, int(os.environ.get("MAYFLY_CLUSTER_ROUNDS", 3)))


def test_websockets_pass_haproxy_which_writes_nothing_down(cluster):
    time.sleep(4)  # HAProxy takes every node for one that serves until its first checks
    with closing(Client(cluster.port)) as client:
        room = client.room()
    with Socket(cluster) as one, Socket(cluster) as other:
        one.join(room.roomid, room.creator.client)
        other.join(room.roomid, room.joiner.client)
        one.expect("peer_joined")
    told = b"".join(path.read_bytes() for path in (cluster.folder / "haproxy").glob("*") if path.is_file())
    assert room.roomid.encode() not in told and b"/api/" not in told and client.address.encode() not in told


def test_a_standby_that_was_away_for_long_is_copied_anew(cluster):
    """Its part of the write-ahead log is deleted by then. Patroni alone would wait for it for ever."""
    cluster.until(cluster.is_whole, "a whole cluster")
    primary, standby = cluster.roles()
    hold = cluster.folder / standby / "hold"
    hold.touch()
    for pid in (cluster.pid(standby), cluster.postmaster(standby)):
        os.kill(pid, signal.SIGKILL)
    newest = cluster.segments(standby)[-1]
    load = GentleLoad(cluster)
    try:
        cluster.until(lambda: cluster.segments(primary)[0] > newest, "the end of the log that the standby needs", 300)
    finally:
        load.stop()
    hold.unlink()
    cluster.until(lambda: "copying the database anew" in (cluster.folder / standby.replace("db", "rejoin") / "log").read_text(), "the copy", 120)
    cluster.until(lambda: cluster.roles() == (primary, standby), "a synchronous standby", 120)
