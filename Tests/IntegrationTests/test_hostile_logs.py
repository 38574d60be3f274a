"""Logs that a dishonest operator would write, and honest ones that look like it, before both verifiers: the same verdict of both."""

import base64
import os
import subprocess
import sys
import time

import pytest

from logs import POLICY_NAME, START, Key, checkpoint, head, leaf_hash, make, moment, node_hash, note, spell
from processes import REPOSITORY, clean_environment, mayfly

VERIFY = REPOSITORY / "audit/verify.py"
EPOCH = START // 300
REF, JOB = "0" * 31 + "1", "0" * 31 + "2"


def entry(at, op, **fields):
    return spell({"at": moment(START + at), "op": op} | fields)


def start(at, resolution=60, policy=POLICY_NAME):
    return entry(at, "broker.started", node="n", policy=policy, resolution=resolution, version="1")


def seal(at, until):
    return entry(at, "token.sealed", kind="alert", ref=REF, until=moment(START + until))


def purge(at):
    return entry(at, "token.purged", cause="expired", ref=REF)


def opened(at):
    return entry(at, "token.opened", job=JOB, ref=REF, template="t")


def ratchet(at, epoch):
    return entry(at, "keys.ratcheted", epoch=EPOCH + epoch)


def tick(at, **fields):
    return entry(at, "request.refused", **{"cause": "other", "count": 5} | fields)


def verdicts(*words):
    """Exit status and complaint of each; a crash or a stall is neither."""
    swift = mayfly("audit", "verify", *words, timeout=20)
    python = subprocess.run([sys.executable, VERIFY, *map(str, words)], capture_output=True, text=True, timeout=20, env=clean_environment())
    for done in (swift, python):
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr and "Fatal" not in done.stderr, done.stdout + done.stderr
    return [(done.returncode == 0, done.stderr) for done in (swift, python)]


def agreed(expected, *words):
    found = verdicts(*words)
    assert [good for good, _ in found] == [expected, expected], found


