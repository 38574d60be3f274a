"""The three verifiers, asked at once: `mayfly audit verify`, audit/verify.py, and the one in Go. They share no code."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from processes import BINARY, REPOSITORY, clean_environment, mayfly

sys.path.insert(0, str(REPOSITORY / "audit"))
import verify  # noqa: E402

SOURCES = sorted(Path(__file__).with_name("sumdb").glob("*.go"))
GO_PROGRAM = REPOSITORY / ".build/sumdb/sumdb"
# The folder of the distribution's Go packages. Nothing is downloaded.
GO_SOURCES = "/usr/share/gocode"


def build_go():
    GO_PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["go", "build", "-o", GO_PROGRAM, *SOURCES], check=True, timeout=300,
        env=clean_environment(
            GO111MODULE="off", GOFLAGS="", GOPATH=GO_SOURCES, GOCACHE=GO_PROGRAM.parent / "cache", GOPROXY="off"))


class Go:
    """The Go program, which answers a line for each line. `word`: the last answer's first word."""

    def __init__(self):
        if not GO_PROGRAM.exists() or GO_PROGRAM.stat().st_mtime < max(source.stat().st_mtime for source in SOURCES):
            build_go()
        self.child = subprocess.Popen([GO_PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        print(*words, file=self.child.stdin, flush=True)

    def answer(self):
        """Returns (size, root in base64), or a finding: a code, or `tree` for any fault of files, tiles and signatures."""
        self.word, _, rest = self.child.stdout.readline().strip().partition(" ")
        assert self.word in ("good", "consistent", "bad"), f"the Go program ended with {self.child.poll()}"
        return rest if self.word == "bad" else tuple(rest.split())

    def __call__(self, *words):
        self.ask(*words)
        return self.answer()

    def close(self):
        self.child.stdin.close()
        self.child.wait(10)


@dataclass
class Opinions:
    """The code of each verifier, or None for good."""
    swift: str | None
    python: str | None
    go: str | None
    told: dict | None  # by Swift
    counted: dict | None  # by Python
    words: tuple

    def __str__(self):
        return f"Swift: {self.swift}, Python: {self.python}, Go: {self.go}; {self.words}"

    @property
    def all_good(self):
        return self.code is None

    @property
    def code(self):
        """Of all three; they have to agree."""
        assert self.swift == self.python == self.go, str(self)
        return self.python


def by_python(folder, vkey, since=(), policy=None, **more):
    """Returns (code or None, the printed text, its figures). `policy`: the text of a tlog-policy."""
    try:
        older = [(str(path), *verify.checkpoint(str(path), verify.fetch(str(path)), vkey)) for path in since]
        return None, "", verify.verify(str(folder), vkey, older, policy, **more)
    except verify.Bad as bad:
        return bad.args[0], ": ".join(map(str, bad.args[1:])), None


def ask_swift(folder, vkey, since=(), *more):
    older = [part for path in since for part in ("--since", str(path))]
    return subprocess.Popen(
        [BINARY, "audit", "verify", str(folder), "--key", vkey, "--json", *older, *more], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())


def swift_answer(child):
    """Returns (code or None, the printed text, its report)."""
    try:
        out, err = child.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return "hangs", "", None
    if child.returncode not in (0, 1) or not out.startswith("{"):
        return f"exit {child.returncode}", err, None
    report = json.loads(out)
    assert report["good"] == (child.returncode == 0), out
    return (None, "", report) if report["good"] else (report["code"], report["detail"], None)


def opinions(go, folder, vkey, since=()):
    child = ask_swift(folder, vkey, since)
    go.ask("verify", folder, vkey, *since)
    python, python_words, counted = by_python(folder, vkey, since)
    third = go.answer()
    swift, swift_words, told = swift_answer(child)
    return Opinions(
        swift, python, third.split()[0] if isinstance(third, str) else None, told, counted, (swift_words, python_words, third))


def run_python(*arguments, timeout=60, memory=None):
    """audit/verify.py from the command line; `memory`: bytes of address space it may have."""
    def limit():
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    return subprocess.run(
        [sys.executable, REPOSITORY / "audit/verify.py", *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
        stdin=subprocess.DEVNULL, preexec_fn=limit if memory else None, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})


def swift_can(option):
    return option in mayfly("audit", "verify", "--help").stdout
