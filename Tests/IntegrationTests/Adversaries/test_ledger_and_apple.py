"""Adversaries with the log, with Apple's records, and with both; and an operator who edits the log."""

import base64
import hashlib
import json
import subprocess
import sys
from collections import defaultdict

import pytest

import ledger
import logs
import opening
import table
from canary import search
from opening import KEY_0, Keys
from processes import REPOSITORY, mayfly
from traces import correlation

pytestmark = pytest.mark.campaign

KEYS = {"at", "op"}.union(*ledger.KEYS.values())


@pytest.fixture(scope="module")
def log(story, tmp_path_factory):
    """Every entry of the busy days, checked by the tests' own reader."""
    return ledger.Ledger(story.after_a_day.write_ledger(tmp_path_factory.mktemp("busy") / "ledger"), story.stage.state.vkey)


@pytest.fixture(scope="module")
def links(story, tmp_path_factory):
    """What audit/linker.py says of the first day, with Apple's records: {id of a seal: (partner, chance, purge, chance)}, and of phones
    {(token, handle): the line about it}."""
    folder = tmp_path_factory.mktemp("first-day")
    story.after_a_day.write_ledger(folder / "ledger")
    (folder / "pushes.json").write_text(json.dumps(story.quiet_pushes))
    done = subprocess.run(
        [sys.executable, REPOSITORY / "audit/linker.py", "--ledger", folder / "ledger", "--pushes", folder / "pushes.json"],
        capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    seals, phones = ([line.split() for line in table.splitlines()[1:]] for table in done.stdout.split("\n\n"))
    return {line[0]: (line[1], percent(line[2]), line[3], percent(line[4])) for line in seals}, {(line[0][:8], line[1]): line[2:] for line in phones}


def percent(text):
    return float(text.rstrip("%")) / 100


def sealed_id(log, ref):
    """The id of the seal, which only the ref's owner can compute."""
    [entry] = log.of(ref, "token.sealed")
    return entry["id"]


# The log alone.


# Promise: no-secret-in-the-ledger
def test_the_log_contains_no_secret(story, log):
    found = search([content for content in story.after_three_days.ledger.values()], story.truth.canaries())
    assert set().union(*log.entries) <= KEYS, "an entry says something new: does it say too much?"
    # Without the ref nobody can recompute an id, not even with all tokens. No entry contains a ref.
    made = set()
    ids = {entry[key] for entry in log.entries for key in ("id", "job") if key in entry}
    refs = set(story.truth.sealed)
    for token in story.truth.all["tokens"]:
        for text in (token, token.hex().encode()):
            made |= {hashlib.new(name, text).hexdigest()[:32] for name in ("md5", "sha1", "sha256", "sha512", "blake2b")}
            made |= {hashlib.blake2b(text, digest_size=size).hexdigest()[:32] for size in (16, 32)}
            made |= {opening.derive(KEY_0, label, text).hex()[:32] for label in ("ref", "token", "handle")}
    found += ["a ref made from a token"] * bool({ref[:16] for ref in refs} & {digest[:16] for digest in made})
    found += ["an id made from a token"] * bool(ids & made)
    table.record(
        table.LEDGER, "secrets and refs in it; ids made from tokens",
        ", ".join(found) or f"nothing: {len(log.entries)} entries, {len({entry['op'] for entry in log.entries})} kinds, {len(ids)} ids",
        "event kinds, coarse times, template names, ids that mean nothing")
    assert not found
    assert log.counts()["token.sealed"] >= 100 and log.counts()["push.delivered"] >= 4, "too little to learn from"


def test_the_order_in_a_batch_is_random(story, log):
    """Compares the order of seals in the largest batch, and at a day's end, with the order in which they were made."""
    ref_of = {log_id: ref for ref in story.truth.sealed for log_id in (one["id"] for one in log.of(ref, "token.sealed"))}
    batches = defaultdict(list)
    for entry in log.entries:
        if entry["op"] == "token.sealed":
            batches[entry["at"], entry["until"]].append(ref_of[entry["id"]])
    largest = max(batches.values(), key=len)
    told = abs(correlation(largest, story.truth.sealed))
    table.record(
        table.LEDGER, f"the order of {len(largest)} seals in a batch", f"rank correlation {told:.2f} (1: all of it)",
        "sorted by id: neighbourhood says nothing")
    assert told < 0.5


def test_times_are_coarse(log):
    assert all(ledger.seconds(entry["at"]) % 60 == 0 for entry in log.entries)
    assert all(ledger.seconds(entry["until"]) % 86_400 == 0 for entry in log.entries if "until" in entry)


def test_the_log_alone_pairs_no_refs(story, log, links):
    """Four rooms of a quiet hour. Their seals are published with all others of that hour."""
    seals, _ = links
    ids = {(number, slot): sealed_id(log, refs[slot]) for number, (_, refs, *_) in enumerate(story.quiet) for slot in (1, 2)}
    paired = sum(seals[one][0] == ids[number, 3 - slot] for (number, slot), one in ids.items())
    surest = max(seals[one][1] for one in ids.values())
    table.record(
        table.LEDGER, "which two seals are one room's: four rooms of one hour",
        f"{paired} of {len(ids)} guessed, {surest:.0%} sure at most", "totals; not which two seals are one room's")
    assert surest < 0.1 and paired <= 2, (surest, paired)


# Apple.


def test_apple_links_rooms_by_token_alone(story):
    """Apple's records contain tokens, times, a constant text and a handle. The design allows the link by token."""
    pushes = story.stage.simulator.pushes()
    rooms = {opening.handle(room.roomid, slot): (room, slot) for room in story.truth.rooms for slot in (1, 2)}
    by_token, texts, wrong = defaultdict(set), set(), []
    for push in pushes:
        handle = base64.urlsafe_b64decode(push["headers"]["apns-collapse-id"] + "==")
        if handle not in rooms:
            wrong.append("a handle that the room id does not give")
            continue
        room, slot = rooms[handle]
        by_token[push["token"]].add((room.index, slot))
        alert = push["payload"]["aps"]
        texts.add(json.dumps(alert, sort_keys=True))
        if set(push["payload"]) != {"aps", "roomId"} or set(push["headers"]) - {
                "apns-id", "apns-topic", "apns-push-type", "apns-priority", "apns-expiration", "apns-collapse-id"}:
            wrong.append(f"something new in a push: {sorted(push['payload'])}, {sorted(push['headers'])}")
    rest = json.dumps([{"headers": push["headers"], "payload": push["payload"]} for push in pushes]).encode()
    wrong += search([rest], story.truth.canaries())
    linked = {frozenset(room for room, _ in sides) for sides in by_token.values() if len({room for room, _ in sides}) > 1}
    table.record(
        table.APPLE, f"{len(pushes)} pushes",
        f"{len(by_token)} tokens and their times, {len(texts)} constant text, a handle a side; {len(linked)} phones linked across rooms",
        "token, bundle id, times, a constant text, a handle; rooms of one phone, by its token")
    assert not wrong and len(texts) == 1
    often = story.quiet[0][2][1]
    assert len(by_token[often]) == 2, "the phone that was in two quiet rooms is to be seen in both"


def test_apns_ids_lead_to_jobs_only_while_the_key_lives(story, log):
    jobs = {bytes.fromhex(entry["job"]) for entry in log.entries if "job" in entry}
    pushed = {push["headers"]["apns-id"] for push in story.stage.simulator.pushes()}

    def linked(image):
        """With this image's keys, or none."""
        keys = [KEY_0]
        for file in image.keys.values() if image else ():
            if file[:8] == b"mayflyrk":
                known, now = Keys(file), int(image.now * 1000)
                keys += [known.epoch_key(g, now + shift) for g in known.generations for shift in range(-600_000, 600_000, 300_000)]
        return {opening.apns_id(key, job) for key in keys if key for job in jobs} & pushed
    recent = linked(story.at_once), linked(None)
    table.record(
        table.LEDGER_AND_APPLE, "an apns-id made from the log's jobs", f"{len(recent[1])} of {len(pushed)}; with the key file of the day, recent ones",
        "nothing; who has the key finds a recent job")
    assert not recent[1], "an apns-id can be made from the log alone"
    assert not linked(story.after_three_days)
    assert linked(story.quiet_image), "the operator could not find a recent job by its apns-id either: this proves nothing"


def test_apples_records_lead_to_no_entry(story, log, links):
    """For each pushed phone they lead to a time. Its seal and its purge are among many."""
    seals, phones = links
    surest = 0
    for room, refs, tokens, slot in story.quiet:
        handle = base64.urlsafe_b64encode(opening.handle(room.roomid, slot)).decode().rstrip("=")
        said = phones[tokens[slot][:8], handle]
        assert not any(len(word) == 32 for word in said), said
        sealed, *_ = log.of(refs[slot], "token.sealed")
        for entry in (sealed, *log.of(refs[slot], "token.purged")):
            alike = [one for one in log.entries if all(one.get(key) == entry.get(key) for key in ("at", "op", "until", "cause"))]
            surest = max(surest, 1 / len(alike))
    found = [log.of(refs[3 - slot], "token.opened") for _, refs, _, slot in story.quiet]
    table.record(
        table.LEDGER_AND_APPLE, f"which seal and purge were a phone's: {len(story.quiet)} that were pushed in one hour",
        f"one of {1 / surest:.0f} or more", "totals; not when a pushed token was sealed or purged")
    assert surest < 0.1 and not any(found), "never pushed, and opened?"


# The operator.


def test_an_edited_log_contradicts_a_kept_checkpoint(story, tmp_path):
    """The operator changes an entry and hashes and signs everything anew with the log's key."""
    header, origin, seed = (story.stage.state / "keys/ledger.key").read_text().split("\n")[:3]
    assert header == "mayfly ledger key v1"
    key = logs.Key(origin, base64.b64decode(seed))
    assert key.vkey == story.stage.state.vkey
    kept = tmp_path / "kept"
    kept.write_bytes(story.after_a_day.ledger["checkpoint"])
    honest = story.after_three_days.write_ledger(tmp_path / "honest")
    entries = ledger.Ledger(honest, key.vkey).raw
    place = next(number for number, entry in enumerate(entries) if b'"cause":"ended"' in entry)
    edited = [*entries[:place], entries[place].replace(b'"ended"', b'"policy"'), *entries[place + 1:]]
    policies = [content for name, content in story.after_three_days.ledger.items() if name.startswith("policies/")]
    log = logs.Log(tmp_path / "edited", key, policies)
    log.publish(edited)

    def verified(folder, *since):
        return mayfly("audit", "verify", folder, "--key", key.vkey, "--allow-gaps", *since).returncode
    assert verified(honest) == 0 and verified(honest, "--since", kept) == 0
    assert verified(tmp_path / "edited") == 0, "the forgery is not even good: it proves nothing"
    caught = verified(tmp_path / "edited", "--since", kept) == 1
    table.record(
        table.OPERATOR, "one entry changed, all signed again", "caught by --since" if caught else "a log that passes",
        "caught by anyone who kept a checkpoint")
    assert caught
