"""Three verifiers that share no code agree on every log, good or damaged: `mayfly audit verify`, audit/verify.py, Go's sumdb."""

import base64
import json
import os
import shutil
import time

import pytest

import damages
import ledger
import logs
import stories
from mayfly import new_token
from processes import eventually, mayfly
from verifiers import by_python, opinions, run_python, swift_can, verify
from log_fixtures import SEED, WITNESSES, bases, chances, folder, go, in_base64, signed  # noqa: F401


# Logs as they should be.


def agree_that_it_is_good(go, place, vkey, since=()):
    said = opinions(go, place, vkey, since)
    assert said.all_good, str(said)
    told, counted = said.told, said.counted
    assert (told["size"], told["live"], told["excused"]) == (counted["entries"], counted["live"], counted["excused"])
    for name, op in (("sealed", "token.sealed"), ("purged", "token.purged"), ("opened", "token.opened"),
                     ("delivered", "push.delivered"), ("failed", "push.failed")):
        assert told[name] == counted.get(op, 0), name
    return counted


def test_honest_stories(go, folder):
    excused = 0
    for number, chance in chances("honest", 60):
        count = chance.choice((12, 30, 100, 255, 256, 257, 512, 700))
        publications = logs.story(count, chance.getrandbits(32), resolution=chance.choice((60, 60, 30, 10, 1)))
        place = folder / "honest"
        shutil.rmtree(place, ignore_errors=True)
        log = logs.make(place, publications, partials=number % 8 == 0)
        since = []
        if log.partials:
            for kept, note in enumerate(chance.sample(log.checkpoints, min(3, len(log.checkpoints)))):
                since.append(place / f"kept-{kept}")
                since[-1].write_bytes(note)
        excused += agree_that_it_is_good(go, place, log.vkey, since)["excused"]
    assert excused > 0, "no story had an outage in which something fell due"


def test_an_empty_log(go, folder):
    agree_that_it_is_good(go, *signed(folder, []))


def test_a_tree_of_three_levels(go, folder):
    """66,000 entries: 257 full tiles, of which one is of the second level."""
    publications = logs.story(66_000, SEED)
    place = folder / "deep"
    log = logs.make(place, publications, partials=False)
    agree_that_it_is_good(go, place, log.vkey)
    tile = place / "tile/2/000.p/1"
    content = tile.read_bytes()
    tile.write_bytes(content[:31] + bytes([content[31] ^ 1]))
    said = opinions(go, place, log.vkey)
    assert (said.swift, said.python) == ("tree", "tree") and said.go, str(said)
    shutil.rmtree(place)


def test_a_log_that_has_grown_beyond_its_checkpoint(go, folder):
    """A reader holds a checkpoint while the log goes on, and the partial tiles of that checkpoint have gone: full ones serve."""
    publications = logs.story(700, SEED, resolution=60)
    entries = [entry for window in publications for entry in window]
    place = folder / "grown"
    log = logs.make(place, [entries[:300], entries[300:]])
    (place / "checkpoint").write_bytes(log.checkpoints[0])
    agree_that_it_is_good(go, place, log.vkey)
    for path in place.rglob("*.p/44"):
        path.unlink()
    agree_that_it_is_good(go, place, log.vkey)


def test_the_log_of_a_broker(world, go, tmp_path):
    client = world.client()
    rooms = [client.room() for _ in range(90)]
    kept = tmp_path / "kept"
    kept.write_bytes(eventually(lambda: (world.state / "ledger/checkpoint").read_bytes(), what="a checkpoint"))
    for number, room in enumerate(rooms):
        client.presence(room.roomid, room.joiner.client).expect(202)
        if number % 3 == 0:
            client.put_token(room.roomid, room.joiner.client, new_token()).expect(200)
        if number % 3 == 1:
            client.delete(room.roomid).expect(200)

    def complete():
        counts = ledger.read(world.state).counts()
        return counts["token.sealed"] == 210 and counts["push.delivered"] + counts["push.failed"] == counts["token.opened"] > 60
    eventually(complete, 15, what="every seal and every outcome in the ledger")
    copy = tmp_path / "ledger"
    shutil.copytree(world.state / "ledger", copy)
    counted = agree_that_it_is_good(go, copy, world.state.vkey, [kept])
    assert counted["token.sealed"] == 210 and counted["entries"] > 256
    # As an auditor would: over HTTP, by another program, and a proof from the one checked by the other.
    done = run_python(f"{world.broker.url}/audit/", "--key", world.state.vkey, "--since", kept)
    assert done.returncode == 0 and done.stdout.startswith("good: ") and len(done.stdout.splitlines()) == 1, done.stderr
    assert "210 token.sealed" in done.stdout
    if swift_can("--proof"):
        entry = next(entry for entry in ledger.read(world.state).entries if entry["op"] == "token.purged")
        proof = tmp_path / "purge.tlog-proof"
        made = mayfly("audit", "prove", copy, entry["ref"], "--key", world.state.vkey, "--out", proof)
        assert made.returncode == 0, made.stderr
        done = run_python(copy, "--key", world.state.vkey, "--proof", proof)
        assert done.returncode == 0 and entry["ref"] in done.stdout and '"token.purged"' in done.stdout, done.stderr


