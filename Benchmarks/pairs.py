"""Create + accept pairs a second, and CPU a pair: the broker, a bare SQLite loop that writes the same rows, and the usual service. `make bench
AGAINST=folder` also measures the broker of another build."""

import json
from functools import partial

import load
from machine import LOAD_CPU
from page import Aim, Section, Series
from processes import BOTH_CORES, MAYFLY_BENCH, ONE_CORE, Broker, Express, Invalid, Process, builds, folder

# How many creates precede the accept of the first. More than can be under way at once.
BEHIND = 150
SIZES = (1, 16, 64)
KIB = 1024


def run(rounds, seconds, note):
    section = Section("Create + accept pairs")
    section.text(f"""
        A pair is a create and an accept with a token on each side, durable before each answer, under `wrk -t1 -c{load.CONNECTIONS}`. **Express**
        stores raw tokens and keeps no ledger (`Benchmarks/express/server.js`). The **bare loop** only writes the same rows.
        """)
    rate, cpu, disk, reach, others = {}, {}, {}, Series(), []
    note("pairs: first round finds what Mayfly's commits hold")
    sizes = None
    brokers = {name: partial(Broker, "pairs-broker", programs=programs) for name, programs in builds().items()}
    express = partial(Express, "pairs-express")
    for number in range(rounds):
        for name, server in {**brokers, "Express": express}.items():
            note(f"pairs: round {number + 1}, {name}")
            result, held, written = load.valid(serve, server, ONE_CORE, seconds, others)
            _keep(rate, cpu, name, result)
            if written is not None:
                disk.setdefault(name, Series()).add(written)
            if name == "Mayfly":
                reach.add(held)
        sizes = sizes or sorted({*SIZES, max(1, round(reach.values[0]))})
        for size in sizes:
            note(f"pairs: round {number + 1}, bare loop of {size}")
            _keep(rate, cpu, size, _rows(size, seconds))
        for name, server in (("Mayfly, two cores", brokers["Mayfly"]), ("Express, two cores", express)):
            note(f"pairs: round {number + 1}, {name}")
            _keep(rate, cpu, name, load.valid(serve, server, BOTH_CORES, seconds, others)[0])

    same = max(1, round(reach.values[0]))
    order = [*brokers, "Express", *sizes, "Mayfly, two cores", "Express, two cores"]
    rows = []
    for name in order:
        told = f"bare loop, {name} a transaction{' (as Mayfly)' if name == same else ''}" if isinstance(name, int) else name
        against = "Mayfly, two cores" if "two" in told else "Mayfly"
        ratios = ["", ""] if name == against else [rate[against].over(rate[name]), cpu[name].over(cpu[against])]
        rows.append([told, rate[name], cpu[name], disk.get(name, ""), *ratios])
    section.table(
        ["", "pairs a second", "CPU µs a pair", "KiB to the disk a pair", "Mayfly's rate ÷ this", "Mayfly's pairs a CPU second ÷ this"], rows)
    section.text(f"A transaction of Mayfly held {reach} pairs. Server and load share the two cores in the last two rows.")
    section.disturbance(others)
    section.aims += [Aim(f"CPU of a pair ÷ that of {name}", 0.7, cpu["Mayfly"].over(cpu[name]), at_most=True) for name in brokers if name != "Mayfly"]
    section.aims.append(Aim("pairs a second ÷ Express, one core", 5.5, rate["Mayfly"].over(rate["Express"])))
    return section


def _keep(rate, cpu, name, result):
    rate.setdefault(name, Series()).add(result[0])
    cpu.setdefault(name, Series()).add(result[1])


def serve(start, cpus, seconds, others):
    """((pairs a second, CPU µs a pair), pairs a transaction or None, KiB to the disk a pair or None)."""
    server = start(cpus=cpus)
    try:
        with load.on(BOTH_CORES if cpus == BOTH_CORES else {LOAD_CPU}):
            load.wrk(server, 1, "rooms.lua", ("pairs", "warm-up", BEHIND))
            is_broker = isinstance(server, Broker)
            before, disk = server.commits() if is_broker else 0, server.written()
            result = load.wrk(server, seconds, "rooms.lua", ("pairs", "measured", BEHIND))
        others.append(result.others)
        pairs = (result.requests - BEHIND) / 2
        held = result.requests / 2 / max(1, server.commits() - before) if is_broker else None
        written = None if disk is None else (server.written() - disk) / pairs / KIB
        return (pairs / result.seconds, result.cpu / pairs * 1e6), held, written
    finally:
        server.stop()


def _rows(size, seconds):
    process = Process(
        f"rows-{size}", [MAYFLY_BENCH, "rows", "--database", folder("rows") / "rows.sqlite", "--pairs-per-transaction", size,
                         "--seconds", seconds], ONE_CORE, pipes=True)
    try:
        told = process.child.stdout.read()
        if process.child.wait(60) != 0:
            raise Invalid(f"mayfly-bench rows: {process.log()}")
        result = json.loads(told)
        return result["pairs"] / result["seconds"], result["cpuSeconds"] / result["pairs"] * 1e6
    finally:
        process.stop()
