"""Monitors: 10,000 devices watch one printer. The cost of an event for all of them, and its effect on other requests."""

import json
import time
from datetime import datetime

import load
from page import Aim, Section, Series, number
from processes import Invalid, accounts
from steady import Connections, Steady, post
from users import back_end, device, read

DEVICES, SILENT, PRINTER = 10_000, 4, "p1s_01"
# Other requests meanwhile: rooms are created and accepted.
RATE = 200
# Of the goal: seconds within which an event is durable.
DURABLE = 1
KINDS = {"started": DEVICES, "milestone": DEVICES - DEVICES // SILENT}
TOLD = {"started": f"start, to all {DEVICES:,}", "milestone": f"milestone, to {KINDS['milestone']:,} that want it"}
PARTS = {
    "durable": "until durable and answered, ms", "delivered": "until APNs has the last push, ms", "cpu": "CPU µs a push",
    "slowest": "slowest request of others, ms", "p99": "p99 of others, ms"}


def run(rounds, note):
    section = Section("Monitors")
    figures, others = {kind: {part: Series() for part in PARTS} for kind in KINDS}, []
    with accounts("monitor", kind="monitor") as (simulator, broker, users):
        note(f"monitor: {DEVICES:,} devices on one printer")
        before = broker.memory()[0]
        if users.monitors(DEVICES, PRINTER, SILENT) != DEVICES:
            raise Invalid("not all devices were registered")
        asking, most = back_end(read(broker.secret)), before
        for turn in range(rounds):
            for kind in KINDS:
                note(f"monitor: round {turn + 1}, {TOLD[kind]}")
                others.append(load.valid(_event, simulator, broker, asking, kind, figures[kind]))
            most = max(most, broker.memory()[0])

    section.text(f"""
        A back end reports to {DEVICES:,} devices of one printer, beside {RATE} requests a second for rooms. Each device gets the push once.
        """)
    section.table(["", *TOLD.values()], [[told, *(figures[kind][part] for kind in KINDS)] for part, told in PARTS.items()])
    section.text(f"Memory (RSS): {number(before / 2**20)} MiB before the first registration, {number(most / 2**20)} MiB after the last event.")
    section.disturbance(others)
    section.aims.append(Aim(
        f"status for {DEVICES:,} devices, until durable", DURABLE, Series(ms / 1000 for ms in figures["started"]["durable"].values),
        at_most=True, unit="s"))
    return section


def _event(simulator, broker, asking, kind, figures):
    simulator.forget()
    steady = Steady(broker.port, RATE)
    connection = Connections(broker.port, count=1)
    try:
        # The cost of the other requests alone.
        time.sleep(1)
        quiet = broker.cpu()
        time.sleep(2)
        quiet = (broker.cpu() - quiet) / 2
        watch = load.Watch(broker, simulator, steady.process)
        path, body = (
            ("status", {"oldStatus": "idle", "newStatus": "running"}) if kind == "started" else ("progress", {"progress": 26}))
        asked = next(iter(connection.ask([(None, post(f"/api/monitors/{PRINTER}/{path}", body, asking))])))
        if asked.status != 202 or json.loads(asked.body)["pushes"] != KINDS[kind]:
            raise Invalid(f"{asked.status} {asked.body!r}")
        broker.settle()
        done = time.time()
        spent, others = watch.end()
        time.sleep(0.5)
        seen = steady.end()
    finally:
        steady.stop()
    pushes = simulator.pushes()
    wanted = [device(number) for number in range(DEVICES) if kind == "started" or number % SILENT]
    if sorted(push["token"] for push in pushes) != wanted:
        raise Invalid(f"{len(pushes)} pushes, not one to each device that wanted it")
    last = max(datetime.fromisoformat(push["at"]).timestamp() for push in pushes)
    figures["durable"].add((asked.answered - asked.sent) * 1000)
    figures["delivered"].add((last - asked.sent) * 1000)
    figures["cpu"].add((spent - quiet * (done - asked.sent)) / KINDS[kind] * 1e6)
    meanwhile = sorted(ms for due, ms, _ in seen if asked.sent <= due <= done)
    figures["slowest"].add(meanwhile[-1])
    figures["p99"].add(meanwhile[int(len(meanwhile) * 0.99)])
    return others
