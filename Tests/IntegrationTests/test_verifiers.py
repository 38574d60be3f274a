"""Three verifiers that share no code agree on every log, good or damaged: `mayfly audit verify`, audit/verify.py, one in Go."""

import json
import os
import shutil

import pytest

import damages
import ledger
import logs
from dishonest import RULES, breaking, gaps_as_excuses, gaps
from honest import honest, resort
from no_entries import NO_ENTRIES, with_no_entry
from stories import perhaps_honest
from mayfly import new_token
from processes import eventually, mayfly
from verifiers import ask_swift, by_python, opinions, run_python, swift_answer
from log_fixtures import SEED, bases, chances, folder, go, signed  # noqa: F401


# Logs as they should be.


def agree_that_it_is_good(go, place, vkey, since=()):
    said = opinions(go, place, vkey, since)
    assert said.all_good, str(said)
    told, counted = said.told, said.counted
    assert (told["size"], told["bucketsClosed"], told["gapSeconds"]) == (
        counted["entries"], counted["buckets closed"], counted["seconds of gaps"])
    for name in ("sealed", "live", "purged", "opened", "delivered", "failed", "pending"):
        assert told[name] == counted[name], name
    return counted


TIMINGS = ((600, 3600, 4), (600, 3600, 4), (60, 600, 2), (10, 10, 1), (3600, 86_400, 8))


@pytest.mark.campaign
def test_honest_stories(go, folder):
    gaps = 0
    for number, chance in chances("honest", 60):
        hour, day, seals = chance.choice(TIMINGS)
        policies = [logs.policy(hour, day, seals), *chance.sample([logs.BUILT_IN[name] for name in ("companion", "monitor", "calls")], chance.choice((0, 0, 2)))]
        count = chance.choice((12, 30, 100, 255, 256, 257, 512, 700))
        publications = logs.story(
            count, chance.getrandbits(32), start=logs.START + chance.choice((0, 80_000)), policies=policies,
            resolution=chance.choice([length for length in (60, 60, 30, 10, 1) if length <= hour]))
        place = folder / "honest"
        shutil.rmtree(place, ignore_errors=True)
        log = logs.make(place, publications, partials=number % 8 == 0)
        since = []
        if log.partials:
            for kept, note in enumerate(chance.sample(log.checkpoints, min(3, len(log.checkpoints)))):
                since.append(place / f"kept-{kept}")
                since[-1].write_bytes(note)
        gaps += agree_that_it_is_good(go, place, log.vkey, since)["seconds of gaps"]
    assert gaps > 0, "no story had a gap"


@pytest.mark.campaign
def test_days_of_real_length_verify(go, folder):
    """Tokens live for a week, and the broker stops each night."""
    simulation = logs.simulate(9_000, SEED, policies=(logs.policy(3600, 86_400, 64),), seconds=9 * 86_400, longest=604_000, outages=5)
    place = folder / "days"
    log = logs.make(place, logs.cut(simulation, 9_000), partials=False)
    counted = agree_that_it_is_good(go, place, log.vkey)
    assert counted["buckets closed"] > 6 and counted["sealed"] > 1_500 and counted["live"] > 100


@pytest.mark.campaign
def test_a_change_of_policies_verifies(go, folder):
    """A start with other templates. Pushes opened before it get their outcome after it."""
    templates = set()
    for number, chance in chances("policies", 6):
        simulation = logs.simulate(100, chance.getrandbits(32), outages=0, resolution=chance.choice((60, 10)))
        simulation.plan(simulation.now + chance.randint(0, 900), "down", chance.random() < 0.5, chance.choice((1, 400)),
                        (logs.policy(templates={"other_text": {}}), logs.BUILT_IN["companion"]))
        place = folder / "policies"
        shutil.rmtree(place, ignore_errors=True)
        log = logs.make(place, logs.cut(simulation.run(300), 300), partials=False)
        agree_that_it_is_good(go, place, log.vkey)
        templates |= {json.loads(entry).get("template") for entry in log.entries}
    assert {"peer_waiting", "other_text"} <= templates


@pytest.mark.campaign
def test_a_chain_of_four_logs_verifies(go, folder):
    """Each continues the one before."""
    for number, chance in chances("chain", 12):
        simulation = logs.simulate(60, chance.getrandbits(32), resolution=chance.choice((60, 10, 1)))
        for _ in range(3):
            simulation.plan(simulation.now + chance.randint(1, 3000), "rotate", "mayfly.test/log", "mayfly.test/log", chance.choice((0, 7, 900)))
            rotations = len(simulation.ended)
            while len(simulation.ended) == rotations:
                simulation.run(simulation.size + 1)
            simulation.run(60)
        simulation.flush()
        for publications in (*simulation.ended, simulation.publications):
            place = folder / "chain"
            shutil.rmtree(place, ignore_errors=True)
            agree_that_it_is_good(go, place, logs.make(place, publications, partials=False).vkey)


@pytest.mark.campaign
def test_an_empty_log_verifies(go, folder):
    agree_that_it_is_good(go, *signed(folder, []))


