"""Phones that ring: the latency of a webhook's answer at a steady rate, and the CPU of each."""

import load
from knocks import Knocks
from page import Aim, Section, Series
from processes import Invalid, accounts

USERS, RATE, KNOCKED, LONGEST = 10_000, 500, 5_000, 20
TOLD = {"call": "call, to one phone: one push", "again": "the same webhook again: none", "knock": "knock at a room: one push"}


def run(rounds, seconds, note):
    section, others = Section("Calls"), []
    answers, cpu = {kind: {share: Series() for share in (0.5, 0.99, 1)} for kind in TOLD}, {kind: Series() for kind in TOLD}
    with accounts("calls", kind="calls") as (simulator, broker, users):
        note(f"calls: {USERS:,} phones")
        users.phones(USERS)
        knocks = Knocks(broker.port, KNOCKED)
        for turn in range(rounds):
            users.calls(USERS, RATE, RATE, f"warm-up-{turn}")
            for kind in TOLD:
                note(f"calls: round {turn + 1}, {TOLD[kind]}")
                broker.settle()
                watch = load.Watch(broker, simulator, users.process)
                if kind == "knock":
                    seen = [(ms, delivery == "queued") for _, _, ms, delivery in knocks.knock(RATE * seconds, RATE)]
                else:
                    rang = int(kind == "call")
                    seen = [(ms, (status, phones) == (200, rang)) for ms, status, phones in users.calls(USERS, RATE * seconds, RATE, turn)]
                broker.settle()
                spent, other = watch.end()
                if bad := sum(not good for _, good in seen):
                    raise Invalid(f"{bad} of {len(seen)} were answered otherwise: {TOLD[kind]}")
                times = sorted(ms for ms, _ in seen)
                for share, series in answers[kind].items():
                    series.add(times[min(len(times) - 1, int(len(times) * share))])
                cpu[kind].add(spent / len(seen) * 1e6)
                others.append(other)
    section.text(f"""
        {RATE} signed webhooks a second, to {USERS:,} users with a phone each. An answered call is on the disk.
        """)
    section.table(["", "p50, ms", "p99, ms", "slowest, ms", "CPU µs each"], [[TOLD[kind], *answers[kind].values(), cpu[kind]] for kind in TOLD])
    section.disturbance(others)
    section.aims.append(Aim(f"p99 of a webhook's answer, {RATE} a second", LONGEST, answers["call"][0.99], at_most=True, unit="ms"))
    return section
