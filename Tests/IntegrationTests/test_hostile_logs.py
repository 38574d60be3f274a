"""Logs of a dishonest operator, and honest ones that look alike: all verifiers agree."""

import base64
import hashlib
import os
import subprocess
import sys
import time

import pytest

from logs import POLICIES, POLICY_NAME, START, Key, checkpoint, head, leaf_hash, make, moment, node_hash, note, policy, spell
from log_fixtures import go  # noqa: F401
from processes import REPOSITORY, clean_environment, mayfly
from verifiers import ask_swift, by_python, opinions, swift_answer

VERIFY = REPOSITORY / "audit/verify.py"
EPOCH = START // 300
ID, JOB, NEXT = "0" * 31 + "1", "0" * 31 + "2", "0" * 31 + "3"
DAY = 3600  # Of logs.POLICY; its hour is 600, and a batch has 4 seals.


def entry(at, op, **fields):
    return spell({"at": moment(START + at), "op": op} | fields)


def start(at, resolution=60, policy=POLICY_NAME):
    return entry(at, "broker.started", binary="ab" * 32, node="n", policy=policy, resolution=resolution, version="1")


def seals(at, until, count=1):
    return [entry(at, "token.sealed", id=f"{number:032x}", until=moment(START + until)) for number in range(count)]


def purges(at, until, count=1):
    return [entry(at, "token.purged", cause="expired", id=f"{number:032x}", until=moment(START + until)) for number in range(count)]


def ended(at, count=1):
    return [entry(at, "token.purged", cause="ended", id=f"{number + 99:032x}") for number in range(count)]


def closing(at, until=None, sealed=0, expired=0, early=0):
    return entry(at, "bucket.closed", ended=early, expired=expired, sealed=sealed, until=moment(START + (at if until is None else until)))


def opened(at, template="peer_waiting", job=JOB):
    return entry(at, "token.opened", id=ID, job=job, template=template)


def outcome(at, job=JOB):
    return entry(at, "push.delivered", job=job, status=200)


def ratchet(at, epoch, swept=None):
    return entry(at, "keys.ratcheted", epoch=EPOCH + epoch, swept=EPOCH + (epoch + 2 if swept is None else swept))


def tick(at, **fields):
    return entry(at, "request.refused", **{"cause": "other", "count": 5} | fields)


