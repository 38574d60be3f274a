"""Proofs of one entry: `mayfly audit prove` and `audit verify --proof`, for a user who has a ref and the log's key."""

import base64
import hashlib
import json
import shutil

import pytest

import ledger
from mayfly import new_token
from processes import eventually, mayfly
from world import World


@pytest.fixture(scope="module")
def log():
    """A log of a few hundred entries and two rooms of it: one closed, one live, with a push delivered in each."""
    with World() as world:
        client = world.client()
        closed, live = client.room(), client.room()
        for room in (closed, live):
            client.presence(room.roomid, room.joiner.client).expect(202)
        eventually(lambda: len(world.simulator.pushes()) == 2, what="both pushes")
        eventually(lambda: all(ledger.read(world.state).outcomes(room.creator.ref) for room in (closed, live)), what="outcomes")
        client.delete(closed.roomid).expect(200)
        # In a later window, or it could be sorted before the first 256 entries.
        eventually(lambda: ledger.read(world.state).of(closed.joiner.ref, "token.purged"), what="the first purge")
        for _ in range(130):
            client.create(token=new_token()).expect(201)
        last = client.room()
        for _ in range(130):
            client.create(token=new_token()).expect(201)
        client.delete(last.roomid).expect(200)
        eventually(lambda: ledger.read(world.state).of(last.joiner.ref, "token.purged"), what="the last purge")
        yield world, closed, live
        client.close()


def prove(log, subject, *words, **environment):
    world = log[0]
    return mayfly("audit", "prove", world.state / "ledger", subject, "--key", world.state.vkey, *words, **environment)


def verify(log, path, *words):
    return mayfly("audit", "verify", "--proof", path, "--key", log[0].state.vkey, *words)


def check(text, vkey):
    """A proof checked by code that shares nothing with Mayfly: the entry, its number, and the size of the log."""
    lines = text.split(b"\n")
    split = lines.index(b"")
    assert lines[0] == b"c2sp.org/tlog-proof@v1" and lines[1].startswith(b"extra ") and lines[2].startswith(b"index ")
    entry, index = base64.b64decode(lines[1][6:], validate=True), int(lines[2][6:])
    assert base64.b64encode(entry) == lines[1][6:]
    head = ledger.Checkpoint(b"\n".join(lines[split + 1:]), vkey)
    # RFC 9162, 2.1.3.2
    node, last, found = index, head.size - 1, ledger.leaf_hash(entry)
    for sibling in (base64.b64decode(line, validate=True) for line in lines[3:split]):
        assert last > 0
        if node & 1 or node == last:
            found = hashlib.sha256(b"\1" + sibling + found).digest()
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            found = hashlib.sha256(b"\1" + found + sibling).digest()
        node, last = node >> 1, last >> 1
    assert last == 0 and found == head.root
    return json.loads(entry), index, head.size


@pytest.fixture(scope="module")
def proof(log, tmp_path_factory):
    """The proof of a purge, as a file."""
    path = tmp_path_factory.mktemp("proof") / "purged.tlog-proof"
    done = prove(log, log[1].creator.ref, "--out", path)
    assert done.returncode == 0, done.stderr
    return path


def test_a_user_proves_a_purge(log, tmp_path):
    """As docs/rooms.md shows: from the broker's address with the ref alone, then offline with the file alone."""
    world, closed, _ = log
    path, ref = tmp_path / "purged.tlog-proof", closed.creator.ref
    made = mayfly("audit", "prove", f"{world.broker.url}/audit/", ref, "--key", world.state / "ledger.vkey", "--out", path)
    assert made.returncode == 0 and "a token was purged before 20" in made.stdout and "cause ended" in made.stdout
    entry, index, size = check(path.read_bytes(), world.state.vkey)
    assert entry in ledger.read(world.state).of(ref) and (entry["op"], entry["cause"]) == ("token.purged", "ended")
    assert ledger.read(world.state).entries[index] == entry
    done = mayfly("audit", "verify", "--proof", path, "--key", world.state / "ledger.vkey", "--ref", ref)
    assert done.returncode == 0 and f"a token was purged before {entry['at']}, id {entry['id']}, cause ended" in done.stdout, done.stdout
    told = json.loads(verify(log, path, "--json").stdout)
    assert told["good"] is True and told["entry"] == entry and (told["index"], told["size"]) == (index, size)
    assert ref not in path.name and ref not in made.stdout + done.stdout, "whoever has the ref finds the token's other entries"


def test_a_live_token_has_no_purge_to_prove(log, tmp_path):
    path, ref = tmp_path / "proof", log[2].creator.ref
    done = prove(log, ref, "--out", path)
    assert done.returncode == 0 and "This doesn't prove that the token was purged" in done.stdout
    entry, _, _ = check(path.read_bytes(), log[0].state.vkey)
    now = ledger.read(log[0].state)
    assert entry == (now.of(ref, "token.opened") or now.of(ref, "token.sealed"))[-1], "its latest push: outcomes name no token"
    done = verify(log, path, "--ref", ref)
    assert done.returncode == 0 and "This doesn't prove that the token was purged" in done.stdout and "purged before" not in done.stdout


def test_every_kind_of_entry_by_its_number(log, tmp_path):
    world, path = log[0], tmp_path / "proof"
    entries, seen = ledger.read(world.state).entries, {}
    for index, entry in enumerate(entries):
        seen.setdefault(entry["op"], index)
    for index in [*seen.values(), 255, 256, len(entries) - 1]:
        done = prove(log, index, "--out", path)
        assert done.returncode == 0, done.stderr
        assert check(path.read_bytes(), world.state.vkey)[0] == entries[index]
        done = verify(log, path)
        assert done.returncode == 0 and len(done.stdout.splitlines()) == 3, done.stdout
        assert json.loads(done.stdout.splitlines()[1]) == entries[index]


