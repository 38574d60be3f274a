"""Apps with accounts: registrations and events a second, the throttle of Live Activities with 10,000 of them, and what 100,000 registrations cost."""

import json
import math
import threading
import time
from datetime import datetime

import load
from knocks import Knocks, made
from machine import size
from page import Aim, Section, Series, number, percentile
from processes import Broker, Invalid, accounts
from steady import Connections
from users import back_end, jwt, read, user

# Each has the registration or activity that the events need. Knocks get as many rooms.
USERS, ROOMS, BEHIND = 10_000, size(40_000, 20_000), 150
# Of policies/companion.json.
WINDOW = 15
# The time that an update may take to the simulator's clock. Two updates may arrive nearer than they left by this.
TOLERANCE = 0.2
ACTIVITIES, EACH, UPDATES, LISTED = 10_000, 20, 1_000, 5
FEW, MANY, RATE, KNOCKED = 1_000, size(100_000, 10_000), 1_000, 5_000
MIB = 1024 * 1024


def run(rounds, seconds, note):
    section = Section("Companions")
    _rates(section, rounds, seconds, note)
    _throttle(section, max(size(60, 20), seconds), note)
    _many(section, rounds, seconds, note)
    return section


# MARK: Registrations and events a second

TOLD = {
    "rooms": "room created or accepted",
    "register": "device of a new user registered",
    "again": "the same once more",
    "knock": "knock at a room: one push",
    "complete": "`task_complete`: one push",
    "progress": "`progress_update`, which waits",
    "approval": "approval, asked and answered",
}
AGAINST = {"register": "rooms", "again": "rooms", "complete": "knock", "progress": "knock", "approval": "knock"}


class _Figures:
    def __init__(self):
        self.rate, self.cpu = Series(), Series()

    def add(self, count, seconds, cpu):
        """CPU seconds: of the broker, until nothing was left to do."""
        self.rate.add(count / seconds)
        self.cpu.add(cpu / count * 1e6)


def _rates(section, rounds, seconds, note):
    figures, others, each = {kind: _Figures() for kind in TOLD}, [], Series()
    with accounts("companion-events") as (simulator, broker, users):
        note(f"companion: {USERS:,} users with a device and a Live Activity each, {ROOMS:,} rooms")
        users.devices(0, USERS)
        users.activities(USERS)
        secret = read(broker.secret)
        lines = {
            "again": [jwt(secret, user(number)) for number in range(USERS)], "complete": [], "progress": [],
            "knock": made(Connections(broker.port), ROOMS)}
        files = {}
        for kind, content in lines.items():
            files[kind] = broker.state / f"{kind}.lines"
            files[kind].write_text("".join(f"{line}\n" for line in content))
        back = back_end(secret)
        for turn in range(rounds):
            def told(kind):
                note(f"companion: round {turn + 1}, {TOLD[kind].replace('`', '')}")

            told("rooms")
            figures["rooms"].add(*load.valid(_rooms, seconds, others))
            told("register")
            figures["register"].add(*load.valid(_register, seconds, others, each))
            for kind in ("again", "knock", "complete", "progress"):
                told(kind)
                count = ROOMS if kind == "knock" else USERS
                figures[kind].add(*load.valid(_events, simulator, broker, seconds, others, (kind, count, 0, files[kind], back)))
            told("approval")
            figures["approval"].add(*load.valid(_approvals, simulator, broker, users, seconds, others))

    section.text(f"""
        {USERS:,} users; calls are durable before their answer. A registration is compared with a room's create or accept, an event with a knock. An
        event is one push, an approval two requests.
        """)
    rows = []
    for kind, told in TOLD.items():
        mine, other = figures[kind], figures.get(AGAINST.get(kind))
        ratios = [mine.rate.over(other.rate), other.cpu.over(mine.cpu)] if other else ["", ""]
        rows.append([told, mine.rate, mine.cpu, *ratios])
    section.table(["", "a second", "CPU µs each", "rate ÷ rooms or knocks", "a CPU second ÷ rooms or knocks"], rows)
    section.disturbance(others)


def _rooms(seconds, others):
    broker = Broker("companion-rooms", users=True)
    try:
        load.wrk(broker, 1, "rooms.lua", ("pairs", "warm-up", BEHIND))
        result = load.wrk(broker, seconds, "rooms.lua", ("pairs", "measured", BEHIND))
    finally:
        broker.stop()
    others.append(result.others)
    return result.requests, result.seconds, result.cpu