def steps(*times):
    """The steps of the keys in this time."""
    return [ratchet(at, at // 300 - 2) for at in range(*times, 300)]


def carried(at, *buckets, jobs=0):
    return [entry(at, "ledger.opened", jobs=jobs, previous="old", root="ab" * 32, size=9),
            *(entry(at, "bucket.carried", live=live, until=moment(START + until)) for until, live in buckets)]


def closed(at):
    return entry(at, "ledger.closed", next="next")


def named(text):
    """The name of a policy that a log may have."""
    name = hashlib.sha256(text).hexdigest()
    POLICIES[name] = text
    return name


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


NULL = spell({"at": moment(START), "generation": None, "op": "keys.generated"})
TO_MIDNIGHT = [start(0), *steps(300, DAY)]
STORIES = {
    # Windows.
    "a window of no length": ("entry", [start(0, 0)]),
    "a minute and a second": ("entry", [start(0, 61)]),
    "windows that don't divide the hour": ("policy_changed", [start(0, 7)]),
    "no multiple": ("time", [start(0), tick(61)]),
    "another length, in its own window": (None, [start(0), start(65, 5), tick(70)]),
    "another length, in one of the old length": (None, [start(0, 5), tick(5), start(5, 60), tick(5), tick(60)]),
    "begun at no multiple": ("time", [start(1)]),
    # Steps of the keys.
    "no step of the keys": ("ratchet_late", [start(0), tick(660), tick(840)]),
    "no step of the keys, due when a gap ends": (None, [start(0), start(600), tick(840)]),
    "no step of the keys, and a gap after it was due": ("ratchet_late", [start(0), tick(720), start(840), tick(960)]),
    "a step in the last moment": (None, [start(0), ratchet(780, 0), tick(840)]),
    "a step into the epoch that runs": ("ratchet_early", [start(0), ratchet(240, 1, 0)]),
    "a step in the window that ends with the epoch": (None, [start(0), ratchet(240, 0, 1)]),
    "a held ratchet": (None, [start(0), *steps(300, 3000), start(3540), tick(3600), closing(3600), tick(3660), *steps(3900, 3901)]),
    "swept what nobody could": ("swept_early", [start(0), ratchet(300, -1, 2)]),
    "swept less than before": ("swept_early", [start(0), ratchet(300, -1, 1), ratchet(600, 0, 0)]),
    "nothing swept any more": ("swept_late", [start(0), ratchet(300, -1, 1), ratchet(600, 0, 1), ratchet(900, 1, 1)]),
    "swept late by the allowed minutes": (None, [start(0), ratchet(300, -1, 1), ratchet(600, 0, 1), ratchet(780, 0, 1), ratchet(840, 1, 3)]),
    # Gaps.
    "an hour away": (None, [start(0), start(3660), ratchet(3660, 10), closing(3660, 3600)]),
    "an hour and a minute away": ("gaps", [start(0), start(3720)]),
    "away over midnight, half an hour in each day": (None, [
        start(82_800), *steps(83_100, 84_601), start(88_200), closing(88_200, 86_400), ratchet(88_200, 291), tick(88_260)]),
    "an outcome two windows late after a gap": (None, [start(0), opened(60), tick(240), start(600), outcome(720)]),
    "an outcome three windows late after a gap": ("outcome_late", [start(0), opened(60), tick(240), start(600), outcome(780)]),
    "a start in each window is no gap": ("ratchet_late", [start(60 * number) for number in range(20)]),
    # Batches.
    "a batch of three": ("small_batch", [start(0), *steps(300, 601), *seals(600, DAY, 3), tick(660)]),
    "a batch of four": (None, [start(0), *steps(300, 601), *seals(600, DAY, 4), tick(660)]),
    "a batch that is cut": (None, [start(0), *steps(300, 601), *seals(600, DAY, 3)]),
    "purges alone": ("small_batch", [start(0), *steps(300, 601), *seals(600, DAY, 4), *steps(900, 1201), *purges(1200, DAY), tick(1260)]),
    "a batch three minutes late": (None, [start(0), *steps(300, 601), *seals(780, DAY, 4), tick(840)]),
    "a batch four minutes late": ("batch_late", [start(0), *steps(300, 601), *seals(840, DAY, 4), tick(900)]),
    "a start in a batch": ("small_batch", [start(0), *steps(300, 601), *seals(600, DAY, 4)[:2], start(600), *seals(600, DAY, 4)[2:], tick(660)]),
    "an opening after a seal": ("small_batch", [start(0), *steps(300, 601), *seals(600, DAY), opened(600), tick(660)]),
    "a purge before a seal": ("entry", [start(0), *steps(300, 601), *seals(600, DAY, 4), *purges(600, DAY), *seals(600, DAY)]),
    # Midnights and their balance.
    "no midnight": ("midnight_missing", [*TO_MIDNIGHT, ratchet(3600, 10), tick(3840)]),
    "midnight three minutes late": (None, [*TO_MIDNIGHT, ratchet(3600, 10), tick(3660), closing(3780, 3600), tick(3840)]),
    "midnight four minutes late": ("batch_late", [*TO_MIDNIGHT, ratchet(3600, 10), closing(3840, 3600)]),
    "a balance": (None, [*TO_MIDNIGHT, *seals(3600, DAY, 3), *purges(3600, DAY, 2), *ended(3600), closing(3600, DAY, 3, 2, 1), tick(3660)]),
    "one too many sealed": ("unbalanced", [*TO_MIDNIGHT, *seals(3600, DAY, 3), *purges(3600, DAY, 2), closing(3600, DAY, 3, 2, 0)]),
    "booked what nobody published": ("overbooked", [*TO_MIDNIGHT, *seals(3600, DAY, 3), *purges(3600, DAY, 2), closing(3600, DAY, 3, 2, 1)]),
    "ended what never lived": ("overbooked", [*TO_MIDNIGHT, *ended(3600), closing(3600), tick(3660)]),
    "ended what lives": (None, [*TO_MIDNIGHT, *seals(3600, 2 * DAY), *ended(3600), closing(3600), tick(3660)]),
    "expired what never lived": ("unbalanced", [*TO_MIDNIGHT, *purges(3600, DAY)]),
    "expired a day too early": ("purged_early", [start(0), *seals(0, 2 * DAY), *purges(0, 2 * DAY)]),
    "a bucket of no day": ("bucket_unknown", [start(0), *seals(0, DAY + 1)]),
    "a bucket of long ago": ("bucket_unknown", [start(0), *seals(0, 0)]),
    "the longest life": (None, [start(0), *seals(0, 604_800 + DAY, 4)]),
    "a day more": ("life_too_long", [start(0), *seals(0, 604_800 + 2 * DAY)]),
    "closed twice": ("bucket_unknown", [*TO_MIDNIGHT, closing(3600), ratchet(3600, 10), closing(3600)]),
    # Pushes.
    "an outcome in time": (None, [start(0), opened(0), outcome(180), tick(240)]),
    "an outcome late": ("outcome_late", [start(0), opened(0), outcome(300)]),
    "no outcome": ("outcome_late", [start(0), opened(0), tick(300)]),
    "no outcome yet": (None, [start(0), opened(0), tick(240)]),
    "two outcomes": ("job_unknown", [start(0), opened(0), outcome(0), outcome(60)]),
    "a job twice": ("job_twice", [start(0), opened(0), entry(0, "token.opened", id=NEXT, job=JOB, template="peer_waiting")]),
    "a job again": (None, [start(0), opened(0), outcome(0), opened(60), outcome(60)]),
    "a template of no policy": ("template_unknown", [start(0), opened(0, "anything")]),
    # Rotation.
    "a start before what is carried": ("time", [*carried(7, (DAY, 2)), start(0)]),
    "nothing but what is carried": (None, carried(7, (DAY, 2), (2 * DAY, 1))),
    "carried over, and begun": (None, [*carried(7, (DAY, 2)), start(60), *steps(300, DAY), *purges(3600, DAY), *ended(3600), closing(3600, DAY, 0, 1, 1)]),
    "carried, and forgotten": ("unbalanced", [*carried(7, (DAY, 2)), start(60), *steps(300, DAY), closing(3600, DAY)]),
    "carried to no day": ("carry", [*carried(7, (DAY + 1, 2)), start(60)]),
    "more carried than can be counted": ("carry", carried(7, (DAY, 2**53 - 1), (2 * DAY, 1))),
    "carried twice": ("carry", carried(7, (DAY, 2), (DAY, 1))),
    "carried by nothing": ("carry", carried(7, (DAY, 2))[1:]),
    "opened later": ("carry", [start(0), *carried(0)]),
    "an outcome from before": (None, [*carried(0, jobs=1), start(0), outcome(120), tick(240)]),
    "more outcomes than from before": ("job_unknown", [*carried(0, jobs=1), start(0), outcome(60), outcome(60, NEXT)]),
    "no outcome from before": ("outcome_late", [*carried(0, jobs=1), start(0), tick(300)]),
    "an end": (None, [start(0), *seals(0, DAY, 4), closing(0, DAY, 4), closed(0)]),
    "an end with tokens": ("unbalanced", [start(0), *seals(0, DAY, 4), closed(0)]),
    "an end with a small batch": ("small_batch", [start(0), *seals(0, DAY), closing(0, DAY, 1), closed(0)]),
    "an end with a batch too late": ("batch_late", [start(0), ratchet(300, -1), *seals(360, DAY, 4), closing(360, DAY, 4), closed(360)]),
    "an end with purges of nothing": ("overbooked", [start(0), *seals(0, DAY, 4), *ended(0, 5), closing(0, DAY, 4, 0, 4), closed(0)]),
    "an end that isn't one": ("unbalanced", [start(0), *seals(0, DAY, 4), closing(0, DAY, 4), tick(60)]),
    "an end that isn't there": ("unbalanced", [start(0), *seals(0, DAY, 4), closing(0, DAY, 4)]),
    "after the end": ("after_closed", [start(0), closed(0), b"nonsense"]),
    # Before any start.
    "no start at all": ("entry", [tick(0)]),
    "purged before any start": ("entry", ended(0)),
    "keys before any start": ("entry", [ratchet(0, -2), start(0)]),
    # Spellings.
    "null for a number": ("entry", [start(0), NULL]),
    "null for an epoch": ("entry", [start(0), spell({"at": moment(START), "epoch": None, "op": "keys.ratcheted", "swept": 0})]),
    # Policies.
    "a policy that nobody has": ("missing", [start(0, policy="ab" * 32)]),
    "a policy loaded that nobody has": ("missing", [start(0), entry(0, "policy.loaded", name="x", policy="ab" * 32)]),
    "a policy that is none": ("damaged", [start(0, policy=named(b"[]"))]),
    "a policy without a timing": (None, [start(0, policy=named(b'{"name":"x"}'))]),
    "a timing without hours": ("damaged", [start(0, policy=named(b'{"ledger":{"daySeconds":3600,"batchSeals":4}}'))]),
    "a day of broken hours": ("damaged", [start(0, policy=named(policy(hour=7, day=60)))]),
    "batches of none": ("damaged", [start(0, policy=named(policy(seals=0)))]),
    "another day": ("policy_changed", [start(0), start(60, policy=named(policy(day=7200)))]),
    "other texts": (None, [start(0), start(60, policy=named(policy(templates={"new": {}}))), opened(60, "new"), outcome(60)]),
    "the texts before": (None, [start(0), start(60, policy=named(policy(templates={"new": {}}))), opened(60), outcome(60)]),
    "the texts before two starts at once": (None, [start(0), *[start(60, policy=named(policy(templates={"new": {}})))] * 2, opened(60), outcome(60)]),
    "the texts before, in a later window": ("template_unknown", [start(0), start(60, policy=named(policy(templates={"new": {}}))), opened(120)]),
}


def test_one_story_of_each_code(tmp_path):
    """And a good one, read by two of the verifiers."""
    of_code = {code: name for name, (code, _) in STORIES.items()}
    assert len(of_code) > 20
    for code, name in of_code.items():
        log = make(tmp_path / name, [STORIES[name][1]])
        child = ask_swift(log.folder, log.vkey)
        assert by_python(log.folder, log.vkey)[0] == swift_answer(child)[0] == code, name


@pytest.mark.campaign
@pytest.mark.parametrize("story", STORIES)
def test_hostile_stories_are_rejected(go, tmp_path, story):
    code, entries = STORIES[story]
    log = make(tmp_path / "log", [entries])
    assert opinions(go, log.folder, log.vkey).code == code


def hold_up(path):
    path.unlink()
    os.mkfifo(path)


FILES = {
    "a pipe for a checkpoint": (False, lambda folder: hold_up(folder / "checkpoint")),
    "a pipe for a tile": (False, lambda folder: hold_up(folder / "tile/0/000.p/2")),
    "a width below zero": (True, lambda folder: (folder / "tile/0/000.p/-5").write_bytes(b"x")),
    "a bundle's width below zero": (True, lambda folder: (folder / "tile/entries/000.p/-5").write_bytes(b"x")),
}


@pytest.mark.campaign
@pytest.mark.parametrize("name", FILES)
def test_hostile_files_are_rejected(tmp_path, name):
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


@pytest.mark.campaign
@pytest.mark.parametrize("name", BESIDE_A_FULL_TILE)
def test_files_beside_a_full_tile_are_ignored(tmp_path, name):
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


@pytest.mark.campaign
@pytest.mark.parametrize("name", NOTES)
def test_hostile_checkpoints_are_rejected(tmp_path, name):
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
    """Writes the log's head with current cosignatures of both witnesses and these lines. Each line is a function of the head's text."""
    text = head(1, log.tree.root(), log.key.name)
    (log.folder / "checkpoint").write_bytes(note(text, log.key, A, B, time=int(time.time())) + b"".join(line(text) for line in lines))


@pytest.mark.campaign
@pytest.mark.parametrize("name", POLICIES)
def test_bad_witness_policies_are_refused(cosigned, tmp_path, name):
    expected, text = POLICIES[name]
    policy = tmp_path / "policy"
    policy.write_bytes(text if isinstance(text, bytes) else text.encode())
    words = (cosigned.folder, "--key", cosigned.vkey, "--policy", policy)
    swift = mayfly("audit", "verify", *words, timeout=20)
    python = subprocess.run([sys.executable, VERIFY, *map(str, words)], capture_output=True, text=True, timeout=20, env=clean_environment())
    assert [done.returncode == 0 for done in (swift, python)] == [expected, expected], swift.stderr + python.stderr
    assert "Traceback" not in python.stderr and "Fatal" not in swift.stderr


DATES = {"the last second that there is": 2**63 - 1, "a second later": 2**63, "the last that can be written": 2**64 - 1}


@pytest.mark.campaign
@pytest.mark.parametrize("name", DATES)
def test_absurd_dates_of_cosignatures_are_rejected(tmp_path, name):
    """If the auditor asks for that witness, also beside a good line of its own."""
    log, policy = make(tmp_path / "log", [[start(0)]], witnesses=(A, B)), tmp_path / "policy"
    put_checkpoint(log, lambda text: B.line(text, DATES[name]))
    policy.write_text(NAMES + "group g any a b\nquorum g\n")
    agreed(DATES[name] < 2**63, log.folder, "--key", log.vkey, "--policy", policy)
    agreed(True, log.folder, "--key", log.vkey)


@pytest.mark.campaign
@pytest.mark.parametrize("count", [64, 65])
def test_signatures_under_a_checkpoint(tmp_path, count):
    log = make(tmp_path / "log", [[start(0)]])
    others = [Key(f"other.test/{number}", bytes([number]) * 32) for number in range(count - 1)]
    (log.folder / "checkpoint").write_bytes(checkpoint(log.tree, log.key, *others))
    agreed(count == 64, log.folder, "--key", log.vkey)


@pytest.mark.campaign
@pytest.mark.parametrize("size", [2**40, 2**63 - 1, 2**63, 2**64 - 1])
def test_proofs_for_absurd_sizes(tmp_path, size):
    """The path is right. Numbers from 2^63 on are refused, and nothing crashes."""
    key, entry = Key(), start(0)
    path = [bytes([height]) * 32 for height in range((size - 1).bit_length())]
    root = leaf_hash(entry)
    for node in path:
        root = node_hash(root, node)
    lines = [f"extra {base64.b64encode(entry).decode()}", "index 0", *(base64.b64encode(node).decode() for node in path)]
    proof = tmp_path / "proof"
    proof.write_bytes("\n".join(["c2sp.org/tlog-proof@v1", *lines, "", ""]).encode() + note(head(size, root), key))
    agreed(size < 2**63, "--proof", proof, "--key", key.vkey)
