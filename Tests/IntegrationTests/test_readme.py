"""Runs README.md: each fenced ```console block, in order, in one shell.

A line `$ command` is a command, and lines `> more` below it belong to it. What follows, up to the next command, is its
expected output, in which `...` (or `…`) stands for anything, also for lines. A command that stays (`make run`, or one that ends in
`&`) runs in the background until the end; the next command waits until what it started is ready. The ports and the state folder
that README names are replaced by free ones. No block and no command is skipped.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from processes import REPOSITORY, clean_environment, eventually, free_port, http_status

README = REPOSITORY / "README.md"
STAYS = re.compile(r"^(make run|(\S*/)?mayfly (serve|apns-simulator)\b)|&\s*$")
# A command may build first.
BUILD_SECONDS = 900
PORTS = {"8787": "MAYFLY_LISTEN", "8788": "MAYFLY_OPERATOR_LISTEN", "8789": "MAYFLY_APNS_SIMULATOR_LISTEN",
         "8790": "MAYFLY_APNS_SIMULATOR_CONTROL"}


def transcript(text):
    """(command, expected output) of every console block, in order."""
    steps = []
    for block in re.findall(r"^```console[^\n]*\n(.*?)^```", text, re.M | re.S):
        lines, opened = block.splitlines(), len(steps)
        for line in lines:
            if line.startswith("$ "):
                steps.append([line[2:], ""])
            elif line.startswith("> ") and len(steps) > opened and not steps[-1][1]:
                steps[-1][0] += "\n" + line[2:]
            else:
                assert len(steps) > opened, f"a console block begins with output: {line!r}"
                steps[-1][1] += line + "\n"
    return steps


def matches(expected, actual):
    """Whether the output is as written, blanks at line ends aside, with `...` for anything."""
    def tidy(text):
        return "\n".join(line.rstrip() for line in text.strip().splitlines())
    parts = [re.escape(part) for part in re.split(r"\.\.\.|…", tidy(expected))]
    return re.fullmatch(".*".join(parts), tidy(actual), re.S) is not None


def test_transcripts_are_parsed():
    steps = transcript("x\n```console\n$ a\n> b\nout ... 1\n$ c\n```\n```sh\n$ no\n```\n```console\n$ d\n```\n")
    assert steps == [["a\nb", "out ... 1\n"], ["c", ""], ["d", ""]]
    assert matches("a ... c\n", "a b\nb c") and not matches("a ... c", "a b") and matches("", "\n")


class Shell:
    """One bash that keeps its variables. Commands that stay run in sessions of their own, which end with it."""

    def __init__(self, environment, operator_port):
        self.environment, self.operator_port, self.staying = environment, operator_port, []
        self.folder = Path(tempfile.mkdtemp(prefix="mayfly-readme-"))
        self.saved = self.folder / "variables"
        self.saved.touch()

    def run(self, command, expected):
        """Runs a command and returns its output. Waits until a command that stays is ready and has printed the expected words."""
        if STAYS.search(command):
            out = open(self.folder / f"stays-{len(self.staying)}", "w+b")
            child = subprocess.Popen(
                ["bash", "-c", f"exec {command.rstrip().removesuffix('&')}"], cwd=REPOSITORY, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            self.staying.append(child)

            def ready():
                assert child.poll() is None, f"{command} ended:\n{Path(out.name).read_text(errors='replace')}"
                return http_status(f"http://127.0.0.1:{self.operator_port}/readyz") == 200
            eventually(ready, BUILD_SECONDS, 0.1, f"{command} ready")
            end = time.monotonic() + 5
            while not matches(expected, printed := Path(out.name).read_text(errors="replace")) and time.monotonic() < end:
                time.sleep(0.05)
            return printed
        script = f"set -o pipefail; set -a; . {self.saved}; set +a\n{command}\nstatus=$?; declare -p >{self.saved}.all; exit $status"
        done = subprocess.run(["bash", "-c", script], cwd=REPOSITORY, env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=BUILD_SECONDS)
        ours = re.compile(r"declare -(?:-|x) ([a-z]\w*)=")
        kept = [line for line in Path(f"{self.saved}.all").read_text().splitlines() if ours.match(line)]
        self.saved.write_text("\n".join(kept) + "\n")
        return done.stdout + (f"\n[exit status {done.returncode}]" if done.returncode else "")

    def close(self):
        for child in self.staying:
            # The session started above. `make` may end before the processes it started.
            for number, seconds in ((signal.SIGTERM, 15), (signal.SIGKILL, 5)):
                end = time.monotonic() + seconds
                try:
                    os.killpg(child.pid, number)
                    while time.monotonic() < end:
                        child.poll()
                        os.killpg(child.pid, 0)
                        time.sleep(0.02)
                except ProcessLookupError:
                    break
            child.wait(1)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def place():
    """Free ports and a fresh state folder, as replacements in the text and as environment."""
    ports = {port: str(free_port()) for port in PORTS}
    parent = tempfile.mkdtemp(prefix="mayfly-readme-state-")
    state = f"{parent}/var"
    environment = clean_environment(
        MAYFLY_STATE=state, **{name: f"127.0.0.1:{ports[port]}" for port, name in PORTS.items()})
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):  # of a `make test` above this one
        environment.pop(name, None)

    def moved(text):
        text = re.sub(r"(?<![\w/.])var/", state + "/", text)
        return re.sub(r"\b(8787|8788|8789|8790)\b", lambda found: ports[found[0]], text)
    shell = Shell(environment, ports["8788"])
    yield shell, moved
    shell.close()
    shutil.rmtree(parent, ignore_errors=True)


# Promise: make-run
@pytest.mark.campaign  # It builds a release.
def test_the_readme_works(place):
    shell, moved = place
    assert README.exists(), "there is no README.md"
    steps = transcript(README.read_text())
    assert steps, "README.md shows no command in a ```console block"
    for command, expected in steps:
        actual = shell.run(moved(command), moved(expected))
        assert "[exit status" not in actual or "[exit status" in expected, f"$ {command}\n{actual}"
        assert matches(moved(expected), actual), f"$ {command}\n--- expected\n{expected}\n--- got\n{actual}"
