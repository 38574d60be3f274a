"""Several nodes on one PostgreSQL: pairs and pushes a second, and the latency of a create with few and with many rooms. pgbench writes the same rows on the
same server. SQLite is beside them."""

import contextlib
import itertools
import re
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import load
import pairs
from knocks import made
from machine import REPOSITORY, size
from page import Aim, Section, Series, number, percentile
from processes import BOTH_CORES, MAYFLY, WORK, Broker, Invalid, Simulator, cpu_seconds, folder, stop_all, throwaway_keys
from steady import TOKEN, Connections, post

SCRIPT = REPOSITORY / "scripts/postgres"
NODES = (1, 2, 3)
CLIENTS = 16
# Creates a second for the latency.
RATE = 100
# Each room accepts one knock a second, so this limits knocks a second.
ROOMS = 6_000
# Seconds after a start (policy.json), and after an accept, in which knocks are delayed.
START_GRACE, RECENT = 15, 10
FEW, MANY = size(10_000, 1_000), size(1_000_000, 10_000)
HOUR, DAY, MIB = 3_600_000, 86_400_000, 1024 * 1024

# Accepted rooms with both tokens. The columns of sealed bytes have the right lengths and no secrets.
FILL = """
INSERT INTO room (expires, room, creator_generation, creator_client, creator_member, creator_proven, creator_token, creator_knocked,
  joiner_generation, joiner_client, joiner_member, joiner_proven, joiner_token, joiner_knocked)
SELECT {expires} + n::bigint * {step}, sha256(n::text::bytea), 1, sha256(('c' || n)::bytea), sha256(('m' || n)::bytea), 0,
  substr(sha256(('1-' || n)::bytea), 1, 16), 0, 1, sha256(('d' || n)::bytea), sha256(('n' || n)::bytea), 0, substr(sha256(('2-' || n)::bytea), 1, 16), 0
FROM generate_series(1, {rooms}) AS n;
INSERT INTO token
SELECT {expires} + n::bigint * {step}, substr(sha256((slot || '-' || n)::bytea), 1, 16), {ref}, 0, sha256(n::text::bytea), slot, 1, 1, {sealed}
FROM generate_series(1, {rooms}) AS n, generate_series(1, 2) AS slot;
"""

# The rows of a create and an accept with a token on each side, and their entries.
PAIR = """
\\set r random(1, 1000000000000)
BEGIN;
SELECT pg_advisory_xact_lock(:r);
INSERT INTO room VALUES ({expires}, sha256((:r::bigint)::text::bytea), 1, sha256('a'), sha256('b'), 0, sha256('c'), 0, NULL, NULL, NULL, NULL, NULL, NULL,
  {expires}, sha256((:r::bigint + 1)::text::bytea), {expires}, 1, 0, sha256('d'), sha256('e'), NULL, NULL);
INSERT INTO code VALUES (sha256((:r::bigint + 1)::text::bytea), {expires}, sha256((:r::bigint)::text::bytea));
INSERT INTO token VALUES ({expires}, substr(sha256((:r::bigint + 2)::text::bytea), 1, 16), {ref}, 0, sha256((:r::bigint)::text::bytea), 1, 1, 1,
  {sealed});
INSERT INTO waiting VALUES ({batch}, 3, substr(sha256((:r::bigint + 3)::text::bytea), 1, 16), 1, NULL);
COMMIT;
BEGIN;
SELECT pg_advisory_xact_lock(:r);
SELECT * FROM code JOIN room USING (expires, room) WHERE code.code = sha256((:r::bigint + 1)::text::bytea);
UPDATE room SET joiner_generation = 1, joiner_client = sha256('f'), joiner_member = sha256('g'), joiner_proven = 0, joiner_token = sha256('h'),
  joiner_knocked = 0, pending = NULL, retry = sha256('i') WHERE expires = {expires} AND room = sha256((:r::bigint)::text::bytea);
INSERT INTO token VALUES ({expires}, substr(sha256((:r::bigint + 4)::text::bytea), 1, 16), {ref}, 0, sha256((:r::bigint)::text::bytea), 2, 1, 1,
  {sealed});
INSERT INTO waiting VALUES ({batch}, 3, substr(sha256((:r::bigint + 5)::text::bytea), 1, 16), 1, NULL);
COMMIT;
"""