def test_a_proof_is_written_to_a_new_file(log, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = prove(log, log[1].creator.ref)
    assert done.returncode == 0
    (path,) = tmp_path.iterdir()
    index = check(path.read_bytes(), log[0].state.vkey)[1]
    assert path.name == f"{index}.tlog-proof" and f"wrote {path.name}" in done.stdout
    again = prove(log, index)
    assert again.returncode == 1 and "--out" in again.stderr, "nothing is replaced unasked"
    assert prove(log, index, "--out", path.name).returncode == 0
    shown = prove(log, index, "--out", "-")
    assert shown.returncode == 0 and check(shown.stdout.encode(), log[0].state.vkey)[1] == index and "was purged" in shown.stderr
    nowhere = prove(log, index, "--out", tmp_path / "none/proof")
    assert nowhere.returncode == 1 and "can't be written" in nowhere.stderr
    assert [path.name for path in tmp_path.iterdir()] == [f"{index}.tlog-proof"]


def test_unknown_refs_and_numbers_have_no_proof(log, tmp_path):
    world = log[0]
    size = ledger.read(world.state).checkpoint.size
    for subject, word in ((f"{1:032x}", "none of the log's"), (10 ** 9, "numbered from 0"), (2 ** 64 - 1, "numbered from 0")):
        done = prove(log, subject, "--out", tmp_path / "proof")
        assert done.returncode == 1 and word in done.stderr, done.stderr
    for subject in ("", "01", "+1", "1.0", "-1", 2 ** 64, "x" * 32, log[1].creator.ref.upper() + "A", log[1].creator.ref[:31], size * 10 ** 30):
        done = prove(log, subject, "--out", tmp_path / "proof")
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, (subject, done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_bad_use(log, proof):
    world = log[0]
    for words in (
        ["prove"], ["prove", world.state / "ledger"], ["prove", world.state / "ledger", 1, 2], ["verify", "--proof", proof, world.state / "ledger"],
        ["verify", "--proof", proof, "--ref", "1"], ["verify"], ["verify", "--proof"], ["show", world.state / "ledger", 1],
    ):
        done = mayfly("audit", *words, "--key", world.state.vkey)
        assert done.returncode == 2 and "Fatal error" not in done.stderr, (words, done.stderr)
    assert mayfly("audit", "verify", "--proof", proof).returncode == 2, "a key is needed"
    done = mayfly("audit", "prove", world.state / "nowhere", 1, "--key", world.state.vkey)
    assert done.returncode == 1 and "not a folder" in done.stderr


def test_a_bad_proof_fails(log, proof, tmp_path):
    """`ProofTests` has the other faults."""
    text, path = proof.read_bytes(), tmp_path / "bad"
    lines = text.split(b"\n")
    for changed, word in ((b"\n".join([*lines[:3], *lines[4:]]), "needs"), (text[:-20], "not a proof file")):
        path.write_bytes(changed)
        done = verify(log, path)
        assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done
        assert word in done.stderr and str(path) in done.stderr, done.stderr
        with pytest.raises(Exception):
            check(changed, log[0].state.vkey)
        told = json.loads(verify(log, path, "--json").stdout)
        assert told["good"] is False and told["code"] in ("tree", "damaged", "missing", "signature")


def test_another_logs_proof_fails(log, proof, worlds, tmp_path):
    """Under another key, and with another log's checkpoint beneath the right hashes."""
    other = worlds(apns=False)
    eventually(lambda: ledger.read(other.state).checkpoint.size > 2, what="entries in the other log")
    assert mayfly("audit", "verify", "--proof", proof, "--key", other.state.vkey).returncode == 1
    mixed = tmp_path / "mixed"
    mixed.write_bytes(proof.read_bytes().partition(b"\n\n")[0] + b"\n\n" + (other.state / "ledger/checkpoint").read_bytes())
    for key in (log[0].state.vkey, other.state.vkey):
        done = mayfly("audit", "verify", "--proof", mixed, "--key", key)
        assert done.returncode == 1, done.stdout
    wrong = mayfly("audit", "prove", other.state / "ledger", 0, "--key", log[0].state.vkey, "--out", "-")
    assert wrong.returncode == 1 and wrong.stdout == "" and "checkpoint" in wrong.stderr


def test_a_proof_of_another_token_fails(log, tmp_path):
    """For an opening. For a purge each possible expiry would be tried, which takes seconds."""
    _, closed, live = log
    path = tmp_path / "opened"
    assert prove(log, live.creator.ref, "--out", path).returncode == 0
    for ref in (closed.creator.ref, live.joiner.ref, "0" * 32):
        done = verify(log, path, "--ref", ref)
        assert done.returncode == 1 and "isn't about the token with this ref" in done.stderr and ref not in done.stderr
    assert verify(log, path, "--ref", live.creator.ref).returncode == 0


def test_a_proof_file_must_be_a_plain_file(log, tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        done = verify(log, path)
        assert done.returncode == 1 and str(path) in done.stderr, done.stderr


def test_no_proof_from_a_damaged_log(log, tmp_path):
    """A server can't hide a purge by changing a tile on the way to it."""
    world, closed, _ = log
    copy = tmp_path / "ledger"
    shutil.copytree(world.state / "ledger", copy, ignore=shutil.ignore_patterns("*.new"))
    path = copy / "tile/entries/000"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    done = mayfly("audit", "prove", copy, closed.creator.ref, "--key", world.state.vkey, "--out", tmp_path / "proof")
    assert done.returncode == 1 and not (tmp_path / "proof").exists()
    assert "tile/entries/000" in done.stderr, done.stderr
