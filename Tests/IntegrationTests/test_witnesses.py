"""A broker and its witnesses: cosigned checkpoints, witnesses that lie, stall, die and forget, and histories that were rewritten."""

import base64
import contextlib
import http.client
import json
import shutil
import sqlite3
import ssl
import threading
import time

import pytest
from nacl.signing import SigningKey

import ledger
from certificates import Certificate
from mayfly import Client, new_token
from processes import ORIGIN, Broker, State, audit_verify, eventually, mayfly
from test_startup_errors import start_fails
from witness import (
    LOG_KEY, ML_DSA_KEY, Refusal, Witness, close_at_once, cosigners, faults, key_id, old_protocol, policy, read_vkey,
    signature_line, split_note, stall, vkey)


class Watched:
    """A state folder, its broker (not started) and witnesses that know its log."""

    def __init__(self, count=1, quorum="w0", *lines, mode=None, **broker):
        self.state = State()
        self.witnesses = []
        for number in range(count):
            self.add_witness(f"witness.test/{number}")
        self.file = policy(self.state.prints / "witnesses", self.witnesses, quorum, *lines, logs=[self.state.vkey])
        self.broker = Broker(self.state, witness_policy=self.file, witness_failure=mode, **broker)

    def add_witness(self, name):
        self.witnesses.append(Witness(self.state.prints / f"witness-{len(self.witnesses)}", name, [self.state.vkey]))
        return self.witnesses[-1]

    def __enter__(self):
        for witness in self.witnesses:
            witness.start()
        return self

    def __exit__(self, *_):
        self.broker.kill()
        for witness in self.witnesses:
            witness.stop()
        self.state.remove()

    def client(self):
        return Client(self.broker.port)

    def note(self):
        try:
            return (self.state / "ledger/checkpoint").read_bytes()
        except FileNotFoundError:
            return None

    def size(self):
        note = self.note()
        return -1 if note is None else ledger.Checkpoint(note, self.state.vkey).size

    def cosigners(self):
        return cosigners(self.note(), self.witnesses)

    def committed(self):
        with self.state.database() as database:
            return database.execute("SELECT size, checkpoint FROM log").fetchone()

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.broker.operator_port, timeout=5)
        connection.request("GET", "/metrics")
        for line in connection.getresponse().read().decode().splitlines():
            if line.startswith(f"mayfly_{name} "):
                return int(line.split()[1])
        raise AssertionError(f"no metric {name}")

    def grows(self, seconds=8):
        """Makes a room and waits until its seal is published; returns its ref."""
        client = self.client()
        ref = client.create(token=new_token()).expect(201).json["ref"]
        client.close()
        eventually(lambda: self.note() and ledger.read(self.state).of(ref), seconds, what="the seal in the ledger")
        return ref

    def verify(self, *more, demand=None):
        return mayfly("audit", "verify", self.state / "ledger", "--key", self.state.vkey,
                      "--policy", demand or self.file, *more)

    def lines(self, word):
        return [line for line in self.broker.printed().splitlines() if word in line]


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
        assert done.returncode == 0 and done.stdout.rstrip().endswith("; 3 cosignatures hold"), done.stdout + done.stderr
        done = watched.verify("--since", kept, "--json")
        assert json.loads(done.stdout)["cosignatures"] == 3 and json.loads(done.stdout)["compared"] == 1
        assert json.loads(mayfly(
            "audit", "verify", f"{watched.broker.url}/audit", "--key", watched.state.vkey, "--json").stdout)["cosignatures"] is None
        assert watched.metric("ledger_cosignatures_total") > 0
        assert len(watched.lines("witness w1: did not cosign")) == 1, watched.broker.printed()
        # What an auditor demands need not be what the broker asks for: URLs play no part.
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
        # Who knows no witness ignores their lines, as ever.
        assert audit_verify(watched.state).returncode == 0


