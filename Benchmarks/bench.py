#!/usr/bin/env python3
"""Measures the figures of docs/benchmarks.md and prints that page: `make bench`, or `make bench
ONLY=engine|pairs|nodes|ledger|courier|companion|monitor|calls|sweep|shares|idle|large|webpush ROUNDS=3 SECONDS=5`. With ROUNDS=1 SECONDS=1 each part runs
at its smallest size, to show that it still works. Only a whole run of three rounds of five seconds, or more, replaces the page. `large` and `webpush` have
runs of their own, which replace their sections."""

import argparse
import importlib
import shutil
import signal
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True

import load  # noqa: E402
import machine  # noqa: E402
import page  # noqa: E402
import processes  # noqa: E402

# Each part and the programs that it needs beside this repository's.
PARTS = {
    "engine": ("nginx", "wrk", "h2load"), "pairs": ("wrk",), "nodes": ("wrk", "psql", "pgbench"), "ledger": (), "courier": ("h2load",),
    "companion": ("wrk",), "monitor": (), "calls": (), "sweep": (), "shares": ("unshare", "ip"), "idle": ("wrk",), "large": ("psql",),
    "webpush": ("wrk", "cc", "openssl")}
# The first takes longer than all others together. The second is about Web Push alone, so the figures of the others don't change with it.
APART = ("large", "webpush")
PAGE = machine.REPOSITORY / "docs/benchmarks.md"


def missing(parts):
    """What these parts need and isn't here."""
    found = [f"{part} needs {tool}" for part in parts for tool in PARTS[part] if not shutil.which(tool)]
    if "pairs" in parts and not machine.said(*processes.node(), "-p", "require('express') && require('sqlite3') && 1"):
        found.append("pairs needs Node.js with Express and sqlite3")
    if {"courier", "shares", "webpush"} & {*parts} and not (machine.REPOSITORY / ".build/bench/venv/bin/python").exists():
        found.append("courier, shares and webpush need .build/bench/venv")
    return found


def measure(part, asked, descriptors, note):
    run = importlib.import_module(part).run
    match part:
        case "ledger" | "monitor":
            return run(asked.rounds, note)
        case "sweep":
            # A round takes minutes and measures a million lags.
            return run((asked.rounds + 2) // 3, note)
        case "idle":
            return run(asked.rounds, asked.seconds, descriptors, note)
        case _:
            return run(asked.rounds, asked.seconds, note)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", choices=("", *PARTS), default="",
        help=f"one part, printed; {' and '.join(APART)} also replace their sections of docs/benchmarks.md")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--against", default="", help="a folder with `mayfly` and `mayfly-bench` of another build, for pairs, sweep and webpush")
    asked = parser.parse_args()
    if asked.rounds < 1 or asked.seconds < 1:
        parser.error("--rounds and --seconds take whole numbers from 1 on")
    if asked.against and not all((Path(asked.against) / program).is_file() for program in ("mayfly", "mayfly-bench")):
        parser.error("--against takes a folder with `mayfly` and `mayfly-bench`")

    start = time.monotonic()

    def note(text):
        print(f"{time.monotonic() - start:6.0f} s  {text}", file=sys.stderr, flush=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: ended"))
    machine.is_trial = asked.rounds == asked.seconds == 1
    machine.against = Path(asked.against).absolute() if asked.against else None
    parts = [asked.only] if asked.only else [part for part in PARTS if part not in APART or machine.is_trial]
    if lacking := missing(parts):
        raise SystemExit(f"bench: {'; '.join(lacking)}. `scripts/setup bench` installs it")
    facts, taken = machine.facts(processes.node()), machine.taken()
    descriptors = processes.prepare()
    sections, failed = [], []
    try:
        for part in parts:
            try:
                sections.append(measure(part, asked, descriptors, note))
            except processes.Invalid as reason:
                # The other parts are measured nevertheless.
                failed.append(f"bench: {part}: {reason}")
                note(f"FAILED: {part}: {reason}")
            finally:
                processes.stop_all()
    finally:
        processes.stop_all()

    spent = time.monotonic() - start
    text = page.page(sections, facts, taken, asked, load.thrown_out, spent)
    shutil.rmtree(processes.WORK)
    # A quick look is printed and not kept.
    if not failed and asked.rounds >= 3 and asked.seconds >= 5:
        if not asked.only:
            for part in APART:
                text = page.replacing(text, page.of_section(PAGE.read_text(), importlib.import_module(part).TITLE))
            PAGE.write_text(text)
        elif asked.only in APART:
            note(f"{asked.only}: took {spent / 60:.0f} minutes")
            PAGE.write_text(page.replacing(PAGE.read_text(), page.of_section(text, sections[0].title)))
    print(text)
    if failed:
        raise SystemExit("\n".join(failed))


main()
