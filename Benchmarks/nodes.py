"""Create + accept pairs a second on PostgreSQL: one node, and pgbench writing the same rows on the same server; SQLite beside them."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import load
import pairs
from machine import REPOSITORY
from page import Section, Series
from processes import BOTH_CORES, MAYFLY, Broker, Invalid

SCRIPT = REPOSITORY / "scripts/postgres"
CLIENTS = 16
# The rows of a create and an accept with a token on each side, and their entries.
PAIR = """
\\set r random(1, 1000000000000)
BEGIN;
SELECT pg_advisory_xact_lock(:r);
INSERT INTO room VALUES (:expires, sha256((:r::bigint)::text::bytea), 1, sha256('a'), sha256('b'), 0, sha256('c'), 0, NULL, NULL, NULL, NULL, NULL, NULL,
  :expires, sha256((:r::bigint + 1)::text::bytea), :expires, 1, 0, sha256('d'), sha256('e'), NULL, NULL);
INSERT INTO token VALUES (:expires, substr(sha256((:r::bigint + 2)::text::bytea), 1, 16), :ref, 0, sha256((:r::bigint)::text::bytea), 1, 1, 1, 1, 'com.example.app',
  :sealed);
INSERT INTO waiting VALUES (:batch, 3, substr(sha256((:r::bigint + 3)::text::bytea), 1, 16), 1, NULL);
COMMIT;
BEGIN;
SELECT pg_advisory_xact_lock(:r);
SELECT * FROM room WHERE code = sha256((:r::bigint + 1)::text::bytea);
UPDATE room SET joiner_generation = 1, joiner_client = sha256('f'), joiner_member = sha256('g'), joiner_proven = 0, joiner_token = sha256('h'),
  joiner_knocked = 0, pending = NULL, retry = sha256('i') WHERE expires = :expires AND room = sha256((:r::bigint)::text::bytea);
INSERT INTO token VALUES (:expires, substr(sha256((:r::bigint + 4)::text::bytea), 1, 16), :ref, 0, sha256((:r::bigint)::text::bytea), 2, 1, 1, 1, 'com.example.app',
  :sealed);
INSERT INTO waiting VALUES (:batch, 3, substr(sha256((:r::bigint + 5)::text::bytea), 1, 16), 1, NULL);
COMMIT;
"""


class Server:
    """A PostgreSQL on the disk, with a schema for each use."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="mayfly-postgres-", dir="/var/tmp"))
        self.uri = subprocess.run([SCRIPT, "start", self.folder], check=True, capture_output=True, text=True).stdout.strip()
        self.used = 0

    def schema(self):
        """The URI of a new schema with Mayfly's tables."""
        self.used += 1
        uri = f"{self.uri}?options=-csearch_path%3Dbench{self.used}"
        subprocess.run(["psql", "-q", "-X", self.uri, "-c", f"CREATE SCHEMA bench{self.used}"], check=True)
        subprocess.run([MAYFLY, "migrate", "--database", uri], check=True, stdout=subprocess.DEVNULL)
        return uri

    def stop(self):
        subprocess.run([SCRIPT, "stop", self.folder], check=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def run(rounds, seconds, note):
    section = Section("Create + accept pairs on PostgreSQL")
    section.text(f"""
        One node, its server and the load share two cores; `wrk -t1 -c{load.CONNECTIONS}`. **pgbench** writes the same rows with {CLIENTS} clients and
        prepared statements, one round trip each, and neither seals nor keeps a ledger's order.
        """)
    rate, late, others = {}, {}, []
    server = Server()
    try:
        for number in range(rounds):
            for name, database in (("SQLite", None), ("PostgreSQL", server.schema())):
                note(f"nodes: round {number + 1}, {name}")
                pairs_a_second, p99 = load.valid(_serve, database, seconds, others)
                rate.setdefault(name, Series()).add(pairs_a_second)
                late.setdefault(name, Series()).add(p99)
            note(f"nodes: round {number + 1}, pgbench")
            rate.setdefault("pgbench", Series()).add(_pgbench(server.schema(), seconds))
    finally:
        server.stop()
    rows = [[name, rate[name], late.get(name, ""), "" if name == "PostgreSQL" else rate["PostgreSQL"].over(rate[name])]
            for name in ("PostgreSQL", "pgbench", "SQLite")]
    section.table(["", "pairs a second", "p99 ms", "PostgreSQL's rate ÷ this"], rows)
    section.disturbance(others)
    return section


def _serve(database, seconds, others):
    server = Broker("nodes", BOTH_CORES, database=database)
    try:
        with load.on(BOTH_CORES):
            load.wrk(server, 1, "rooms.lua", ("pairs", "warm-up", pairs.BEHIND))
            result = load.wrk(server, seconds, "rooms.lua", ("pairs", "measured", pairs.BEHIND))
        others.append(result.others)
        return (result.requests - pairs.BEHIND) / 2 / result.seconds, result.p99_ms
    finally:
        server.stop()


def _pgbench(uri, seconds):
    script = Path(tempfile.mkdtemp()) / "pair.sql"
    expires = 4_000_000_000_000
    hour = expires // 3_600_000 * 3_600_000
    subprocess.run(
        ["psql", "-q", "-X", uri, "-c", f"CREATE TABLE token_x PARTITION OF token FOR VALUES FROM ({hour}) TO ({hour + 3_600_000})"], check=True)
    values = {"expires": expires, "batch": expires // 1000, "ref": f"'\\\\x{'00' * 56}'::bytea", "sealed": f"'\\\\x{'00' * 168}'::bytea"}
    text = PAIR
    for name, value in values.items():
        text = re.sub(rf":{name}\b", str(value), text)
    script.write_text(text)
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))[-1]
    ran = subprocess.run(
        [programs / "pgbench", "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "1", "-T", str(seconds), "-f", script, uri], capture_output=True,
        text=True)
    found = re.search(r"tps = ([\d.]+)", ran.stdout)
    if ran.returncode or not found:
        raise Invalid(f"pgbench: {ran.stderr[-500:]}")
    return float(found[1])