@pytest.mark.background
def test_liars_beside_an_honest_witness():
    """Each lie there is, all at once: none of them reaches the checkpoint, holds up the log, or fills memory."""
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
            watched.grows(12)
        assert watched.cosigners() == [honest] and len(split_note(watched.note())[1]) == 2
        assert watched.verify().returncode == 0
        for name, kind in liars.items():
            lines = watched.lines(f"witness {name}: ")
            assert len(lines) == 1, f"{kind}: {lines}"
            assert ("contradicts" in lines[0]) == (kind == "a size above all"), f"{kind}: {lines}"
        assert watched.metric("ledger_witness_failures_total") >= len(liars)
        assert watched.metric("resident_bytes") < 100_000_000
        # Silence costs a witness its turn for a while that doubles; it is not asked every window.
        assert all(witness.asked <= 8 for witness in watched.witnesses[1:]), [witness.asked for witness in watched.witnesses]
        assert not watched.lines("Fatal error")


@pytest.mark.background
def test_closed_waits_for_the_quorum():
    """Nothing uncosigned is published; the service goes on, and so does the log once the witness is back."""
    with Watched(1) as watched:
        witness = watched.witnesses[0]
        witness.fault = faults(witness)["bad signature"]
        watched.broker.start()
        room = watched.client().room()
        eventually(lambda: witness.asked >= 2, what="a second try")
        assert watched.note() is None, "published without the quorum"
        assert watched.metric("ledger_quorum_missed_total") > 0 and watched.metric("alarms_total") > 0
        witness.fault = None
        eventually(lambda: watched.note() and ledger.read(watched.state).of(room.creator.ref), 12, what="everything published")
        assert watched.cosigners() == [witness]

        # It dies, and comes back.
        witness.stop()
        size = watched.size()
        second = watched.client().room()
        eventually(lambda: watched.committed()[0] > size, what="the next head in the database")
        waiting = watched.client().room()
        watched.client().delete(waiting.roomid).expect(200)
        time.sleep(1.5)
        assert watched.size() == size, "published without the quorum"
        assert watched.metric("ledger_entries_waiting") > 0
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

        # A stop without the witness ends in time, owes the log nothing that it forgets, and the next start goes on.
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


@pytest.mark.background
def test_open_publishes_what_came():
    """Without the quorum the log goes on and says so once; a late witness cosigns the same head."""
    with Watched(2, "both", "group both all w0 w1", mode="open") as watched:
        first, second = watched.witnesses
        watched.broker.start()
        watched.grows()
        assert watched.cosigners() == [first, second] and watched.verify().returncode == 0
        second.stop()
        watched.grows()
        watched.grows()
        assert watched.cosigners() == [first]
        assert json.loads(watched.verify("--json").stdout)["code"] == "cosignatures"
        assert audit_verify(watched.state).returncode == 0
        missed = watched.metric("ledger_quorum_missed_total")
        assert missed > 0 and watched.metric("alarms_total") > 0
        size = watched.size()
        second.start()
        eventually(lambda: watched.cosigners() == [first, second], 12, what="the late cosignature")
        assert watched.size() == size, "it took a new head"
        assert watched.verify().returncode == 0
        for word in ("publishing without the witnesses' quorum", "quorum is reached again", "witness w1: did not cosign",
                     "witness w1: cosigns again"):
            assert len(watched.lines(word)) == 1, watched.broker.printed()


@pytest.mark.background
def test_witness_behind_tls():
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


@pytest.mark.background
def test_one_that_stalls_does_not_hold_up_each_window():
    with Watched(2, "w0") as watched:
        watched.broker.start()
        watched.witnesses[1].fault = stall
        watched.grows()
        began = time.monotonic()
        sizes = set()
        while time.monotonic() < began + 9:
            watched.client().create(token=new_token()).expect(201)
            sizes.add(watched.size())
            time.sleep(0.3)
        # Two stalls of five seconds at most fall into these nine; in the others' time each window is published.
        assert len(sizes) >= 3, sizes
        assert watched.witnesses[1].asked <= 4


