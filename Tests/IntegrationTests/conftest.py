"""Fixtures: a broker with its simulator, on free loopback ports, with throw-away keys in a folder that goes away."""

import functools
import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import table
from companion_world import nothing_kept_by
from processes import BINARY, State
from world import World


def pytest_sessionstart(session):
    if not BINARY.exists():
        pytest.exit(f"no binary at {BINARY}: run `swift build` first, or set MAYFLY_BINARY", returncode=2)


# Tests run in several processes (pytest-xdist). A file's tests stay together, and so do all files that look at one long story. (xdist's own marks
# for groups do nothing under pytest 9.2.)
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    @functools.cache
    def group(file):
        return "story" if re.search(r"def test_\w+\([^)]*\bstory\b", (config.rootpath / file).read_text()) else file

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group(nodeid.split("::")[0])
    return ByFile(config, log)


# The table of adversaries is printed at the end, however quiet that is asked to be; each process brings its rows.
def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["adversaries"] = table.rows()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    for row in getattr(node, "workeroutput", {}).get("adversaries", ()):
        table.record(*row)


def pytest_terminal_summary(terminalreporter):
    lines = list(table.lines())
    if lines:
        terminalreporter.section("adversaries")
        for line in lines:
            terminalreporter.write_line(line)


# Tests marked `background` wait for most of their time. They begin together with the first test of their file, each in a thread,
# and are waited for when their turn comes. Their only fixture is `world`; one that counts rows or stops a broker makes its own.
_background = {}


@pytest.fixture(scope="module", autouse=True)
def background(request):
    waiting = [
        item for item in request.session.items
        if item.module is request.module and item.get_closest_marker("background")]
    if not waiting:
        yield
        return
    # A file without a test on its shared broker starts none.
    shared = {"world": request.getfixturevalue("world")} if any("world" in item.fixturenames for item in waiting) else {}
    with ThreadPoolExecutor(len(waiting)) as threads:
        for item in waiting:
            arguments = {name: shared[name] for name in item._fixtureinfo.argnames if name in shared}
            arguments |= item.callspec.params if hasattr(item, "callspec") else {}
            _background[item.nodeid] = threads.submit(item.obj, **arguments)
        yield


def pytest_pyfunc_call(pyfuncitem):
    story = _background.pop(pyfuncitem.nodeid, None)
    if story is None:
        return None
    story.result()
    return True


@pytest.fixture(scope="module")
def world(request):
    """One broker for the tests of a file; they use rooms, users and addresses of their own. `make_world` of a file makes another kind."""
    with getattr(request.module, "make_world", World)() as world:
        yield world
        assert world.broker.running, "the broker ended while the tests of this file ran"


@pytest.fixture
def worlds():
    """Makes worlds for one test, and ends them."""
    made = []

    def make(**more):
        made.append(World(**more))
        return made[-1]
    yield make
    for world in made:
        world.close()


@pytest.fixture
def client(world):
    with closing(world.client()) as client:
        yield client


@pytest.fixture(scope="module")
def back_end(world):
    with closing(world.back_end()) as caller:
        yield caller


@pytest.fixture(scope="module")
def server(world):
    """A back end of printers."""
    with closing(world.server()) as caller:
        yield caller


@pytest.fixture(scope="module")
def service(world):
    """A calling service that signs webhooks."""
    with closing(world.service()) as service:
        yield service


@pytest.fixture
def nothing_kept(world):
    with nothing_kept_by(world):
        yield


@pytest.fixture
def state():
    """A state folder with throw-away keys and nothing running."""
    state = State()
    yield state
    state.remove()


@pytest.fixture
def processes():
    """Processes added to this list are ended after the test."""
    started = []
    yield started
    for process in started:
        process.kill()


@pytest.fixture
def open_folder():
    """A folder that other users can enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="mayfly-open-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 3 MiB, to be filled or made read-only."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a full and a read-only disk need root, for a tmpfs of their own")
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", mount], check=True)
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)
