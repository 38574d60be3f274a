"""`mayfly audit watch`, an auditor's cron job, over HTTP: one line and one exit status each time."""

import base64
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import ledger
import logs
from log_server import LogServer
from mayfly import new_token
from processes import ORIGIN, eventually, http_status, mayfly


class Watch:
    """A log's public key, and the auditor's own folder."""

    def __init__(self, vkey, folder):
        self.vkey, self.folder = vkey, folder

    def __call__(self, url, *more, status=0):
        """The line that it printed."""
        done = mayfly("audit", "watch", url, "--key", self.vkey, "--state", self.folder, *more)
        assert done.returncode == status, done
        [line] = (done.stdout if status == 0 else done.stderr).splitlines()
        # The first run has nothing to compare the log with but mirrors and witnesses.
        is_first = "; 0 older checkpoints hold" in line and not {"--mirror", "--policy"} & set(map(str, more))
        good = "consistent, not compared: " if is_first else "good: "
        assert line.startswith({0: good, 1: "bad: ", 3: "not checked: "}[status]) and not (done.stdout and done.stderr), done
        return line

    def kept(self):
        return (self.folder / "checkpoint").read_bytes()

    def size(self):
        return int(self.kept().split(b"\n")[1])

    def contradictions(self):
        return [path.read_bytes() for path in sorted(self.folder.glob("contradiction-*"))]


def verified(line):
    return int(re.search(r"; (\d+) entries verified now", line)[1])


@pytest.fixture
def watch(world, tmp_path):
    return Watch(world.state.vkey, tmp_path / "watch")


@pytest.fixture(scope="module")
def url(world):
    grow(world)
    return f"{world.broker.url}/audit/"


@pytest.fixture
def serve(world, tmp_path):
    """Publishes a copy of the broker's log as it is now; returns its server."""
    servers = []

    def start():
        copy = tmp_path / f"copy-{len(servers)}"
        eventually(lambda: is_copied(world.state / "ledger", copy), 15, what="a copy")
        servers.append(LogServer(copy))
        return servers[-1]
    yield start
    for server in servers:
        server.close()


def is_copied(log, copy):
    """Copies a log. False if the broker deleted a partial tile meanwhile."""
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    # Copied first, so that the copy has all tiles of the checkpoint.
    shutil.copyfile(log / "checkpoint", copy / "checkpoint")
    try:
        for name in ("tile", "policies"):
            shutil.copytree(log / name, copy / name)
    except shutil.Error:
        return False
    return True


def grow(world):
    """A seal more in the log."""
    client = world.client()
    ref = client.create(token=new_token()).expect(201).json["ref"]
    client.close()
    eventually(lambda: ledger.read(world.state).of(ref), 8, what="the seal in the log")


def rewrite(world, server, count=None):
    """The served log, signed anew after a change of an early entry; or its first `count` entries."""
    entries = ledger.Ledger(server.folder, world.state.vkey).raw
    if count is None:
        place = next(number for number, entry in enumerate(entries) if b'"keys.generated"' in entry)
        entries[place] = re.sub(rb'"generation":\d+', b'"generation":77', entries[place])
    shutil.rmtree(server.folder / "tile")
    seed = base64.b64decode((world.state / "keys/ledger.key").read_text().splitlines()[2])
    log = logs.Log(server.folder, key=logs.Key(ORIGIN, seed))
    assert log.vkey == world.state.vkey
    return log.publish(entries[:count])


def test_one_run_after_another(world, url, watch):
    first = watch(url)
    assert verified(first) == watch.size() and ORIGIN in first and "last entry" in first, first
    assert sorted(path.name for path in watch.folder.iterdir()) == ["checkpoint", "checkpoints", "state"]
    [day] = (watch.folder / "checkpoints").iterdir()
    kept = watch.kept()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", day.name) and day.read_bytes() == kept
    watch(url)
    size = watch.size()
    grow(world)
    watch(url)
    assert watch.size() > size and day.read_bytes() == kept, "a day's first checkpoint stays"
    # Other verifiers can convict a rewritten log with the kept checkpoint.
    for path in (day, watch.folder / "checkpoint"):
        done = mayfly("audit", "verify", url, "--key", watch.vkey, "--since", path)
        assert done.returncode == 0, done


def test_nothing_is_new(url, watch, serve):
    server = serve()
    lines = [watch(server.url) for _ in range(3)]
    assert verified(lines[0]) == watch.size() and verified(lines[1]) == verified(lines[2]) == watch.size() % 256, lines


