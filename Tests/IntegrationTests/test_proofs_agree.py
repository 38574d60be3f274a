"""Proofs and witnesses' signatures, good and damaged: `mayfly audit verify` and audit/verify.py agree on them."""

import base64
import json
import time

import pytest

import damages
import ledger
import logs
from log_fixtures import SEED, WITNESSES, bases, chances, folder, go, in_base64  # noqa: F401
from processes import mayfly
from verifiers import by_python, run_python, swift_can, verify

pytestmark = pytest.mark.campaign


def swift_proof(path, vkey):
    done = mayfly("audit", "verify", "--proof", path, "--key", vkey, "--json")
    assert done.returncode in (0, 1) and done.stdout.startswith("{"), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["good"] == (done.returncode == 0)
    return report.get("code")


def python_proof(content, vkey):
    try:
        verify.prove("proof", content, vkey)
    except verify.Bad as bad:
        return bad.args[0]


def damaged_proof(chance, log, index):
    """A proof of an entry with a fault, and the fault's name."""
    right, entry, note = log.proof(index), log.entries[index], log.checkpoints[-1]
    head, _, _ = right.partition(b"\n\n")
    lines = head.split(b"\n")
    kind = chance.choice(("a bit", "a bit", "no step", "a step twice", "steps exchanged", "one more step", "another entry", "another number",
                          "no entry", "cut", "another tree", "another key", "other spellings"))
    if kind == "no step":
        del lines[chance.randrange(3, len(lines))]
    elif kind == "a step twice":
        place = chance.randrange(3, len(lines))
        lines.insert(place, lines[place])
    elif kind == "steps exchanged":
        one, two = chance.sample(range(3, len(lines)), 2)
        lines[one], lines[two] = lines[two], lines[one]
    elif kind == "one more step":
        lines.insert(chance.randrange(3, len(lines) + 1), base64.b64encode(chance.randbytes(32)))
    elif kind == "another entry":
        other = chance.choice([other for other in log.entries if other != entry])
        lines[1] = b"extra " + base64.b64encode(chance.choice((other, damages.flipped(chance, entry), b"")))
    elif kind == "another number":
        lines[2] = b"index %d" % chance.choice((index + 1, index ^ 1, len(log.entries), 10**18, index + len(log.entries)))
    elif kind == "no entry":
        del lines[1]
    elif kind == "other spellings":
        place = chance.randrange(len(lines))
        lines[place] = chance.choice((lines[place] + b" ", lines[place].replace(b"index ", b"index 0"), b"", lines[place][:-1] + b"\n"))
    new = b"\n".join(lines) + b"\n\n" + note
    if kind == "a bit":
        new = damages.flipped(chance, right)
    elif kind == "cut":
        new = right[:chance.randrange(len(right))]
    elif kind == "another tree":
        new = head + b"\n\n" + logs.checkpoint(logs.Tree(log.entries[:-1]), log.key)
    elif kind == "another key":
        new = head + b"\n\n" + logs.checkpoint(log.tree, logs.Key(seed=chance.randbytes(32)))
    return kind, new, new == right


@pytest.mark.skipif(not swift_can("--proof"), reason="this mayfly knows no proofs yet")
def test_the_verifiers_agree_on_proofs(bases, go, tmp_path):
    file = tmp_path / "proof"
    for number, chance in chances("proofs", 150):
        base = chance.choice(bases)
        index = chance.randrange(len(base.log.entries))
        what, content, same = damaged_proof(chance, base.log, index)
        if number % 15 == 0:
            what, content, same = "nothing", base.log.proof(index), True
            path = [in_base64(part) for part in base.log.tree.inclusion(index)]
            assert isinstance(go("include", base.folder, base.vkey, index, *path), tuple)
        file.write_bytes(content)
        told, said = swift_proof(file, base.vkey), python_proof(content, base.vkey)
        about = f"seed {SEED}, number {number}: {what} wrong in the proof of entry {index} of {base}: Swift: {told}, Python: {said}"
        # Swift calls a proof whose checkpoint is no signed note no proof at all.
        assert told == said or {told, said} == {"damaged", "signature"}, about
        assert (told is None) == same, about


def test_a_proofs_checkpoint_convicts_a_rewritten_log(bases, tmp_path):
    """It counts as an older checkpoint."""
    base, file = bases[0], tmp_path / "proof"
    file.write_bytes(base.log.proof(7))
    done = run_python(base.folder, "--key", base.vkey, "--proof", file)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2, done.stderr
    done = run_python(bases[1].folder, "--key", base.vkey, "--proof", file)
    assert done.returncode == 1 and done.stderr.startswith("bad: rewritten: ") and "entry 7 of 40" in done.stdout


