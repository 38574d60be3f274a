"""Ten million live tokens on SQLite and on PostgreSQL: creates, start, memory, disk, and a sweep of an hour's share. Only `make bench ONLY=large` measures
them at their full size."""

import contextlib
import sqlite3
import subprocess
import time
from collections import defaultdict

import sweep
from machine import size
from nodes import Server, creates, sql
from page import Aim, Section, Series, percentile, table
from processes import BOTH_CORES, MAYFLY, ONE_CORE, PROGRAMS, Broker, Invalid, stop_all
from steady import Steady

TITLE = "Ten million live tokens"
FEW, MANY = size(10_000, 1_000), size(10_000_000, 20_000)
# Tokens expire evenly over so many hours, which begin after the run. All live for a day at most, so their seals are published soon.
HOURS, HOUR, AHEAD = 20, size(3_600, 60), size(10_800, 1_200)
# Creates a second, and creates and accepts beside the sweep.
RATE = 200
# Seconds of load before the first expiry, and after the purges are published.
BEFORE, AFTER = 10, 2
# The log's window and the time between batches.
WINDOW = size(60, 5)
MINUTE = size(60, 5)
DAY, PARTITION, MIB = 86_400, 3_600, 1024 * 1024
FIGURES = {
    "p50": "create, p50, ms", "p99": "create, p99, ms", "ready": "start to ready, ms", "memory": "memory, MiB", "database": "database, MiB",
    "log": "log, MiB", "metrics": "a scrape of `/metrics`, ms"}
SWEEP = {
    "tokens": "tokens", "p99 before": "p99 of requests before, ms", "p99 during": "p99 of requests during, ms",
    "p99 after": "p99 of requests after, ms", "worst during": "slowest request during, ms", "lag": "p99 of the purge lag at most, s",
    "took": "all purged after, s", "published": "then all in the log after, s", "memory": "memory at most, MiB"}


def run(rounds, seconds, note):
    section = Section(TITLE)
    hour = (time.time() + AHEAD) // HOUR * HOUR
    measured, swept = {}, {}
    states = {count: _filled(count, hour, note) for count in (FEW, MANY)}
    measured["SQLite"] = _engine({count: _SQLite(state) for count, state in states.items()}, hour, swept, rounds, seconds, note)
    sweep.verify(states[MANY], swept["SQLite"]["tokens"], PROGRAMS, note)
    server = Server()
    try:
        moved = {count: _Postgres(state, server, note) for count, state in states.items()}
        measured["PostgreSQL"] = _engine(moved, hour + HOUR, swept, rounds, seconds, note)
    finally:
        stop_all()
        server.stop()
    _tell(section, measured, swept)
    return section


def _tell(section, measured, swept):
    section.text(f"""
        {FEW:,} and {MANY:,} tokens, two to a room, expire evenly over {HOURS} hours. Both brokers get {RATE} creates a second in turn. `mayfly audit
        verify` checks the SQLite log of the many. `mayfly migrate --move` then moves both to PostgreSQL, where nodes and server share two cores with
        the load.
        """)
    columns = [(engine, count) for engine in measured for count in (FEW, MANY)]
    section.table(["", *(f"{engine}, {count:,}" for engine, count in columns)], [
        [told, *(measured[engine][count][key] for engine, count in columns)] for key, told in FIGURES.items()])
    section.text(f"""
        Then a {HOURS}th of the many, brought forward by an SQL statement, expires within a minute beside {RATE} requests a second. ∞ is a lag without a
        bound in the histogram of `/metrics`.
        """)
    section.table(["a sweep", *swept], [[told, *(Series([figures[key]]) for figures in swept.values())] for key, told in SWEEP.items()])
    ratio = {engine: figures[MANY]["p99"].over(figures[FEW]["p99"]) for engine, figures in measured.items()}
    # In the section itself, so that the page of a run without it can keep the section as it is.
    section.parts.append(table(["figure", "aim", "measured", "reached"], [
        Aim(f"p99 of a create with {MANY:,} tokens ÷ with {FEW:,}, {engine}", 1.5, ratio[engine], at_most=True).row() for engine in measured]))


def _filled(count, hour, note):
    """A stopped broker's folder with so many tokens, whose seals are all in the log."""
    broker = _broker(f"large-{count}")  # makes the database
    broker.stop()
    took = sweep.fill(broker.state, count, hour, HOURS * HOUR)
    note(f"large: filled with {count:,} tokens in {took:.0f} s")
    begin = time.time()
    broker = _broker(f"large-{count}", state=broker.state)
    with broker.database() as database:
        _wait(lambda: not database.execute("SELECT EXISTS (SELECT 1 FROM waiting) OR EXISTS (SELECT 1 FROM unpublished)").fetchone()[0],
              1_800, "the seals were not published")
    note(f"large: published after {time.time() - begin:.0f} s")
    broker.stop()
    return broker.state


def _broker(name, **settings):
    return Broker(name, policy=sweep.policy("large", WINDOW), window=WINDOW, **settings)


class _SQLite:
    """A broker on SQLite, and its database from outside."""

    # Seconds from the change of expiries to the first of them.
    lead = size(90, 15)

    def __init__(self, state):
        self.state = state
        self.start()

    def start(self):
        self.broker = _broker(self.state.name, cpus=ONE_CORE, state=self.state)

    def ask(self, statement):
        with self.broker.database() as database:
            return database.execute(statement).fetchone()[0]

    def is_published(self):
        return sweep.is_published(self.state)

    def size(self):
        return sum(file.stat().st_size for file in self.state.glob("mayfly.sqlite*"))

    def change(self, *statements):
        """Changes rows of the stopped broker."""
        self.broker.stop()
        with contextlib.closing(sqlite3.connect(self.state / "mayfly.sqlite")) as database, database:
            for statement in statements:
                database.execute(statement)
        self.start()


