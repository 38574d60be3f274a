"""`make bench` itself. `make check` runs each of its parts at its smallest size."""

import subprocess
import sys

from processes import REPOSITORY, clean_environment

BENCH = REPOSITORY / "Benchmarks/bench.py"


def bench(*words, **environment):
    return subprocess.run([sys.executable, BENCH, *words], capture_output=True, text=True, timeout=60, env=clean_environment(**environment))


def test_a_missing_tool_is_named_before_anything_is_measured(tmp_path):
    before = (REPOSITORY / "docs/benchmarks.md").read_bytes()
    for words, tools in ((("--only", "engine"), ("nginx", "wrk", "h2load")), (("--only", "nodes"), ("psql", "pgbench")), ((), ("nginx", "pgbench", "unshare"))):
        ran = bench(*words, "--rounds", "1", "--seconds", "1", PATH=tmp_path)
        assert ran.returncode == 1 and ran.stderr.startswith("bench: ") and "scripts/setup bench" in ran.stderr and not ran.stdout, ran
        assert all(f"needs {tool}" in ran.stderr for tool in tools) and len(ran.stderr.splitlines()) == 1, ran.stderr
    assert (REPOSITORY / "docs/benchmarks.md").read_bytes() == before


def test_the_check_runs_each_part():
    assert "make bench ROUNDS=1 SECONDS=1" in (REPOSITORY / "scripts/check").read_text()
