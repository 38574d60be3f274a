"""The sweep: the delay of a million purges, and its effect on requests. `make bench AGAINST=folder` also measures the broker of another build."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import time
from collections import Counter

import load
from machine import size
from page import Aim, Section, Series, percentile
from processes import HERE, ONE_CORE, PROGRAMS, Broker, Invalid, Process, builds, folder
from steady import Steady

TOKENS = size(1_000_000, 20_000)
# Creates and accepts a second.
RATE = 1_000
MINUTE = size(60.0, 10.0)
# Seconds for the broker to publish the million tokens of the fill; until then it refuses requests, because too many entries wait.
PUBLICATION = size(60, 2)
# Seconds of load before the first token expires, of which the first are not counted.
BEFORE, WARM_UP = 12, 2
POLL = 0.005
MIB = 1024 * 1024
# The longest fill for each million tokens, seconds. After a longer one it is 1.5 times that.
_patience = [60.0]
ROWS = {
    "purge lag, p50, s": "p50", "purge lag, p99, s": "p99", "purge lag, latest, s": "latest",
    "all purged after, s": "took", "then all in the log after, s": "published",
    "CPU a purge, entry and publication, µs": "cpu", "memory at most, MiB": "memory",
    "write-ahead log at most, MiB": "wal", "p99 of requests before, ms": "p99 before", "p99 of requests during, ms": "p99 during",
    "p99 of requests after, ms": "p99 after", "slowest request during, ms": "worst during",
    "p99 by `mayfly_purge_lag_seconds`, s": "own", "write-ahead log emptied every, s": "emptied"}


def run(rounds, note):
    section = Section("The sweep")
    section.text(f"""
        A million tokens expire, evenly over a minute or in one millisecond, beside {RATE:,} requests a second for rooms. The lag is read from the
        database. The log is published each minute.
        """)
    kinds = {"one minute": MINUTE, "at once": 0.0}
    measured, others = {}, {}
    for name, over in kinds.items():
        results = {build: [] for build in builds()}
        for turn in range(rounds):
            for build, programs in builds().items():
                note(f"sweep: round {turn + 1}, {name}, {build}: {TOKENS:,} tokens")
                results[build].append(load.valid(_round, over, programs, note))
        for build, found in results.items():
            figures = {key: Series(result[key] for result in found) for key in found[0]}
            if build == "Mayfly":
                measured[name] = figures
            else:
                others[f"{name}, {build}"] = figures
                section.aims.append(Aim(
                    f"p99 of requests during the sweep ÷ that of {build}, {name}", 0.25 if over else 0.4,
                    measured[name]["p99 during"].over(figures["p99 during"]), at_most=True))
        section.disturbance(measured[name]["others"].values)
    columns = measured | others
    section.table(["", *columns], [[told, *(figures[key] for figures in columns.values())] for told, key in ROWS.items()])
    calm = {name: measured[name]["p99 during"].over(measured[name]["p99 before"]) for name in kinds}
    section.aims += [
        Aim(f"p99 purge lag, {TOKENS:,} tokens in a minute", 1, measured["one minute"]["p99"], at_most=True, unit="s"),
        Aim("p99 of requests during the sweep ÷ before, one minute", 2, calm["one minute"], at_most=True),
        Aim(f"sweep of {TOKENS:,} tokens, at once", 10, measured["at once"]["took"], at_most=True, unit="s"),
        Aim("p99 of requests during the sweep ÷ before, at once", 2, calm["at once"], at_most=True),
    ]
    return section


def _round(over, programs, note):
    chosen = policy("sweep")
    broker = Broker("sweep", policy=chosen, programs=programs)  # makes the database
    broker.stop()
    first = _fill(broker.state, over, programs, note)
    broker = Broker("sweep", state=broker.state, policy=chosen, programs=programs)
    try:
        time.sleep(max(0, first - BEFORE - time.time()))
        result = _measure(broker, first, over)
        result["own"] = lag(broker, 0.99)
    finally:
        broker.stop()
    verify(broker.state, TOKENS, programs, note)
    shutil.rmtree(broker.state)
    return result


def _fill(state, over, programs, note):
    """Returns when the first token expires: in the middle of a ledger window, or 20 seconds before its end."""
    place = 30 if over else 40
    begin = time.time()
    earliest = begin + _patience[0] * TOKENS / 1e6 + PUBLICATION + BEFORE + 3
    first = (earliest - place) // 60 * 60 + 60 + place
    seconds = fill(state, TOKENS, first, over, programs)
    note(f"sweep: filled in {seconds:.0f} s; the first token expires in {first - time.time():.0f} s")
    if time.time() > first - PUBLICATION - BEFORE - 2:
        _patience[0] = 1.5 * seconds / TOKENS * 1e6
        raise Invalid("filling the database took longer than the tokens had time")
    return first


def fill(state, tokens, first, over, programs=PROGRAMS):
    """Adds accepted rooms to a stopped broker, whose tokens expire evenly over `over` seconds from `first` on. Returns the seconds that it took."""
    process = Process("fill", [programs / "mayfly-bench", "fill", "--state", state, "--rooms", tokens // 2, "--first", int(first * 1000),
                               "--over", int(over * 1000)], ONE_CORE, pipes=True)
    try:
        told = process.child.stdout.read()
        if process.child.wait(60) != 0:
            raise Invalid(f"mayfly-bench fill: {process.log()}")
    finally:
        process.stop()
    return json.loads(told)["seconds"]


class _Watch:
    """The database from outside: the earliest token, and the write-ahead log's length."""

    def __init__(self, state, first, over):
        self.database = sqlite3.connect(f"file:{state}/mayfly.sqlite?mode=ro", uri=True, timeout=10)
        self.log = f"{state}/mayfly.sqlite-wal"
        self.ends = [(first * 1000 + number * over * 1000 // (TOKENS // 2)) / 1000 for number in range(TOKENS // 2)]
        self.gone, self.lags = 0, []
        self.largest = self.length = self.gap = 0
        self.emptied = time.time()

    def look(self):
        """Whether all tokens are gone."""
        earliest = self.database.execute("SELECT min(expires) FROM token").fetchone()[0] or 1 << 62
        now = time.time()
        while self.gone < len(self.ends) and self.ends[self.gone] * 1000 < earliest:
            self.lags.append(now - self.ends[self.gone])
            self.gone += 1
        self.look_at_log(now)
        return self.gone == len(self.ends)

    def look_at_log(self, now):
        length = os.stat(self.log).st_size
        # It is only ever cut to nothing.
        if length < self.length or length == 0:
            self.gap, self.emptied = max(self.gap, now - self.emptied), now
        self.length, self.largest = length, max(self.largest, length)


def _measure(broker, first, over):
    watch = _Watch(broker.state, first, over)
    steady = Steady(broker.port, RATE)
    quiet = load.Watch(broker)
    try:
        time.sleep(max(0, first - BEFORE + WARM_UP - time.time()))
        begin, cpu, memory = time.time(), broker.cpu(), 0
        time.sleep(max(0, first - time.time()))
        before = (broker.cpu() - cpu) / (time.time() - begin)
        start, cpu, polls = time.time(), broker.cpu(), 0
        watch.emptied = start
        while not watch.look():
            memory = max(memory, broker.memory()[0]) if polls % 20 == 0 else memory
            polls += 1
            time.sleep(POLL)
            if time.time() > first + over + 300:
                raise Invalid(f"{watch.gone * 2:,} of {TOKENS:,} tokens purged after five minutes")
        last = time.time()
        # The batch of the last purge is published at the end of a window.
        end = last // 60 * 60 + 60
        published = None
        while published is None:
            watch.look_at_log(time.time())
            memory = max(memory, broker.memory()[0])
            if time.time() > end and is_published(broker.state):
                published = time.time()
            if time.time() > end + 300:
                raise Invalid("the purges were not published within five minutes")
            time.sleep(0.05)
        time.sleep(2)
        spent = broker.cpu() - cpu - before * (time.time() - start)
        answers = steady.end()
    finally:
        steady.stop()
    _, others = quiet.end()
    lags = sorted(watch.lags)
    result = {
        "p50": lags[len(lags) // 2], "p99": lags[len(lags) * 99 // 100], "latest": lags[-1], "took": last - first,
        "cpu": spent / TOKENS * 1e6, "memory": memory / MIB, "wal": watch.largest / MIB, "emptied": watch.gap,
        "published": published - last, "others": others,
    }
    return result | latencies(answers, {"before": (begin, first), "during": (first, last), "after": (last, published + 2)})


def latencies(answers, phases):
    """The latencies of Steady's answers in each phase, (since, until) in unix seconds: `p50 before` and so on."""
    bad = Counter(status for _, _, status in answers if status >= 300)
    if bad.total() > load.HANDFUL:
        raise Invalid(f"requests failed or were refused, by status: {dict(bad)}")
    found = {}
    for phase, (since, until) in phases.items():
        times = [ms for due, ms, _ in answers if since <= due < until]
        for key, share in (("p50", 0.5), ("p99", 0.99), ("worst", 1)):
            found[f"{key} {phase}"] = percentile(times, share)
    return found


def policy(name, hour=60):
    """Batches each minute, or after `hour` seconds: by the built-in policy purges would wait for the hour."""
    chosen = json.loads((HERE / "policy.json").read_text())
    chosen["ledger"] = {"hourSeconds": hour, "daySeconds": 86_400, "batchSeals": 1}
    file = folder(f"{name}-policy") / "policy.json"
    file.write_text(json.dumps(chosen))
    return file


def is_published(state):
    """Whether every purge (rank 4) is in the log and its folder."""
    with sqlite3.connect(f"file:{state}/mayfly.sqlite?mode=ro", uri=True, timeout=10) as database:
        # Before version 10, each waiting entry had a row of its own.
        rank = "place >> 34 & 1" if database.execute("PRAGMA user_version").fetchone()[0] >= 10 else "rank = 4"
        (left,) = database.execute(f"""SELECT EXISTS (SELECT 1 FROM waiting WHERE {rank}) OR EXISTS (SELECT 1 FROM entry WHERE rank = 4)
            OR EXISTS (SELECT 1 FROM unpublished)""").fetchone()
    return not left


def lags(broker):
    """The broker's histogram of lags: {bound in seconds: the number of purges under it}."""
    found = re.findall(r'^mayfly_purge_lag_seconds_bucket\{le="([\d.]+|\+Inf)"\} (\d+)$', broker.metrics(), re.M)
    return {float(bound): int(count) for bound, count in found}


def lag(broker, share, since=None):
    """The lowest bound under which this share of the purges lie, in seconds. `since`: the histogram before them."""
    counts = {bound: count - (since or {}).get(bound, 0) for bound, count in lags(broker).items()}
    most = counts.get(float("inf"), 0)
    return next((bound for bound, count in counts.items() if count >= share * most), float("inf"))


def verify(state, purges, programs, note):
    """Verifies the log, which must have that many purges."""
    said = subprocess.run(
        [programs / "mayfly", "audit", "verify", state / "ledger", "--key", state / "ledger.vkey", "--json"], capture_output=True, text=True)
    report = json.loads(said.stdout) if said.returncode == 0 else {}
    note(f"verified: {said.stdout.strip() or said.stderr.strip()}")
    if report.get("purged", 0) < purges:
        raise Invalid(f"the log is not good, or lacks purges: {said.stdout}{said.stderr}")
