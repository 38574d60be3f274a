"""A broker and its witnesses: cosigned checkpoints, witnesses that lie, die and forget, and rewritten histories."""

import base64
import contextlib
import json
import shutil
import sqlite3
import ssl
import threading
import time

import pytest

import ledger
from certificates import Certificate
from mayfly import new_token
from processes import ORIGIN, Broker, State, audit_verify, eventually, mayfly
from test_startup_errors import start_fails
from witness import Refusal, close_at_once, cosigners, faults, old_protocol, policy, read_vkey, split_note
from watched import Watched, head


@pytest.mark.background
def test_cosigned_checkpoints_verify():
    with Watched(4, "both", "group first any w0 w1", "group both all first w2") as watched:
        watched.witnesses[1].stop()
        watched.broker.start()
        watched.grows()
        cosigned = [watched.witnesses[number] for number in (0, 2, 3)]
        eventually(lambda: watched.cosigners() == cosigned, what="all living witnesses under the checkpoint")
        kept = watched.state.prints / "kept"
        kept.write_bytes(watched.note())
        watched.grows()
        assert watched.cosigners() == cosigned
        done = watched.verify()
        assert done.returncode == 0 and "; 3 cosignatures hold; last entry " in done.stdout, done.stdout + done.stderr
        done = watched.verify("--since", kept, "--json")
        assert json.loads(done.stdout)["cosignatures"] == 3 and json.loads(done.stdout)["compared"] == 1
        assert json.loads(mayfly(
            "audit", "verify", f"{watched.broker.url}/audit", "--key", watched.state.vkey, "--json").stdout)["cosignatures"] is None
        assert watched.broker.metric("ledger_cosignatures_total") > 0
        assert len(watched.lines("witness w1: did not cosign")) == 1, watched.broker.printed()
        # An auditor's policy may differ from the broker's. Its URLs don't matter.
        for quorum, code in (("w3", 0), ("w1", 1), ("all", 1), ("none", 0)):
            demand = policy(watched.state.prints / "demand", watched.witnesses, quorum, "group all all w0 w1 w2 w3", urls=False)
            done = watched.verify("--json", demand=demand)
            told = json.loads(done.stdout)
            assert done.returncode == code and told["good"] is (code == 0), done.stdout + done.stderr
            assert code == 0 or told["code"] == "cosignatures", told
        stranger = State()
        demand = policy(watched.state.prints / "demand", watched.witnesses, "w0", logs=[stranger.vkey])
        assert json.loads(watched.verify("--json", demand=demand).stdout)["code"] == "cosignatures"
        stranger.remove()
        # One line that a witness did not make spoils the note, however many others hold.
        assert watched.broker.stop() == 0
        note = watched.note().decode()
        line = next(line for line in note.splitlines() if line.startswith("— witness.test/0 "))
        raw = bytearray(base64.b64decode(line.split(" ")[2]))
        raw[-1] ^= 1
        spoiled = note.replace(line.split(" ")[2], base64.b64encode(raw).decode())
        (watched.state / "ledger/checkpoint").write_text(spoiled)
        done = watched.verify("--json", demand=policy(watched.state.prints / "demand", watched.witnesses, "w3"))
        assert json.loads(done.stdout)["code"] == "cosignatures" and "w0" in done.stdout, done.stdout
        # A verifier without a witness policy ignores cosignatures.
        assert audit_verify(watched.state).returncode == 0


@pytest.mark.campaign
@pytest.mark.background
def test_lying_witnesses_change_nothing():
    """All lies at once. None reaches the checkpoint, delays the log or fills memory."""
    watched = Watched(1)
    liars = {}
    for number, kind in enumerate(faults(watched.witnesses[0]), 1):
        liar = watched.add_witness(f"witness.test/{number}")
        liar.fault = faults(liar)[kind]
        liars[f"w{number}"] = kind
    policy(watched.file, watched.witnesses, "w0", logs=[watched.state.vkey])
    with watched:
        honest = watched.witnesses[0]
        watched.broker.start()
        for _ in range(3):
            watched.grows()
        assert watched.cosigners() == [honest] and len(split_note(watched.note())[1]) == 2
        assert watched.verify().returncode == 0
        for name, kind in liars.items():
            lines = watched.lines(f"witness {name}: ")
            assert len(lines) == 1, f"{kind}: {lines}"
            assert ("contradicts" in lines[0]) == (kind == "a size above all"), f"{kind}: {lines}"
        assert watched.broker.metric("ledger_witness_failures_total") >= len(liars)
        assert watched.broker.metric("resident_bytes") < 100_000_000
        # Silence costs a witness its turn for a while that doubles; it is not asked every window.
        # Sizes that change are asked for several times in one turn.
        asked = {kind: witness.asked for kind, witness in zip(liars.values(), watched.witnesses[1:])}
        assert all(count <= (24 if kind == "sizes that never rest" else 8) for kind, count in asked.items()), asked
        assert not watched.lines("Fatal error")


