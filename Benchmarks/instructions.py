#!/usr/bin/env python3
"""Counts the instructions of single operations with valgrind's callgrind, of all threads, and compares them with instructions.json.

An instruction of the kernel doesn't count, and the machine's load hardly matters. A figure that differs by more than 3 % fails. `--write` replaces the
figures; the commit says why one rose. `--only request` counts one part. Figures hold for the libraries and the kind of processor they were counted with."""

import argparse
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean

sys.dont_write_bytecode = True

import processes  # noqa: E402
from processes import BOTH_CORES, HERE, MAYFLY, MAYFLY_BENCH, Broker, Engine, Invalid, Simulator, folder, throwaway_keys  # noqa: E402

FIGURES = HERE / "instructions.json"
TOLERANCE = 0.03
REQUEST, CREATE, ACCEPT, KNOCK, ENTRY, PURGE = (
    "a static request", "a create", "an accept", "a knock to its outcome", "a verified entry", "a purge")
# Blocks are short, so publications, checkpoints and timers add to few of them. The figure is the mean of the lower half.
BLOCKS = 16
# Operations before them fill caches and grow tables.
WARM_UP = 60
ENTRIES = 50_000
# Rooms with two tokens each that expire at one moment.
ROOMS = 6_000
# Seconds for the start of a broker under callgrind; the longer one is for a busy machine.
PATIENCE = (30, 150)
# The sweep begins at this second of a minute. The log is published at the minute.
SWEEP_AT = 5
# Knocks within ten seconds of an accept leave later.
AFTER_ACCEPT = 10.5


class Callgrind:
    """A program under callgrind, whose counts are read while it runs."""

    def __init__(self, name):
        self.folder = folder(f"{name}-profile")
        self.words = [
            "valgrind", "--tool=callgrind", "--quiet", f"--callgrind-out-file={self.folder}/out", f"--vgdb-prefix={self.folder}/gdb"]
        self.parts = 0

    def count(self, pid):
        """The instructions since the last call."""
        subprocess.run(
            ["callgrind_control", f"--vgdb-prefix={self.folder}/gdb", "--dump", str(pid)], check=True, stdout=subprocess.DEVNULL, timeout=120)
        self.parts += 1
        return total(self.folder / f"out.{self.parts}")


def total(profile):
    return int(re.search(r"^totals: (\d+)$", profile.read_text(), re.M)[1])


class Counts:
    """What was counted: the instructions of an operation in each block."""

    def __init__(self):
        self.blocks = {}

    def add(self, name, blocks):
        self.blocks[name] = blocks
        halves = [usual(blocks[part::2]) for part in (0, 1) if blocks[part::2]]
        spread = f"; halves of the blocks differ by {max(halves) / min(halves) - 1:.2%}" if len(halves) == 2 else ""
        print(f"instructions: {name}: {self.figure(name):,}{spread}", flush=True)

    def figure(self, name):
        return round(usual(self.blocks[name]))

    def time(self, name, callgrind, process, operations, each):
        """Counts `operations`, which are called one after the other, in blocks of `each`."""
        for _ in range(WARM_UP):
            next(operations)()
        callgrind.count(process.pid)
        blocks = []
        for _ in range(BLOCKS):
            for _ in range(each):
                next(operations)()
            blocks.append(callgrind.count(process.pid) / each)
        self.add(name, blocks)


