"""The auditor's page and the other verifiers agree on every log, good or damaged, by the same code."""

import hashlib
import json
import random
import shutil
import sys

import pytest

import damages
import logs
import test_hostile_logs
from dishonest import RULES, breaking
from no_entries import NO_ENTRIES, with_no_entry
from stories import perhaps_honest
from browser import Browser
from log_server import LogServer
from page_opinion import PageOpinion
from processes import REPOSITORY
from log_fixtures import SEED, chances, in_base64, signed
from file_server import roomy_folder

sys.path.insert(0, str(REPOSITORY / "audit"))
import verify  # noqa: E402

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def folder():
    path = roomy_folder("mayfly-page-")
    shutil.copy(REPOSITORY / "Sources/Edges/AuditPage/index.html", path)
    shutil.copytree(REPOSITORY / "Sources/Edges/AuditPage/page", path / "page")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def opinion(folder):
    server = LogServer(folder)
    with Browser() as browser, browser.open(f"{server.url}/index.html", listens=False) as page:
        yield PageOpinion(page, server.url)
    server.close()


def python(folder, vkey, since=()):
    try:
        older = [(str(path), *verify.checkpoint(str(path), verify.fetch(str(path)), vkey)) for path in since]
        return None, verify.verify(str(folder), vkey, older)
    except verify.Bad as bad:
        return bad.args[0], bad.args[1:]


def brief(said):
    return said["findings"][:2], said["unable"]


def test_honest_stories(folder, opinion):
    for number, chance in chances("page honest", 15):
        count = chance.choice((12, 30, 100, 255, 256, 257, 512, 700))
        place = folder / "honest"
        shutil.rmtree(place, ignore_errors=True)
        log = logs.make(place, logs.story(count, chance.getrandbits(32), resolution=chance.choice((60, 30, 10, 1)), outages=1))
        kept = chance.choice(log.checkpoints).decode()
        code, said = opinion("honest", log.vkey, kept)
        _, counted = python(place, log.vkey)
        assert code is None, f"seed {SEED}, number {number}: {brief(said)}"
        counts = said["figures"]["counts"]
        names = {"closed": "buckets closed", "gaps": "seconds of gaps"}
        for name in ("sealed", "live", "purged", "opened", "delivered", "failed", "pending", "closed", "gaps"):
            assert counts[name] == counted[names.get(name, name)], name


def test_random_damage_to_files(folder, opinion):
    codes, bases = {}, [damages.Base(folder / f"base-{count}", count, SEED + count, outages=1) for count in (40, 257, 1100)]
    for number, chance in chances("page files", 200):
        base = chance.choice(bases)
        damage = chance.choice(damages.DAMAGES)(chance, base)
        if any(isinstance(new, str) for new in damage.changes.values()):
            continue  # A server's handling of pipes and loops isn't the page's.
        with damage:
            code, said = opinion(base.folder.name, base.vkey)
            wanted, words = python(base.folder, base.vkey)
        # The page reads the right edge first, so it finds damage above an entry before the entry.
        edge = [finding["file"] for finding in said["findings"]] == ["checkpoint"] and code == "tree" and "entry" in damage.what
        assert wanted and (code == wanted or edge), f"seed {SEED}, number {number}: {damage}: {brief(said)}, Python: {wanted} {words}"
        codes[code] = codes.get(code, 0) + 1
    assert {"signature", "tree", "damaged"} <= codes.keys(), codes


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_each_rule(folder, opinion, rule):
    for number, chance in chances(rule.__name__, 5):
        entries, wanted = breaking(chance, rule)
        place, vkey = signed(folder, entries, partials=False)
        code, said = opinion("signed", vkey)
        # A story that breaks one of several rules is judged as the other verifier does.
        assert code and code == (wanted or python(place, vkey)[0]), f"seed {SEED}, {rule.__name__}, number {number}: {brief(said)}"


def test_malformed_entries_are_rejected(folder, opinion):
    kinds = random.Random(SEED).sample(NO_ENTRIES, min(60, len(NO_ENTRIES)))
    for number, chance in chances("page no entry", len(kinds)):
        what, change = kinds[number]
        entries, place = with_no_entry(chance, change)
        _, vkey = signed(folder, entries, partials=False)
        code, said = opinion("signed", vkey)
        assert code == "entry", f"seed {SEED}, {what} at {place}: {entries[place][:200]}: {brief(said)}"


