"""Protections of the broker's memory against cores, processes of the same user, and swap. A preloaded library (`protections_off.c`) switches each
off once; then the thief finds something."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import table
from memory_load import Load
from memory_scan import Search, core_of, mappings, memory_of, size_of, told
from preload import library
from processes import eventually
from test_memory import POLICY, RELEASE, Loaded, outside_the_arena
from world import World

pytestmark = pytest.mark.campaign

HERE = Path(__file__).resolve().parent
# The same user without capabilities, like any neighbour process of the broker.
POWERLESS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all")


@pytest.fixture(scope="session")
def switch():
    """Environment of a process with these protections off."""
    return lambda *names: {"LD_PRELOAD": library("Adversaries/protections_off.c"), "TEST_OFF": ",".join(names)} if names else {}


def shell(line):
    """Starts a broker after a line of shell."""
    return "bash", "-c", f'{line}; exec "$@"', "bash"


class Rooms:
    """A broker with a few sockets open in their rooms, and nothing else to do."""

    def __init__(self, prefix=(), environment={}):
        self.world = World(policy=POLICY, binary=RELEASE, environment=environment, prefix=prefix, web_push=True)
        try:
            self.load = Load(
                self.world.broker.port, rate=200, seconds=0.5, connections=2, kept_sockets=5,
                subscribe=lambda _: self.world.push.subscribe()).start().finish()
            self.rooms = [secret for secret in self.load.secrets if secret.kind == "room id" and secret.turn.held]
            assert self.rooms
            eventually(lambda: self.world.state.jobs() == 0, what="the end of all pushes")
            time.sleep(1)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self):
        return self.world.broker.child.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.load.close()
        self.world.close()

    def in_core(self, folder, *settings):
        """Takes a core with gdb and these settings. Returns the image, and the secrets in it."""
        path = folder / "core"
        options = [part for setting in ("auto-solib-add off", *settings) for part in ("-iex", f"set {setting}")]
        done = subprocess.run(
            ["gdb", "-nx", "-batch", *options, "-p", str(self.pid), "-ex", f"gcore {path}"], capture_output=True, text=True, timeout=60)
        assert path.exists(), f"gdb took no core: {done.stdout[-500:]}{done.stderr[-500:]}"
        image = core_of(path, mappings(self.pid))
        path.unlink()
        return image, Search(self.load.secrets).in_image(image)


def test_a_forced_core_contains_no_secret(tmp_path):
    """gdb takes a core while sockets are open: by the broker's settings, with all mappings, and ignoring both."""
    with Rooms() as broker:
        asked, nothing = broker.in_core(tmp_path)
        assert nothing == [], told(nothing)
        unfiltered, nothing = broker.in_core(tmp_path, "use-coredump-filter off")
        assert nothing == [], told(nothing)
        everything, found = broker.in_core(tmp_path, "use-coredump-filter off", "dump-excluded-mappings on")
        assert size_of(asked) < 1 << 20 < size_of(unfiltered) < size_of(everything)
        assert outside_the_arena(found) == [], told(found)
        assert {find.secret for find in found} >= set(broker.rooms)
        rooms = len(broker.rooms)
    table.record(
        "a core against the broker's will",
        f"gdb's, {rooms} sockets open: {size_of(asked) >> 10} KiB as the broker asks for, {size_of(unfiltered) >> 20} MiB with all but the "
        "locked memory, then with that", f"nothing; nothing; the {rooms} room ids", "nothing, but to root")


# A thread that sleeps keeps its registers, and glibc copies with the widest ones.
VECTORS = """python
for thread in gdb.selected_inferior().threads():
    thread.switch()
    call = int(gdb.parse_and_eval("$orig_rax"))
    held = [f"{kind}{n}" for n in range(count) if any(int(gdb.parse_and_eval(f"${kind}{n}.v{size}_int64[{i}]")) for i in range(size))]
    print("thread", thread.name, call, ",".join(held))
end
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="NOT TESTED: vector registers are cleared on x86_64 only")
def test_event_loops_sleep_with_empty_vector_registers(tmp_path):
    kind, count, size = ("zmm", 32, 8) if " avx512f " in Path("/proc/cpuinfo").read_text() else ("ymm", 16, 4)
    script = tmp_path / "vectors.gdb"
    script.write_text(VECTORS.replace("python\n", f"python\nkind, count, size = {(kind, count, size)}\n", 1))
    with Rooms() as broker:
        done = subprocess.run(
            ["gdb", "-nx", "-batch", "-iex", "set auto-solib-add off", "-p", str(broker.pid), "-x", script], capture_output=True, text=True, timeout=60)
    threads = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("thread ")]
    # epoll_wait, epoll_pwait. A thread of Dispatch waits in it, too, and handles no request.
    names = {"main", "ledger", "keys", "courier", "web-push"}
    loops = {name: held for name, call, *held in threads if call in ("232", "281") and name in names}
    assert len(loops) >= 3, f"{done.stdout[-500:]}{done.stderr[-500:]}"
    assert not any(loops.values()), f"registers of event loops that sleep: {loops}"


def test_without_protections_a_core_contains_room_ids(tmp_path, switch):
    with Rooms(environment=switch("madvise", "coredump_filter")) as broker:
        image, found = broker.in_core(tmp_path)
        assert size_of(image) > 1 << 20
        assert {find.secret for find in found} >= set(broker.rooms)


@pytest.fixture
def cores_allowed():
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


# Promise: no-secret-in-a-core
@pytest.mark.parametrize("off", [(), ("setrlimit",), ("prctl",), ("prctl", "setrlimit")], ids=lambda off: "and".join(off) or "none")
def test_a_crash_leaves_no_core(off, switch, tmp_path, cores_allowed):
    """Each of the two protections suffices. With both off the kernel writes a core, which shows that the test would notice."""
    with World(binary=RELEASE, apns=False, environment=switch(*off), prefix=shell(f"cd {tmp_path}")) as world:
        world.broker.child.send_signal(signal.SIGSEGV)
        end = os.waitid(os.P_PID, world.broker.child.pid, os.WEXITED | os.WNOWAIT)
    expected = os.CLD_DUMPED if len(off) == 2 else os.CLD_KILLED
    assert (end.si_code, end.si_status) == (expected, signal.SIGSEGV), f"kernel.core_pattern={Path('/proc/sys/kernel/core_pattern').read_text()}"


@pytest.mark.parametrize("off", [(), ("signal",)], ids=lambda off: "and".join(off) or "none")
def test_a_crash_prints_no_memory(off, switch):
    """By default Swift's runtime prints registers and the memory around them."""
    with World(binary=RELEASE, apns=False, environment=switch(*off)) as world:
        before = world.broker.printed()
        world.broker.child.send_signal(signal.SIGSEGV)
        if off:
            eventually(lambda: "Registers:" in world.broker.printed(), 20, what="a backtrace")
        else:
            assert world.broker.child.wait(5) == -signal.SIGSEGV
            assert world.broker.printed() == before
            table.record("who reads the broker's output", "what it prints when it crashes", "nothing", "nothing")