def usual(blocks):
    return mean(sorted(blocks)[:(len(blocks) + 1) // 2])


class Caller:
    """One connection, and one request at a time."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)

    def ask(self, method, path, body=None, room=None, expected=200):
        text = json.dumps(body) if body is not None else ""
        room = f"Authorization: Bearer {room}\r\n" if room else ""
        # In one piece, so that it is always read in one.
        self.socket.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{room}Content-Length: {len(text)}\r\n\r\n{text}".encode())
        answer = http.client.HTTPResponse(self.socket)
        answer.begin()
        text = answer.read()
        if answer.status != expected:
            raise Invalid(f"{method} {path}: {answer.status} {text!r}")
        return json.loads(text)


def static_request(counts):
    callgrind = Callgrind("instructions-engine")
    engine = Engine("instructions-engine", under=callgrind.words)
    try:
        caller = Caller(engine.port)

        counts.time(REQUEST, callgrind, engine, itertools.repeat(lambda: caller.ask("GET", "/")), 250)
    finally:
        engine.stop()


def policy(name):
    """The benchmarks' policy without delays, presence that ends, and batches before midnight."""
    chosen = json.loads((HERE / "policy.json").read_text())
    chosen["limits"] |= {"presenceSeconds": 600, "peerGraceSeconds": 0, "startGraceSeconds": 0}
    chosen["ledger"] = {"hourSeconds": 3600, "daySeconds": 86_400, "batchSeals": 10_000}
    file = folder(f"{name}-policy") / "policy.json"
    file.write_text(json.dumps(chosen))
    return file


@contextlib.contextmanager
def broker(name, state, apns_port=9):
    """A broker under callgrind."""
    callgrind = Callgrind(name)
    started = Broker(name, state=state, apns_port=apns_port, policy=policy(name), cpus=BOTH_CORES, under=callgrind.words)
    try:
        yield started, callgrind
    finally:
        started.stop()


def rooms(counts):
    """A create, an accept, and a knock until its outcome is at the simulator and in the store."""
    state = folder("instructions")
    throwaway_keys(state)
    simulator = Simulator("instructions-apns", state, BOTH_CORES, record=state.parent / "instructions.pushes")
    # Inserts at random places split pages now and then, so these need more operations.
    each = {CREATE: 64, ACCEPT: 64, KNOCK: 32}
    numbers = range(WARM_UP + BLOCKS * max(each.values()))
    made = []
    try:
        with broker("instructions", state, simulator.port) as (asked, callgrind):
            caller = Caller(asked.port)

            def create(number):
                made.append(caller.ask("POST", "/api/rooms", {
                    "joinid": f"instructions-{number:04}", "expiresInSeconds": 7200, "client1": "ann", "client1_token": f"{number:064x}"},
                    expected=201)["roomid"])

            def accept(number):
                caller.ask("POST", "/api/rooms/accept", {
                    "joinid": f"instructions-{number:04}", "client2": "ben", "client2_token": f"{number + 100_000:064x}"})

            def knock(number):
                before = simulator.count()
                told = caller.ask("POST", "/api/room/presence", {"client": "ben"}, made[number], expected=202)
                if told["delivery"] != "queued":
                    raise Invalid(f"a knock was not queued: {told}")
                asked.settle()
                # The simulator records its answer once it is sent, so the broker may have the answer before.
                end = time.monotonic() + 5
                while simulator.count() == before and time.monotonic() < end:
                    time.sleep(0.01)
                if simulator.count() != before + 1:
                    raise Invalid("a knock has an outcome, and not one push")

            for name, act in ((CREATE, create), (ACCEPT, accept), (KNOCK, knock)):
                if act is knock:
                    time.sleep(AFTER_ACCEPT)
                operations = (lambda number=number, act=act: act(number) for number in numbers)
                counts.time(name, callgrind, asked, operations, each[name])
    finally:
        simulator.stop()


def entry(counts):
    """`audit verify` of two logs: what the longer one costs more."""
    sizes, spent = [], []
    for entries in (0, ENTRIES):
        place = folder("instructions-ledger")
        told = run(MAYFLY_BENCH, "ledger", "--folder", place / "log", "--entries", 10_000 + entries)
        profile = place / "out"
        run("valgrind", "--tool=callgrind", "--quiet", f"--callgrind-out-file={profile}", MAYFLY, "audit", "verify", place / "log/alone", "--key",
            json.loads(told)["key"])
        sizes.append(json.loads(told)["size"])
        spent.append(total(profile))
    counts.add(ENTRY, [(spent[1] - spent[0]) / (sizes[1] - sizes[0])])


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise Invalid(f"{words[0]}: {done.stdout}{done.stderr}")
    return done.stdout


def purge(counts):
    """A sweep of rooms that expire at one moment. A sweep adapts to its speed; under callgrind it always takes the smallest bites."""
    for patience in PATIENCE:
        with contextlib.suppress(TooSlow):
            return counts.add(PURGE, [sweep(patience)])
    raise Invalid("the machine is too slow: a broker was not ready when the rooms expired")


class TooSlow(Exception):
    """A broker was not ready when the rooms expired."""


def sweep(patience):
    state = folder("instructions-sweep")
    throwaway_keys(state)
    Broker("instructions-sweep", state=state, policy=policy("instructions-sweep")).stop()  # makes the database
    moment = (time.time() + patience) // 60 * 60 + 60 + SWEEP_AT
    run(MAYFLY_BENCH, "fill", "--state", state, "--rooms", ROOMS, "--first", int(moment * 1000), "--over", 0)
    with broker("instructions-sweep", state) as (asked, callgrind):
        # Not earlier, so that what a start leaves to do is done.
        time.sleep(max(0, moment - 2 - time.time()))
        callgrind.count(asked.pid)
        if time.time() > moment:
            raise TooSlow
        time.sleep(moment - time.time())
        left = None
        while left != 0:
            time.sleep(0.2)
            with asked.database() as database:
                # Rooms go after their tokens.
                (left,) = database.execute("SELECT (SELECT count(*) FROM token) + (SELECT count(*) FROM room)").fetchone()
        return callgrind.count(asked.pid) / (2 * ROOMS)


PARTS = {"purge": purge, "request": static_request, "rooms": rooms, "entry": entry}


REMEDY = "run Benchmarks/instructions.py --write"


def judge(found, known):
    """What is wrong with the figures found, as lines. `known`: those of the file."""
    for name, figure in found.items():
        change = figure / known.get(name, figure) - 1
        if name not in known:
            yield f"instructions: {name} has no figure in {FIGURES.name}: {REMEDY}."
        elif change > TOLERANCE:
            yield (f"instructions: {name} takes {figure:,}, {change:.1%} more than the {known[name]:,} of {FIGURES.name}. Find out what costs more. "
                   f"If it is worth that, {REMEDY}, and say why in the commit.")
        elif change < -TOLERANCE:
            yield (f"instructions: {name} takes {figure:,}, {-change:.1%} less than the {known[name]:,} of {FIGURES.name}. Lower the figure, so that the "
                   f"gain stays: {REMEDY}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="count these parts only")
    parser.add_argument("--write", action="store_true", help=f"replace the figures in {FIGURES.name}")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("instructions: ended"))
    processes.prepare()
    counts = Counts()
    try:
        # Counts don't depend on what runs beside them, and parts often wait.
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(PARTS[part], counts) for part in asked.only or PARTS]:
                done.result()
    except Invalid as reason:
        raise SystemExit(f"instructions: {reason}")
    finally:
        processes.stop_all()
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    found = {name: counts.figure(name) for name in counts.blocks}
    if asked.write:
        kept = known if asked.only else {}
        FIGURES.write_text(json.dumps(kept | found, indent=2, sort_keys=True) + "\n")
    elif wrong := [*judge(found, known)]:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