# Damage to files, which everyone must notice.

# Go's note takes base64 whose last letter has spare bits set; the others want the one spelling. It takes a second, broken
# signature of a key whose first one was good, and it looks at no policy.
def go_must_notice(damage):
    if "checkpoint" in damage.changes:
        new = damage.changes["checkpoint"]
        if "signature besides" in damage.what:
            return False
        if isinstance(new, bytes):
            try:
                name, data = new.split(b"\n\n")[1].split()[1:]
                known = damage.base.content("checkpoint")
                same = base64.b64decode(data) == base64.b64decode(known.split(b"\n\n")[1].split()[2])
                return not (same and new.split(b"\n\n")[0] == known.split(b"\n\n")[0])
            except (ValueError, IndexError):
                return True
    return not all(path.startswith("policies/") for path in damage.changes)


@pytest.mark.parametrize("part", range(4))
def test_random_damage_to_files(go, bases, part):
    codes = {}
    for number, chance in chances(f"files {part}", 160):
        damage = chance.choice(damages.DAMAGES)(chance, chance.choice(bases))
        with damage:
            said = opinions(go, damage.base.folder, damage.base.vkey)
        about = f"seed {SEED}, part {part}, number {number}: {damage}: {said}"
        assert said.swift and said.swift == said.python, about
        if go_must_notice(damage):
            assert said.go, about
        codes[said.swift] = codes.get(said.swift, 0) + 1
    print(codes)
    assert {"signature", "tree", "damaged", "missing"} <= codes.keys(), codes
    for base in bases:
        assert opinions(go, base.folder, base.vkey).all_good, "the damage was not put right"


def test_endless_files(go, bases):
    """A gibibyte of garbage, a device without end, a pipe without a writer: none is read whole or waited for."""
    base = bases[2]
    for path in ("checkpoint", "tile/0/000", "tile/entries/000", "tile/1/000.p/1", "tile/entries/001.p/1"):
        for what in ("zeros", "pipe"):
            with damages.Damage(base, what, {path: what}):
                assert mayfly("audit", "verify", base.folder, "--key", base.vkey, timeout=10).returncode == 1
                assert by_python(base.folder, base.vkey)[0] == "missing"
        with damages.Damage(base, "a gibibyte", {path: b"garbage"}):
            os.truncate(base.folder / path, 1 << 30)
            done = run_python(base.folder, "--key", base.vkey, memory=256 << 20)
            assert done.returncode == 1 and "unreadable" in done.stderr and "Traceback" not in done.stderr, done.stderr
            child = mayfly("audit", "verify", base.folder, "--key", base.vkey, "--json")
            assert child.returncode == 1 and '"code":"unreadable"' in child.stdout, child.stdout


def test_what_no_checkpoint_covers(go, folder):
    """Partial tiles of earlier sizes may go at any time, and other names are none of the log's: nobody vouches for them. An earlier
    partial that contradicts the log is told by those who can see that it is there; Go reads only what a checkpoint covers."""
    place = folder / "covered"
    log = logs.make(place, logs.story(300, SEED, resolution=60))
    old = sorted(path for path in place.rglob("*.p/*") if path.name not in ("44", "1"))
    assert len(old) > 20
    for path in old[::2]:
        path.unlink()
    (place / "tile/0/077").write_bytes(b"beyond the end")
    (place / "hello").write_bytes(b"hello")
    for name in ("-5", "0", "+3", "007", "256", "300", "9" * 30, "x", "4 ", "\u0663"):
        for kind in ("0", "entries"):
            (place / "tile" / kind / "001.p" / name).write_bytes(b"hello")
    agree_that_it_is_good(go, place, log.vkey)
    for number, chance in chances("covered", 12):
        path = chance.choice(old[1::2])
        content = path.read_bytes()
        path.write_bytes(chance.choice((damages.flipped(chance, content), content[:-1], content + b"x", b"")))
        said = opinions(go, place, log.vkey)
        assert said.swift == said.python == "tree" and said.go is None, f"seed {SEED}, number {number}: {path}: {said}"
        path.write_bytes(content)


