"""audit/: the sample log, its tampered twin, and the handbook's output."""

import json
import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

import ledger
from processes import BINARY, REPOSITORY, clean_environment, mayfly
from test_readme import matches, transcript
from verifiers import run_python

AUDIT = REPOSITORY / "audit"
SAMPLE, TWIN = AUDIT / "sample", AUDIT / "sample-tampered"
HANDBOOK = (AUDIT / "README.md").read_text()
VERIFY = AUDIT / "verify.py"


def kept():
    return sorted((SAMPLE / "kept").iterdir())


def swift(folder, *since):
    earlier = [part for checkpoint in since for part in ("--since", checkpoint)]
    return mayfly("audit", "verify", folder, "--key", SAMPLE / "ledger.vkey", *earlier)


def python(folder, *since):
    earlier = [part for checkpoint in since for part in ("--since", checkpoint)]
    return subprocess.run([sys.executable, VERIFY, folder, "--key", (SAMPLE / "ledger.vkey").read_text().strip(), *earlier],
                          capture_output=True, text=True, timeout=60, env=clean_environment())


VERIFIERS = [swift, pytest.param(python, marks=pytest.mark.skipif(not VERIFY.exists(), reason="there is no audit/verify.py"))]


def read(folder):
    return ledger.Ledger(folder, (SAMPLE / "ledger.vkey").read_text().strip())


@pytest.mark.parametrize("verify", VERIFIERS)
def test_the_sample_is_good(verify):
    assert len(kept()) >= 3
    done = verify(SAMPLE, *kept())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("verify", VERIFIERS)
def test_only_a_kept_checkpoint_convicts_the_twin(verify):
    """The twin is consistent. It continues checkpoints kept before the change, and contradicts those kept after it."""
    before, *after = kept()
    for earlier in ((), (before,)):
        done = verify(TWIN, *earlier)
        assert done.returncode == 0, done.stdout + done.stderr
    for checkpoint in after:
        done = verify(TWIN, checkpoint)
        assert done.returncode == 1 and "rewritten" in done.stdout + done.stderr, done.stdout + done.stderr


def test_the_proof_shows_the_purge_that_the_twin_moved():
    """It verifies without the log, for that ref only."""
    proof, key, ref = SAMPLE / "purge.tlog-proof", SAMPLE / "ledger.vkey", (SAMPLE / "purge.ref").read_text().strip()
    moved = json.loads((set(read(SAMPLE).raw) - set(read(TWIN).raw)).pop())
    assert [moved] == read(SAMPLE).of(ref, "token.purged")
    for verify in (partial(mayfly, "audit", "verify"), run_python):
        done = verify("--proof", proof, "--key", key, "--ref", ref)
        assert done.returncode == 0 and moved["at"] in done.stdout, done.stdout + done.stderr
        assert verify("--proof", proof, "--key", key, "--ref", "0" * 32).returncode == 1


def test_the_sample_has_every_kind_of_entry():
    log = read(SAMPLE)
    log.check()
    assert 60 <= len(log.entries) <= 300
    told = {entry["op"] for entry in log.entries}
    told |= {entry[key] for entry in log.entries for key in ("cause", "reason") if key in entry}
    assert told >= {
        "broker.started", "broker.stopped", "policy.loaded", "keys.generated", "keys.ratcheted", "token.sealed", "token.opened",
        "push.delivered", "push.failed", "token.purged", "bucket.closed", "request.refused", "expired", "ended", "throttled", "forbidden",
        "Unregistered", "BadCollapseId"}
    starts = [at for at, entry in enumerate(log.entries) if entry["op"] == "broker.started"]
    stops = [at for at, entry in enumerate(log.entries) if entry["op"] == "broker.stopped"]
    assert len(starts) == 3 and len(stops) == 2, "a stop, a crash, a stop"
    assert log.of((SAMPLE / "purge.ref").read_text().strip(), "token.sealed")


def test_the_twin_differs_in_one_purge():
    honest, twin = read(SAMPLE), read(TWIN)
    twin.check()
    late, early = set(honest.raw) - set(twin.raw), set(twin.raw) - set(honest.raw)
    assert len(honest.raw) == len(twin.raw) and len(late) == len(early) == 1
    late, early = json.loads(late.pop()), json.loads(early.pop())
    assert late["op"] == "token.purged" and early["at"] < late["at"] and early | {"at": late["at"]} == late


@pytest.mark.campaign
@pytest.mark.background
def test_the_script_makes_the_sample():
    """With windows of one second."""
    with tempfile.TemporaryDirectory() as folder:
        make_and_verify(Path(folder))


def make_and_verify(tmp_path):
    done = subprocess.run([sys.executable, REPOSITORY / "scripts/make-sample", tmp_path, "1"], capture_output=True, text=True, timeout=240,
                          env=clean_environment(MAYFLY_BINARY=BINARY))
    assert done.returncode == 0, done.stdout + done.stderr
    key = tmp_path / "sample/ledger.vkey"
    for folder, expected in (("sample", 0), ("sample-tampered", 1)):
        verified = mayfly("audit", "verify", tmp_path / folder, "--key", key, "--since", tmp_path / "sample/kept/3")
        assert verified.returncode == expected, verified.stdout + verified.stderr


def test_the_handbooks_commands_work(tmp_path):
    """Each ```console block, in a folder that has the repository's audit/."""
    (tmp_path / "audit").symlink_to(AUDIT)
    (tmp_path / "root.py").write_text(re.search(r"^```python\n(.*?)^```", HANDBOOK, re.M | re.S)[1])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mayfly").symlink_to(BINARY)
    environment = clean_environment(PATH=f"{tmp_path}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}", PYTHONDONTWRITEBYTECODE=1)
    steps = transcript(HANDBOOK)
    assert len(steps) >= 5, "the handbook shows hardly anything"
    for command, expected in steps:
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        if "verify.py" in command and not VERIFY.exists():
            continue
        assert matches(expected, done.stdout), f"$ {command}\n--- expected\n{expected}\n--- got\n{done.stdout}"


def test_the_handbook_explains_every_finding():
    source = (REPOSITORY / "Sources/Domain/Ledger/VerificationFailure.swift").read_text()
    cases = re.findall(r'^ +case ([\w, ]+?)(?: = "(\w+)")?$', source[source.index("enum Code"):], re.M)
    codes = {code for names, raw in cases for code in (raw or names).split(", ")}
    told = set(re.findall(r"`(\w+)`", HANDBOOK[HANDBOOK.index("| code | means |"):HANDBOOK.index("## Keep checkpoints")]))
    assert {"missing", "rewritten", "unbalanced"} <= codes and codes <= told, codes - told
