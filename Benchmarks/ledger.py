"""The ledger: entries appended and verified a second, and the cost of a small publication in a large log."""

import json
import re
import resource
import shutil
import time
from pathlib import Path

from machine import size
from page import Aim, Section, Series, number
from processes import MAYFLY, MAYFLY_BENCH, ONE_CORE, Invalid, Process, folder

MILLION = size(1_000_000, 50_000)
LARGE = 10 * MILLION
SMALL = 10_000


def run(rounds, note):
    section = Section("The ledger")
    section.text(f"""
        `mayfly-bench ledger` appends lives of tokens on one core, in durable publications of 16,384 entries. `mayfly audit verify` verifies the log.
        """)
    shown = {"appended": "appended, log alone", "stored": "appended, through the store", "verified": "verified"}
    memory = Series()
    rate, efficiency = ({key: Series() for key in shown} for _ in range(2))
    for turn in range(rounds):
        note(f"ledger: round {turn + 1}, {MILLION:,} entries")
        result = _grow(MILLION)
        for key in shown:
            rate[key].add(result[key]["entries"] / result[key]["seconds"])
            efficiency[key].add(result[key]["entries"] / result[key]["cpuSeconds"])
        memory.add(result["verified"]["mebibytes"])
    section.table([f"{MILLION:,} entries", "entries a second", "entries a CPU second"],
                  [[text, rate[key], efficiency[key]] for key, text in shown.items()])

    note(f"ledger: {LARGE:,} entries")
    large = _grow(LARGE)
    early, late = (_each(large[key]) for key in ("early", "late"))
    section.text(f"""
        {LARGE:,} entries are verified in {number(large["verified"]["seconds"])} s and {number(large["verified"]["mebibytes"])} MiB,
        {MILLION:,} in {memory} MiB. A publication of 1,000 entries takes {number(early[1])} ms of CPU in a log of {SMALL:,} entries and
        {number(late[1])} ms in one of {LARGE:,}.
        """)
    section.aims += [
        Aim("ledger entries appended a second", 200_000, rate["appended"]),
        Aim("ledger entries appended a second, through the store", 200_000, rate["stored"]),
        Aim("ledger entries verified a CPU second", 1_000_000, efficiency["verified"]),
        Aim(f"memory to verify {LARGE:,} entries ÷ {MILLION:,}", 1.5, Series([large["verified"]["mebibytes"] / max(memory.values)]), at_most=True),
        Aim(f"CPU to publish at {LARGE:,} entries ÷ {SMALL:,}", 1.5, Series([late[1] / early[1]]), at_most=True),
    ]
    return section


def _each(spent):
    publications = spent["entries"] / 1000
    return spent["seconds"] / publications * 1000, spent["cpuSeconds"] / publications * 1000


def _grow(entries):
    place = folder("ledger")
    process = Process("ledger", [MAYFLY_BENCH, "ledger", "--folder", place / "log", "--entries", entries], ONE_CORE, pipes=True)
    try:
        told = process.child.stdout.read()
        if process.child.wait(60) != 0:
            raise Invalid(f"mayfly-bench ledger: {process.log()}")
        result = json.loads(told)
        result["verified"] = _verify(place / "log/alone", result)
        return result
    finally:
        process.stop()
        shutil.rmtree(place)


def _verify(log, grown):
    before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    start, peak = time.monotonic(), 0
    process = Process("verify", [MAYFLY, "audit", "verify", log, "--key", grown["key"]], ONE_CORE)
    while process.child.poll() is None:
        # getrusage's peak of a child includes the memory of the process that forked it.
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
        peak = int(found[1]) / 1024 if found else peak
        time.sleep(0.02)
    seconds = time.monotonic() - start
    process.stop()
    if process.child.returncode != 0:
        raise Invalid(f"mayfly audit verify: {process.log()}")
    cpu = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before
    return {"entries": grown["size"], "seconds": seconds, "cpuSeconds": cpu, "mebibytes": peak}
