"""The log as plain files: served by nginx, copied while it grows, unreadable on purpose, and not writable for a while."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from datetime import datetime, timezone

import pytest

import ledger
from file_server import DocumentedServer
from mayfly import Client, new_token
from processes import BINARY, REPOSITORY, Broker, State, audit_verify, clean_environment, eventually, http_status, mayfly, quiet_rooms
from test_startup_errors import start_fails
from world import World

GIB = 1 << 30


@pytest.fixture(scope="module")
def log():
    """A broker with a log of more than one tile, and nginx beside it on the same folder."""
    with World(apns=False) as world:
        client = world.client()
        for number in range(140):
            room = client.room()
            if number % 2:
                client.delete(room.roomid).expect(200)
        client.close()
        eventually(lambda: ledger.read(world.state).of(room.joiner.ref, "token.purged"), what="the last purge in the log")
        with DocumentedServer(world.state / "ledger") as server:
            yield world, server, room


def head(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read(), answer.headers


# Promise: any-file-server-publishes
def test_served_by_nginx(log):
    """With the manual's configuration nginx serves the same bytes, types and lifetimes as the broker."""
    world, server, room = log
    done = mayfly("audit", "verify", server.url, "--key", world.state / "ledger.vkey")
    assert done.returncode == 0, done.stdout + done.stderr
    policy = f"policies/{next((world.state / 'ledger/policies').iterdir()).name}"
    for path in ("checkpoint", "tile/0/000", "tile/entries/000", policy):
        ours, theirs = head(f"{world.broker.url}/audit/{path}"), head(server.url + path)
        assert path == "checkpoint" or ours[0] == theirs[0]
        for field in ("Content-Type", "Cache-Control"):
            assert ours[1][field] == theirs[1][field], (path, field)
    assert http_status(server.url + "tile/0/999") == 404
    proved = mayfly("audit", "prove", server.url, room.creator.ref, "--key", world.state.vkey, "--out", "-")
    assert proved.returncode == 0 and "was purged" in proved.stderr


@pytest.mark.campaign
def test_a_growing_log_verifies(log):
    """Windows are published meanwhile. Each verification finds a whole log."""
    world, server, _ = log
    stop = threading.Event()

    def rooms():
        client = world.client()
        while not stop.is_set():
            room = client.room()
            client.delete(room.roomid)
            time.sleep(0.02)
        client.close()
    writer = threading.Thread(target=rooms)
    writer.start()
    try:
        sizes, end = set(), time.monotonic() + 3
        while time.monotonic() < end:
            done = mayfly("audit", "verify", server.url, "--key", world.state.vkey)
            assert done.returncode == 0, done.stdout + done.stderr
            sizes.add(re.search(r": (\d+) entries", done.stdout).group(1))
    finally:
        stop.set()
        writer.join()
    assert len(sizes) > 1


def publish_script(folder):
    """The script that the manual shows."""
    text = re.search(r"```sh\n(#!/bin/sh\n# publish-ledger.*?)```", (REPOSITORY / "docs/production.md").read_text(), re.S).group(1)
    path = folder / "publish-ledger"
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.campaign
@pytest.mark.skipif(shutil.which("rsync") is None, reason="NOT TESTED: copies of the log, for lack of rsync")
def test_a_copy_of_a_growing_log_verifies(log, tmp_path):
    """Between any two copied files. It continues its earlier checkpoints."""
    world, _, _ = log
    copy, kept, client = tmp_path / "copy", [], world.client()
    copy.mkdir()
    script = publish_script(tmp_path)
    for number in range(3):
        run = subprocess.Popen([script, world.state / "ledger", copy], env=clean_environment())
        while run.poll() is None:
            client.delete(client.room().roomid)
            if kept:
                done = mayfly("audit", "verify", copy, "--key", world.state.vkey, "--since", kept[-1])
                assert done.returncode == 0, done.stdout + done.stderr
        assert run.returncode == 0
        kept.append(tmp_path / f"kept-{number}")
        shutil.copy(copy / "checkpoint", kept[-1])
        since = [part for checkpoint in kept for part in ("--since", checkpoint)]
        done = mayfly("audit", "verify", copy, "--key", world.state.vkey, *since)
        assert done.returncode == 0, done.stdout + done.stderr
        size = ledger.read(world.state).checkpoint.size
        client.delete(client.room().roomid)
        eventually(lambda: ledger.read(world.state).checkpoint.size > size, what="a longer log")
    client.close()
    assert (copy / "checkpoint").stat().st_mode & 0o777 == 0o644
    assert len({path.read_bytes() for path in kept}) == 3