def policies(key):
    """(a tlog-policy, whether witnesses 0 and 1 satisfy it: None if it is no policy)."""
    names = "".join(f"witness w{number} {witness.vkey}\n" for number, witness in enumerate(WITNESSES))
    return [
        ("quorum none\n", True), (names + "quorum w0\n", True), (names + "quorum w2\n", False), (names + "quorum none\n", True),
        (f"log {key.vkey} https://log.test/\n{names}quorum w1\n", True),
        (f"# a comment\n\n \t{names.replace(' ', chr(9))}  # another\n  quorum   w1  \n", True),
        (names + "group g any w2 w3\nquorum g\n", False), (names + "group g any w3 w0\nquorum g\n", True),
        (names + "group g all w0 w1\nquorum g\n", True), (names + "group g all w0 w1 w2\nquorum g\n", False),
        (names + "group g 2 w0 w1 w2 w3\nquorum g\n", True), (names + "group g 3 w0 w1 w2 w3\nquorum g\n", False),
        (names + "group a any w0 w2\ngroup b any w1 w3\ngroup c all a b\nquorum c\n", True),
        (names + "group a any w0 w1\ngroup b any w2 w3\ngroup c all a b\nquorum c\n", False),
        (f"log {logs.Key('other.test/log', bytes(32)).vkey}\nquorum none\n", False),
        ("", None), (names, None), ("quorum w0\n", None), ("quorum none\nquorum none\n", None), ("quorum\n", None), ("nonsense\nquorum none\n", None),
        (names + names + "quorum w0\n", None), (names + "group g 0 w0\nquorum g\n", None), (names + "group g 2 w0\nquorum g\n", None),
        (names + "group g any\nquorum g\n", None), (names + "group g any w0 w0\nquorum g\n", None), (names + "group g any none\nquorum g\n", None),
        (names + "group g any h\ngroup h any w0\nquorum g\n", None), (names + "group w0 any w1\nquorum w0\n", None),
        (f"witness w0 {key.vkey}\nquorum w0\n", None), (f"witness none {WITNESSES[0].vkey}\nquorum none\n", None),
        (f"witness a {WITNESSES[0].vkey}\nwitness b {WITNESSES[0].vkey}\ngroup g all a b\nquorum g\n", None)]


def test_the_verifiers_agree_on_witnesses(folder, tmp_path):
    place = folder / "witnessed"
    publications = logs.story(40, SEED)
    last = int(ledger.seconds(json.loads(publications[-1][-1])["at"]))
    log = logs.make(place, publications, witnesses=WITNESSES[:2], partials=False, time=last + 60)
    with_swift, file = swift_can("--policy"), tmp_path / "policy"
    for text, content in policies(log.key):
        file.write_text(text)
        code, words, _ = by_python(place, log.vkey, policy=text)
        assert code == (None if content else "cosignatures"), f"{text!r}: {code}: {words}"
        if with_swift:
            told = mayfly("audit", "verify", place, "--key", log.vkey, "--policy", file, "--json")
            assert told.returncode == (0 if content else 1) if content is not None else told.returncode != 0, f"{text!r}: {told.stderr}"
            assert content is not False or '"code":"cosignatures"' in told.stdout, f"{text!r}: {told.stdout}"
    # Asked for, and forged; of another text; missing; dated before the last entry or ahead of the clock.
    file.write_text(f"witness w0 {WITNESSES[0].vkey}\nquorum w0\n")
    note = (place / "checkpoint").read_bytes()
    text = note.split(b"\n\n")[0] + b"\n"
    line = WITNESSES[0].line(text, last + 60)
    assert line in note
    dash, name, encoded = line.split()
    signature = bytearray(base64.b64decode(encoded))
    signature[11] ^= 1
    forged = b" ".join((dash, name, base64.b64encode(signature))) + b"\n"
    now = int(time.time())
    for new, good in ((forged, False), (line + forged, False), (WITNESSES[0].line(b"other\n1\nAAAA\n", last), False), (b"", False),
                      (WITNESSES[0].line(text, last), True), (WITNESSES[0].line(text, last - 600), True),
                      (WITNESSES[0].line(text, last - 601), False), (WITNESSES[0].line(text, now), True),
                      (WITNESSES[0].line(text, now + 3600), False), (WITNESSES[0].line(text, 1 << 62), False)):
        (place / "checkpoint").write_bytes(note.replace(line, new))
        assert by_python(place, log.vkey)[0] is None, "nobody asked for this witness"
        code, words, _ = by_python(place, log.vkey, policy=file.read_text())
        assert code == (None if good else "cosignatures"), f"{new}: {code}: {words}"
        if with_swift:
            told = mayfly("audit", "verify", place, "--key", log.vkey, "--policy", file, "--json")
            assert told.returncode == (0 if good else 1) and (good or '"code":"cosignatures"' in told.stdout), f"{new}: {told.stdout}"
    done = run_python(place, "--key", log.vkey, "--policy", file)
    assert done.returncode == 1 and done.stderr.startswith("bad: cosignatures: ") and len(done.stderr.splitlines()) == 1, done.stderr
