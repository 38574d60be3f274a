"""`make bench` itself. `make check` runs each of its parts at its smallest size."""

import subprocess
import sys

from processes import REPOSITORY, clean_environment

BENCH = REPOSITORY / "Benchmarks/bench.py"


def bench(*words, **environment):
    return subprocess.run([sys.executable, BENCH, *words], capture_output=True, text=True, timeout=60, env=clean_environment(**environment))


def test_a_missing_tool_is_named_before_anything_is_measured(tmp_path):
    before = (REPOSITORY / "docs/benchmarks.md").read_bytes()
    for words, tools in (
            (("--only", "engine"), ("nginx", "wrk", "h2load")), (("--only", "nodes"), ("psql", "pgbench")), (("--only", "webpush"), ("wrk", "cc")),
            ((), ("nginx", "pgbench", "unshare"))):
        ran = bench(*words, "--rounds", "1", "--seconds", "1", PATH=tmp_path)
        assert ran.returncode == 1 and ran.stderr.startswith("bench: ") and "scripts/setup bench" in ran.stderr and not ran.stdout, ran
        assert all(f"needs {tool}" in ran.stderr for tool in tools) and len(ran.stderr.splitlines()) == 1, ran.stderr
    assert (REPOSITORY / "docs/benchmarks.md").read_bytes() == before


def test_the_check_runs_each_part():
    assert "make bench ROUNDS=1 SECONDS=1" in (REPOSITORY / "scripts/check").read_text()


def judged(found, known):
    """What the count of instructions says about figures: its lines."""
    code = f"import instructions; print(*instructions.judge({found}, {known}), sep='\\n')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=REPOSITORY / "Benchmarks", check=True)
    return ran.stdout.splitlines()


def test_a_figure_of_instructions_that_changes_by_more_than_3_percent_fails():
    known = {"a create": 1000, "an accept": 1000, "a knock": 1000, "a purge": 1000}
    more, less, new = judged({"a create": 1031, "an accept": 969, "a knock": 1029, "a purge": 971, "a request": 1000}, known)
    assert "a create takes 1,031, 3.1% more than the 1,000" in more and "say why in the commit" in more
    assert "an accept takes 969, 3.1% less than the 1,000" in less and "Lower the figure" in less
    assert "a request has no figure" in new


def test_the_check_counts_instructions():
    assert "\nBenchmarks/instructions.py\n" in (REPOSITORY / "scripts/check").read_text()


def test_another_build_needs_both_programs(tmp_path):
    (tmp_path / "mayfly").touch()
    ran = bench("--only", "pairs", "--against", tmp_path)
    assert ran.returncode == 2 and "--against takes a folder with `mayfly` and `mayfly-bench`" in ran.stderr and not ran.stdout, ran


def replacing(text, section):
    return said(f"import page; print(page.replacing({text!r}, page.of_section({section!r}, 'Many')), end='')")


def said(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=REPOSITORY / "Benchmarks", check=True).stdout


def test_a_figure_without_a_bound_has_a_place_on_the_page():
    assert said("import page; print(page.Series([float('inf')]), page.number(1234.5), page.number(0.01234))") == "∞ 1,230 0.0123\n"


def test_a_section_that_is_measured_apart_replaces_only_itself():
    page = "# Page\nhead\n\n## One\n1\n\n## Many\nold\n\n|a|\n\n## Last\nend\n"
    measured = "# Page\nother\n\n## Many\nnew\n\n## Last\nother\n"
    assert replacing(page, measured) == page.replace("old\n\n|a|", "new")
    without = page.replace("## Many\nold\n\n|a|\n\n", "")
    assert replacing(without, measured) == without.replace("## Last", "## Many\nnew\n\n## Last")
    assert replacing(page, "# Page\n") == page