# The rows of a knock at one of the filled rooms and of its push, and their entries.
KNOCK = """
\\set r random(1, {rooms})
\\set j random(1, 1000000000000)
BEGIN;
SELECT pg_advisory_xact_lock(:r);
SELECT * FROM room WHERE expires = {expires} AND room = sha256((:r::bigint)::text::bytea);
SELECT 1 FROM token WHERE expires = {expires} AND purge_id = substr(sha256(('1-' || :r::bigint)::bytea), 1, 16);
UPDATE room SET creator_knocked = :j WHERE expires = {expires} AND room = sha256((:r::bigint)::text::bytea);
INSERT INTO job VALUES ({expires}, substr(sha256((:j::bigint)::text::bytea), 1, 16), 0, substr(sha256(('1-' || :r::bigint)::bytea), 1, 16),
  sha256((:r::bigint)::text::bytea), 1, 1, 'peer_waiting', 1, {expires}, {sealed}, NULL, 0);
INSERT INTO entry VALUES ({batch}, 1, substr(sha256((:j::bigint + 1)::text::bytea), 1, 16), {opened});
COMMIT;
BEGIN;
SELECT pg_advisory_xact_lock(:r);
DELETE FROM job WHERE deadline = {expires} AND job = substr(sha256((:j::bigint)::text::bytea), 1, 16);
INSERT INTO entry VALUES ({batch}, 2, substr(sha256((:j::bigint)::text::bytea), 1, 16), {delivered});
COMMIT;
"""