@pytest.mark.campaign
@pytest.mark.background
def test_a_closed_log_waits_for_its_quorum():
    """Nothing uncosigned is published. The service goes on, and the log continues when the witness is back."""
    with Watched(1) as watched:
        witness = watched.witnesses[0]
        witness.fault = faults(witness)["bad signature"]
        watched.broker.start()
        room = watched.client().room()
        eventually(lambda: witness.asked >= 2, what="a second try")
        assert watched.note() is None, "published without the quorum"
        assert watched.broker.metric("ledger_quorum_missed_total") > 0 and watched.broker.metric("alarms_total") > 0
        witness.fault = None
        eventually(lambda: watched.note() and ledger.read(watched.state).of(room.creator.ref), 12, what="everything published")
        assert watched.cosigners() == [witness]

        # The witness dies and comes back.
        witness.stop()
        size = watched.size()
        second = watched.client().room()
        eventually(lambda: watched.committed()[0] > size, what="the next head in the database")
        waiting = watched.client().room()
        watched.client().delete(waiting.roomid).expect(200)
        time.sleep(1.5)
        assert watched.size() == size, "published without the quorum"
        assert watched.broker.metric("ledger_entries_waiting") > 0
        before = watched.verify()
        assert before.returncode == 0, "what was published stays good: " + before.stderr
        witness.start()
        eventually(lambda: ledger.read(watched.state).of(waiting.creator.ref, "token.purged"), 12, what="everything published")
        log = ledger.read(watched.state)
        assert log.of(second.creator.ref)
        log.check()
        assert watched.cosigners() == [witness] and watched.verify().returncode == 0
        for word in ("ledger: can't publish (the witnesses' quorum", "ledger: publishing again"):
            assert len(watched.lines(word)) == 2, watched.broker.printed()

        # A stop without the witness ends in time and forgets nothing. The next start continues.
        witness.stop()
        third = watched.client().room()
        assert watched.broker.stop() == 0
        assert not ledger.read(watched.state).of(third.creator.ref)
        watched.broker.start()
        assert not ledger.read(watched.state).of(third.creator.ref)
        witness.start()
        eventually(lambda: ledger.read(watched.state).of(third.creator.ref), 12, what="what waited over the restart")
        assert watched.verify().returncode == 0
        assert watched.broker.stop() == 0


@pytest.mark.campaign
@pytest.mark.background
def test_a_witness_with_an_untrusted_certificate_gets_no_checkpoint():
    """Over https the certificate is verified: one that the system does not trust is not shown the checkpoint."""
    with Watched(2, "w0", mode="open") as watched:
        for witness in watched.witnesses:
            witness.stop()
            certificate = Certificate(watched.state.prints, f"tls-{witness.port}")
            witness.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            witness.tls.load_cert_chain(certificate.path, certificate.key)
            witness.start()
        policy(watched.file, watched.witnesses, "w0", logs=[watched.state.vkey])
        trusted = watched.state.prints / f"tls-{watched.witnesses[0].port}.pem"
        watched.broker.start(SSL_CERT_FILE=trusted, SSL_CERT_DIR="/nonexistent")
        watched.grows()
        watched.grows()
        assert watched.cosigners() == watched.witnesses[:1]
        assert watched.witnesses[0].asked >= 2 and watched.witnesses[1].asked == 0
        assert len(watched.lines("witness w1: did not cosign")) == 1 and not watched.lines("witness w0")


@pytest.mark.campaign
@pytest.mark.background
def test_a_witness_that_forgot_or_knows_more_is_served():
    with Watched(1) as watched:
        witness = watched.witnesses[0]
        watched.broker.start()
        watched.grows()
        backup = watched.state.prints / "backup"
        shutil.copytree(witness.folder, backup)
        watched.grows()
        watched.grows()
        assert watched.cosigners() == [witness]
        # The witness is restored from its backup: it answers 409 with the older size, and gets a proof from there.
        shutil.rmtree(witness.folder)
        shutil.copytree(backup, witness.folder)
        witness.statuses.clear()
        watched.grows()
        assert witness.statuses[:2] == [409, 200] and watched.cosigners() == [witness]
        # Its state lost altogether: size 0, no proof.
        shutil.rmtree(witness.folder)
        witness.folder.mkdir()
        witness.statuses.clear()
        watched.grows()
        assert witness.statuses[:2] == [409, 200]

        # It persists, and its answer is lost: it knows more than we know of it.
        def lose_the_answer(handler, body):
            with contextlib.suppress(Refusal):
                witness.add_checkpoint(body)
            close_at_once(handler, body)
        witness.fault = lose_the_answer
        size = watched.size()
        watched.client().create(token=new_token()).expect(201)
        eventually(lambda: witness.latest(ORIGIN)[0] > size, what="a head that it cosigned unheard")
        assert watched.size() == size
        witness.statuses.clear()
        witness.fault = None
        watched.grows()
        assert witness.statuses[0] == 409 and watched.cosigners() == [witness]
        # HTTP/1.0, if it is taken, is taken whole.
        witness.fault = old_protocol(witness)
        watched.client().create(token=new_token()).expect(201)
        time.sleep(1.5)
        witness.fault = None
        watched.grows()
        assert watched.verify().returncode == 0


