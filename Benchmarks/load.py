"""The load: wrk and h2load, and what they report."""

import contextlib
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from processes import Invalid

HERE = Path(__file__).resolve().parent
CONNECTIONS = 64
# More refused or failed requests than these make a run worthless.
HANDFUL = 5


@dataclass
class Load:
    """One run: what was answered, and how long the slowest hundredth took."""

    requests: int
    seconds: float
    errors: int
    p99_ms: float = 0.0
    cpu: float = 0.0

    @property
    def rate(self):
        return self.requests / self.seconds

    @property
    def cpu_us(self):
        return self.cpu / self.requests * 1e6


@contextlib.contextmanager
def on(cpus):
    """What is started within runs on these cores."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def _checked(load, what):
    if load.errors > HANDFUL or load.requests == 0:
        raise Invalid(f"{what}: {load.errors} of {load.requests} requests failed or were refused; that is no measurement")
    return load


def wrk(server, seconds, script="report.lua", arguments=(), connections=CONNECTIONS, tls=False):
    """Runs wrk with one thread against a server, and takes the server's CPU time before and after."""
    url = f"{'https' if tls else 'http'}://127.0.0.1:{server.port}/"
    before = server.cpu()
    done = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", HERE / script, url, "--", *map(str, arguments)],
        capture_output=True, text=True, timeout=seconds + 60)
    spent = server.cpu() - before
    report = re.search(r"^report (\d+) (\d+) (\d+) ([\d.]+)$", done.stdout, re.M)
    if not report:
        raise Invalid(f"wrk against {server.name}: {done.stdout}{done.stderr}{server.log()}")
    requests, microseconds, errors = map(int, report.groups()[:3])
    return _checked(Load(requests, microseconds / 1e6, errors, float(report[4]) / 1000, spent), f"wrk against {server.name}")


def h2load(server, seconds):
    """HTTP/2 over TLS: as many connections as wrk's, 32 streams on each."""
    before = server.cpu()
    done = subprocess.run(
        ["h2load", "-t1", f"-c{CONNECTIONS}", "-m32", f"-D{seconds}", f"https://127.0.0.1:{server.port}/"],
        capture_output=True, text=True, timeout=seconds + 60)
    spent = server.cpu() - before
    counts = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", done.stdout)
    finished = re.search(r"^finished in [^,]*, ([\d.]+) req/s", done.stdout, re.M)
    if not counts or not finished or float(finished[1]) == 0 or "Application protocol: h2" not in done.stdout:
        raise Invalid(f"h2load against {server.name}: {done.stdout}{done.stderr}{server.log()}")
    good, failed, errored, timeout = map(int, counts.groups())
    # At the end of its time h2load counts the streams it breaks off as errors of its own.
    under_way = CONNECTIONS * 32
    errors = failed + timeout + max(0, errored - under_way)
    return _checked(Load(good, good / float(finished[1]), errors, cpu=spent), f"h2load against {server.name}")