YEARS = 20 * 365 * 86_400
NULL = spell({"at": moment(START), "generation": None, "op": "keys.generated"})
STORIES = {
    # What is late stays late, however long the operator says that a window is.
    "a window of 136 years, a purge 20 late": (False, [start(0, 2**32 - 1), seal(0, 300), purge(YEARS)]),
    "a window of 136 years, and no purge": (False, [start(0, 2**32 - 1), seal(0, 300), tick(YEARS)]),
    "a window of 136 years, keys destroyed ahead": (False, [start(0, 2**32 - 1), ratchet(0, 1000), tick(86_400)]),
    "a window of no length": (False, [start(0, 0)]),
    "an hour": (True, [start(0, 3600)]),
    "an hour and a second": (False, [start(0, 3601)]),
    # Keys are looked for from the first entry on, whether it is a start or not.
    "no start, and no step of the keys": (False, [seal(0, 86_400 * 9), tick(86_400)]),
    "a step into the epoch that runs": (False, [ratchet(290, 0)]),
    # Edges.
    "opened in the last second": (True, [start(0, 1), seal(0, 300), opened(299), purge(300)]),
    "opened at its until": (False, [start(0, 1), seal(0, 300), opened(300), purge(300)]),
    "purged 2 minutes later": (True, [start(0, 1), seal(0, 300), purge(420)]),
    "purged a second after that": (False, [start(0, 1), seal(0, 300), purge(421)]),
    # Honest: a clock that jumped by hours, and keys that keep the old pace for five minutes.
    "a held ratchet": (True, [start(0), start(7200), tick(7380), ratchet(7500, 22), tick(7560)]),
    "held for longer": (False, [start(0), start(7200), tick(7680), ratchet(7680, 23), tick(7740)]),
    "leapt again while it was held": (True, [
        start(0), ratchet(300, -1), start(90_000), start(90_180), tick(90_480), ratchet(90_480, 298), tick(90_540)]),
    "7 minutes in windows of 90 seconds": (True, [start(0, 90), start(90_000, 90), ratchet(90_450, 298), tick(90_540)]),
    "later than those": (False, [start(0, 90), start(90_000, 90), tick(90_540), ratchet(90_540, 298), tick(90_630)]),
    # Honest: begun at the end of a window, purged at the beginning of the next.
    "due in the window of a start": (True, [
        start(0, 600), seal(0, 6300), start(6000, 600), ratchet(6000, 18), ratchet(6600, 20), purge(6600)]),
    "a second start in one window": (True, [
        start(0, 7), seal(0, 33), tick(28), tick(35), start(35, 7), purge(161)]),
    # The log's own times say how long its windows are, whatever a start says: an hour would excuse a purge an hour late, and keys destroyed
    # an hour ahead. START begins an hour.
    "an hour, and alive meanwhile": (False, [
        start(0), seal(0, 300), ratchet(0, -1), start(480, 3600), ratchet(480, 10), *(tick(480 + 60 * k) for k in range(1, 50)), purge(3600)]),
    "an hour ahead": (False, [start(0), start(480, 3600), ratchet(480, 10), tick(540)]),
    "an hour that another start ends, a purge later": (False, [
        start(0), seal(0, 300), start(480, 3600), start(540), ratchet(540, 0), purge(720)]),
    "an hour that another start ends, a purge in time": (True, [
        start(0), seal(0, 300), start(480, 3600), start(540), ratchet(540, 0), purge(660)]),
    "a start in the middle of an hour": (True, [start(0), seal(0, 300), start(480, 3600), ratchet(480, 0), purge(3600)]),
    "an hour longer": (False, [start(0), seal(0, 300), start(480, 3600), ratchet(480, 0), purge(7200)]),
    "keys of the hour's second half": (False, [start(0), start(1800, 3600), ratchet(1800, 12)]),
    "keys of the hour": (True, [start(0), start(1800, 3600), ratchet(1800, 10)]),
    "no multiple": (False, [start(0), tick(61)]),
    "another length, in its own window": (True, [start(0), start(65, 5), tick(70)]),
    "another length, in one of the old length": (True, [start(0, 5), tick(5), start(5, 60), tick(5), tick(60)]),
    "begun at no multiple": (False, [start(1)]),
    # Before any start stands only what lived in an earlier log, in the window that closed that one.
    "carried over": (True, [seal(7, 300), opened(7), start(7), tick(60), purge(300)]),
    "carried over, and the broker a day away": (True, [seal(7, 300), start(86_400), ratchet(86_400, 286), purge(86_400)]),
    "carried over, nothing else": (True, [seal(7, 300)]),
    "no start at all": (False, [tick(0)]),
    "purged before any start": (False, [seal(0, 300), purge(0)]),
    "keys before any start": (False, [ratchet(0, -2), start(0)]),
    "two windows before any start": (False, [seal(0, 600), opened(60), start(120), purge(120)]),
    # A token that ends before it begins has no time in which it may live.
    "sealed in the last second": (True, [start(0, 1), seal(299, 300), purge(300)]),
    "sealed when it ended": (False, [start(0, 1), seal(300, 300), purge(300)]),
    # Spellings.
    "null for a number": (False, [start(0), NULL]),
    "null for an epoch": (False, [start(0), spell({"at": moment(START), "epoch": None, "op": "keys.ratcheted"})]),
    "a policy that only the start names, and nobody has": (False, [start(0, policy="ab" * 32)]),
}


@pytest.mark.parametrize("story", STORIES)
def test_stories(tmp_path, story):
    expected, entries = STORIES[story]
    log = make(tmp_path / "log", [entries])
    agreed(expected, log.folder, "--key", log.vkey)


def hold_up(path):
    path.unlink()
    os.mkfifo(path)


FILES = {
    "a pipe for a checkpoint": (False, lambda folder: hold_up(folder / "checkpoint")),
    "a pipe for a tile": (False, lambda folder: hold_up(folder / "tile/0/000.p/2")),
    "a width below zero": (True, lambda folder: (folder / "tile/0/000.p/-5").write_bytes(b"x")),
    "a bundle's width below zero": (True, lambda folder: (folder / "tile/entries/000.p/-5").write_bytes(b"x")),
}