@pytest.mark.background
def test_witness_that_forgot_and_one_that_knows_more():
    with Watched(1) as watched:
        witness = watched.witnesses[0]
        watched.broker.start()
        watched.grows()
        backup = watched.state.prints / "backup"
        shutil.copytree(witness.folder, backup)
        watched.grows()
        watched.grows()
        assert watched.cosigners() == [witness]
        # Put back from its backup: it answers 409 with the older size, and is given a proof from there.
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
        watched.grows(12)
        assert witness.statuses[0] == 409 and watched.cosigners() == [witness]
        # HTTP/1.0, if it is taken, is taken whole.
        witness.fault = old_protocol(witness)
        watched.client().create(token=new_token()).expect(201)
        time.sleep(1.5)
        witness.fault = None
        watched.grows(12)
        assert watched.verify().returncode == 0


@pytest.mark.background
def test_kill_between_commit_and_publication():
    """kill -9 while a witness has the head: the next start publishes that same head, never another of its size."""
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
            assert log.of(ref)
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


@pytest.mark.background
@pytest.mark.parametrize("mode", ["open", "closed"])
def test_restored_backup_is_refused(mode):
    """Database and folder put back together agree with each other. Only the witnesses know that there was more."""
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
        # One that says so can lie, if the others make up the quorum without it: it starts, and alarms.
        for witness in watched.witnesses[1:]:
            shutil.rmtree(witness.folder)
            witness.folder.mkdir()
        watched.broker.start()
        watched.grows()
        assert len(watched.lines("witness w0: contradicts this log")) == 1
        assert watched.metric("alarms_total") > 0
        assert watched.cosigners() == watched.witnesses[1:]


def log_signature(state, text):
    seed = base64.b64decode((state / "keys/ledger.key").read_text().splitlines()[2])
    key = SigningKey(seed)
    return signature_line(ORIGIN, key_id(ORIGIN, LOG_KEY, bytes(key.verify_key)), key.sign(text.encode()).signature)


def head(state, size, root):
    """A checkpoint of this log, signed with its key: what an operator can always make."""
    text = f"{ORIGIN}\n{size}\n{base64.b64encode(root).decode()}\n"
    return f"{text}\n{log_signature(state, text)}"


def rewrite(state):
    """Changes one entry of a log of fewer than 256, and everything that follows from it: what the key's owner can do."""
    log = ledger.read(state)
    assert len(log.raw) < 256
    victim = next(number for number, entry in enumerate(log.entries) if entry["op"] == "request.refused" or "ref" in entry)
    raw = list(log.raw)
    # The ref of a token that was never purged: another one tells nobody anything.
    ref = log.entries[victim]["ref"].encode()
    raw = [entry.replace(ref, b"0" * 32) for entry in raw]
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


@pytest.mark.background
def test_rewritten_history_is_refused():
    """Entries, tiles, head and signature changed alike: every check of the folder passes, and the witness does not."""
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


@pytest.mark.background
def test_the_end_of_a_log_is_cosigned():
    """A change of logs asks the old log's witnesses, and waits for them where a broker would."""
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
        assert done.returncode == 1 and "quorum was not reached: run this again" in done.stderr, done.stdout + done.stderr
        assert not archive.exists() and watched.state.vkey == old
        assert watched.verify().returncode == 0, "what was published stays good"
        witness.start()
        done = mayfly(*words, MAYFLY_WITNESS_POLICY=watched.file)
        assert done.returncode == 0, done.stdout + done.stderr
        assert cosigners((archive / "checkpoint").read_bytes(), [witness]) == [witness]
        done = mayfly("audit", "verify", archive, "--key", old, "--policy", watched.file)
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(ledger.Ledger(archive, old).raw[-1])["op"] == "ledger.closed"
        # The policy names the old log: the next start says so before it signs anything.
        start_fails(Broker(watched.state, origin=None, witness_policy=watched.file), "is for other logs", str(watched.file))
        witness.logs["next.test/log"] = [read_vkey(watched.state.vkey)[1::2]]
        policy(watched.file, [witness], "w0", logs=[watched.state.vkey])
        watched.broker.options["origin"] = "next.test/log"
        watched.broker.start()
        watched.grows()
        assert watched.cosigners() == [witness] and watched.verify().returncode == 0


