"""The courier: pushes a second of one core beside other clients, the time from a knock to APNs, and the cost of pushes that wait for APNs."""

import json
import re
import resource
import subprocess
import time
from collections import Counter
from datetime import datetime

import load
from clients import APNS, COLLAPSE_ID, LIFE, device, payload
from knocks import Knocks, token
from machine import LOAD_CPU, REPOSITORY, size
from page import Aim, Section, Series, number, percentile
from processes import HERE, KEY_ID, MAYFLY, ONE_CORE, PROGRAMS, TEAM_ID, TOPIC, Broker, Invalid, Simulator, folder, throwaway_keys
from steady import Steady

STREAMS = 1_000
# httpx opens no more on one connection, whatever the peer allows; the others from Python do less with more.
PYTHON_STREAMS = 100
# One push may wait for each side of a room, and a network has an eighth of what is free of 200,000 (docs/reference.md, Fair shares). So each room is
# knocked at once while APNs is away, and all knocks of this one address fit.
RATE, ROOMS = 1_000, size(20_000, 2_000)
PYTHON = REPOSITORY / ".build/bench/venv/bin/python"
KIB, MIB = 1024, 1024 * 1024


def run(rounds, seconds, note):
    # The simulator lists its latest 10,000 pushes.
    seconds = min(seconds, 10_000 // RATE)
    section = Section("The courier")
    _clients(section, rounds, seconds, note)
    state = folder("courier-broker")
    throwaway_keys(state)
    simulator = Simulator("courier-apns", state, {LOAD_CPU})
    broker = Broker("courier-broker", state=state, apns_port=simulator.port)
    knocks = None
    try:
        note(f"courier: {ROOMS:,} rooms")
        knocks = Knocks(broker.port, ROOMS)
        _latency(section, broker, simulator, knocks, rounds, seconds, note)
        _queue(section, broker, simulator, knocks, seconds, note)
    finally:
        for process in [*([knocks] if knocks else []), broker]:
            process.stop()
    return section


# MARK: Beside other clients

def child(command, cpus=ONE_CORE, timeout=120):
    """Returns a program's output, and its CPU seconds in user mode and in the kernel."""
    before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    with load.on(cpus):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise Invalid(f"{command[0]}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return done.stdout, sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before


class Mayfly:
    """`mayfly-bench courier`, which keeps the account of itself after 2,000 pushes."""

    told = "Mayfly's courier"

    def __init__(self, port, state, programs=PROGRAMS):
        self.command = [
            programs / "mayfly-bench", "courier", "--endpoint", f"127.0.0.1:{port}", "--ca", state / "keys/simulator-ca.pem", "--key",
            state / "keys/apns.p8", "--key-id", KEY_ID, "--team-id", TEAM_ID, "--topic", TOPIC, "--in-flight", STREAMS, "--pushes"]
        self.pushes = 20_000

    def prepare(self, seconds):
        self.pushes = int(self.run()[0] * seconds)

    def run(self):
        """(pushes a second, CPU seconds a push)"""
        done = json.loads(child([*self.command, self.pushes])[0])
        if done["failed"]:
            raise Invalid(f"{done['failed']} pushes failed: {self.told}")
        return done["pushes"] / done["seconds"], done["cpuSeconds"] / done["pushes"]


class _H2load:
    """h2load with a push's headers and body. The CPU time of a run of one push is subtracted."""

    told = "h2load"

    def __init__(self, port, state):
        home = folder("courier-h2load")
        issued, _ = child([
            MAYFLY, "apns", "jwt", "--apns-key-path", state / "keys/apns.p8", "--apns-key-id", KEY_ID, "--apns-team-id", TEAM_ID,
            "--apns-bundle-id", TOPIC])
        (home / "body").write_text(json.dumps(payload(0), separators=(",", ":")))
        (home / "uris").write_text("".join(f"https://127.0.0.1:{port}/3/device/{device(at)}\n" for at in range(4096)))
        headers = {
            "authorization": f"bearer {issued.strip()}", "apns-topic": TOPIC, "apns-push-type": "alert", "apns-priority": 10,
            "apns-id": "00000000-0000-4000-8000-000000000000", "apns-expiration": int(time.time()) + LIFE, "apns-collapse-id": COLLAPSE_ID}
        self.command = ["h2load", "-t1", "-c1", f"-m{STREAMS}", "-d", home / "body", "-i", home / "uris"]
        for name, value in headers.items():
            self.command += ["-H", f"{name}: {value}"]
        self.pushes, self.start = 20_000, 0.0

    def prepare(self, seconds):
        rate, _ = self.run()
        self.pushes = 1
        _, self.start = self.run()
        self.pushes = int(rate * seconds)

    def run(self):
        told, cpu = child([*self.command, "-n", self.pushes])
        good = int(re.search(r"(\d+) succeeded", told)[1])
        if self.pushes - good > load.HANDFUL:
            raise Invalid(f"h2load: {self.pushes - good} pushes failed")
        return float(re.search(r"^finished in [^,]*, ([\d.]+) req/s", told, re.M)[1]), (cpu - self.start) / good


class Python:
    def __init__(self, name, port, state):
        pinned = (HERE / "requirements.txt").read_text()
        self.told = f"{name} {re.search(rf'^{name}==(.*)$', pinned, re.M)[1]}"
        self.command = [PYTHON, HERE / "clients.py", name, port, state]

    def prepare(self, seconds):
        self.command += [seconds, PYTHON_STREAMS]

    def run(self):
        done = json.loads(child(self.command)[0])
        if done["failed"]:
            raise Invalid(f"{done['failed']} pushes failed: {self.told}")
        return done["pushes"] / done["seconds"], done["cpuSeconds"] / done["pushes"]


def _clients(section, rounds, seconds, note):
    state = folder("courier-keys")
    throwaway_keys(state)
    simulator = Simulator("courier-simulator", state, {LOAD_CPU})
    measures = [Mayfly(simulator.port, state), _H2load(simulator.port, state), *(Python(name, simulator.port, state) for name in APNS)]
    figures = {measure: {key: Series() for key in ("rate", "cpu", "simulator")} for measure in measures}
    others = []
    try:
        for measure in measures:
            load.valid(measure.prepare, seconds)
        for turn in range(rounds):
            for measure in measures:
                note(f"courier: round {turn + 1}, {measure.told}")
                watch, start = load.Watch(simulator), time.monotonic()
                rate, cpu = load.valid(measure.run)
                spent, disturbed = watch.end()
                others.append(disturbed)
                taken = {"rate": rate, "cpu": cpu * 1e6, "simulator": spent / (time.monotonic() - start)}
                for key, value in taken.items():
                    figures[measure][key].add(value)
    finally:
        simulator.stop()
    _tell_clients(section, measures, figures, others)


def _tell_clients(section, measures, figures, others):
    mine, h2load, *rest = measures
    section.text(f"""
        Clients on one core push to `mayfly apns-simulator` on the other. The courier and h2load have {STREAMS:,} pushes under way on one connection,
        the Python clients {PYTHON_STREAMS}. The simulator limits the fastest, so compare pushes a CPU second. h2load sends constant headers and
        ignores answers.
        """)
    section.table(
        ["", "pushes a second", "CPU µs a push", "of the simulator's core", "courier's pushes a CPU second ÷ this"],
        [[measure.told, *(figures[measure][key] for key in ("rate", "cpu", "simulator")),
          "" if measure is mine else figures[measure]["cpu"].over(figures[mine]["cpu"])] for measure in measures])
    section.disturbance(others)
    section.aims.append(Aim("courier's pushes a CPU second ÷ h2load's", 0.55, figures[h2load]["cpu"].over(figures[mine]["cpu"])))
    fastest = min(rest, key=lambda other: figures[other]["cpu"].median)
    section.aims.append(Aim(
        f"courier's pushes a CPU second ÷ the fastest library's ({fastest.told.split()[0]})", 6, figures[fastest]["cpu"].over(figures[mine]["cpu"])))


# MARK: From a knock to APNs

def _latency(section, broker, simulator, knocks, rounds, seconds, note):
    push, call, others = {}, {}, []
    knocks.knock(RATE, RATE)
    for turn in range(rounds):
        note(f"courier: round {turn + 1}, {RATE:,} knocks a second")
        watch = load.Watch(broker, simulator, knocks.process)
        load.valid(knock_round, simulator, knocks, seconds, push, call)
        others.append(watch.end()[1])
    section.parts.append("### From a knock to APNs")
    section.text(f"""
        {RATE:,} knocks a second at rooms whose other side is away. A push is taken when the simulator has it.
        """)
    section.table(["ms", "p50", "p99", "p99.9"], [
        ["knock sent to push taken", *(push[share] for share in push)],
        ["knock sent to its answer", *(call[share] for share in call)]])
    section.disturbance(others)
    section.aims.append(Aim(f"p99 from a knock to APNs, {RATE:,} a second", 3, push[0.99], at_most=True, unit="ms"))


def knock_round(simulator, knocks, seconds, push, call, rate=RATE):
    count = rate * seconds
    simulator.forget()
    seen = knocks.knock(count, rate)
    _check(seen, count)
    end, at = time.monotonic() + 5, {}
    while len(at) < count:
        if time.monotonic() > end:
            raise Invalid(f"{len(at)} of {count} pushes arrived")
        # On a busy machine some arrive twice.
        at = {one["token"]: datetime.fromisoformat(one["at"]).timestamp() for one in reversed(simulator.pushes())}
    # The simulator truncates times to milliseconds.
    _shares(push, [(at[token(room)] - sent) * 1000 + 1 for room, sent, *_ in seen])
    _shares(call, [ms for _, _, ms, _ in seen])


def _check(seen, count):
    came = Counter(delivery for *_, delivery in seen)
    if count - came["queued"] > load.HANDFUL:
        raise Invalid(f"knocks were not queued: {dict(came)}")
    return came["queued"]


def _shares(series, times):
    for share in (0.5, 0.99, 0.999):
        series.setdefault(share, Series()).add(percentile(times, share))


# MARK: While APNs is away

def _queue(section, broker, simulator, knocks, seconds, note):
    steady = Steady(broker.port, RATE)
    time.sleep(seconds)
    requests = {"before": steady.end()}
    steady.stop()
    simulator.stop()
    watch = load.Watch(broker, knocks.process)
    resident = broker.memory()[0]
    note(f"courier: {ROOMS:,} knocks while APNs is away")
    start = time.time()
    seen = knocks.knock(ROOMS)
    knocking = time.time() - start
    queued = _check(seen, ROOMS)
    with broker.database() as database:
        def jobs():
            return database.execute("SELECT count(*) FROM job").fetchone()[0]

        time.sleep(1)
        if jobs() != queued:
            raise Invalid(f"{jobs()} of {queued} pushes wait")
        grown, cpu, since = broker.memory()[0] - resident, broker.cpu(), time.time()
        time.sleep(seconds)
        at_rest = (broker.cpu() - cpu) / (time.time() - since)
        steady, since = Steady(broker.port, RATE), time.time()
        time.sleep(seconds)
        simulator, back = Simulator("courier-apns", broker.state, {LOAD_CPU}, simulator.port), time.time()
        watch.running += (simulator,)
        leaving = None
        while left := jobs():
            if left < queued:
                leaving = leaving or time.time()
            if time.time() > start + 200:
                raise Invalid(f"{left} pushes have no end")
            time.sleep(0.05)
        end = time.time()
    answers = steady.end()
    steady.stop()
    if bad := sum(status >= 300 for _, _, status in answers):
        raise Invalid(f"{bad} requests failed or were refused while pushes waited")
    leaving = leaving or back
    requests |= {
        "while they wait": [one for one in answers if one[0] + one[1] / 1000 < leaving],
        "while they leave": [one for one in answers if one[0] < end and one[0] + one[1] / 1000 >= leaving]}
    _, others = watch.end()
    broker.stop()
    simulator.stop()
    ends = json.loads(child([MAYFLY, "audit", "verify", broker.state / "ledger", "--key", broker.state / "ledger.vkey", "--json"])[0])
    if ends["opened"] != ends["delivered"] + ends["failed"] or ends["delivered"] < queued:
        raise Invalid(f"{queued} pushes waited, and the log says {ends}")

    section.parts.append("### While APNs is away")
    section.text(f"""
        {ROOMS:,} knocks while APNs refuses connections, one at each room, with {RATE:,} other requests a second. `mayfly audit verify` finds an outcome
        for each push.
        """)
    section.table(["", "measured"], [
        ["knocks taken a second", number(queued / knocking)],
        ["their p99, ms", number(percentile([ms for _, _, ms, _ in seen], 0.99))],
        ["memory a queued push", f"{number(grown / queued / KIB)} KiB"],
        ["broker's memory with all", f"{number((resident + grown) / MIB)} MiB"],
        ["of a core, while they only wait", number(at_rest)],
        ["APNs' return to the first outcome", f"{number(leaving - back)} s"],
        ["first outcome to the last", f"{number(end - leaving)} s"],
        *([f"others' p99 {when}, ms", number(percentile([ms for _, ms, _ in answers], 0.99))] for when, answers in requests.items()),
    ])
    section.disturbance([others])