@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path, name):
    expected, change = FILES[name]
    log = make(tmp_path / "log", [[start(0), tick(0)]])
    change(log.folder)
    agreed(expected, log.folder, "--key", log.vkey)


def beside(folder, name):
    (folder / "tile/0/000.p").mkdir()
    return folder / "tile/0/000.p" / name


BESIDE_A_FULL_TILE = {
    "a file for the folder of its partials": lambda folder: (folder / "tile/0/000.p").write_bytes(b"x"),
    "a partial in another script's digits": lambda folder: beside(folder, "1\u0662").write_bytes(b"x"),
    "a folder for a partial": lambda folder: beside(folder, "12").mkdir(),
    "a partial that is the beginning": lambda folder: beside(folder, "12").write_bytes((folder / "tile/0/000").read_bytes()[:32 * 12]),
}


@pytest.mark.parametrize("name", BESIDE_A_FULL_TILE)
def test_files_beside_a_full_tile(tmp_path, name):
    log = make(tmp_path / "log", [[start(0), *[tick(0)] * 256]])
    BESIDE_A_FULL_TILE[name](log.folder)
    agreed(True, log.folder, "--key", log.vkey)


COMPOSED, DECOMPOSED = "mayfly.test/\u00e9", "mayfly.test/e\u0301"
STRANGERS = [Key("w" * 900 + str(number), bytes([number]) * 32) for number in range(63)]


def padded(text, size):
    """A note of the log with lines of others, `size` bytes long."""
    short = note(text, Key(), *STRANGERS[1:])
    line = STRANGERS[0].line(text)
    return short + line.replace(b"w", b"w" * (size - len(short) - len(line) + 1), 1)


# The log's key, and how a note is made from the text of its head.
NOTES = {
    "a name with an accent": (True, COMPOSED, lambda text, key: note(text, key)),
    "the origin in another spelling": (False, COMPOSED, lambda text, key: note(text.replace("\u00e9".encode(), "e\u0301".encode()), key)),
    "the signature's name in another spelling": (False, COMPOSED, lambda text, key: note(text, key).replace(
        f"— {COMPOSED}".encode(), f"— {DECOMPOSED}".encode())),
    "another key of the same name, spelled otherwise": (True, COMPOSED, lambda text, key: note(text, key, Key(DECOMPOSED))),
    "a witness that begins with a combining mark": (True, "mayfly.test/log", lambda text, key: note(
        text, key, Key("\u0301witness", bytes(32), 4))),
    "64 KiB": (True, "mayfly.test/log", lambda text, key: padded(text, 65_536)),
    "64 KiB and a byte": (False, "mayfly.test/log", lambda text, key: padded(text, 65_537)),
}


@pytest.mark.parametrize("name", NOTES)
def test_notes(tmp_path, name):
    expected, origin, change = NOTES[name]
    log = make(tmp_path / "log", [[start(0)]], key=Key(origin))
    (log.folder / "checkpoint").write_bytes(change(head(1, log.tree.root(), origin), log.key))
    agreed(expected, log.folder, "--key", log.vkey)


A, B = Key("witness.test/a", b"a" * 32, 4), Key("witness.test/b", b"b" * 32, 4)
OTHER = Key("other.test/log", b"o" * 32)
NAMES = f"witness a {A.vkey}\nwitness b {B.vkey}\n"
POLICIES = {
    "both": (True, NAMES + "group g all a b\nquorum g\n"),
    "this log": (True, f"log {OTHER.vkey}\nlog {Key().vkey} https://log.test\n{NAMES}quorum a\n"),
    "another log, whose key has signed too": (False, f"log {OTHER.vkey}\n{NAMES}quorum a\n"),
    "one log twice": (False, f"log {Key().vkey}\nlog {Key().vkey}\n{NAMES}quorum a\n"),
    "a witness in two groups": (False, NAMES + "group g any a b\ngroup h any a b\ngroup q all g h\nquorum q\n"),
    "groups in a group": (True, NAMES + "group g any a\ngroup h any b\ngroup q all g h\nquorum q\n"),
    "a group of nobody": (False, NAMES + "group g all\nquorum g\n"),
    "none of two": (False, NAMES + "group g 0 a b\nquorum g\n"),
    "no newline at the end": (False, NAMES + "quorum a"),
    "a carriage return": (False, NAMES + "quorum a\r\n"),
    "a wide space": (False, NAMES + "quorum\u00a0a\n"),
    "a name with a wide space": (True, f"witness a\u00a0b {A.vkey}\nquorum a\u00a0b\n"),
    "a comment that is no text": (True, b"# \xff\n" + NAMES.encode() + b"quorum a\n"),
    "names that only look alike": (True, f"witness \u00e9 {A.vkey}\nwitness e\u0301 {B.vkey}\nquorum e\u0301\n"),
}


