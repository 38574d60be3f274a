"""The machine of the figures, and the use of its cores."""

import os
import platform
import re
import subprocess
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
# True for a run that only shows that each part works. bench.py sets it before it imports the parts.
is_trial = False
# The folder with another build's programs, which the parts `pairs`, `sweep` and `webpush` measure in turn with this build's. bench.py sets it.
against = None


def size(full, smallest):
    """How many of something a part uses."""
    return smallest if is_trial else full


def _siblings(cpu):
    """The hardware threads of this one's core, itself included."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return {cpu}
    found = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _two_cores():
    """A core for the server and another for the load: two of their own if there are, not two threads of one."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise SystemExit("bench: needs two cores, one for the server and one for the load")
    server = allowed[0]
    apart = [cpu for cpu in allowed[1:] if cpu not in _siblings(server)]
    return server, (apart or allowed[1:])[0]


SERVER_CPU, LOAD_CPU = _two_cores()


def said(*command):
    """The output of a command, or '' if it doesn't exist."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=20)
    except OSError:
        return ""
    return (done.stdout + done.stderr).strip()


def _number(text):
    found = re.search(r"\d+(\.\d+)+", text)
    return found[0] if found else "not found"


def taken():
    """When, and at which commit."""
    commit = said("git", "rev-parse", "--short=12", "HEAD") or "unknown"
    changed = said("git", "status", "--porcelain", "--untracked-files=no", "--", ":!docs/benchmarks.md")
    return f"{time.strftime('%Y-%m-%d', time.gmtime())} at `{commit}`" + (" with changes" if changed else "")


def _listed(versions, *names):
    return ", ".join(f"{name} {versions[name]}" for name in names)


def facts(node):
    """Rows of the page's table about the machine; `node`: how its version is asked for."""
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    system = re.search(r'^PRETTY_NAME="?([^"\n]*)', Path("/etc/os-release").read_text(), re.M)
    memory = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1])
    versions = {
        "nginx": _number(said("nginx", "-v")),
        "Node.js": _number(said(*node, "--version")),
        "Express": _number(said(*node, "-p", "require('express/package.json').version")),
        "node-sqlite3": _number(said(*node, "-p", "require('sqlite3/package.json').version")),
        "SQLite": said("pkg-config", "--modversion", "sqlite3"),
        "OpenSSL": said("pkg-config", "--modversion", "openssl"),
        "wrk": _number(said("wrk", "-v")),
        "h2load": _number(said("h2load", "--version")),
        "Swift": _number(said("swift", "--version")),
    }
    return [
        ("CPU", f"{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores seen"),
        ("pinned", f"servers to core {SERVER_CPU}, load to core {LOAD_CPU}, unless a row says otherwise"),
        ("memory", f"{memory / 1024 / 1024:.0f} GiB"),
        ("system", f"{system[1] if system else 'unknown'}, Linux {platform.release()}"),
        ("compared with", _listed(versions, "nginx", "Node.js", "Express", "node-sqlite3")),
        ("built and measured with", _listed(versions, "SQLite", "OpenSSL", "Swift", "wrk", "h2load")),
    ]
