"""Runs wrk and h2load, and reads their reports."""

import contextlib
import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from machine import LOAD_CPU, SERVER_CPU
from processes import Invalid

HERE = Path(__file__).resolve().parent
CONNECTIONS = 64
# More refused or failed requests than these make a run worthless.
HANDFUL = 5
# Why runs were thrown out and made again.
thrown_out = []


@dataclass
class Load:
    """One run: the counts of answers, and the p99 of their latency."""

    requests: int
    seconds: float
    errors: int
    p99_ms: float = 0.0
    cpu: float = 0.0
    # Share of the two cores that went to neither server nor load, nor was idle.
    others: float = 0.0

    @property
    def rate(self):
        return self.requests / self.seconds

    @property
    def cpu_us(self):
        return self.cpu / self.requests * 1e6


def _busy():
    """Seconds that the two cores were not idle so far; time that a hypervisor gave to someone else counts."""
    lines = dict(line.split(maxsplit=1) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu"))
    total = 0
    for cpu in (SERVER_CPU, LOAD_CPU):
        user, nice, system, _, _, irq, softirq, steal = map(int, lines[f"cpu{cpu}"].split()[:8])
        total += user + nice + system + irq + softirq + steal
    return total / os.sysconf("SC_CLK_TCK")


class Watch:
    """CPU time of the server, and of everyone else but server and load, while a load runs. `running`: what else belongs to the load and goes
    on after it."""

    def __init__(self, server, *running):
        self.server, self.running = server, running
        self.start, self.before, self.busy, self.mine = time.monotonic(), server.cpu(), _busy(), self._own()

    def _own(self):
        ended = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
        return ended + sum(process.cpu() for process in self.running)

    def end(self):
        """(the server's seconds, the others' share of both cores)"""
        spent = self.server.cpu() - self.before
        others = _busy() - self.busy - spent - (self._own() - self.mine)
        return spent, max(0.0, others / (2 * (time.monotonic() - self.start)))


@contextlib.contextmanager
def on(cpus):
    """Processes started inside run on these cores."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def valid(measure, *arguments):
    """Returns a valid run's result. Repeats an invalid run twice at most."""
    for _ in range(2):
        try:
            return measure(*arguments)
        except Invalid as reason:
            thrown_out.append(str(reason))
            print(f"          thrown out: {reason}", file=sys.stderr, flush=True)
    return measure(*arguments)


def _checked(load, what):
    if load.errors > HANDFUL or load.requests == 0:
        raise Invalid(f"{what}: {load.errors} requests failed or were refused, {load.requests} were answered")
    return load


def wrk(server, seconds, script="report.lua", arguments=(), connections=CONNECTIONS, tls=False, ports=()):
    """Runs wrk with one thread against a server, and reads the server's CPU time before and after. `ports`: one for each of several threads."""
    url = f"{'https' if tls else 'http'}://127.0.0.1:{server.port}/"
    watch = Watch(server)
    done = subprocess.run(
        ["wrk", f"-t{len(ports) or 1}", f"-c{connections}", f"-d{seconds}s", "-s", HERE / script, url, "--", *map(str, arguments)],
        capture_output=True, text=True, timeout=seconds + 60, env=os.environ | {"PORTS": " ".join(map(str, ports))})
    spent, others = watch.end()
    report = re.search(r"^report (\d+) (\d+) (\d+) ([\d.]+)$", done.stdout, re.M)
    if not report:
        raise Invalid(f"wrk against {server.name}: {done.stdout}{done.stderr}{server.log()}")
    requests, microseconds, errors = map(int, report.groups()[:3])
    load = Load(requests, microseconds / 1e6, errors, float(report[4]) / 1000, spent, others)
    return _checked(load, f"wrk against {server.name}")


def h2load(server, seconds):
    """HTTP/2 over TLS: as many connections as wrk's, 32 streams on each."""
    watch = Watch(server)
    done = subprocess.run(
        ["h2load", "-t1", f"-c{CONNECTIONS}", "-m32", f"-D{seconds}", f"https://127.0.0.1:{server.port}/"],
        capture_output=True, text=True, timeout=seconds + 60)
    spent, others = watch.end()
    counts = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", done.stdout)
    finished = re.search(r"^finished in [^,]*, ([\d.]+) req/s", done.stdout, re.M)
    if not counts or not finished or float(finished[1]) == 0 or "Application protocol: h2" not in done.stdout:
        raise Invalid(f"h2load against {server.name}: {done.stdout}{done.stderr}{server.log()}")
    good, failed, errored, timeout = map(int, counts.groups())
    # At its end h2load counts its own aborted streams as errors.
    under_way = CONNECTIONS * 32
    errors = failed + timeout + max(0, errored - under_way)
    load = Load(good, good / float(finished[1]), errors, cpu=spent, others=others)
    return _checked(load, f"h2load against {server.name}")