# Too large to be a file of a log.

# A new process counts the memory of its parent, so this small one starts the command.
LAUNCH = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(f"\\n{os.waitstatus_to_exitcode(status)} {usage.ru_maxrss}")
os._exit(0)
"""


def measured(*arguments):
    """Runs a command. Returns its exit status, its output, and its peak memory in MiB."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", LAUNCH, BINARY, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=clean_environment())
    printed, _, told = done.stdout.rstrip("\n").rpartition("\n")
    status, kilobytes = map(int, told.split())
    return status, printed, kilobytes / 1024


@pytest.mark.campaign
@pytest.mark.parametrize("over", ["folder", "http"])
@pytest.mark.parametrize("path", ["tile/0/000", "tile/entries/000", "tile/1/000.p", "checkpoint", "policy"])
def test_a_gibibyte_instead_of_a_file_is_refused(log, tmp_path, path, over):
    world, _, _ = log
    copy = tmp_path / "ledger"
    # The broker may publish meanwhile, so the copy gets the checkpoint from before.
    checkpoint = (world.state / "ledger/checkpoint").read_bytes()
    shutil.copytree(world.state / "ledger", copy, ignore=shutil.ignore_patterns("*.new"))
    (copy / "checkpoint").write_bytes(checkpoint)
    if path == "policy":
        path = f"policies/{next((copy / 'policies').iterdir()).name}"
    if path.endswith(".p"):
        path += f"/{ledger.Ledger(copy, world.state.vkey).checkpoint.size // 256}"
    os.truncate(copy / path, 0)
    os.truncate(copy / path, GIB)
    if over == "folder":
        status, printed, memory = measured("audit", "verify", copy, "--key", world.state.vkey)
    else:
        with DocumentedServer(copy) as server:
            status, printed, memory = measured("audit", "verify", server.url, "--key", world.state.vkey)
    assert status == 1 and path in printed and "Fatal error" not in printed, printed
    assert memory < 160, f"{memory} MiB"


@pytest.mark.campaign
@pytest.mark.parametrize("argument", ["--proof", "--since", "--key"])
def test_a_gibibyte_as_an_argument_is_refused(log, tmp_path, argument):
    world, _, _ = log
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, GIB)
    words = {
        "--proof": ["--proof", path, "--key", world.state.vkey],
        "--since": [world.state / "ledger", "--key", world.state.vkey, "--since", path],
        "--key": [world.state / "ledger", "--key", path]}[argument]
    status, printed, memory = measured("audit", "verify", *words)
    assert status == (2 if argument == "--key" else 1) and memory < 100, (status, printed, memory)
    assert argument == "--key" or str(path) in printed, printed


# A folder from a backup, and one that can't be written.

@pytest.mark.campaign
def test_a_folder_from_a_backup_is_refused(state, processes):
    """It lacks entries that the database no longer has. Nothing is made up."""
    broker = Broker(state)
    processes.append(broker)
    broker.start()
    assert broker.stop() == 0
    backup = state.prints / "backup"
    shutil.copytree(state / "ledger", backup)
    broker.start()
    Client(broker.port).room()
    assert broker.stop() == 0
    good = state.prints / "good"
    (state / "ledger").rename(good)
    shutil.copytree(backup, state / "ledger")
    start_fails(broker, "ledger folder is behind", "Restore")
    assert (state / "ledger/checkpoint").read_bytes() == (backup / "checkpoint").read_bytes()
    shutil.rmtree(state / "ledger")
    good.rename(state / "ledger")
    broker.start()
    assert broker.stop() == 0
    assert audit_verify(state).returncode == 0