def _register(seconds, others, each):
    broker = Broker("companion-registrations", users=True)
    try:
        secret, file, first = read(broker.secret), broker.state / "jwts", 0

        def flood(seconds, count):
            nonlocal first
            file.write_text("".join(f"{jwt(secret, user(number))}\n" for number in range(first, first + count)))
            first += count
            return load.wrk(broker, seconds, "users.lua", ("register", count, first - count, file, ""))

        result = flood(1, 20_000)
        before = _registered(broker)
        result = flood(seconds, math.ceil(result.rate * seconds * 2))
        if (made := _registered(broker) - before) < result.requests:
            raise Invalid(f"{result.requests} answers, and {made} registrations")
    finally:
        broker.stop()
    others.append(result.others)
    return result.requests, result.seconds, result.cpu


def _registered(broker):
    with broker.database() as database:
        return database.execute("SELECT count(*) FROM registration").fetchone()[0]


def _events(simulator, broker, seconds, others, arguments):
    load.wrk(broker, 1, "users.lua", arguments)
    broker.settle()
    # A room is knocked at once in a second.
    time.sleep(1)
    watch = load.Watch(broker, simulator)
    result = load.wrk(broker, seconds, "users.lua", arguments)
    others.append(watch.end()[1])
    waits = broker.settle()
    whole = broker.cpu() - watch.before
    return result.requests, result.seconds, result.cpu if waits else whole


def _approvals(simulator, broker, users, seconds, others):
    users.approvals(USERS, 1)
    broker.settle()
    watch = load.Watch(broker, simulator, users.process)
    count, took, bad = users.approvals(USERS, seconds)
    _, disturbed = watch.end()
    broker.settle()
    whole = broker.cpu() - watch.before
    if bad > load.HANDFUL:
        raise Invalid(f"{bad} approvals failed or were refused")
    others.append(disturbed)
    return count, took, whole


# MARK: The throttle

def _throttle(section, seconds, note):
    with accounts("companion-activities") as (simulator, broker, users):
        before = broker.memory()[0]
        note(f"companion: {ACTIVITIES:,} Live Activities")
        users.activities(ACTIVITIES, EACH)
        note(f"companion: {UPDATES:,} updates a second for {seconds} s, and the last windows")
        listed, most, ended = [], [0], threading.Event()

        def look():
            # The list is of the latest 10,000: often enough that none is missed, and read afterwards.
            due = time.monotonic()
            while not ended.wait(0.5):
                most[0] = max(most[0], broker.memory()[0])
                if time.monotonic() >= due:
                    listed.append(simulator.listed())
                    due += LISTED

        looker = threading.Thread(target=look)
        watch = load.Watch(broker, simulator, users.process)
        looker.start()
        try:
            sent = users.progress(ACTIVITIES, EACH, UPDATES * seconds, UPDATES, 1)
            spent, others = watch.end()
            broker.settle()
        finally:
            ended.set()
            looker.join()
        time.sleep(1)
        listed.append(simulator.listed())

    pushes = {}
    for some in map(json.loads, listed):
        some = {push["headers"]["apns-id"]: push for push in some}
        if pushes and pushes.keys().isdisjoint(some):
            raise Invalid("pushes came faster than they were listed")
        pushes |= some
    if bad := sum(status != 202 for *_, status in sent):
        raise Invalid(f"{bad} updates failed or were refused")
    gaps, backwards, late, missing = _check(sent, pushes.values())

    section.parts.append("### The throttle of Live Activities")
    section.text(f"""
        {UPDATES:,} `progress_update` a second for {seconds} seconds, to {ACTIVITIES:,} Live Activities. The policy allows each one push in {WINDOW}
        seconds. Two may arrive {TOLERANCE * 1000:.0f} ms nearer than they left.
        """)
    answers, updated = [ms for *_, ms, _ in sent], len({one[0] for one in sent})
    section.table(["", "measured"], [
        ["updates sent and answered", f"{len(sent):,}"],
        ["Live Activities among them", f"{updated:,}"],
        ["pushes of them", f"{len(pushes):,}"],
        ["shortest time between two of an activity", f"{min(gaps):.3f} s"],
        ["pushes with no later `timestamp`", backwards],
        ["activities whose last update was late or lost", sum(one > WINDOW + TOLERANCE for one in late) + missing],
        ["longest time from a last update to its push", f"{max(late):.3f} s"],
        ["p99 of the answers", f"{number(percentile(answers, 0.99))} ms"],
        ["CPU an update, with its pushes and entries", f"{number(spent / len(sent) * 1e6)} µs"],
        ["memory before the registrations", f"{number(before / MIB)} MiB"],
        ["memory at most", f"{number(most[0] / MIB)} MiB"],
    ])
    section.disturbance([others])
    section.aims += [
        Aim("shortest time between two updates of a Live Activity", WINDOW - TOLERANCE, Series([min(gaps)]), unit="s"),
        Aim("share of Live Activities whose last update came in time", 1, Series([
            sum(one <= WINDOW + TOLERANCE for one in late) / updated])),
    ]


