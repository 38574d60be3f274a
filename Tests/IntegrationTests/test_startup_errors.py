"""Failed starts and full disks: each error is a sentence that an operator can act on."""

import json
import os
import shutil
import socket
import subprocess

import pytest

import ledger
from mayfly import Client, new_token
from processes import (
    BINARY, ORIGIN, REPOSITORY, Broker, State, audit_verify, clean_environment, eventually, filled, free_port, mayfly, quick_rooms)


def start_fails(broker, *words, status=1, lines=6):
    """Checks that a start ends by itself with these words in a few lines, without a trap or a secret."""
    broker.start(wait=False)
    try:
        assert broker.child.wait(15) == status, broker.printed()
    except subprocess.TimeoutExpired:
        broker.kill()
        raise AssertionError(f"it started nevertheless:\n{broker.printed()}")
    printed = broker.printed()
    for word in words:
        assert str(word) in printed, f"not a word of {word!r} in:\n{printed}"
    for trap in ("Fatal error", "fatalError", "Stack dump", "Illegal instruction", "Optional("):
        assert trap not in printed, printed
    assert len(printed.splitlines()) <= lines, printed
    return printed


def tree(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def broker(state, processes):
    broker = Broker(state)
    processes.append(broker)
    return broker


@pytest.mark.parametrize("name", ["ratchet.key", "ledger.key"])
def test_key_file_missing(state, broker, name):
    (state / "keys" / name).unlink()
    start_fails(broker, name, "mayfly keys init")
    assert not (state / "keys" / name).exists(), "a key was made silently"


# `KeyFileTests` has the faults of ratchet.key.

def test_key_file_too_open(state, broker):
    (state / "keys/ledger.key").chmod(0o640)
    start_fails(broker, "ledger.key", "600")


def test_key_file_truncated(state, broker):
    path = state / "keys/ledger.key"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    start_fails(broker, "ledger.key")
    assert path.read_bytes() == content[:-1], "a broken key was replaced silently"


def test_key_file_of_another_format(state, broker):
    path = state / "keys/ratchet.key"
    path.write_bytes(os.urandom(len(path.read_bytes())))
    start_fails(broker, "ratchet.key")


# Promise: stale-keys-refused
def test_key_file_stale(state, broker):
    """A copy from before the last recorded step would bring destroyed keys back."""
    broker.start()
    assert broker.stop() == 0
    path = state / "keys/ratchet.key"
    earlier = path.read_bytes()
    broker.start(clock_offset=1000)
    assert broker.stop() == 0
    assert path.read_bytes() != earlier, "no step was taken"
    path.write_bytes(earlier)
    broker.start(wait=False, clock_offset=1000)
    assert broker.child.wait(15) == 1, broker.printed()
    assert "stale_keys" in broker.printed() and "ratchet.key" in broker.printed(), broker.printed()
    assert path.read_bytes() == earlier


# Promise: no-made-up-keys
@pytest.mark.parametrize("folder", [False, True])
def test_no_keys_at_all(state, processes, folder):
    """The start makes neither a folder nor keys."""
    empty = State(keys=None)
    try:
        if folder:
            empty.folder.mkdir(mode=0o700)
        broker = Broker(empty, apns_key_path=state / "keys/apns.p8", apns_ca=state / "keys/simulator-ca.pem")
        processes.append(broker)
        start_fails(broker, "mayfly keys init")
        assert empty.folder.exists() is folder
        assert not (empty / "keys").exists() and not (empty / "mayfly.sqlite").exists()
    finally:
        empty.remove()


def test_keys_init_replaces_nothing(state):
    before = tree(state / "keys")
    again = mayfly("keys", "init", "--state", state.folder, "--origin", ORIGIN)
    assert again.returncode != 0 and "ratchet.key" in again.stdout + again.stderr
    assert tree(state / "keys") == before


def test_keys_are_for_their_owner_alone():
    state = State(keys="init")
    try:
        assert {path.name for path in (state / "keys").iterdir()} == {"ratchet.key", "ratchet.key.new", "ledger.key"}
        assert not any((state / "keys/ratchet.key.new").read_bytes()), "the spare holds something"
        for path in (state / "keys").iterdir():
            assert path.stat().st_mode & 0o777 == 0o600
        assert (state / "keys").stat().st_mode & 0o077 == 0
        assert state.vkey.startswith(ORIGIN + "+")
    finally:
        state.remove()


def test_ledger_from_elsewhere(state, broker, processes):
    """The published checkpoint is ahead of the store, as after a restored backup of the store."""
    broker.start()
    saved = state.prints / "saved"
    assert broker.stop() == 0
    shutil.copytree(state.folder, saved)
    size = ledger.read(state).checkpoint.size
    broker.start()
    Client(broker.port).room()
    assert broker.stop() == 0
    assert ledger.read(state).checkpoint.size > size
    for suffix in ("", "-wal", "-shm"):
        (state / f"mayfly.sqlite{suffix}").unlink(missing_ok=True)
    shutil.copy(saved / "mayfly.sqlite", state / "mayfly.sqlite")
    start_fails(broker, "ledger")


@pytest.fixture
def unpublished(state, broker):
    """A broker that could not write its checkpoint for a while: entries in the store's head that the folder lacks."""
    broker.start()
    client = Client(broker.port)
    path = state / "ledger/checkpoint"
    eventually(lambda: ledger.read(state).checkpoint.size > 0, what="a first entry")
    before = path.read_bytes()
    path.unlink()
    (path / "in-the-way").mkdir(parents=True)
    room = client.room()
    eventually(lambda: "can't publish" in broker.printed(), what="a word to the operator")
    yield client, room, lambda: (shutil.rmtree(path), path.write_bytes(before))
    client.close()


def test_ledger_behind_is_repaired(state, broker, unpublished):
    """The broker was killed before it could publish. The next start does."""
    _, room, clear = unpublished
    broker.kill()
    clear()
    log = ledger.read(state)
    with state.database() as database:
        signed, = database.execute("SELECT size FROM log").fetchone()
    assert log.of(room.creator.ref) == [] and log.checkpoint.size < signed
    broker.start()
    assert ledger.read(state).checkpoint.size >= signed, "not before the broker is ready"
    eventually(lambda: ledger.read(state).of(room.creator.ref), what="the seal in the ledger")
    ledger.read(state).check()
    assert audit_verify(state).returncode == 0


def test_ledger_lost(state, broker):
    """The store no longer has the lost entries, so the folder can't be made anew."""
    broker.start()
    room = Client(broker.port).room()
    eventually(lambda: ledger.read(state).of(room.creator.ref), what="the seal in the ledger")
    assert broker.stop() == 0
    (state / "ledger/checkpoint").unlink()
    shutil.rmtree(state / "ledger/tile")
    start_fails(broker, "ledger", "Restore")
    assert not (state / "ledger/checkpoint").exists()


@pytest.mark.parametrize("content", ["{}", None])
def test_policy_of_another_kind(broker, tmp_path, content):
    path = tmp_path / "mine.json"
    if content is not None:
        path.write_text(content)
    broker.options["policy"] = path
    start_fails(broker, path, status=1 if content else 2, lines=12)


def test_damaged_database(state, broker):
    broker.start()
    assert broker.stop() == 0
    for suffix in ("-wal", "-shm"):
        (state / f"mayfly.sqlite{suffix}").unlink(missing_ok=True)
    (state / "mayfly.sqlite").write_bytes(os.urandom(8192))
    start_fails(broker, "mayfly.sqlite")


@pytest.mark.parametrize("option", ["listen", "operator-listen"])
def test_port_taken(broker, option):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        broker.options[option] = address
        start_fails(broker, address)


def test_a_log_keeps_its_timing(broker):
    def time(seconds):
        (broker.cwd / "rooms").write_text(json.dumps(quick_rooms(seconds)))
    broker.start()
    assert broker.stop() == 0
    time(2)
    start_fails(broker, "hourSeconds 1, daySeconds 1", "hourSeconds 2, daySeconds 2")
    time(1)
    broker.start()


def test_state_in_use(state, broker, processes):
    """A second broker on one folder would break the log."""
    broker.start()
    second = Broker(state)
    processes.append(second)
    start_fails(second, state.folder)
    Client(broker.port).create().expect(201)


def test_database_in_use(broker, processes):
    """Both have the same keys. Each would overwrite entries of the other's that wait for the log."""
    broker.start()
    copy = State()
    shutil.copytree(broker.state.folder, copy.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("mayfly.sqlite*"))
    second = Broker(copy, database=broker.state / "mayfly.sqlite")
    processes.append(second)
    start_fails(second, "another broker uses the database")
    Client(broker.port).create().expect(201)
    copy.remove()


# Promise: cleartext-refused
@pytest.mark.parametrize("address, allowed", [("0.0.0.0", None), ("[::]", None), ("0.0.0.0", "10.0.0.5")])
def test_cleartext_beyond_loopback(broker, address, allowed):
    broker.options |= {"listen": f"{address}:{free_port()}", "allow-cleartext": allowed}
    start_fails(broker, "loopback", "--allow-cleartext", "--tls-certificate", status=2)


@pytest.mark.parametrize("flag, value", [("listen", "127.0.0.1:99999"), ("resolution", "soon"), ("unheard-of", "1")])
def test_bad_flag(broker, flag, value):
    broker.options[flag] = value
    start_fails(broker, f"--{flag}", status=2)


# Promise: exit-codes
def test_bad_use():
    for arguments in ([], ["serv"], ["serve", "extra"], ["audit"], ["audit", "verify"], ["keys", "lose"]):
        done = mayfly(*arguments)
        assert done.returncode == 2, f"{arguments}: {done.returncode}"
        assert done.stderr and "Fatal error" not in done.stderr


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_apns_key(state, broker, content):
    path = state / "keys/apns.p8"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    start_fails(broker, path)


@pytest.mark.parametrize("option, make", [
    ("apns-key-path", os.mkfifo), ("wrapping-key", os.mkfifo), ("policy", lambda path: path.symlink_to("/dev/zero"))], ids=["key", "wrapping", "policy"])
def test_settings_must_name_plain_files(broker, tmp_path, option, make):
    """A pipe would block, and a device has no end."""
    path = tmp_path / "odd.pem"
    make(path)
    broker.options[option] = path
    start_fails(broker, "--wrapping-key" if option == "wrapping-key" else path, "not a file")


def test_apns_certificate_authority_missing(state, broker):
    (state / "keys/simulator-ca.pem").unlink()
    start_fails(broker, "simulator-ca.pem")


# Promise: environment-names
def test_started_by_environment_alone(state, processes):
    """Every flag has an environment name. Those of the first systems still work."""
    class ByEnvironment(Broker):
        def arguments(self):
            return ["serve"]
    broker = ByEnvironment(state)
    processes.append(broker)
    names = {"apns-endpoint": "MAYFLY_APNS_ENDPOINT", "apns-ca": "MAYFLY_APNS_CA"}
    broker.start(**{
        names.get(flag) or (flag if flag.startswith("apns-") else f"mayfly-{flag}").replace("-", "_").upper(): value
        for flag, value in broker.options.items()})
    Client(broker.port).create(token=new_token()).expect(201)
    assert broker.stop() == 0


# Policies: free text can't be expressed.

POLICIES = REPOSITORY / "policies"


def lint(tmp_path, policy):
    path = tmp_path / "policy.json"
    path.write_text(policy if isinstance(policy, str) else json.dumps(policy))
    return mayfly("policy", "lint", path)


def rooms_policy():
    return json.loads((POLICIES / "rooms.json").read_text())


def test_policy_with_free_text(tmp_path):
    """A field that would carry typed text, in an otherwise good policy."""
    policy = rooms_policy()
    policy["templates"]["peer_waiting"].setdefault("fields", {})["note"] = {"kind": "text"}
    done = lint(tmp_path, policy)
    assert done.returncode == 1, f"{done.stdout}{done.stderr}"
    assert "note" in done.stdout + done.stderr


@pytest.mark.parametrize("change", ["of another name", "with a field"])
def test_policy_without_a_template_for_rooms(broker, tmp_path, change):
    """`policy lint` reports it in the same words as the refused start."""
    policy = rooms_policy()
    if change == "with a field":
        policy["templates"]["peer_waiting"]["fields"] = {"last": {"kind": "flag", "key": "last"}}
    else:
        policy["templates"]["other"] = policy["templates"].pop("peer_waiting")
    done = lint(tmp_path, policy)
    said = "no template peer_waiting sent to alert tokens, without fields"
    assert done.returncode == 1 and said in done.stdout and "good" not in done.stdout, done
    broker.options["policy"] = tmp_path / "policy.json"
    start_fails(broker, said)


# A disk that is full, and one that can't be written.

# Promise: no-entry-no-operation
def test_disk_full(small_disk, processes):
    """Calls get 503 with Retry-After and nothing is kept. After space is freed everything works as before."""
    state = State(parent=small_disk)
    broker = Broker(state)
    processes.append(broker)
    broker.start()
    client = Client(broker.port)
    room = client.room()
    eventually(lambda: ledger.read(state).of(room.creator.ref), what="the seal in the ledger")
    filler = filled(small_disk)
    before, made = state.counts(), 0
    while (answer := client.create(token=new_token())).status == 201:
        made += 1
        before = state.counts()
        assert made < 2000, "the disk is full and rooms are still being made"
    answer.expect(503)
    assert answer.code in ("storage_unavailable", "ledger_unavailable"), answer
    assert int(answer.headers["retry-after"]) >= 1
    assert state.counts() == before
    client.status(room.roomid).expect(200)
    assert broker.running
    filler.unlink()

    def works_again():
        answer = client.create(token=new_token())
        return answer.status == 201 and answer.json
    made = eventually(works_again, 15, 0.2, "a room once there is space again")
    eventually(lambda: ledger.read(state).of(made["ref"]), what="its seal in the ledger")
    verified = audit_verify(state)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert broker.stop() == 0


def tells_of_read_only(done, folder, *words):
    """Checks for an error of its own: what happened, why, and what to do."""
    assert done.returncode == 1, done.stdout + done.stderr
    for word in (folder, "read-only file system", "read-write", *words):
        assert str(word) in done.stderr, done.stderr
    assert "SQLite:" not in done.stderr and "(code" not in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.campaign
@pytest.mark.parametrize("before", ["never ran", "stopped", "killed"])
def test_read_only_file_system(small_disk, processes, tmp_path, before):
    state = State(parent=small_disk)
    broker = Broker(state)
    processes.append(broker)
    if before != "never ran":
        broker.start()
        Client(broker.port).room()
        broker.stop() if before == "stopped" else broker.kill()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    content = tree(state.folder)
    printed = start_fails(broker, f"the state folder {state.folder} is on a read-only file system", "read-write", lines=1)
    assert "SQLite" not in printed
    if before == "never ran":
        return
    drill = mayfly("drill", "--state", state.folder)
    if before == "stopped":
        tells_of_read_only(drill, state.folder, "tmpfs")
    else:
        # SQLite's files beside the database exist.
        assert drill.returncode == 0 and "tokens of rooms" in drill.stdout, drill.stderr
    archive = small_disk / "closed"
    tells_of_read_only(
        mayfly("keys", "rotate", "--state", state.folder, "--origin", "mayfly.test/next", "--archive", archive), state.folder)
    assert tree(state.folder) == content and not archive.exists()
    # The drill's advice: a copy where files can be made.
    copy = tmp_path / "copy"
    shutil.copytree(state.folder, copy)
    done = mayfly("drill", "--state", copy)
    assert done.returncode == 0 and "tokens of rooms" in done.stdout, done.stderr


def test_read_only_for_this_user(state):
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a folder of another user needs root")
    state.folder.parent.chmod(0o755)
    state.folder.chmod(0o755)
    for path in state.folder.rglob("*"):
        os.chown(path, 65534, 65534)
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", BINARY, "keys", "renew", "--state", state.folder],
        capture_output=True, text=True, timeout=30, env=clean_environment())
    assert done.returncode == 1 and f"can't write to the state folder {state.folder}" in done.stderr and "owner" in done.stderr, done.stderr