@contextmanager
def own_disk(folder):
    """A disk of its own for the ledger's folder, which can be made read-only."""
    folder.mkdir(mode=0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m,mode=755", "tmpfs", folder], check=True)
    try:
        yield lambda mode: subprocess.run(["mount", "-o", f"remount,{mode}", folder], check=True)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


SILENCE = 280  # A time in which so many entries are made, and no step of the keys is due.


def fill(state, count):
    """Lets so many entries wait in the database, as after a long time without a disk for the log."""
    with sqlite3.connect(state / "mayfly.sqlite") as database:
        first, = database.execute("SELECT window_start + 1 FROM log").fetchone()

        def rows():
            for number in range(count):
                window = first + number * SILENCE // count
                at = datetime.fromtimestamp(window, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
                text = f'{{"at":"{at}","node":"n","op":"broker.stopped"}}'.encode()
                yield window, number.to_bytes(8, "big"), text
        database.executemany("INSERT INTO entry (window_start, rank, key, bytes) VALUES (?, 0, ?, ?)", rows())
    database.close()


def proved(state, ref):
    """The log's last entry of a token."""
    done = mayfly("audit", "prove", state / "ledger", ref, "--key", state.vkey, "--out", "-", timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.campaign
@pytest.mark.background
def test_entries_that_can_not_be_written_stop_creations():
    """Nothing new is accepted and everything is purged on time. The log gets the purges later, and creations go on without a restart."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a ledger's disk that can't be written needs root, for a tmpfs of its own")
    state = State()
    broker = Broker(state, policy=quiet_rooms(state))
    try:
        with own_disk(state / "ledger") as remount:
            can_not_be_written(state, broker, remount)
    finally:
        broker.kill()
        state.remove()


def can_not_be_written(state, broker, remount):
    broker.start()
    client = Client(broker.port)
    kept, closed = client.room(), client.room()
    client.close()
    assert broker.stop() == 0
    remount("ro")
    fill(state, 700_000 - 10)
    broker.start(clock_offset=SILENCE + 5)
    brief = client.room(expires=10)  # The last that there is room for.
    while (answer := client.create(token=new_token())).status == 201:
        pass
    answer.expect(503, "ledger_unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    client.put_token(kept.roomid, kept.creator.client, new_token()).expect(503, "ledger_unavailable")
    # Pushes continue up to 85 %.
    client.presence(kept.roomid, kept.creator.client).expect(202)
    client.status(kept.roomid).expect(200)
    eventually(lambda: "can't publish" in broker.printed(), what="a word of it")

    before = state.counts()["token"]
    client.delete_token(kept.roomid, kept.joiner.client).expect(200)
    client.delete(closed.roomid).expect(200)
    assert state.counts()["token"] == before - 3
    eventually(lambda: client.status(brief.roomid).status == 404, 15, 0.2, "the end of a brief room")
    eventually(lambda: state.counts()["token"] == before - 5, what="its tokens' purge")
    client.create(token=new_token()).expect(503, "ledger_unavailable")

    remount("rw")
    eventually(lambda: client.create(token=new_token()).status == 201, 30, 0.2, "a room once it can be written")
    eventually(lambda: broker.metric("ledger_entries_waiting") < 100, 60, 0.2, "the backlog in the log")
    client.close()
    assert broker.stop() == 0
    for room, cause in ((closed, "ended"), (brief, "expired")):
        for side in (room.creator, room.joiner):
            assert "was purged before 20" in proved(state, side.ref) and f"cause {cause}" in proved(state, side.ref)
    assert "cause ended" in proved(state, kept.joiner.ref) and "was sealed before 20" in proved(state, kept.creator.ref)
    done = audit_verify(state)
    assert done.returncode == 0, done.stdout + done.stderr