class _Postgres:
    """A node on PostgreSQL with the rows of a broker on SQLite, and its database from outside."""

    # Here it can't be restarted, and its sweeper may not look for thirty seconds.
    lead = size(120, 40)

    def __init__(self, state, server, note):
        self.state, self.uri = state, server.schema()
        begin = time.time()
        moved = subprocess.run([MAYFLY, "migrate", "--move", "--state", state, "--database", self.uri], capture_output=True, text=True)
        if moved.returncode:
            raise Invalid(f"migrate --move: {moved.stderr}")
        note(f"large: moved to PostgreSQL in {time.time() - begin:.0f} s")
        sql(self.uri, "VACUUM ANALYZE token", "VACUUM ANALYZE room", "CHECKPOINT")
        self.broker = _broker(state.name, cpus=BOTH_CORES, state=state, database=self.uri)

    def ask(self, statement):
        return int(sql(self.uri, statement))

    def is_published(self):
        # Rows stay in `waiting` until their partition is dropped, up to two minutes after the log has them.
        return not self.ask("""SELECT (EXISTS (SELECT 1 FROM unsequenced WHERE rank = 4)
            OR EXISTS (SELECT 1 FROM log WHERE published < size))::int""")

    def size(self):
        return self.ask("""SELECT sum(pg_total_relation_size(oid)) FROM pg_class
            WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace""")

    def change(self, *statements):
        """Changes rows of the running node, which would forget its keys if it stopped."""
        hours = [int((time.time() + self.lead) // PARTITION + turn) * PARTITION * 1000 for turn in (0, 1)]
        # No create may have made them yet.
        sql(self.uri, *(f"CREATE TABLE IF NOT EXISTS token_{hour} PARTITION OF token FOR VALUES FROM ({hour}) TO ({hour + PARTITION * 1000})"
                        for hour in hours), *statements)


def _engine(databases, hour, swept, rounds, seconds, note):
    """The figures of an engine, by number of tokens. `hour`: the start of the hour whose share is swept, unix seconds."""
    figures = {count: defaultdict(Series) for count in databases}
    engine = "SQLite" if isinstance(databases[MANY], _SQLite) else "PostgreSQL"
    for database in databases.values():
        creates([database.broker.port], 1, RATE)
    for turn in range(rounds):
        note(f"large: round {turn + 1}, creates on {engine}")
        times = defaultdict(list)
        # Alternate each second, so that a checkpoint or a busy machine disturbs both.
        for _ in range(2 * seconds):
            for count, database in databases.items():
                times[count] += creates([database.broker.port], 1, RATE)
        for count, seen in times.items():
            figures[count]["p50"].add(percentile(seen, 0.5))
            figures[count]["p99"].add(percentile(seen, 0.99))
    for count, database in databases.items():
        figures[count]["ready"].add(database.broker.ready_after * 1000)
        figures[count]["memory"].add(database.broker.memory()[0] / MIB)
        figures[count]["database"].add(database.size() / MIB)
        figures[count]["log"].add(sum(file.stat().st_size for file in (database.state / "ledger").rglob("*") if file.is_file()) / MIB)
        begin = time.monotonic()
        database.broker.metrics()
        figures[count]["metrics"].add((time.monotonic() - begin) * 1000)
    databases[FEW].broker.stop()
    swept[engine] = _sweep(databases[MANY], hour, note)
    databases[MANY].broker.stop()
    # So that a failure of the other engine leaves these figures.
    told = {f"{count:,} {key}": str(series) for count, seen in figures.items() for key, series in seen.items()}
    note(f"large: {engine}: {told}, sweep: {swept[engine]}")
    return figures


def _sweep(database, hour, note):
    """Brings an hour's expiries forward, and watches their sweep. They stay on their UTC day, so the log's books are right."""
    first = max(time.time() + database.lead, hour // DAY * DAY + 1)
    start, to = int(hour * 1000), int(first * 1000)
    moved = f"SET expires = {to} + (expires - {start}) * {MINUTE * 1000} / {HOUR * 1000} WHERE expires >= {start} AND expires < {start + HOUR * 1000}"
    database.change(f"UPDATE token {moved}", f"UPDATE room {moved}")
    end = to + MINUTE * 1000
    tokens = database.ask(f"SELECT count(*) FROM token WHERE expires < {end}")
    note(f"large: {tokens:,} tokens expire in {first - time.time():.0f} s")
    if time.time() > first - BEFORE - 2:
        raise Invalid("the change of expiries took too long")
    time.sleep(first - BEFORE - 2 - time.time())
    broker = database.broker
    # Rooms of the creates may have expired while no broker ran.
    since = sweep.lags(broker)
    steady = Steady(broker.port, RATE)
    memory = 0
    try:

        def is_gone():
            nonlocal memory
            memory = max(memory, broker.memory()[0])
            return database.ask("SELECT min(expires) FROM token") >= end

        _wait(is_gone, MINUTE + 600, "the tokens were not purged")
        last = time.time()
        _wait(lambda: time.time() > last // WINDOW * WINDOW + WINDOW and database.is_published(), 600, "the purges were not published")
        published = time.time()
        time.sleep(AFTER)
        answers = steady.end()
    finally:
        steady.stop()
    phases = {"before": (first - BEFORE, first), "during": (first, last), "after": (last, published + AFTER)}
    return {
        "tokens": tokens, "lag": sweep.lag(broker, 0.99, since), "took": last - first, "published": published - last, "memory": memory / MIB,
    } | sweep.latencies(answers, phases)


def _wait(condition, seconds, failure):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Invalid(f"{failure} within {seconds} seconds")
        time.sleep(0.2)
