"""Fair shares: a bystander's latency with and without a hostile client."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import load
import processes
from attacks import NETWORKS, SOCKETS, STREAM_CONNECTIONS, STREAMS, Attack
from bystander import Bystander
from machine import LOAD_CPU
from page import Aim, Section, Series, percentile
from processes import BOTH_CORES, Broker, Invalid, Simulator, folder, throwaway_keys

RATE, MOST, MIB = 150, 2, 1024 * 1024
TOLD = {
    "reports_in_grace": "endless presence reports within the peer's grace",
    "reports": "endless presence reports",
    "one_token": "the same token again and again",
    "streams": f"{STREAM_CONNECTIONS} HTTP/2 connections with window 0, {STREAMS} requests on each",
    "sockets": f"{SOCKETS} sockets on one side, while the other leaves again and again",
    "networks": f"all connections of {NETWORKS} /64 networks in one /56",
}


def run(rounds, seconds, note):
    section = Section("Fair shares")
    section.text(f"""
        One hostile client works at full speed for {seconds} seconds against default settings. A bystander from another address makes {RATE} requests
        a second. Refused requests and lost pushes are the bystander's; memory and log are the broker's growth.
        """)
    rows, ratios = [], []
    for kind in TOLD:
        found = [_round(kind, seconds, note, turn) for turn in range(rounds)]
        without, during = (Series(each[key] for each in found) for key in ("without", "during"))
        refused, lost, memory, log = (Series(each[key] for each in found) for key in ("refused", "lost", "memory", "log"))
        rows.append([TOLD[kind], without, during, during.over(without), int(max(refused.values)), int(max(lost.values)), memory, log])
        ratios.append(during.over(without))
        if max(refused.values) or max(lost.values):
            note(f"shares: {kind}: REFUSED {max(refused.values)}, LOST {max(lost.values)}")
    section.table(["attack", "p99 without, ms", "p99 with, ms", "ratio", "refused", "pushes lost", "memory, MiB", "log, MiB"], rows)
    section.aims.append(Aim("bystander's p99 under the worst attack ÷ without", MOST, max(ratios, key=lambda ratio: ratio.median), at_most=True))
    return section


def _round(kind, seconds, note, turn):
    if kind != "networks":
        return _measured(kind, seconds, note, turn)
    # A network of its own, for addresses of its own.
    script = 'ip link set lo up && ip -6 route add local fd6d:6179:666c::/48 dev lo && exec "$@"'
    command = ["unshare", "--map-root-user", "--net", "sh", "-c", script, "sh", sys.executable, __file__, kind, str(seconds), str(turn)]
    with load.on(BOTH_CORES):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Invalid(f"{kind}: no network of its own could be made (unshare --map-root-user --net)")
    return json.loads(done.stdout.splitlines()[-1])


def _measured(kind, seconds, note, turn):
    with _world(kind) as (simulator, broker, source):
        before = _seen(broker, kind, seconds, source)
        memory, log = broker.memory()[0], _size(broker.state / "ledger")
        attack = Attack(kind, broker.port, note)
        during = _seen(broker, kind, seconds, source)
        told = attack.end()
        if told:
            note(f"shares: {kind}: {told[:600]}")
        grown = broker.memory()[0] - memory
        knocked = {token for _, _, token, _ in before + during if token}
        end = time.monotonic() + 10
        while (lost := len(knocked - {push["token"] for push in simulator.pushes()})) and time.monotonic() < end:
            time.sleep(0.2)
        refused = [(status, knock) for _, status, token, knock in before + during if not 200 <= status < 300 or token and knock != "queued"]
        if refused:
            note(f"shares: {kind}: refused, among them {refused[:3]}")
        result = {
            "without": p99(before), "during": p99(during), "refused": len(refused), "lost": lost, "memory": grown / MIB,
            "log": (_size(broker.state / "ledger") - log) / MIB}
        note(f"shares: round {turn + 1}, {kind}: p99 {result['without']:.2f} ms, then {result['during']:.2f} ms, {len(during)} requests")
        return result


@contextlib.contextmanager
def _world(kind):
    state = folder(f"shares-{kind}")
    throwaway_keys(state)
    simulator = Simulator(f"shares-apns-{kind}", state, {LOAD_CPU})
    broker = None
    try:
        certificate = state / "keys/simulator.pem" if kind == "streams" else None
        host, source = ("[::1]", "::1") if kind == "networks" else ("127.0.0.1", "127.0.0.2")
        broker = Broker(f"shares-{kind}", state=state, apns_port=simulator.port, policy="rooms", host=host, certificate=certificate)
        yield simulator, broker, source
    finally:
        for process in (broker, simulator):
            if process:
                process.stop()


def _seen(broker, kind, seconds, source):
    seen = Bystander(broker.port, RATE, seconds + 1, source, http2=kind == "streams").end()
    if not seen:
        raise Invalid(f"the bystander saw nothing: {broker.log()}")
    return seen


def p99(seen):
    # Skips the first second as warm-up, but at most half of the samples.
    return percentile((ms for ms, *_ in seen[min(RATE, len(seen) // 2):]), 0.99)


def _size(folder):
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


if __name__ == "__main__":
    processes.WORK.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, {LOAD_CPU})

    def say(text):
        print(text, file=sys.stderr, flush=True)

    try:
        print(json.dumps(_measured(sys.argv[1], int(sys.argv[2]), say, int(sys.argv[3]))))
    finally:
        processes.stop_all()