@pytest.mark.background
def test_no_witness_ever_cosigns_two_heads_of_one_size():
    """Over restarts, kills and lost answers: of each size one root, in what was committed and in what was published."""
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


# The witness itself: it is a measure only if it is strict.

@pytest.fixture
def judge(state, tmp_path):
    with Witness(tmp_path / "witness", logs=[state.vkey]) as witness:
        yield witness


def ask(witness, body, path="/prefix/add-checkpoint"):
    connection = http.client.HTTPConnection("127.0.0.1", witness.port, timeout=5)
    connection.request("POST", path, body)
    answer = connection.getresponse()
    return answer.status, answer.getheader("Content-Type"), answer.read()


def leaves(count):
    return [ledger.leaf_hash(b"leaf-%d" % number) for number in range(count)]


def subproof(old, hashes, whole=True):
    if old == len(hashes):
        return [] if whole else [ledger.root_of(hashes)]
    split = 1 << (len(hashes) - 1).bit_length() - 1
    if old <= split:
        return subproof(old, hashes[:split], whole) + [ledger.root_of(hashes[split:])]
    return subproof(old - split, hashes[split:], False) + [ledger.root_of(hashes[:split])]


def request(state, old, hashes, proof=None):
    proof = (subproof(old, hashes) if 0 < old < len(hashes) else []) if proof is None else proof
    lines = "".join(base64.b64encode(node).decode() + "\n" for node in proof)
    return f"old {old}\n{lines}\n{head(state, len(hashes), ledger.root_of(hashes))}".encode()


def test_the_witness_cosigns_what_continues(state, judge):
    known = 0
    for size in (0, 1, 1, 2, 3, 7, 8, 8, 100):
        status, _, body = ask(judge, request(state, known, leaves(size)))
        assert status == 200
        note = head(state, size, ledger.root_of(leaves(size))).encode()
        assert cosigners(note + body, [judge]) == [judge]
        known = size
        assert judge.latest(ORIGIN)[0] == size, "answered before it persisted"


def test_the_witness_refuses(state, judge):
    other = State()
    try:
        good = request(state, 0, leaves(5))
        for body in (b"", good[4:], good.replace(b"old 0", b"old 00"), good.replace(b"old 0", b"old -1"), good[:-1],
                     good.replace(b"\n\n", b"\n", 1), b"old 0\n" + b"AAAA\n" * 64 + good[6:],
                     request(state, 6, leaves(5), [])):
            assert ask(judge, body)[0] == 400, body
        assert ask(judge, good, "/prefix/other")[0] == 404
        assert ask(judge, good.replace(ORIGIN.encode(), b"unknown.test/log"))[0] == 404
        assert ask(judge, request(other, 0, leaves(5)))[0] == 403
        assert ask(judge, request(state, 3, leaves(5)))[:2] == (409, "text/x.tlog.size")
        assert judge.latest(ORIGIN) == (0, None)
        assert ask(judge, good)[0] == 200
        rollback = ask(judge, request(state, 0, leaves(3)))
        assert rollback == (409, "text/x.tlog.size", b"5\n")
        forked = leaves(4) + [b"\0" * 32]
        assert ask(judge, request(state, 5, forked))[0] == 409, "a fork of the same size"
        assert ask(judge, request(state, 5, forked + leaves(3)))[0] == 422, "a longer fork"
        right = subproof(5, leaves(9))
        for wrong in ([], right[:-1], right[1:], right + right[:1], right[::-1], [b"\1" * 32] + right[1:]):
            assert ask(judge, request(state, 5, leaves(9), wrong))[0] == 422
        assert judge.latest(ORIGIN)[0] == 5
        assert ask(judge, request(state, 5, leaves(9)))[0] == 200
    finally:
        other.remove()


