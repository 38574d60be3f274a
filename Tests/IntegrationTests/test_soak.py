"""Hours of a whole cluster under faults: nothing acknowledged is lost, no push has two ids, nothing grows, and nothing is left. `make soak HOURS=2`.

The seed decides which faults come, in which order, and how long they last. Threads and servers decide the rest.
"""

import itertools
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter, deque
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from databases import MOVING, row_counts
from http2_client import Http2Client
from mayfly import Client, Socket, new_client, new_code, new_token
from processes import eventually, resident
from test_cluster import NODES, Cluster, GentleLoad, acknowledged
from test_silent_connections import freeze, relay  # noqa: F401

pytestmark = pytest.mark.soak
HOURS = float(os.environ.get("MAYFLY_SOAK_HOURS", 2))
PARTS = 8  # rows of the table: one a quarter hour of two hours
# Kills and long faults would end this node, so that nothing could be said about its growth.
SPARED = "node-2"
# A job ends after two minutes. A push that isn't there by then won't come. `Lags` collects every 20 s, or every 50 s without a primary.
DEADLINE = 180
# All rooms end so long after the last fault. Until then the cluster becomes whole, and every room is looked at.
REST = 240
# A process may grow by so much after the first part that it served from beginning to end. Nodes grow by 1 to 3 MiB when they come to lead and
# publish the log, and after a failover. Their descriptors follow the load: four callers have up to two sockets each, and HAProxy idle connections.
MORE_MEMORY, MORE_DESCRIPTORS = 8 << 20, 16
# Seconds that the log and the purge may be behind. Nobody publishes or purges while there is no primary or no leader: Patroni replaces a primary within
# 30 s, a lease lasts 10 s, and a stopped primary goes on after 15 s. Twice the sum, because a second fault may come right after the first.
MOST_LAG = 120
# Rows of the second half of the table, against the largest of the first: twice as many and so many more. Rooms last for five minutes, so those of a short
# soak are still becoming more in its second half. Dead rows make the database larger until autovacuum comes.
MORE_TIMES, MORE_ROWS, MORE_BYTES = 2, 100, 32 << 20


def has_links():
    """True if each node can have a network namespace. This process needs one of its own for that, which has no routes."""
    return os.geteuid() == 0 and len(Path("/proc/net/route").read_text().splitlines()) <= 1