@pytest.mark.campaign
@pytest.mark.background
def test_a_kill_before_publication_publishes_the_same_head():
    """A witness has the head already. No other head of its size may ever be signed."""
    with Watched(1) as watched:
        witness = watched.witnesses[0]
        watched.broker.start()
        watched.grows()
        kept = []
        for number in range(3):
            held, release = threading.Event(), threading.Event()

            def hold(handler, body):
                if number:
                    with contextlib.suppress(Refusal):
                        witness.add_checkpoint(body)  # cosigned, and never heard of
                held.set()
                release.wait(10)
            witness.fault = hold
            ref = watched.client().create(token=new_token()).expect(201).json["ref"]
            assert held.wait(5)
            watched.broker.kill()
            size, note = watched.committed()
            assert watched.size() < size
            release.set()
            witness.fault = None
            watched.broker.start()
            eventually(lambda: watched.size() >= size, what="the head that was committed")
            log = ledger.read(watched.state)
            root = base64.b64decode(note.splitlines()[2])
            assert ledger.root_of(log.hashes[:size]) == root, "another head of the same size"
            eventually(lambda: ledger.read(watched.state).of(ref), what="the seal in the ledger")
            kept.append(watched.state.prints / f"kept-{number}")
            kept[-1].write_text(note)
            assert watched.cosigners() == [witness]
        done = watched.verify(*(part for path in kept for part in ("--since", path)))
        assert done.returncode == 0, done.stdout + done.stderr


def copy_state(state, to):
    """Database and ledger folder, as a backup has them; the keys are never in one."""
    to.mkdir()
    for path in state.folder.glob("mayfly.sqlite*"):
        shutil.copy2(path, to)
    shutil.copytree(state / "ledger", to / "ledger")


def put_back(state, backup):
    for path in state.folder.glob("mayfly.sqlite*"):
        path.unlink()
    shutil.rmtree(state / "ledger")
    for path in backup.iterdir():
        shutil.copytree(path, state / "ledger") if path.is_dir() else shutil.copy2(path, state.folder)


@pytest.mark.campaign
@pytest.mark.background
@pytest.mark.parametrize("mode", ["open", "closed"])
def test_restored_backup_is_refused(mode):
    """Database and folder agree with each other. Only the witnesses know that there was more."""
    with Watched(3, "most", "group most 2 w0 w1 w2", mode=mode) as watched:
        watched.broker.start()
        watched.grows()
        assert watched.broker.stop() == 0
        backup = watched.state.prints / "backup"
        copy_state(watched.state, backup)
        size = watched.size()
        watched.broker.start()
        watched.grows()
        assert watched.broker.stop() == 0
        later = watched.size()
        put_back(watched.state, backup)
        before = watched.note()
        start_fails(watched.broker, "witnesses contradict this ledger", str(size), str(later), "old copies", lines=8)
        assert watched.note() == before and watched.committed()[0] == size, "something was signed over an old copy"
        # A single witness may lie, so if the others make up the quorum the broker starts, with an alarm.
        for witness in watched.witnesses[1:]:
            shutil.rmtree(witness.folder)
            witness.folder.mkdir()
        watched.broker.start()
        watched.grows()
        assert len(watched.lines("witness w0: contradicts this log")) == 1
        assert watched.broker.metric("alarms_total") > 0
        assert watched.cosigners() == watched.witnesses[1:]


def rewrite(state):
    """Changes one entry of a log of fewer than 256, and everything derived from it, as the key's owner can."""
    log = ledger.read(state)
    assert len(log.raw) < 256
    # A seal that is alone in its batch, so its id can change without another order.
    victim = next(entry["id"].encode() for entry in log.entries if entry["op"] == "token.sealed")
    raw = [entry.replace(victim, b"0" * 32) for entry in log.raw]
    folder = state / "ledger/tile"
    shutil.rmtree(folder)
    hashes = [ledger.leaf_hash(entry) for entry in raw]
    for path, content in (
            ("0", b"".join(hashes)), ("entries", b"".join(len(entry).to_bytes(2, "big") + entry for entry in raw))):
        (folder / path / "000.p").mkdir(parents=True)
        (folder / path / "000.p" / str(len(raw))).write_bytes(content)
    note = head(state, len(raw), ledger.root_of(hashes))
    (state / "ledger/checkpoint").write_text(note)
    with contextlib.closing(sqlite3.connect(state / "mayfly.sqlite")) as database:
        database.execute("UPDATE log SET checkpoint = ?", (note,))
        database.commit()


