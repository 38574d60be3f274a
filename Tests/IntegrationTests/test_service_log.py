"""The broker's lines on standard error: levels, formats, times, the journal, and the progress of long commands."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time

import pytest

from processes import BINARY, Broker, clean_environment, eventually, mayfly

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@pytest.fixture
def broker(state, processes):
    """Its start logs a warning: it trusts a Unix-domain socket, and listens on none."""
    broker = Broker(state, trusted_proxies="unix")
    processes.append(broker)
    return broker


def lines(broker):
    """Starts and stops the broker, and returns what it wrote."""
    broker.start()
    assert broker.stop() == 0
    return broker.err.read_text().splitlines()


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def test_text(broker):
    begun = now()
    written = lines(broker)
    assert all(re.match(TIME + " ", line) for line in written), written
    times = [line.split()[0] for line in written]
    assert times == sorted(times) and begun <= times[0] and times[-1] <= now()
    texts = [line[21:] for line in written]
    assert texts[0] == "warning: --trusted-proxies unix has no effect: --listen is not a Unix-domain socket"
    assert texts[1].startswith("ready: apps at ") and texts[-1] == "stopped"


def test_json(broker):
    broker.options["log-format"] = "json"
    objects = [json.loads(line) for line in lines(broker)]
    assert all(entry.keys() == {"time", "level", "message"} and re.fullmatch(TIME, entry["time"]) for entry in objects), objects
    assert (objects[0]["level"], objects[-1]["level"]) == ("warning", "info") and objects[-1]["message"] == "stopped"
    assert objects[0]["message"].startswith("--trusted-proxies unix"), "the level is not repeated"


def test_levels(broker):
    broker.options["log-level"] = "warning"
    [line] = lines(broker)
    assert " warning: --trusted-proxies unix" in line
    broker.options["log-level"] = "error"
    assert lines(broker) == []


def test_alarms_are_errors(broker, state):
    """What is counted as an alarm has the level error."""
    broker.options |= {"log-format": "json", "log-level": "error", "jwt-algorithm": "HS256", "jwt-key": state / "keys/jwt.secret"}
    broker.start()
    (state / "keys/jwt.secret").write_text("short\n")
    broker.child.send_signal(signal.SIGHUP)
    [entry] = eventually(lambda: [json.loads(line) for line in broker.err.read_text().splitlines()], what="the alarm")
    assert entry["level"] == "error" and entry["message"].startswith("jwt: the present keys stay in use."), entry
    assert broker.metric("alarms_total") == 5, "rounded"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_refused_start_is_an_error(broker, state, form):
    (state / "keys/ledger.key").unlink()
    broker.options["log-format"] = form
    broker.start(wait=False)
    assert broker.child.wait(15) == 1
    last = broker.err.read_text().splitlines()[-1]
    if form == "json":
        entry = json.loads(last)
        assert entry["level"] == "error"
        last = entry["message"]
    assert last.startswith("mayfly: ") and "ledger.key is missing" in last


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("is_journal", [True, False])
def test_the_journal_gets_levels(broker, tmp_path, form, is_journal):
    """`JOURNAL_STREAM` names the stream by device and inode. A child inherits the variable, wherever it writes to."""
    path = tmp_path / "journal"
    with open(path, "wb") as journal:
        stream = os.fstat(journal.fileno())
        child = subprocess.Popen(
            [BINARY, *map(str, broker.arguments()), "--log-format", form], stdin=subprocess.DEVNULL, stdout=journal, stderr=journal, cwd=broker.cwd,
            env=clean_environment(JOURNAL_STREAM=f"{stream.st_dev}:{stream.st_ino + (not is_journal)}"))
    try:
        eventually(lambda: b"ready: " in path.read_bytes(), what="the start")
        child.send_signal(signal.SIGTERM)
        assert child.wait(15) == 0
    finally:
        child.kill()
        child.wait(10)
    written = path.read_text().splitlines()
    marks = ["<4>", "<6>"] if is_journal else ["", ""]
    for line, mark, word in zip(written, marks, ("--trusted-proxies", "ready: ")):
        assert line.startswith(mark) and line.startswith("<") is is_journal, written
        rest = line.removeprefix(mark)
        if form == "json":
            assert json.loads(rest)["message"].startswith(word)
        else:
            # The journal adds times itself.
            assert bool(re.match(TIME, rest)) is not is_journal and word in rest, written


def test_the_journal_gets_the_level_of_a_failure(tmp_path):
    path = tmp_path / "journal"
    with open(path, "wb") as journal:
        stream = os.fstat(journal.fileno())
        done = subprocess.run(
            [BINARY, "serv"], stdin=subprocess.DEVNULL, stderr=journal, timeout=30, env=clean_environment(JOURNAL_STREAM=f"{stream.st_dev}:{stream.st_ino}"))
    assert done.returncode == 2
    assert all(line.startswith("<3>") for line in path.read_text().splitlines())


@pytest.mark.parametrize("flag, value", [("log-format", "xml"), ("log-level", "debug")])
def test_invalid_values_are_refused(broker, flag, value):
    broker.options[flag] = value
    broker.start(wait=False)
    assert broker.child.wait(15) == 2 and f"--{flag}" in broker.printed() and value not in broker.printed()


# Progress.

def in_terminal(*words):
    """Runs a command whose standard error is a terminal. Returns (status, standard output, what the terminal got)."""
    ours, its = pty.openpty()
    child = subprocess.Popen([BINARY, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=its, env=clean_environment())
    os.close(its)
    out, got = child.stdout.read().decode(), b""
    try:
        while piece := os.read(ours, 4096):
            got += piece
    except OSError:  # The other end is closed.
        pass
    os.close(ours)
    return child.wait(30), out, got.decode()


def test_long_commands_show_their_progress_in_a_terminal(broker, state, tmp_path):
    lines(broker)
    log = (state / "ledger", "--key", state.vkey)
    # Without a checkpoint, another line follows.
    kept = shutil.copy(log[0] / "checkpoint", tmp_path)
    for words, what in ((("audit", "verify", *log, "--since", kept), r"\d+ of \d+ entries"), (("audit", "report", *log, "--html", tmp_path / "r.html"), r"\d+ of \d+ entries"),
                        (("audit", "prove", log[0], 0, *log[1:], "--out", tmp_path / "0.tlog-proof"), r"\d+ of \d+ entries"),
                        (("drill", "--state", state.folder), "opening what is stored")):
        status, out, shown = in_terminal(*words)
        assert status == 0 and out, shown
        assert re.match(rf"\r\x1b\[K{what}", shown), (words, shown)
        assert shown.endswith("\r\x1b[K"), "the line is removed"
        done = mayfly(*words, timeout=60)
        assert done.returncode == 0 and done.stderr == "", done.stderr
