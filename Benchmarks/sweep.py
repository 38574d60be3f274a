"""The sweep: how late a million tokens are purged, and what that does to requests."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import time

import load
from page import Aim, Section, Series, number
from processes import MAYFLY, MAYFLY_BENCH, ONE_CORE, Broker, Invalid, Process, folder
from steady import Steady

TOKENS = 1_000_000
# Creates and accepts a second.
RATE = 1_000
MINUTE = 60.0
# Seconds of load before the first token expires, of which the first are not counted.
BEFORE, WARM_UP = 12, 2
POLL = 0.005
MIB = 1024 * 1024
# What a fill takes at most, for each million tokens; doubled where it took longer.
_patience = [60.0]


def run(rounds, note):
    section = Section("The sweep")
    section.text(f"""
        `mayfly-bench fill` writes {TOKENS // 2:,} accepted rooms with {TOKENS:,} tokens into a stopped broker's database: sealed under its keys, by the store's own statements,
        each seal recorded and published in its log. They look as rooms do ten minutes after their accept. What it leaves out is how they came: no request, no rule of the
        broker's, and 20,000 rooms a transaction. Then the broker runs as in operation (ledger window 60 s) on one core, while `Benchmarks/steady.py` creates and accepts rooms
        from the other, {RATE:,} requests a second through 64 connections; a request's time runs from the moment at which it is due, answered or not what came before. **One
        minute**: the tokens' ends are spread evenly over 60 seconds, from the middle of a ledger window to that of the next, so that half the purges are published while the
        others are made. **At once**: all end in the same millisecond, 20 seconds before a window closes. The lag is measured from outside, on the database: every
        {POLL * 1000:.0f} ms for the earliest token that is still there; a token counts as purged when it is first seen to be gone. Before: the {BEFORE - WARM_UP} seconds before the
        first end. During: from there to the last purge. After: until the purges are in the log and 2 seconds more. Afterwards `mayfly audit verify` finds the log good, with all
        purges in it. One round takes three minutes, so this part runs one where the others run three; `make bench ONLY=sweep ROUNDS=9` runs three.
        """)
    for name, over in (("One minute", MINUTE), ("At once", 0.0)):
        results = []
        for turn in range(rounds):
            note(f"sweep: round {turn + 1}, {name.lower()}: {TOKENS:,} tokens")
            results.append(load.valid(_round, over, note))
        _tell(section, name, over, results)
    return section


def _tell(section, name, over, results):
    def series(key):
        return Series(result[key] for result in results)

    section.parts.append(f"### {name}")
    section.table(["", f"median of {len(results)}" if len(results) > 1 else "once"], [
        ["purge lag, p50", f"{series('p50')} s"],
        ["purge lag, p99", f"{series('p99')} s"],
        ["purge lag, the latest token", f"{series('latest')} s"],
        ["p99 by the broker's own histogram (`mayfly_purge_lag_seconds`), at most", f"{series('own')} s"],
        ["all purged after the first end", f"{series('took')} s"],
        ["CPU a purge, with its entry and its publication", f"{series('cpu')} µs"],
        ["resident memory at most (RSS)", f"{series('memory')} MiB"],
        ["write-ahead log at most", f"{series('wal')} MiB"],
        ["it was emptied every", f"{series('emptied')} s at most"],
        ["all in the log, after the last purge", f"{series('published')} s"],
    ])
    phases = ("before", "during", "after")
    section.table(["requests", *phases, "during, of before", "after, of before"], [
        [word, *(series(f"{key} {phase}") for phase in phases), *(series(f"{key} {phase}").over(series(f"{key} before")) for phase in phases[1:])]
        for key, word in (("p50", "p50, ms"), ("p99", "p99, ms"), ("worst", "slowest, ms"))])
    section.disturbance([result["others"] for result in results])
    if over:
        section.aims.append(Aim(f"p99 purge lag, {TOKENS:,} tokens in one minute", 1, series("p99"), at_most=True, unit="s"))
    else:
        section.aims.append(Aim(f"sweep of {TOKENS:,} tokens that expired at once", 10, series("took"), at_most=True, unit="s"))
    section.aims.append(Aim(
        f"p99 of requests during the sweep, of that before, {name.lower()}", 2, series("p99 during").over(series("p99 before")), at_most=True))


def _round(over, note):
    broker = Broker("sweep")  # makes the database
    broker.stop()
    first = _fill(broker.state, over, note)
    broker = Broker("sweep", state=broker.state)
    try:
        time.sleep(max(0, first - BEFORE - time.time()))
        result = _measure(broker, first, over)
        result["own"] = _histogram(broker, 0.99)
    finally:
        broker.stop()
    _verify(broker.state, note)
    shutil.rmtree(broker.state)
    return result


def _fill(state, over, note):
    """Returns when the first token expires: in the middle of a ledger window, or 20 seconds before its end."""
    place = 30 if over else 40
    begin = time.time()
    earliest = begin + _patience[0] * TOKENS / 1e6 + BEFORE + 3
    first = (earliest - place) // 60 * 60 + 60 + place
    process = Process("fill", [MAYFLY_BENCH, "fill", "--state", state, "--rooms", TOKENS // 2, "--first", int(first * 1000),
                               "--over", int(over * 1000)], ONE_CORE, pipes=True)
    try:
        told = process.child.stdout.read()
        if process.child.wait(60) != 0:
            raise Invalid(f"mayfly-bench fill: {process.log()}")
    finally:
        process.stop()
    seconds = json.loads(told)["seconds"]
    note(f"sweep: filled in {seconds:.0f} s; the first token expires in {first - time.time():.0f} s")
    if time.time() > first - BEFORE - 2:
        _patience[0] = 1.5 * seconds / TOKENS * 1e6
        raise Invalid("filling the database took longer than the tokens had time")
    return first


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
        # The window that holds the last purge is published at its end.
        end = last // 60 * 60 + 60
        published = None
        while published is None:
            watch.look_at_log(time.time())
            memory = max(memory, broker.memory()[0])
            if time.time() > end and _published(broker.state, end - 60):
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
    bad = sum(not good for _, _, good in answers)
    if bad > load.HANDFUL:
        raise Invalid(f"{bad} requests failed or were refused")
    lags = sorted(watch.lags)
    result = {
        "p50": lags[len(lags) // 2], "p99": lags[len(lags) * 99 // 100], "latest": lags[-1], "took": last - first,
        "cpu": spent / TOKENS * 1e6, "memory": memory / MIB, "wal": watch.largest / MIB, "emptied": watch.gap,
        "published": published - last, "others": others,
    }
    for phase, since, until in (("before", begin, first), ("during", first, last), ("after", last, published + 2)):
        times = sorted(ms for due, ms, _ in answers if since <= due < until)
        for key, share in (("p50", 0.5), ("p99", 0.99), ("worst", 1)):
            result[f"{key} {phase}"] = times[min(len(times) - 1, int(len(times) * share))]
    return result


def _published(state, window):
    """Whether everything up to this window is in the log and its folder."""
    with sqlite3.connect(f"file:{state}/mayfly.sqlite?mode=ro", uri=True, timeout=10) as database:
        (latest,) = database.execute("SELECT window FROM folder").fetchone()
        (left,) = database.execute("SELECT EXISTS (SELECT 1 FROM entry WHERE window <= ?)", (window,)).fetchone()
    return latest >= window and not left


def _histogram(broker, share):
    """The lowest bound in the broker's histogram of lags under which this share of the purges lie, in seconds."""
    found = re.findall(r'^mayfly_purge_lag_seconds_bucket\{le="([\d.]+|\+Inf)"\} (\d+)$', broker.metrics(), re.M)
    if not found:
        return float("inf")
    most = int(found[-1][1])
    return next(float(bound) for bound, count in found if int(count) >= share * most)


def _verify(state, note):
    said = subprocess.run([MAYFLY, "audit", "verify", state / "ledger", "--key", state / "ledger.vkey", "--json"], capture_output=True, text=True)
    report = json.loads(said.stdout) if said.returncode == 0 else {}
    note(f"sweep: {said.stdout.strip() or said.stderr.strip()}")
    if report.get("purged", 0) < TOKENS:
        raise Invalid(f"the log is not good, or lacks purges: {said.stdout}{said.stderr}")