# Stories that break a rule, signed as if nothing were wrong: Go, which knows no rules, must call the tree good.


def agree_that_it_breaks(go, folder, entries, code, about, since=()):
    place, vkey = signed(folder, entries, partials=False)
    said = opinions(go, place, vkey, since)
    about = f"seed {SEED}, {about}: {said}"
    assert said.swift == said.python == code, about
    assert said.go is None or code == "rewritten", about


@pytest.mark.parametrize("rule", stories.RULES, ids=lambda rule: rule.__name__)
def test_each_rule(go, folder, rule):
    for number, chance in chances(rule.__name__, 9):
        entries, code = stories.breaking(chance, rule)
        agree_that_it_breaks(go, folder, entries, code, f"{rule.__name__}, number {number}")


def test_what_is_no_entry(go, folder):
    for number, chance in chances("no entry", len(stories.NO_ENTRIES)):
        what, change = stories.NO_ENTRIES[number]
        entries, place = stories.with_no_entry(chance, change)
        agree_that_it_breaks(go, folder, entries, "entry", f"number {number}, {what} at {place}: {entries[place][:200]}")


def test_a_rewritten_history(go, folder):
    """Consistent in itself and well signed: an older checkpoint shows it, and nothing else does."""
    kept = folder / "kept"
    for number, chance in chances("rewritten", 40):
        entries = stories.honest(chance)
        tree = logs.Tree([logs.spell(entry) for entry in entries])
        size = chance.randint(1, len(entries))
        kept.write_bytes(logs.checkpoint(tree, logs.Key(), size=size))
        place = chance.randrange(size)
        kind = chance.randrange(4)
        if kind == 0:  # Another kind of token: no rule is about it.
            entries[place] = entries[place] | ({"kind": "liveactivity"} if "kind" in entries[place] else {"node": "node-2"} if
                                               "node" in entries[place] else {"version": "9"})
            if not {"kind", "node"} & entries[place].keys():
                continue
        elif kind == 1:
            entries.insert(place, {"at": entries[place]["at"], "cause": "throttled", "count": 5, "op": "request.refused"})
        elif kind == 2:
            entries = entries[:max(0, size - 1 - chance.randrange(size))]
        elif entries[place]["op"] in ("keys.ratcheted", "token.sealed", "broker.started", "token.opened"):
            continue
        else:  # Left out what breaks no rule by its absence, or breaks one: whoever reads on finds the one or the other.
            del entries[place]
            where, vkey = signed(folder, entries, partials=False)
            said = opinions(go, where, vkey, [kept])
            assert said.swift and said.swift == said.python and said.go, f"seed {SEED}, number {number}: {said}"
            continue
        agree_that_it_breaks(go, folder, entries, "rewritten", f"number {number}, kind {kind}", [kept])


def test_older_checkpoints_that_are_none(go, bases, tmp_path):
    base = bases[1]
    good = base.log.checkpoints[0]
    kept = tmp_path / "kept"
    for content in (b"", good[:-1], good + b"x", logs.checkpoint(base.log.tree, logs.Key(seed=bytes(32)), size=10)):
        kept.write_bytes(content)
        said = opinions(go, base.folder, base.vkey, [kept])
        assert said.swift == said.python == "signature" and said.go, str(said)
    kept.write_bytes(logs.checkpoint(logs.Tree(), logs.Key()))
    agree_that_it_is_good(go, base.folder, base.vkey, [kept])


@pytest.mark.parametrize("part", range(2))
def test_random_stories(go, folder, part):
    """Honest or not: what one verifier says, the other says too."""
    codes = {}
    for number, chance in chances(f"random {part}", 160):
        entries = stories.perhaps_honest(chance)
        place, vkey = signed(folder, entries, partials=False)
        said = opinions(go, place, vkey)
        about = f"seed {SEED}, part {part}, number {number}: {said}"
        assert said.swift == said.python and said.go is None, about
        if said.swift is None:
            assert said.told["excused"] == said.counted["excused"], about
        codes[said.swift] = codes.get(said.swift, 0) + 1
    print(codes)
    assert codes[None] > 30 and len(codes) > 5, codes


# Proofs, and witnesses.


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
    """A proof of an entry with something wrong in it, and what."""
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
def test_proofs(bases, go, tmp_path):
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


def test_a_proof_and_a_log(bases, tmp_path):
    """The checkpoint of a proof is an older checkpoint too: a log that was rewritten since does not contain it."""
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


def test_witnesses(folder, tmp_path):
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