class Server:
    """A PostgreSQL on the disk, with a schema for each use."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="mayfly-postgres-", dir="/var/tmp"))
        with load.on(BOTH_CORES):
            self.uri = subprocess.run([SCRIPT, "start", self.folder], check=True, capture_output=True, text=True).stdout.strip()
        self.pid = int((self.folder / "data/postmaster.pid").read_text().split()[0])
        self.used = 0

    def schema(self):
        """The URI of a new schema with Mayfly's tables."""
        self.used += 1
        uri = f"{self.uri}?options=-csearch_path%3Dbench{self.used}"
        sql(self.uri, f"CREATE SCHEMA bench{self.used}")
        subprocess.run([MAYFLY, "migrate", "--database", uri], check=True, stdout=subprocess.DEVNULL)
        return uri

    def cpu(self):
        """CPU seconds of its present processes. One of autovacuum may end meanwhile."""
        seconds = 0
        for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                seconds += cpu_seconds(pid)
        return seconds

    def stop(self):
        subprocess.run([SCRIPT, "stop", self.folder], check=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def sql(uri, *statements):
    """The output of SQL statements."""
    words = ["psql", "-qXAt", "-v", "ON_ERROR_STOP=1", uri, *(word for statement in statements for word in ("-c", statement))]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def fill(uri, rooms, hours):
    """Adds rooms that expire over `hours` hours, from an hour or two on. With 0 all expire at once. Returns the values for PAIR and KNOCK."""
    expires = int(time.time() * 1000) // HOUR * HOUR + 2 * HOUR
    values = {"rooms": rooms, "expires": expires, "step": hours * HOUR // rooms, "batch": expires // 1000}
    for name, size in (("ref", 56), ("sealed", 200), ("opened", 156), ("delivered", 105)):
        values[name] = f"'\\x{'00' * size}'::bytea"
    end = expires + (hours + 1) * HOUR
    spans = [("token", start, HOUR) for start in range(expires, end, HOUR)] + [("job", expires, 600_000), ("waiting", expires // 1000, 1)]
    spans += [("room", start, DAY) for start in range(expires // DAY * DAY, end, DAY)]
    sql(uri, *(
        f"CREATE TABLE {table}_{start} PARTITION OF {table} FOR VALUES FROM ({start}) TO ({start + width})" for table, start, width in spans),
        FILL.format(**values), "VACUUM ANALYZE room", "VACUUM ANALYZE token", "CHECKPOINT")
    return values


class Deployment:
    """Nodes on one schema, or a broker on SQLite, and the simulator that they push to."""

    def __init__(self, name, count, server=None, uri=None):
        self.name, self.server = name, server
        states = [folder(f"{name}-{turn}") for turn in range(count)]
        throwaway_keys(states[0])
        for state in states[1:]:
            shutil.copytree(states[0], state, dirs_exist_ok=True)
        self.simulator = Simulator(f"{name}-apns", states[0], BOTH_CORES, record=states[0] / "pushes")
        self.brokers = [Broker(state.name, BOTH_CORES, state, self.simulator.port, database=uri) for state in states]
        self.ready = time.monotonic()
        self.port, *_ = self.ports = [broker.port for broker in self.brokers]

    def cpu(self):
        return sum(process.cpu() for process in (*self.brokers, self.simulator, *([self.server] if self.server else [])))

    def log(self):
        return "".join(broker.log() for broker in self.brokers)

    def wrk(self, seconds, *arguments):
        with load.on(BOTH_CORES):
            return load.wrk(self, seconds, *arguments, ports=self.ports)


def run(rounds, seconds, note):
    section = Section("Nodes on PostgreSQL")
    figures, others = defaultdict(lambda: defaultdict(Series)), []
    server = Server()
    try:
        for turn in range(rounds):
            for count in (0, *NODES):
                name = f"PostgreSQL, {count} node{'s' if count > 1 else ''}" if count else "SQLite"
                note(f"nodes: round {turn + 1}, {name}")
                for key, value in load.valid(_serve, server, count, seconds, others).items():
                    figures[name][key].add(value)
            note(f"nodes: round {turn + 1}, pgbench")
            for key, script in (("pairs", PAIR), ("pushes", KNOCK)):
                figures["pgbench"][key].add(_pgbench(server.schema(), script, seconds))
        _tell(section, figures)
        _live(section, server, rounds, seconds, note)
    finally:
        server.stop()
    section.disturbance(others)
    return section


def _tell(section, figures):
    section.text(f"""
        The nodes share two cores with the PostgreSQL server, the APNs simulator and the load. {load.CONNECTIONS} connections are spread over them.
        Each room is accepted at another node than it was created at. Pushes are counted at the simulator. **pgbench** writes the same rows with
        {CLIENTS} clients and prepared statements, one round trip each, without sealing and a ledger's order. [Companions](#companions) has the
        knocks of SQLite.
        """)
    pgbench = figures["pgbench"]
    for row in figures.values():
        for key in row.keys() & pgbench.keys() if row is not pgbench else ():
            row[f"{key} ÷"] = row[key].over(pgbench[key])
    columns = {
        "pairs": "pairs a second", "p99": "p99 ms", "pairs ÷": "÷ pgbench", "pushes": "pushes a second", "pushes ÷": "÷ pgbench",
        "create p50": f"create at {RATE} a second, p50 ms", "create p99": "p99 ms"}
    section.table(["", *columns.values()], [[name, *(row.get(key, "") for key in columns)] for name, row in figures.items()])


def _serve(server, count, seconds, others):
    """The figures of some nodes on a new schema, or of SQLite if `count` is 0."""
    try:
        deployment = Deployment("nodes", count, server, server.schema()) if count else Deployment("sqlite", 1)
        ids = made(Connections(*deployment.ports), ROOMS) if count else []
        undelayed = max(deployment.ready + START_GRACE, time.monotonic() + RECENT) + 1
        deployment.wrk(1, "rooms.lua", ("pairs", "warm-up", pairs.BEHIND))
        result = deployment.wrk(seconds, "rooms.lua", ("pairs", "measured", pairs.BEHIND))
        times = creates(deployment.ports, seconds)
        figures = {
            "pairs": (result.requests - pairs.BEHIND * len(deployment.ports)) / 2 / result.seconds, "p99": result.p99_ms,
            "create p50": percentile(times, 0.5), "create p99": percentile(times, 0.99)}
        if ids:
            lines = WORK / "rooms.lines"
            lines.write_text("".join(f"{room}\n" for room in ids))
            time.sleep(max(0, undelayed - time.monotonic()))
            for duration in (1, seconds):
                figures["pushes"] = _pushes(deployment, duration, ("knock", ROOMS, 0, lines, ""))
    finally:
        stop_all()
    others.append(result.others)
    return figures


def creates(ports, seconds, rate=RATE):
    """Milliseconds from when each create was due to its answer."""
    prefix = f"create-{time.time_ns()}"
    requests = (
        (None, post("/api/rooms", {"joinid": f"{prefix}-{turn}", "expiresInSeconds": 600, "client1": "ann", "client1_token": TOKEN}))
        for turn in range(rate * seconds))
    seen = list(Connections(*ports).ask(requests, rate))
    if bad := sum(asked.status != 201 for asked in seen):
        raise Invalid(f"{bad} creates failed or were refused")
    return [(asked.answered - asked.due) * 1000 for asked in seen]


def _pushes(deployment, seconds, arguments):
    """Pushes a second, from the first knock to the last push."""
    before, start = deployment.simulator.count(), time.monotonic()
    knocks = deployment.wrk(seconds, "users.lua", arguments).requests
    count, last = before, time.monotonic()
    # A second also ends each room's throttle.
    while time.monotonic() < last + 1.1:
        if (now := deployment.simulator.count()) > count:
            count, last = now, time.monotonic()
        time.sleep(0.01)
    if count - before < knocks:
        raise Invalid(f"{count - before} pushes of {knocks} knocks arrived")
    return (count - before) / (last - start)


def _pgbench(uri, script, seconds):
    """Runs of a script a second."""
    file = WORK / "pgbench.sql"
    file.write_text(script.format(**fill(uri, ROOMS, 0)))
    with load.on(BOTH_CORES):
        ran = subprocess.run(
            ["pgbench", "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "1", "-T", str(seconds), "-f", file, uri], capture_output=True, text=True)
    found = re.search(r"tps = ([\d.]+)", ran.stdout)
    if ran.returncode or not found:
        raise Invalid(f"pgbench: {ran.stderr[-500:]}")
    return float(found[1])


# MARK: Many live rooms

def _live(section, server, rounds, seconds, note):
    late, sizes, deployments = defaultdict(lambda: defaultdict(Series)), {}, {}
    try:
        for count in (FEW, MANY):
            note(f"nodes: {count:,} live rooms")
            uri = server.schema()
            fill(uri, count, 24)
            size = "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('{}')"
            sizes[count] = [number(int(sql(uri, size.format(table))) / MIB) for table in ("room", "token")]
            deployments[count] = Deployment(f"live-{count}", 1, server, uri)
            creates(deployments[count].ports, 1)
        for turn in range(rounds):
            note(f"nodes: round {turn + 1}, creates beside live rooms")
            times = defaultdict(list)
            # Alternate each second, so that a checkpoint or a busy machine disturbs both.
            for _ in range(2 * seconds):
                for count, deployment in deployments.items():
                    times[count] += load.valid(creates, deployment.ports, 1)
            for count, share in itertools.product(times, (0.5, 0.99)):
                late[count][share].add(percentile(times[count], share))
    finally:
        stop_all()
    ratios = [late[MANY][share].over(late[FEW][share]) for share in (0.5, 0.99)]
    section.parts.append("### Many live rooms")
    section.text(f"{RATE} creates a second at one node, beside live rooms with two tokens each, which expire over 24 hours. Sizes include indexes.")
    section.table(["rooms", "p50 of a create, ms", "p99, ms", "`room`, MiB", "`token`, MiB"], [
        *([f"{count:,}", *late[count].values(), *sizes[count]] for count in (FEW, MANY)), ["ratio", *ratios, "", ""]])
    section.aims.append(Aim(f"p99 of a create with {MANY:,} live rooms ÷ with {FEW:,}", 1.5, ratios[1], at_most=True))