class Life(GentleLoad):
    """Callers over HTTP/1.1, HTTP/2 and WebSocket. Each token is knocked for once, so each push of it has one id.

    `alive`: acknowledged rooms, with their end and whether they were accepted. `over`: rooms that must be gone. `queued`: when a push to a
    token was acknowledged. `kept`: rooms that last until `end`, with tokens that are replaced.
    """

    pause, KEPT = 0.5, 100

    def __init__(self, cluster, end):
        self.end, self.alive, self.over, self.queued, self.kept, self.kinds = end, {}, deque(maxlen=1000), {}, deque(), Counter()
        super().__init__(cluster)

    def client(self):
        return random.choice((Client, Http2Client))(self.deployment.port, timeout=15, checked=False)

    def story(self, client):
        start = time.monotonic()
        kind = random.choice((self.knock_once, self.end_room, self.let_code_expire, self.meet, self.replace_token))
        kind(client)
        self.kinds[kind.__name__] += 1
        self.times.append((start, time.monotonic()))

    def make(self, client, life):
        """A room with both sides in it. The creator has a token."""
        life = int(min(life, self.end - time.time()))
        code, creator, joiner, token, end = new_code(), new_client(), new_client(), new_token(), time.time() + life
        roomid = acknowledged(client.create(code, creator, token, life)).json["roomid"]
        self.alive[roomid] = end, False
        acknowledged(client.accept(code, joiner))
        self.alive[roomid] = end, True
        return roomid, creator, joiner, token

    def knock(self, client, roomid, joiner, token):
        if acknowledged(client.presence(roomid, joiner)).json["delivery"] == "queued":
            self.queued[token] = time.time()

    def knock_once(self, client):
        roomid, _, joiner, token = self.make(client, 300)
        self.knock(client, roomid, joiner, token)

    def end_room(self, client):
        roomid, *_ = self.make(client, 300)
        del self.alive[roomid]  # Without an answer it may have ended or not.
        acknowledged(client.delete(roomid))
        self.over.append(roomid)

    def let_code_expire(self, client):
        end = time.time() + 12
        self.alive[acknowledged(client.create(token=new_token(), expires=12)).json["roomid"]] = end, False

    def meet(self, client):
        """Both are there for some seconds. A push that is queued meanwhile isn't waited for: it ends when its node hears that the creator is there."""
        roomid, creator, joiner, _ = self.make(client, 300)
        with Socket(self.deployment) as one, Socket(self.deployment) as two:
            with failing_as_a_connection():
                one.join(roomid, creator)
                two.join(roomid, joiner)
                one.expect("peer_joined")
                time.sleep(3)

    def replace_token(self, client):
        if len(self.kept) < self.KEPT:
            roomid, creator, joiner, token = self.make(client, 604_800)
        else:
            roomid, creator, joiner = self.kept.popleft()
            token = new_token()
            acknowledged(client.put_token(roomid, creator, token))
        self.knock(client, roomid, joiner, token)
        # After a failure it is not known which token it has, so it gets no further knocks.
        self.kept.append((roomid, creator, joiner))

    def missing(self, tokens, since=0):
        """When pushes to other tokens than these were acknowledged, at least `since` seconds ago."""
        return [time.strftime("%H:%M:%S", time.localtime(at)) for token, at in self.queued.copy().items()
                if time.time() - at >= since and token not in tokens]

    def check(self, most):
        """Rooms are there until their end, and not after it. Looks at all, or at so many of each. Returns how many were there."""
        now = time.time()
        ended = [roomid for roomid, (end, _) in self.alive.copy().items() if end < now - 2]
        for roomid in ended:
            del self.alive[roomid]
            self.over.append(roomid)
        # Some end while this looks at them.
        there = [(roomid, accepted) for roomid, (end, accepted) in self.alive.copy().items() if end > now + 60]
        gone = list(self.over)
        there, gone = (random.sample(rooms, min(most, len(rooms))) for rooms in (there, gone))
        with closing(Client(self.deployment.port, checked=False, timeout=30)) as client:
            answers = [(roomid, client.status(roomid), accepted) for roomid, accepted in there]
            # A caller may have ended some meanwhile.
            lost = [answer for roomid, answer, accepted in answers
                    if (answer.status != 200 or accepted and not answer.json["accepted"]) and roomid in self.alive]
            assert not lost, f"{len(lost)} of {len(there)} acknowledged rooms are lost: {lost[0]}"
            left = [answer for answer in map(client.status, gone) if answer.status != 404]
            assert not left, f"{len(left)} of {len(gone)} ended rooms are still there: {left[0]}"
        return len(there)


@contextmanager
def failing_as_a_connection():
    """A message that doesn't come is a failure like others while faults last."""
    try:
        yield
    except AssertionError as error:
        raise ConnectionError("another message") from error


class Database:
    """What the primary says."""

    def __init__(self, cluster):
        passwords = cluster.folder / "node-1/pgpass"
        servers = ",".join(":".join(line.split(":")[:2]) for line in passwords.read_text().splitlines())
        self.uri = f"postgresql://mayfly@{servers}/mayfly?sslmode=require&target_session_attrs=read-write&connect_timeout=3&passfile={passwords}"

    def connect(self):
        return psycopg.connect(self.uri, autocommit=True)

    def rows(self):
        with self.connect() as connection:
            return row_counts(connection)

    def stored(self):
        """The rows that callers store, as `State.counts` has them, and the jobs."""
        return {name: count for name, count in self.rows().items() if name not in MOVING - {"job"}}

    def bytes(self):
        with self.connect() as connection:
            return connection.execute("SELECT pg_database_size(current_database())").fetchone()[0]


