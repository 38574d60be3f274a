"""The broker at rest: its memory, its start time, the cost of idle WebSockets, and their effect on other requests."""

import time

import load
from hold import Holder
from machine import size
from page import Aim, Section, Series, number
from processes import Broker, Invalid

STARTS = size(10, 2)
MOST = size(20_000, 2_000)
# Descriptors that a broker keeps from its public listener (416, Listeners.reservedDescriptors), and those of the other requests.
SPARE = 600
HOLDERS = 4
KIB, MIB = 1024, 1024 * 1024


def run(rounds, seconds, descriptors, note):
    section = Section("At rest")
    note("idle: starts")
    ready, resident, anonymous, proportional = _starts()
    section.text(f"{STARTS} starts of `mayfly serve` with existing keys and database, up to the first 200 from `/readyz`.")
    rows = [["start to ready", f"{ready} ms"], ["resident memory (RSS)", f"{resident} MiB"],
            ["of that, not backed by a file", f"{anonymous} MiB"]]
    if proportional.values:
        rows.append(["proportional memory (PSS)", f"{proportional} MiB"])
    section.table(["", f"median of {STARTS}"], rows)
    section.aims += [
        Aim("idle memory (RSS)", 22, resident, at_most=True, unit="MiB"),
        Aim("start to ready", 20, ready, at_most=True, unit="ms"),
    ]
    _sockets(section, rounds, seconds, min(MOST, descriptors - SPARE) // (2 * HOLDERS) * (2 * HOLDERS), note)
    return section


def _starts():
    ready, resident, anonymous, proportional = Series(), Series(), Series(), Series()
    first = Broker("idle-start")
    state = first.state
    first.stop()
    for _ in range(STARTS):
        broker = Broker("idle-start", state=state)
        ready.add(broker.ready_after * 1000)
        time.sleep(1)
        rss, pss = broker.memory()
        resident.add(rss / MIB)
        anonymous.add(broker.anonymous() / MIB)
        if pss is not None:
            proportional.add(pss / MIB)
        broker.stop()
    return ready, resident, anonymous, proportional


def _creates(broker, seconds):
    return load.wrk(broker, seconds, "rooms.lua", ("creates", f"turn-{time.monotonic_ns()}", 0), connections=8)


def _sockets(section, rounds, seconds, count, note):
    # In a minute, all creates of one address would be more than its share of unpublished entries.
    without, full = Broker("sockets-none", window=5), Broker("sockets-full", window=5)
    holders = []
    try:
        note(f"idle: {count // 2} rooms")
        for _ in range(HOLDERS):
            holders.append(Holder("sockets", full.port, count // HOLDERS))
        for holder in holders:
            holder.expect("rooms")
        time.sleep(1)
        before = full.memory()[0]
        note(f"idle: {count} WebSockets")
        for holder in holders:
            holder.tell("go")
        for holder in holders:
            holder.expect("held")
        time.sleep(2)
        grown = (full.memory()[0] - before) / count / KIB

        slow, rate = {}, {}
        for turn in range(rounds):
            for broker in (without, full):
                note(f"idle: round {turn + 1}, creates at {broker.name}")
                result = load.valid(_creates, broker, 2 * seconds)
                slow.setdefault(broker, Series()).add(result.p99_ms)
                rate.setdefault(broker, Series()).add(result.rate)
        if any(holder.process.child.poll() is not None for holder in holders):
            raise Invalid("WebSockets were closed during the measurement")
    finally:
        for process in [*holders, without, full]:
            process.stop()

    section.parts.append("### Idle WebSockets")
    section.text(f"""
        {count:,} idle WebSockets without TLS answer the broker's pings while `wrk` creates rooms, compared with a broker without them.
        """)
    section.table(["", "memory each (RSS)", "p99 of a create, ms", "creates a second"], [
        ["no WebSocket", "", slow[without], rate[without]],
        [f"{count:,} WebSockets", f"{number(grown)} KiB", slow[full], rate[full]],
        ["ratio", "", slow[full].over(slow[without]), rate[full].over(rate[without])],
    ])
    section.aims.append(Aim(f"each of {count:,} idle WebSockets (RSS)", 2, Series([grown]), at_most=True, unit="KiB"))