def _check(sent, pushes):
    """(seconds between two of one activity; how often `timestamp` did not grow; seconds from an activity's last answer to its last push; how many
    last updates never came)"""
    came = {}
    for push in pushes:
        aps = push["payload"]["aps"]
        came.setdefault(int(push["token"], 16) - 1, []).append((
            datetime.fromisoformat(push["at"]).timestamp(), aps["timestamp"], aps["content-state"]["todoProgress"]["completed"]))
    gaps, backwards = [], 0
    for mine in came.values():
        mine.sort()
        for (before, stamp, _), (after, later, _) in zip(mine, mine[1:]):
            gaps.append(after - before)
            backwards += later <= stamp
    late, missing = [], 0
    last = {one[0]: one for one in sent}
    for activity, turn, _, answered, *_ in last.values():
        at = next((at for at, _, which in came.get(activity, []) if which == turn), None)
        if at is None or came[activity][-1][2] != turn:
            missing += 1
        else:
            late.append(at - answered)
    return gaps, backwards, late, missing


# MARK: Many registrations

def _many(section, rounds, seconds, note):
    delays, cpu, others, knocking = {FEW: {}, MANY: {}}, {FEW: Series(), MANY: Series()}, [], Series()
    with accounts("companion-few") as few, accounts("companion-many") as many:
        note(f"companion: {FEW:,} and {MANY:,} registrations")
        _, broker, users = many
        before, empty = broker.memory()[0], _pages(broker)
        few[2].devices(0, FEW)
        start = time.monotonic()
        users.devices(0, MANY)
        note(f"companion: registered in {time.monotonic() - start:.0f} s")
        time.sleep(2)
        grown, tables = broker.memory()[0] - before, {name: size - empty.get(name, 0) for name, size in _pages(broker).items()}
        knocks = Knocks(few[1].port, KNOCKED)
        for turn in range(rounds):
            for count, (simulator, broker, users) in ((FEW, few), (MANY, many)):
                note(f"companion: round {turn + 1}, {RATE:,} events a second with {count:,} registrations")
                others.append(load.valid(_steady, simulator, broker, users, count, seconds, turn, delays[count], cpu[count]))
            knocking.add(load.valid(_knocks, few[1], knocks, seconds))

    section.parts.append("### Many registrations")
    rows = {name: tables[name] / MANY for name in ("registration", "registration_index")}
    section.text(f"""
        {RATE:,} `task_complete` a second, with {FEW:,} and with {MANY:,} registered devices. A knock at this rate takes {knocking} µs, since few
        share a transaction. A registration takes {number(rows['registration'])} bytes in its table and {number(rows['registration_index'])} in its
        indexes; {MANY:,} take {number(grown / MIB)} MiB of memory (RSS).
        """)
    section.table(["registrations", "p50 of an event, ms", "p99, ms", "CPU µs an event"], [
        *([f"{count:,}", delays[count][0.5], delays[count][0.99], cpu[count]] for count in (FEW, MANY)),
        ["ratio", *(delays[MANY][share].over(delays[FEW][share]) for share in (0.5, 0.99)), cpu[MANY].over(cpu[FEW])]])
    section.disturbance(others)


def _pages(broker):
    with broker.database() as database:
        return dict(database.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name"))


def _steady(simulator, broker, users, count, seconds, turn, delays, cpu):
    users.complete(count, RATE, RATE, f"warm-up {turn}")
    broker.settle()
    watch = load.Watch(broker, simulator, users.process)
    seen = users.complete(count, RATE * seconds, RATE, turn)
    broker.settle()
    spent, others = watch.end()
    if bad := sum(status != 202 for *_, status in seen):
        raise Invalid(f"{bad} events failed or were refused")
    for share in (0.5, 0.99):
        delays.setdefault(share, Series()).add(percentile([ms for _, ms, _ in seen], share))
    cpu.add(spent / len(seen) * 1e6)
    return others


def _knocks(broker, knocks, seconds):
    """CPU µs of a knock at the same rate."""
    before = broker.cpu()
    seen = knocks.knock(RATE * seconds, RATE)
    broker.settle()
    if bad := sum(delivery != "queued" for *_, delivery in seen):
        raise Invalid(f"{bad} knocks were not queued")
    return (broker.cpu() - before) / len(seen) * 1e6