def test_only_new_tiles_are_fetched(world, watch, serve):
    """Of a log of several tiles."""
    client = world.client()
    for _ in range(150):
        client.room()
    client.close()
    eventually(lambda: ledger.read(world.state).checkpoint.size > 300, 15, what="more than a tile")
    server = serve()
    watch(server.url)
    assert "/tile/entries/000" in server.asked
    server.asked.clear()
    watch(server.url)
    assert "/checkpoint" in server.asked and "/tile/entries/000" not in server.asked, server.asked


def test_a_log_that_stops_growing_fails(url, watch, serve):
    server = serve()
    time.sleep(2.1)
    line = watch(server.url, "--max-age", 1, status=1)
    assert "last entry" in line and "1 s" in line, line
    watch(server.url)
    watch(server.url, "--max-age", 3600)


def test_a_lagging_mirror_is_accepted(world, url, watch, serve):
    mirror = serve()
    grow(world)
    assert re.search(r"; 1 mirror agrees?$", watch(url, "--mirror", mirror.url))
    assert re.search(r"; 2 mirrors agree$", watch(url, "--mirror", mirror.url, "--mirror", url))
    assert watch.size() > int((mirror.folder / "checkpoint").read_bytes().split(b"\n")[1])


def test_a_mirror_ahead_of_the_log_is_accepted(world, url, watch, serve):
    behind = serve()
    grow(world)
    watch(behind.url, "--mirror", url)


def test_a_mirror_with_another_history_fails(world, url, watch, serve):
    mirror = serve()
    forged = rewrite(world, mirror)
    line = watch(url, "--mirror", mirror.url, status=1)
    assert mirror.url in line and "two histories" in line and watch.contradictions() == [forged], line
    watch(url)


def test_a_missing_mirror_fails(url, watch, serve):
    mirror = serve()
    (mirror.folder / "checkpoint").unlink()
    line = watch(url, "--mirror", mirror.url, status=1)
    assert f"the mirror {mirror.url}" in line and not watch.contradictions(), line


def test_a_rewritten_log_fails(world, url, watch, serve):
    server = serve()
    watch(server.url)
    kept = watch.kept()
    forged = rewrite(world, server)
    for _ in range(2):
        assert "history was rewritten" in watch(server.url, status=1)
        assert watch.kept() == kept and set(watch.contradictions()) == {forged}
    watch(url)  # The honest log continues.


def test_a_log_that_was_cut_back_fails(world, url, watch, serve):
    server = serve()
    watch(server.url)
    kept = watch.kept()
    rewrite(world, server, count=watch.size() - 1)
    watch(server.url, status=1)
    assert watch.kept() == kept


