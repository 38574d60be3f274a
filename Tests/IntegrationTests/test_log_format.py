"""The grammar of audit/log-format.md: all four verifiers judge odd files as it says. They are Swift's, Python's, the page's and Go's."""

import hashlib
import shutil
import sys

import pytest

import logs
import odd_files
from browser import Browser
from file_server import roomy_folder
from log_fixtures import go  # noqa: F401
from log_server import LogServer
from page_opinion import PageOpinion
from processes import REPOSITORY
from test_hostile_logs import DAY, entry, named, opened, outcome, ratchet, start, steps, tick
from verifiers import opinions, verify


@pytest.fixture(scope="module")
def folder():
    path = roomy_folder("mayfly-format-")
    shutil.copy(REPOSITORY / "Sources/Edges/AuditPage/index.html", path)
    shutil.copytree(REPOSITORY / "Sources/Edges/AuditPage/page", path / "page")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def page(folder):
    server = LogServer(folder)
    with Browser() as browser, browser.open(f"{server.url}/index.html", listens=False) as page:
        yield PageOpinion(page, server.url)
    server.close()


class Judges:
    """The verdicts of all four on one log after another."""

    def __init__(self, go, page, folder):
        self.go, self.page, self.folder, self.wrong = go, page, folder, []

    def make(self, entries, policies=()):
        shutil.rmtree(self.folder / "log", ignore_errors=True)
        return logs.make(self.folder / "log", [entries], policies=policies)

    def judge(self, what, log, wanted):
        """Go's code for any fault of checkpoint, tiles and bundles is `tree`."""
        said = opinions(self.go, log.folder, log.vkey)
        code, words = self.page("log", log.vkey)
        by_go = wanted if said.go == "tree" and wanted in ("signature", "damaged", "tree") else said.go
        if {said.swift, said.python, by_go, code} != {wanted}:
            self.wrong.append(f"{what}: {wanted} expected, Swift {said.swift}, Python {said.python}, Go {said.go}, page {code}: {said.words} {words['findings'][:1]}"[:600])


@pytest.fixture
def judges(go, page, folder):  # noqa: F811
    judges = Judges(go, page, folder)
    yield judges
    assert not judges.wrong, "\n".join(judges.wrong)


def test_policies(judges):
    """Named by the start, which reads all of a policy."""
    for what, (wanted, content) in odd_files.POLICIES.items():
        name = hashlib.sha256(content).hexdigest()
        pushes = [opened(0), outcome(0)] if b"peer_waiting" in content or b"eer_waiting" in content else []
        judges.judge(what, judges.make([start(0, policy=name), *pushes, tick(60)], [content]), wanted)


def test_policies_that_are_loaded(judges):
    for what, (wanted, content) in odd_files.LOADED.items():
        name = hashlib.sha256(content).hexdigest()
        judges.judge(what, judges.make([start(0), entry(0, "policy.loaded", name="x", policy=name), tick(60)], [content]), wanted)


def test_a_policy_of_another_content(judges):
    content = odd_files.policy()
    name = hashlib.sha256(content).hexdigest()
    log = judges.make([start(0, policy=name)], [content])
    log.put(f"policies/{name}.json", content + b" ")
    judges.judge("a space more", log, "damaged")


def test_checkpoints(judges):
    for what, (wanted, change) in odd_files.CHECKPOINTS.items():
        log = judges.make([start(0)])
        log.put("checkpoint", change(logs.head(1, log.tree.root(), logs.ORIGIN), log.key))
        judges.judge(what, log, wanted)


def test_tiles_and_bundles(judges):
    for what, (wanted, path, change) in odd_files.FILES.items():
        log = judges.make([start(0), tick(0), tick(60)])
        log.put(path, change((log.folder / path).read_bytes()))
        judges.judge(what, log, wanted)


# A log that keeps tokens of many days, and whose broker was away at one midnight. Each later window asks for the next midnight.


def away_at_midnight(buckets, windows):
    name = named(logs.policy(limits={"roomLifeSeconds": {"max": DAY * (buckets + 2), "min": 10}}))
    return [start(0, 1, name), *[entry(0, "token.sealed", id=f"{number:032x}", until=logs.moment(logs.START + DAY * (number + 2))) for number in range(buckets)],
            *steps(300, 3301), start(3630, 1, name), ratchet(3630, 10), *[tick(3631 + number) for number in range(windows)]]


def test_open_buckets_cost_no_steps_in_a_window_by_python(tmp_path):
    """Counts the interpreter's steps after the start."""
    def count(buckets):
        log = logs.make(tmp_path / str(buckets), [away_at_midnight(buckets, 100)])
        story, counted = verify.Story(f"{log.folder}/policies", False), 0
        for index, raw in enumerate(log.entries):
            told = verify.parse(raw, "")
            if index < len(log.entries) - 100:
                assert story.tell(told, index) is None
                continue

            def step(frame, event, _):
                nonlocal counted
                frame.f_trace_opcodes = True
                counted += event == "opcode"
                return step
            sys.settrace(step)
            try:
                broken = story.tell(told, index)
            finally:
                sys.settrace(None)
            assert broken is None
        return counted
    few, many = count(100), count(3_000)
    assert 1_000 < many < 1.1 * few, f"{few} steps with 100 buckets, {many} with 3,000"


STEPS = """(async () => {
    const { Balance } = await import('/page/balance.js');
    const { Clock } = await import('/page/clock.js');
    const { keys } = Map.prototype;
    const count = (buckets) => {
        const clock = new Clock(), balance = new Balance(clock);
        [clock.window, clock.at] = [1, 0];
        balance.begin({ hour: 600, day: 3600, seals: 4 }, 0, 0);
        for (let number = 0; number < buckets; number++) balance.seal(3600 * (number + 2), 1e12, number);
        balance.endBatch(buckets);
        clock.at = 3300;
        clock.recordSilence(3630);
        clock.at = 3630;
        let steps = 0;
        Map.prototype.keys = function* () {
            for (const key of keys.call(this)) {
                steps += 1;
                yield key;
            }
        };
        for (let number = 0; number < 100; number++) {
            clock.at += 1;
            balance.endWindow(buckets);
        }
        Map.prototype.keys = keys;
        return steps;
    };
    return [count(100), count(3000)];
})()"""


def test_open_buckets_cost_no_steps_in_a_window_by_the_page(page):
    """Counts the buckets that it looks at."""
    few, many = page.page.value(STEPS)
    assert many <= few, f"{few} steps with 100 buckets, {many} with 3,000"


def test_many_buckets_verify(judges):
    log = judges.make(away_at_midnight(2_000, 300))
    judges.judge("2,000 buckets", log, None)