class Lags(threading.Thread):
    """Looks every two seconds how far behind the log and the purge are, and collects the pushes. `worst`: of both since it was last taken, seconds."""

    QUESTIONS = {
        "log": "SELECT extract(epoch FROM clock_timestamp()) - window_start FROM log",
        "purge": "SELECT extract(epoch FROM clock_timestamp()) - least((SELECT min(expires) FROM room), (SELECT min(expires) FROM token)) / 1000.0"}

    def __init__(self, cluster, database):
        super().__init__(daemon=True)
        self.cluster, self.database, self.worst, self.ends = cluster, database, Counter(), threading.Event()
        self.start()

    def run(self):
        turns = itertools.count()
        while not self.ends.wait(2):
            # Each answer has up to 10,000 pushes.
            with suppress(OSError):
                if next(turns) % 10 == 0:
                    self.cluster.collected.collect()
            # Without a primary there is nothing to be asked. It is asked again.
            with suppress(psycopg.Error), self.database.connect() as connection:
                for name, question in self.QUESTIONS.items():
                    found = connection.execute(question).fetchone()
                    self.worst[name] = max(self.worst[name], float(found[0] or 0) if found else 0)

    def take(self):
        worst, self.worst = self.worst, Counter()
        return worst

    def stop(self):
        self.ends.set()
        self.join(60)
        assert not self.is_alive()


# MARK: Faults