def test_the_witness_refuses_one_of_two_at_once(state, judge):
    """Two continuations of one head, at the same time: one is cosigned and the other is stale."""
    assert ask(judge, request(state, 0, leaves(4)))[0] == 200
    forks = [leaves(4) + [bytes([number]) * 32] * (number + 1) for number in range(6)]
    answers = []
    threads = [threading.Thread(target=lambda fork=fork: answers.append(ask(judge, request(state, 4, fork))[0])) for fork in forks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] + [409] * 5


# What a policy file must be for a broker to start.

@pytest.fixture(scope="module")
def asked():
    watched = Watched(2)
    yield watched
    watched.__exit__()


def test_witness_failure_without_witnesses(asked):
    broker = Broker(asked.state, witness_failure="open")
    start_fails(broker, "--witness-failure", "--witness-policy", status=2)


def test_witness_failure_of_another_kind(asked):
    start_fails(Broker(asked.state, witness_policy=asked.file, witness_failure="maybe"), "open or closed", status=2)


def test_no_policy_file(asked):
    start_fails(Broker(asked.state, witness_policy="/nowhere/witnesses"), "/nowhere/witnesses", "can't be read")


BAD_POLICIES = {
    "empty": ("", "quorum"),
    "no witness": ("quorum none\n", "names no witness"),
    "no url": ("witness a {vkey}\nquorum a\n", "no URL"),
    "cleartext": ("witness a {vkey} http://witness.example/\nquorum a\n", "https://"),
    "cleartext that looks like loopback": ("witness a {vkey} http://127.0.0.1.example/\nquorum a\n", "https://"),
    "another scheme": ("witness a {vkey} ftp://127.0.0.1/\nquorum a\n", "https://"),
    "a user name": ("witness a {vkey} https://u@witness.example/\nquorum a\n", "@"),
    "another log": ("log {stranger}\nwitness a {vkey} https://witness.example\nquorum a\n", "other logs"),
    "ML-DSA": ("witness a {mldsa} https://witness.example\nquorum a\n", "line 1: keys of type 0x06 (ML-DSA-44) are not supported"),
    "the log's key": ("witness a {log} https://witness.example\nquorum a\n", "line 1: the key has type 0x01"),
    "not defined": ("witness a {vkey} https://witness.example\nquorum b\n", "line 2: b is not defined"),
    "cut short": ("witness a {vkey} https://witness.example\nquorum a", "newline"),
    "two lines": ("witness a {vkey} https://witness.example\nwitness b {vkey} https://w.example\nquorum a\n", "line 2"),
    "carriage returns": ("witness a {vkey} https://witness.example\r\nquorum a\r\n", "line 1"),
}


@pytest.mark.parametrize("kind", BAD_POLICIES)
def test_bad_policy(asked, tmp_path, kind):
    text, word = BAD_POLICIES[kind]
    public = bytes(SigningKey.generate().verify_key)
    path = tmp_path / "witnesses"
    path.write_text(text.format(
        vkey=asked.witnesses[0].vkey, log=asked.state.vkey, stranger=vkey(ORIGIN, LOG_KEY, public),
        mldsa=vkey("witness.test/pq", ML_DSA_KEY, bytes(1312))), newline="")
    before = sorted(entry.name for entry in asked.state.folder.iterdir())
    start_fails(Broker(asked.state, witness_policy=path), word, path)
    assert sorted(entry.name for entry in asked.state.folder.iterdir()) == before, "something was made"