def test_after_a_damaged_state_the_whole_log_is_verified(url, watch, serve):
    """The whole log is verified again."""
    server = serve()
    watch(server.url)
    path = watch.folder / "state"
    good = path.read_bytes()
    for damaged in (b"", good[:-1], good[:10], good + b"x", bytes(len(good)), b"x" * 100_000, None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        assert verified(watch(server.url)) == watch.size(), damaged
        assert path.read_bytes()


@pytest.mark.campaign
def test_a_wrong_bit_in_the_state_convicts_no_honest_log(url, watch, serve):
    """A line reports how the run went."""
    server = serve()
    watch(server.url)
    path = watch.folder / "state"
    state = path.read_bytes()
    for place in range(0, len(state), max(1, len(state) // 40)):
        path.write_bytes(state[:place] + bytes([state[place] ^ 1]) + state[place + 1:])
        watch(server.url)


DAMAGED = [lambda note: b"", lambda note: b"nonsense", lambda note: b"mayfly.localhost/audit\n5\nAAAA\n\n", lambda note: note[:-1],
           lambda note: note[:len(note) // 2], lambda note: bytes(len(note)), lambda note: note + b"x"]


def copied_daily(watch, line):
    """Follows the advice in the line."""
    [named] = re.findall(r"Put a copy of (\S+) in its place", line)
    (watch.folder / "checkpoint").unlink(missing_ok=True)
    shutil.copyfile(named, watch.folder / "checkpoint")


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_checkpoint_convicts_no_honest_log(url, watch, damage):
    """It is the evidence against a rewritten log, so it isn't replaced. The status and the text differ from those of a bad log, and following the text helps."""
    watch(url)
    content = damage(watch.kept())
    (watch.folder / "checkpoint").write_bytes(content)
    line = watch(url, status=3)
    assert "kept checkpoint" in line and "says nothing about the log" in line and ("empty" in line) == (content == b""), line
    assert watch.kept() == content
    copied_daily(watch, line)
    watch(url)


def test_a_damaged_checkpoint_hides_no_rewritten_log(world, url, watch, serve):
    server = serve()
    watch(server.url)
    forged = rewrite(world, server)
    (watch.folder / "checkpoint").write_bytes(b"")
    copied_daily(watch, watch(server.url, status=3))
    assert "history was rewritten" in watch(server.url, status=1) and watch.contradictions() == [forged]
    # An empty copy of the evidence, as from a full disk, doesn't keep the evidence away.
    next(watch.folder.glob("contradiction-*")).write_bytes(b"")
    watch(server.url, status=1)
    assert watch.contradictions() == [forged]


def test_without_any_good_checkpoint_the_watch_begins_anew(url, watch):
    watch(url)
    for path in [watch.folder / "checkpoint", *(watch.folder / "checkpoints").iterdir()]:
        path.write_bytes(b"")
    line = watch(url, status=3)
    assert "a copy of" not in line and "delete it and the folder checkpoints to begin anew" in line, line
    # Not by half: whatever removed the checkpoint may have damaged the copies.
    (watch.folder / "checkpoint").unlink()
    assert "the kept checkpoint is missing" in watch(url, status=3)
    shutil.rmtree(watch.folder / "checkpoints")
    watch(url)


@pytest.mark.parametrize("link", [None, "gone", "gone/checkpoint"])
def test_a_lost_checkpoint_hides_no_rewritten_log(world, watch, serve, link):
    """Neither one that was deleted, nor a link to a place that is gone."""
    server = serve()
    watch(server.url)
    forged = rewrite(world, server)
    path = watch.folder / "checkpoint"
    path.unlink()
    if link:
        path.symlink_to(link)
    for _ in range(2):
        line = watch(server.url, status=3)
        assert ("the kept checkpoint is a link to a missing file" if link else "the kept checkpoint is missing") in line, line
    assert not path.exists()
    copied_daily(watch, line)
    assert "history was rewritten" in watch(server.url, status=1) and watch.contradictions() == [forged]


def test_a_link_to_nothing_is_no_first_run(url, watch):
    watch.folder.mkdir()
    (watch.folder / "checkpoint").symlink_to("gone")
    line = watch(url, status=3)
    assert "link to a missing file" in line and "a checkpoint that you kept elsewhere" in line, line
    (watch.folder / "checkpoint").unlink()
    watch(url)


def test_the_folder_of_another_log_is_not_used(url, watch):
    watch(url)
    other = logs.checkpoint(logs.Tree(), logs.Key())
    for path in [watch.folder / "checkpoint", *(watch.folder / "checkpoints").iterdir()]:
        path.write_bytes(other)
    line = watch(url, status=3)
    assert "not signed with this key. Use this log's own folder, or correct --key" in line, line


def test_a_daily_copy_heals_a_wrong_signature(url, watch):
    """Key and folder fit, so the checkpoint itself is at fault."""
    watch(url)
    kept = watch.kept()
    # The first digit of the size, and a character of the signature behind the key's four bytes.
    for place in (kept.index(b"\n") + 1, kept.rindex(b" ") + 20):
        damaged = bytearray(kept)
        damaged[place] = ord("8") if damaged[place] != ord("8") else ord("7")
        (watch.folder / "checkpoint").write_bytes(damaged)
        line = watch(url, status=3)
        assert "not signed with this key, but a daily copy is" in line and "--key" not in line, line
        copied_daily(watch, line)
        watch(url)


def test_trouble_with_the_folder_is_not_the_logs(url, watch):
    watch(url)
    (watch.folder / "checkpoint").unlink()
    (watch.folder / "checkpoint").mkdir()
    assert "checkpoint: can't be read" in watch(url, status=3)


@pytest.mark.campaign
def test_several_watchers_may_run_at_once(world, url, watch):
    with ThreadPoolExecutor(6) as threads:
        for _ in range(3):
            runs = [threads.submit(watch, url) for _ in range(6)]
            grow(world)
            assert all(run.result() for run in runs)
    watch(url)
    assert watch.size() >= 6 and not watch.contradictions()
    assert sorted(path.name for path in watch.folder.iterdir()) == ["checkpoint", "checkpoints", "state"], "no temporary file is left"


def test_an_unreachable_log_fails(world, watch, serve):
    server = serve()
    server.close()
    assert "can't be read" in watch(server.url, status=1)
    assert not (watch.folder / "checkpoint").exists()


def test_bad_use(world, url, watch, tmp_path):
    key, state = ("--key", watch.vkey), ("--state", watch.folder)
    for words in ((), (url,), (url, *key), (url, *state), (url, url, *key, *state), (url, *key, *state, "--max-age", "15m"),
                  (url, *key, *state, "--max-age", 0), (url, *key, *state, "--what"), (url, "--key", "a+b", *state)):
        done = mayfly("audit", "watch", *words)
        assert done.returncode == 2 and not done.stdout, done
    (tmp_path / "file").write_text("")
    done = mayfly("audit", "watch", url, *key, "--state", tmp_path / "file")
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1, done
    assert http_status(url + "checkpoint") == 200