@pytest.fixture(scope="module")
def cosigned(tmp_path_factory):
    log = make(tmp_path_factory.mktemp("cosigned") / "log", [[start(0)]], witnesses=(A, B))
    put_checkpoint(log, OTHER.line)
    return log


def put_checkpoint(log, *lines):
    """The log's head with the cosignatures of both witnesses as of now, and these lines; each is given the text."""
    text = head(1, log.tree.root(), log.key.name)
    (log.folder / "checkpoint").write_bytes(note(text, log.key, A, B, time=int(time.time())) + b"".join(line(text) for line in lines))


@pytest.mark.parametrize("name", POLICIES)
def test_policies(cosigned, tmp_path, name):
    expected, text = POLICIES[name]
    policy = tmp_path / "policy"
    policy.write_bytes(text if isinstance(text, bytes) else text.encode())
    words = (cosigned.folder, "--key", cosigned.vkey, "--policy", policy)
    swift = mayfly("audit", "verify", *words, timeout=20)
    python = subprocess.run([sys.executable, VERIFY, *map(str, words)], capture_output=True, text=True, timeout=20, env=clean_environment())
    assert [done.returncode == 0 for done in (swift, python)] == [expected, expected], swift.stderr + python.stderr
    assert "Traceback" not in python.stderr and "Fatal" not in swift.stderr


DATES = {"the last second that there is": 2**63 - 1, "a second later": 2**63, "the last that can be written": 2**64 - 1}


@pytest.mark.parametrize("name", DATES)
def test_dates_of_cosignatures(tmp_path, name):
    """A date that no witness writes spoils the note for whoever asks for that witness, also beside a good line of its own."""
    log, policy = make(tmp_path / "log", [[start(0)]], witnesses=(A, B)), tmp_path / "policy"
    put_checkpoint(log, lambda text: B.line(text, DATES[name]))
    policy.write_text(NAMES + "group g any a b\nquorum g\n")
    agreed(DATES[name] < 2**63, log.folder, "--key", log.vkey, "--policy", policy)
    agreed(True, log.folder, "--key", log.vkey)


@pytest.mark.parametrize("count", [64, 65])
def test_signatures_under_a_checkpoint(tmp_path, count):
    log = make(tmp_path / "log", [[start(0)]])
    others = [Key(f"other.test/{number}", bytes([number]) * 32) for number in range(count - 1)]
    (log.folder / "checkpoint").write_bytes(checkpoint(log.tree, log.key, *others))
    agreed(count == 64, log.folder, "--key", log.vkey)


@pytest.mark.parametrize("size", [2**40, 2**63 - 1, 2**63, 2**64 - 1])
def test_proofs_for_absurd_sizes(tmp_path, size):
    """The path is right; numbers from 2^63 on are refused, and crash nobody."""
    key, entry = Key(), start(0)
    path = [bytes([height]) * 32 for height in range((size - 1).bit_length())]
    root = leaf_hash(entry)
    for node in path:
        root = node_hash(root, node)
    lines = [f"extra {base64.b64encode(entry).decode()}", "index 0", *(base64.b64encode(node).decode() for node in path)]
    proof = tmp_path / "proof"
    proof.write_bytes("\n".join(["c2sp.org/tlog-proof@v1", *lines, "", ""]).encode() + note(head(size, root), key))
    agreed(size < 2**63, "--proof", proof, "--key", key.vkey)
