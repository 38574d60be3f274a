#!/usr/bin/env python3
"""Measures the figures of docs/benchmarks.md and prints that page: `make bench`, or `make bench
ONLY=engine|pairs|nodes|ledger|courier|companion|monitor|calls|sweep|shares|idle ROUNDS=3 SECONDS=5`."""

import argparse
import shutil
import signal
import sys
import time

sys.dont_write_bytecode = True

import calls  # noqa: E402
import companion  # noqa: E402
import courier  # noqa: E402
import engine  # noqa: E402
import idle  # noqa: E402
import ledger  # noqa: E402
import load  # noqa: E402
import machine  # noqa: E402
import monitor  # noqa: E402
import nodes  # noqa: E402
import pairs  # noqa: E402
import page  # noqa: E402
import processes  # noqa: E402
import shares  # noqa: E402
import sweep  # noqa: E402

PARTS = ("engine", "pairs", "nodes", "ledger", "courier", "companion", "monitor", "calls", "sweep", "shares", "idle")
PAGE = machine.REPOSITORY / "docs/benchmarks.md"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("", *PARTS), default="", help="one part, printed but not kept as docs/benchmarks.md")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    asked = parser.parse_args()
    if asked.rounds < 1 or asked.seconds < 1:
        parser.error("--rounds and --seconds take whole numbers from 1 on")

    start = time.monotonic()

    def note(text):
        print(f"{time.monotonic() - start:6.0f} s  {text}", file=sys.stderr, flush=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: ended"))
    facts, taken = machine.facts(processes.node()), machine.taken()
    descriptors = processes.prepare()
    sections = []
    try:
        if asked.only in ("", "engine"):
            sections.append(engine.run(asked.rounds, asked.seconds, note))
        if asked.only in ("", "pairs"):
            sections.append(pairs.run(asked.rounds, asked.seconds, note))
        if asked.only in ("", "nodes"):
            sections.append(nodes.run(asked.rounds, asked.seconds, note))
        if asked.only in ("", "ledger"):
            sections.append(ledger.run(asked.rounds, note))
        if asked.only in ("", "courier"):
            sections.append(courier.run(asked.rounds, asked.seconds, note))
        if asked.only in ("", "companion"):
            sections.append(companion.run(asked.rounds, asked.seconds, note))
        if asked.only in ("", "monitor"):
            sections.append(monitor.run(asked.rounds, note))
        if asked.only in ("", "calls"):
            sections.append(calls.run(asked.rounds, asked.seconds, note))
        if asked.only in ("", "sweep"):
            # A round takes minutes and measures a million lags.
            sections.append(sweep.run((asked.rounds + 2) // 3, note))
        if asked.only in ("", "shares"):
            sections.append(shares.run(asked.rounds, asked.seconds, note))
        if asked.only in ("", "idle"):
            sections.append(idle.run(asked.rounds, asked.seconds, descriptors, note))
    except processes.Invalid as reason:
        raise SystemExit(f"bench: {reason}")
    finally:
        processes.stop_all()

    text = page.page(sections, facts, taken, asked.rounds, asked.seconds, load.thrown_out)
    shutil.rmtree(processes.WORK)
    # A quick look is printed and not kept.
    if not asked.only and asked.rounds >= 3:
        PAGE.write_text(text)
    print(text)


main()