@pytest.mark.campaign
def test_a_tree_of_three_levels_verifies(go, folder):
    """66,000 entries: 257 full tiles, one of them of the second level."""
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


@pytest.mark.campaign
def test_full_tiles_replace_the_partial_ones_of_a_checkpoint(go, folder):
    """A reader holds a checkpoint whose partial tiles are gone, since the log has grown."""
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
    eventually(lambda: ledger.read(world.state).checkpoint.size, what="a checkpoint with entries")
    kept.write_bytes((world.state / "ledger/checkpoint").read_bytes())
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
    assert counted["sealed"] == 210 and counted["entries"] > 256
    # As an auditor would: over HTTP, by another program, and a proof from the one checked by the other.
    done = run_python(f"{world.broker.url}/audit/", "--key", world.state.vkey, "--since", kept)
    assert done.returncode == 0 and done.stdout.startswith("good: ") and len(done.stdout.splitlines()) == 1, done.stderr
    assert " 210 sealed," in done.stdout
    ref = rooms[1].creator.ref  # Of a room that was closed.
    eventually(lambda: ledger.read(world.state).of(ref, "token.purged"), 15, what="the purge in the ledger")
    made = mayfly("audit", "prove", world.state / "ledger", ref, "--key", world.state.vkey, "--out", tmp_path / "proof")
    assert made.returncode == 0, made.stderr
    done = run_python("--key", world.state.vkey, "--proof", tmp_path / "proof", "--ref", ref)
    assert done.returncode == 0 and '"token.purged"' in done.stdout, done.stderr


# Damage to files, which everyone must notice.

@pytest.mark.campaign
@pytest.mark.parametrize("part", range(4))
def test_random_damage_to_files(go, bases, part):
    codes = {}
    for number, chance in chances(f"files {part}", 250):
        damage = chance.choice(damages.DAMAGES)(chance, chance.choice(bases))
        with damage:
            said = opinions(go, damage.base.folder, damage.base.vkey)
        about = f"seed {SEED}, part {part}, number {number}: {damage}: {said}"
        assert said.swift and said.swift == said.python and said.go, about
        codes[said.swift] = codes.get(said.swift, 0) + 1
    print(codes)
    assert {"signature", "tree", "damaged", "missing"} <= codes.keys(), codes
    for base in bases:
        assert opinions(go, base.folder, base.vkey).all_good, "the damage was not put right"


@pytest.mark.campaign
def test_endless_files_are_not_read_whole(go, bases):
    """A gibibyte of garbage, an endless device and a pipe without a writer."""
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


@pytest.mark.campaign
def test_files_that_no_checkpoint_covers_are_ignored(go, folder):
    """Older partial tiles may disappear at any time, and other names are no files of the log. Verifiers that can see an older partial tile report it if it
    contradicts the log; Go reads only files that a checkpoint covers."""
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


# Stories that break a rule, signed as if nothing were wrong.


def agree_that_it_breaks(go, folder, entries, code, about, since=()):
    place, vkey = signed(folder, entries, partials=False)
    said = opinions(go, place, vkey, since)
    about = f"seed {SEED}, {about}: {said}"
    assert said.swift == said.python and (said.python == code if code else said.python), about
    assert said.go == ("tree" if code == "rewritten" else said.python), about


@pytest.mark.campaign
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_each_rule(go, folder, rule):
    for number, chance in chances(rule.__name__, 9):
        entries, code = breaking(chance, rule)
        agree_that_it_breaks(go, folder, entries, code, f"{rule.__name__}, number {number}")


@pytest.mark.campaign
def test_malformed_entries_are_rejected(go, folder):
    for number, chance in chances("no entry", len(NO_ENTRIES)):
        what, change = NO_ENTRIES[number]
        entries, place = with_no_entry(chance, change)
        agree_that_it_breaks(go, folder, entries, "entry", f"number {number}, {what} at {place}: {entries[place][:200]}")


@pytest.mark.campaign
def test_only_an_older_checkpoint_shows_a_rewritten_history(go, folder):
    """It is consistent and well signed."""
    kept = folder / "kept"
    for number, chance in chances("rewritten", 40):
        entries = honest(chance, outages=0)
        tree = logs.Tree([logs.spell(entry) for entry in entries])
        size = chance.randint(1, len(entries))
        kept.write_bytes(logs.checkpoint(tree, logs.Key(), size=size))
        place = chance.randrange(size)
        kind = chance.randrange(4)
        if kind == 0:  # Another name, number or word that no rule is about.
            other = {"node": "node-2", "generation": 7, "status": 201, "count": 35, "version": "9"}
            name = next((name for name in other if name in entries[place]), None)
            if not name:
                continue
            entries[place] = entries[place] | {name: other[name]}
        elif kind == 1:
            while place and entries[place - 1]["at"] == entries[place]["at"]:
                place -= 1  # An entry in the middle of a batch would split it.
            entries.insert(place + (place == 0), {"at": entries[place]["at"], "cause": "throttled", "count": 5, "op": "request.refused"})
        elif kind == 2:
            entries = entries[:max(0, size - 1 - chance.randrange(size))]
        elif place == 0:
            continue
        else:  # Left out. Swift compares the kept checkpoint once the tree has its size; verify.py may find a broken rule first.
            del entries[place]
            where, vkey = signed(folder, entries, partials=False)
            said = opinions(go, where, vkey, [kept])
            assert said.python and said.swift in ("rewritten", said.python) and said.go == "tree", f"seed {SEED}, number {number}: {said}"
            continue
        agree_that_it_breaks(go, folder, entries, "rewritten", f"number {number}, kind {kind}", [kept])