@pytest.mark.parametrize("story", test_hostile_logs.STORIES)
def test_hostile_stories(folder, opinion, story):
    wanted, entries = test_hostile_logs.STORIES[story]
    shutil.rmtree(folder / "hostile", ignore_errors=True)
    code, said = opinion("hostile", logs.make(folder / "hostile", [entries]).vkey)
    assert code == wanted, f"{story}: {brief(said)}"


@pytest.mark.parametrize("name", test_hostile_logs.NOTES)
def test_hostile_notes(folder, opinion, name):
    expected, origin, change = test_hostile_logs.NOTES[name]
    shutil.rmtree(folder / "noted", ignore_errors=True)
    log = logs.make(folder / "noted", [[test_hostile_logs.start(0)]], key=logs.Key(origin))
    log.put("checkpoint", change(logs.head(1, log.tree.root(), origin), log.key))
    code, said = opinion("noted", log.vkey)
    assert code == (None if expected else "signature"), brief(said)


STANDING = """(async () => {
    const { readKey, readNote, standing } = await import('/page/note.js');
    return standing(readNote(new TextEncoder().encode(%s)), await readKey(%s));
})()"""


@pytest.mark.parametrize("date", [2**63 - 1, 2**63, 2**64 - 1])
def test_dates_of_cosignatures(opinion, date):
    witness = test_hostile_logs.A
    text = logs.head(1, bytes(32))
    note = logs.note(text, logs.Key(), witness) + witness.line(text, date)
    assert opinion.page.value(STANDING % (json.dumps(note.decode()), json.dumps(witness.vkey))) == ("good" if date < 2**63 else "bad")


HASHES = """(async () => {
    const { KeyedHash } = await import('/page/blake2b.js');
    const { fromBase64, hex } = await import('/page/bytes.js');
    return %s.map(([key, message]) => hex(new KeyedHash(fromBase64(key)).digest(fromBase64(message))));
})()"""


def test_blake2b_equals_pythons(opinion):
    """For messages of any length around a block's."""
    chance = random.Random(SEED)
    cases = [(chance.randbytes(key), chance.randbytes(length)) for key in (1, 16, 32, 64) for length in (1, 44, 127, 128, 129, 255, 256, 257, 1000)]
    found = opinion.page.value(HASHES % json.dumps([[in_base64(part) for part in case] for case in cases]))
    assert found == [hashlib.blake2b(message, key=key, digest_size=32).hexdigest() for key, message in cases]


IDS = """(async () => {
    const { TokenIDs, bytesOf } = await import('/page/tokenids.js');
    const { hex } = await import('/page/bytes.js');
    const ids = new TokenIDs(%s), job = Uint32Array.from(%s), until = %s;
    return [ids.sealed(until), ids.purged(until), ids.opened(job)].map((words) => hex(bytesOf(words)));
})()"""


def test_ids_of_a_token(opinion):
    for _, chance in chances("page ids", 10):
        ref, job, until = chance.randbytes(16).hex(), chance.randbytes(16), chance.randrange(1 << 36)
        words = [int.from_bytes(job[at:at + 4], "big") for at in range(0, 16, 4)]
        found = opinion.page.value(IDS % tuple(json.dumps(value) for value in (ref, words, until)))
        assert found == [logs.token_id(ref, "sealed", until), logs.token_id(ref, "purged", until), logs.token_id(ref, "opened", job.hex())]


def test_random_stories(folder, opinion):
    codes = {}
    for number, chance in chances("page random", 150):
        place, vkey = signed(folder, perhaps_honest(chance), partials=False)
        code, said = opinion("signed", vkey)
        wanted, words = python(place, vkey)
        assert code == wanted, f"seed {SEED}, number {number}: {brief(said)}, Python: {wanted} {words}"
        codes[code] = codes.get(code, 0) + 1
    assert codes[None] > 10 and len(codes) > 4, codes