@contextmanager
def stopped(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def with_children(parent):
    """The ids of a process and of those that it has started."""
    found = [parent]
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


class Faults:
    """Each returns what it did. `seconds`: how long a node's fault lasts."""

    def __init__(self, cluster, chance, relay):  # noqa: F811
        self.cluster, self.chance, self.relay, self.deck, self.count = cluster, chance, relay, [], Counter()

    def next(self):
        """Does one. All kinds come in an order by chance, then again in another."""
        if not self.deck:
            self.deck = [self.kill_node, self.stop_node, self.stop_primary, self.kill_postgres, self.kill_standby, self.lose_primary,
                         self.switch_over, self.stop_apple, self.silence_apple]
            self.deck += [self.cut_to, self.cut_from, self.cut_both] if has_links() else [self.stop_relay]
            self.chance.shuffle(self.deck)
        fault = self.deck.pop()
        self.count[fault.__name__] += 1
        return fault()

    def victim(self):
        """A node, and for how many seconds. After ten seconds its term is over."""
        node = self.chance.choice(NODES)
        return node, self.chance.uniform(1, 5) if node == SPARED or self.chance.random() < 0.5 else self.chance.uniform(12, 30)

    def kill_node(self):
        node = self.chance.choice([node for node in NODES if node != SPARED])
        self.cluster.kill_node(node)
        return f"{node} killed"

    def stop_node(self):
        node, seconds = self.victim()
        with stopped(self.cluster.pid(node)):
            time.sleep(seconds)
        return f"{node} stopped for {seconds:.0f} s"

    def stop_primary(self):
        primary, seconds = self.cluster.roles()[0], self.chance.uniform(1, 15)
        with stopped(*with_children(self.cluster.postmaster(primary))):
            time.sleep(seconds)
        return f"PostgreSQL of {primary} stopped for {seconds:.0f} s"

    def kill_postgres(self):
        primary, standby = self.cluster.roles()
        os.kill(self.cluster.postmaster(primary), signal.SIGKILL)
        self.cluster.until(lambda: self.cluster.roles()[0] == standby, "the promotion")
        return f"PostgreSQL of {primary} killed, {standby} promoted"

    def kill_standby(self):
        standby = self.cluster.roles()[1]
        os.kill(self.cluster.postmaster(standby), signal.SIGKILL)
        return f"PostgreSQL of {standby}, the standby, killed"

    def lose_primary(self):
        primary = self.cluster.roles()[0]
        self.cluster.kill_primary()
        return f"{primary} killed with its Patroni"

    def switch_over(self):
        primary, standby = self.cluster.roles()
        body = f'{{"leader": "{primary}", "candidate": "{standby}"}}'
        status = self.cluster.patroni(primary, "switchover", "-X", "POST", "-H", "Content-Type: application/json", "-d", body, "--max-time", "60")
        assert status == 200, f"Patroni answered {status}"
        return f"switched over from {primary} to {standby}"

    def stop_apple(self):
        with stopped(self.cluster.pid("apns")):
            time.sleep(seconds := self.chance.uniform(1, 5))
        return f"APNs stopped for {seconds:.0f} s"

    def silence_apple(self):
        return f"{freeze(self.relay)} connections to APNs are silent for ever"

    def stop_relay(self):
        with stopped(self.relay.pid):
            time.sleep(seconds := self.chance.uniform(5, 25))
        return f"the way to APNs stopped for {seconds:.0f} s"

    def cut_to(self):
        return self.cut("to")

    def cut_from(self):
        return self.cut("from")

    def cut_both(self):
        return self.cut("to", "from")

    def cut(self, *ways):
        """Drops what is sent to a node, what it sends, or both."""
        node, seconds = self.victim()
        link = node.replace("node", "link")
        inside = ["nsenter", f"--net=/proc/{self.cluster.pid(link)}/ns/net", "--"]
        ends = {"to": ([], link), "from": (inside, "eth0")}

        def tell(word):
            for prefix, device in map(ends.get, ways):
                subprocess.run([*prefix, "tc", "qdisc", word, "dev", device, "root", "blackhole"], check=True)
        tell("add")
        try:
            time.sleep(seconds)
        finally:
            tell("del")
        return f"link {' and '.join(ways)} {node} cut for {seconds:.0f} s"


# MARK: The table

class Table:
    HEAD = ("hours", "MiB of nodes", "descriptors", "room", "token", "code", "job", "entry", "waiting", "db MiB", "log lag", "purge lag", "pushes",
            "lost", "stories", "faults")

    def __init__(self, cluster, load, faults, database, lags):
        self.cluster, self.load, self.faults, self.database, self.lags = cluster, load, faults, database, lags
        self.lives = {}  # by process id, what it held at each row: memory and descriptors
        self.sizes = []  # at each row, the rows of each table and the bytes of the database
        self.begun = time.monotonic()
        print(" | ".join(self.HEAD), flush=True)

    def add(self):
        held = []
        for node in NODES:
            pid = self.cluster.pid(node)
            held.append((resident(pid), len(os.listdir(f"/proc/{pid}/fd"))))
            self.lives.setdefault((node, pid), []).append(held[-1])
        rows, size, worst, tokens = self.database.rows(), self.database.bytes(), self.lags.take(), self.cluster.collected.ids()
        self.sizes.append({name: rows[name] for name in self.HEAD[3:9]} | {"bytes": size})
        lost = self.load.missing(tokens, DEADLINE)
        print(f"{(time.monotonic() - self.begun) / 3600:.2f}", *("/".join(str(part) for part in parts) for parts in (
            [memory >> 20 for memory, _ in held], [count for _, count in held])),
            *(rows[name] for name in self.HEAD[3:9]), size >> 20, f"{worst['log']:.1f}", f"{worst['purge']:.1f}",
            len(self.cluster.collected.pushes), len(lost), len(self.load.times), self.faults.count.total(),
            sep=" | ", flush=True)
        assert not lost, f"{len(lost)} pushes that were acknowledged at least {DEADLINE} s ago have not come: {', '.join(lost)}"
        late = {name: seconds for name, seconds in worst.items() if seconds > MOST_LAG}
        assert not late, f"more than {MOST_LAG} s behind: {late}"

    def check_sizes(self):
        """Compares the second half of the rows with the first."""
        half = len(self.sizes) // 2
        for name in self.sizes[0]:
            first, second = (max(size[name] for size in sizes) for sizes in (self.sizes[:half], self.sizes[half:]))
            most = MORE_TIMES * first + (MORE_BYTES if name == "bytes" else MORE_ROWS)
            assert second <= most, f"{name} grew from {first} to {second}"

    def check_growth(self):
        """Compares the last row of each process with its second, which is the first of a whole part."""
        compared = 0
        for (node, pid), held in self.lives.items():
            if len(held) < 3:
                continue
            compared += 1
            (memory, descriptors), (last_memory, last_descriptors) = held[1], held[-1]
            assert last_memory <= memory + MORE_MEMORY, f"{node} ({pid}) grew from {memory >> 20} to {last_memory >> 20} MiB"
            assert last_descriptors <= descriptors + MORE_DESCRIPTORS, f"{node} ({pid}) grew from {descriptors} to {last_descriptors} descriptors"
        assert compared, f"no node lived for three rows, so nothing is known about growth: {self.lives}"


def test_hours_of_faults(relay):  # noqa: F811
    seed = int(os.environ.get("MAYFLY_TEST_SEED", random.randrange(1 << 32)))
    print(f"\nMAYFLY_TEST_SEED={seed}, {HOURS:g} hours", flush=True)
    if has_links():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    else:
        print("NOT TESTED: nodes whose network is cut off. That needs root, under `unshare --net`. A relay to APNs is stopped instead", flush=True)
    relays = []

    def words(base):
        relays.append(relay(base + 3))
        return ["--set", f"MAYFLY_APNS_ENDPOINT=127.0.0.1:{relays[-1].port}", *(["--links"] if has_links() else [])]
    with closing(Cluster(words)) as cluster:
        soak(cluster, random.Random(seed), relays[-1])


def soak(cluster, chance, relay):  # noqa: F811
    database, checkpoints = Database(cluster), []
    empty = database.stored()
    begun, seconds = time.time(), HOURS * 3600
    lags, load = Lags(cluster, database), Life(cluster, begun + seconds + REST)
    faults = Faults(cluster, chance, relay)
    table = Table(cluster, load, faults, database, lags)
    try:
        row = 1
        while row <= PARTS:
            cluster.until(cluster.is_whole, "a whole cluster", 180)
            time.sleep(3)
            load.check(20)
            assert all(thread.is_alive() for thread in load.threads), "a caller ended"
            if time.time() >= begun + row * seconds / PARTS:
                table.add()
                row += 1
                continue
            checkpoints.append(cluster.checkpoint())
            made, since = len(load.times), time.monotonic()
            what = faults.next()
            cluster.until(lambda: len(load.times) > made + 10, f"service after: {what}", 120)
            print(f"{time.strftime('%H:%M:%S')} {what}; {len(load.times) - made} stories in {time.monotonic() - since:.0f} s", flush=True)
    finally:
        load.stop()
        lags.stop()
    print(f"stories {dict(load.kinds)}, errors {dict(load.errors)}, faults {dict(faults.count)}", flush=True)
    assert load.check(1 << 30) >= load.KEPT / 2, "few rooms were left to look at"

    def arrived():
        cluster.collected.collect()
        return not load.missing(cluster.collected.ids())
    with suppress(AssertionError):
        eventually(arrived, DEADLINE, 2, "every acknowledged push")
    missing = load.missing(cluster.collected.ids())
    assert not missing, f"{len(missing)} acknowledged pushes never came: {', '.join(missing)}"
    time.sleep(max(0, load.end + 5 - time.time()))
    assert load.check(1 << 30) == 0
    eventually(lambda: database.stored() == empty, 20, 1, f"a database without rooms, as at the start ({empty})")
    cluster.end(checkpoints)
    assert len(load.queued) > len(load.times) / 10, "few pushes: this test would prove nothing"
    table.check_growth()
    table.check_sizes()