@pytest.mark.campaign
@pytest.mark.background
def test_rewritten_history_is_refused():
    """Entries, tiles, head and signature are changed consistently. Only the witness shows it."""
    with Watched(1, mode="open") as watched:
        witness = watched.witnesses[0]
        watched.broker.start()
        watched.grows()
        assert watched.broker.stop() == 0
        cosigned = watched.note()
        rewrite(watched.state)
        assert audit_verify(watched.state).returncode == 0, "the forgery is not a good one"
        start_fails(watched.broker, "witnesses contradict this ledger", "rewritten", lines=8)
        assert json.loads(watched.verify("--json").stdout)["code"] == "cosignatures"

        # While the witness is away an open broker signs on; once it is back nothing more is published, and it cosigns nothing.
        witness.stop()
        watched.broker.start()
        watched.grows()
        watched.grows()
        witness.start()
        witness.statuses.clear()
        eventually(lambda: watched.lines("ledger: can't publish"), 15, what="that the witness was heard")
        assert 422 in witness.statuses and 200 not in witness.statuses, witness.statuses
        assert len(watched.lines("witness w0: contradicts this log")) == 1
        size = watched.size()
        watched.client().create(token=new_token()).expect(201)
        time.sleep(2.2)
        assert watched.size() == size and witness.latest(ORIGIN)[0] == ledger.Checkpoint(cosigned, watched.state.vkey).size


@pytest.mark.campaign
@pytest.mark.background
def test_the_end_of_a_log_is_cosigned():
    """A rotation asks the old log's witnesses, and waits for them where a broker would."""
    with Watched(1) as watched:
        witness = watched.witnesses[0]
        watched.broker.start()
        watched.grows()
        assert watched.broker.stop() == 0
        archive = watched.state.parent / "closed"
        words = ("keys", "rotate", "--state", watched.state.folder, "--origin", "next.test/log", "--archive", archive)
        old = watched.state.vkey
        witness.stop()
        done = mayfly(*words, "--witness-policy", watched.file)
        assert done.returncode == 1 and "quorum was not reached. Run this again" in done.stderr, done.stdout + done.stderr
        assert not archive.exists() and watched.state.vkey == old
        assert watched.verify().returncode == 0, "what was published stays good"
        witness.start()
        done = mayfly(*words, MAYFLY_WITNESS_POLICY=watched.file)
        assert done.returncode == 0, done.stdout + done.stderr
        assert cosigners((archive / "checkpoint").read_bytes(), [witness]) == [witness]
        done = mayfly("audit", "verify", archive, "--key", old, "--policy", watched.file)
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(ledger.Ledger(archive, old).raw[-1])["op"] == "ledger.closed"
        # The policy names the old log, which the next start reports before it signs anything.
        start_fails(Broker(watched.state, origin=None, witness_policy=watched.file), "is for other logs", str(watched.file))
        witness.logs["next.test/log"] = [read_vkey(watched.state.vkey)[1::2]]
        policy(watched.file, [witness], "w0", logs=[watched.state.vkey])
        watched.broker.options["origin"] = "next.test/log"
        watched.broker.start()
        watched.grows()
        assert watched.cosigners() == [witness] and watched.verify().returncode == 0


@pytest.mark.campaign
@pytest.mark.background
def test_no_witness_ever_cosigns_two_heads_of_one_size():
    """Over restarts, kills and lost answers, committed and published heads of one size have one root."""
    with Watched(2, "any", "group any any w0 w1", mode="open") as watched:
        seen = {}

        def note_head(text):
            _, size, root, *_ = text.split("\n")
            assert seen.setdefault(size, root) == root, f"two heads of {size}"

        for witness in watched.witnesses:
            def record(handler, body):
                note_head(split_note(body.partition(b"\n\n")[2])[0])
                handler.honest(body)
            witness.fault = record
        for number in range(3):
            watched.broker.start()
            watched.grows()
            watched.client().create(token=new_token()).expect(201)
            told = len(seen)
            eventually(lambda: len(seen) > told, 15, what="another head")
            time.sleep(0.2 * number)
            watched.broker.kill()
            note_head(watched.committed()[1])
            note_head(split_note(watched.note())[0])
        assert len(seen) > 4