def attempts(pid, address):
    """The outcome of each way to another process's memory, for a process of the same user."""
    done = subprocess.run(
        [*POWERLESS, sys.executable, HERE / "same_user.py", str(pid), str(address)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("off", [(), ("prctl",)], ids=lambda off: "and".join(off) or "none")
def test_a_process_of_the_same_user_reads_nothing(off, switch):
    prefix = (*shell("ulimit -l 65536"), *POWERLESS)
    with Rooms(prefix=prefix, environment=switch(*off)) as broker:
        status = Path(f"/proc/{broker.pid}/status").read_text()
        assert re.search(r"CapEff:\s+0+\n", status), status
        found = Search(broker.rooms).in_image(memory_of(broker.pid))
        achieved = attempts(broker.pid, found[0].address)
        assert set(achieved) == {"ptrace", "process_vm_readv", "/proc/PID/mem", "/proc/PID/maps", "/proc/PID/environ", "/proc/PID/fd"}
        if off:
            # Without the protection the kernel opens it to any debugger, and it contains the room id.
            assert all(result.startswith("read ") for result in achieved.values()), achieved
            assert achieved["/proc/PID/mem"] == achieved["process_vm_readv"] == "read " + found[0].secret.value[:16].hex()
        else:
            assert not any(result.startswith("read ") for result in achieved.values()), achieved
            table.record(
                "a process of the same user", ", ".join(achieved), "nothing: " + ", ".join(sorted(set(achieved.values()))), "nothing")


# Promise: secrets-locked
def test_secrets_are_in_locked_memory(switch):
    """It is kept out of cores and lies between guard pages. The broker does not start if memory can't be locked."""
    with Rooms() as broker:
        arenas = [mapping for mapping in mappings(broker.pid) if mapping.kind == "arena"]
        assert sum(mapping.end - mapping.start for mapping in arenas) >= 64 << 10
        found = Search(broker.rooms).in_image(memory_of(broker.pid))
        assert {find.mapping.kind for find in found} == {"arena"}
    for off in ((), ("mlock",)):
        prefix = (*shell("ulimit -l 0"), *POWERLESS)
        try:
            world = World(binary=RELEASE, apns=False, environment=switch(*off), prefix=prefix)
        except AssertionError as failure:
            assert not off and "can't lock memory" in str(failure), failure
        else:
            world.close()
            assert off, "it started without locked memory"


# Without the key of a message, which is wiped before it is freed.
EVERYTHING = {
    "token", "endpoint", "p256dh", "auth", "room id", "member secret", "join code", "client id", "handle key", "JWT", "user id",
    "session", "activity", "event", "device", "text"}


@pytest.mark.parametrize("off, tls, where, kinds", [
    # Freed memory, and the bytes of requests and answers before they are freed.
    ("explicit_bzero", False, "anonymous", EVERYTHING),
    # Slots of the arena when they are freed.
    ("sodium_memzero", False, "arena", {"token", "endpoint", "p256dh", "auth", "room id", "member secret", "handle key"}),
    # Records that OpenSSL has decrypted.
    ("OPENSSL_cleanse", True, "anonymous", {"token", "endpoint", "p256dh", "auth", "join code", "client id", "user id", "session", "text"}),
])
def test_without_a_wipe_secrets_are_found(off, tls, where, kinds, switch, tmp_path):
    # Traces of a second's traffic vary: later requests may overwrite those of rare kinds.
    found = []
    for attempt in range(10):
        # OpenSSL's buffers are freed, and so overwritten, after a second without traffic.
        folder = tmp_path / str(attempt)
        folder.mkdir()
        loaded = Loaded(folder, tls, seconds=1, rate=1000, environment=switch(off), at_once=off == "OPENSSL_cleanse")
        loaded.close()
        found += [find for find in loaded.search().in_image(loaded.end) if find.mapping.kind == where and not find.secret.turn.held]
        if {find.secret.kind for find in found} >= kinds:
            return
    assert {find.secret.kind for find in found} >= kinds, told(found)