@pytest.mark.campaign
def test_bad_older_checkpoints_are_refused(go, bases, tmp_path):
    base = bases[1]
    good = base.log.checkpoints[0]
    kept = tmp_path / "kept"
    for content in (b"", good[:-1], good + b"x", logs.checkpoint(base.log.tree, logs.Key(seed=bytes(32)), size=10)):
        kept.write_bytes(content)
        said = opinions(go, base.folder, base.vkey, [kept])
        assert said.swift == said.python == "signature" and said.go, str(said)
    kept.write_bytes(logs.checkpoint(logs.Tree(), logs.Key()))
    agree_that_it_is_good(go, base.folder, base.vkey, [kept])


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(2))
def test_the_verifiers_agree_on_random_stories(go, folder, part):
    """Honest or not."""
    codes = {}
    for number, chance in chances(f"random {part}", 160):
        entries = perhaps_honest(chance)
        place, vkey = signed(folder, entries, partials=False)
        said = opinions(go, place, vkey)
        assert said.swift == said.python == said.go, f"seed {SEED}, part {part}, number {number}: {said}"
        codes[said.swift] = codes.get(said.swift, 0) + 1
    print(codes)
    assert codes[None] > 30 and len(codes) > 8, codes


@pytest.mark.campaign
def test_allowed_gaps_excuse_no_lateness(go, folder):
    """Only their length is allowed."""
    for number, chance in chances("allowed gaps", 12):
        entries, _ = breaking(chance, gaps if number % 2 else gaps_as_excuses)
        place, vkey = signed(folder, entries, partials=False)
        child = ask_swift(place, vkey, (), "--allow-gaps")
        code, words, figures = by_python(place, vkey, allow_gaps=True)
        assert code == swift_answer(child)[0], f"seed {SEED}, number {number}: {words}"
        assert opinions(go, place, vkey).code == "gaps"
        assert code == (None if number % 2 else "ratchet_late") and (code or figures["seconds of gaps"] > 3600), words


@pytest.mark.campaign
def test_a_repeated_id_is_noticed(folder):
    """The story is otherwise consistent. Only a comparison of all ids shows it."""
    for number, chance in chances("twice", 12):
        entries = honest(chance, outages=0)
        ids = [entry for entry in entries if "id" in entry]
        if number:
            one, two = chance.sample(ids, 2)
            name = "job" if number == 1 and "job" in two else "id"
            two[name] = chance.choice([one["id"]])
            resort(entries)
        place, vkey = signed(folder, entries, partials=False)
        if by_python(place, vkey)[0]:
            continue  # Two in one batch.
        child = ask_swift(place, vkey, (), "--unique")
        assert (by_python(place, vkey, unique=True)[0], swift_answer(child)[0]) == (("id_twice" if number else None),) * 2, f"{SEED}, {number}"


@pytest.mark.campaign
def test_an_owner_finds_its_tokens_story(folder, tmp_path):
    """With the outcomes of its pushes. Other refs find nothing."""
    simulation = logs.simulate(600, SEED, outages=0)
    place = folder / "owner"
    log = logs.make(place, logs.cut(simulation, 600))
    entries, proof = ledger.Ledger(place, log.vkey).check(), tmp_path / "proof"
    told = {token.ref: entries.of(token.ref) for token in simulation.tokens}
    some = [ref for ref, found in told.items() if {"token.sealed", "token.opened", "token.purged"} <= {entry["op"] for entry in found}]
    assert len(some) > 20 and any(found[-1].get("cause") == "ended" for found in told.values() if found)
    for ref in some[:10]:
        done = run_python(place, "--key", log.vkey, "--ref", ref)
        lines = [json.loads(line.partition(": ")[2]) for line in done.stdout.splitlines()[:-1]]
        assert done.returncode == 0 and sorted(map(str, lines)) == sorted(map(str, told[ref] + entries.outcomes(ref))), done.stderr
        proof.write_bytes(log.proof(next(number for number, entry in enumerate(entries.entries) if entry is told[ref][-1])))
        assert run_python("--key", log.vkey, "--proof", proof, "--ref", ref).returncode == 0
    done = run_python("--key", log.vkey, "--proof", proof, "--ref", "0" * 32)
    assert done.returncode == 1 and done.stderr.startswith("bad: entry: "), done.stderr
    done = run_python(place, "--key", log.vkey, "--ref", "0" * 32)
    assert done.returncode == 1 and done.stderr.startswith("bad: missing: "), done.stderr
    assert run_python(place, "--key", log.vkey, "--ref", "0" * 31).returncode == 2
