"""Faults of a PostgreSQL server: a start refuses what it must not use, a running broker survives, and nothing acknowledged is lost."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import psycopg
import pytest

from databases import Schema, Server, Standby
from mayfly import Client, new_code, new_token
from processes import ORIGIN, Broker, Simulator, State, audit_verify, eventually, filled, http_status, mayfly, quick_rooms
from test_proxies import Relay
from test_startup_errors import start_fails


@pytest.fixture(scope="module")
def server():
    """Of this file alone, so that stopping it hurts nobody."""
    with Server() as server:
        yield server


@pytest.fixture
def state(server):
    state = State(postgres=server.uri)
    yield state
    state.remove()


@pytest.fixture
def broker(state, processes):
    broker = Broker(state)
    processes.append(broker)
    return broker


def is_ready(broker):
    return http_status(f"{broker.operator_url}/readyz") == 200


def create(broker, code=None):
    """One room by a client of its own. Budgets are per address."""
    with closing(Client(broker.port, timeout=60, checked=False)) as client:
        return client.create(code, token=new_token())


def verifies(state):
    verified = audit_verify(state)
    assert verified.returncode == 0, verified.stdout + verified.stderr


# Starts.

def refused(broker, *words, password="hunter2secret"):
    """Checks for one line with these words, and without the URI or its password."""
    uri = broker.options["database"]
    broker.options["database"] = uri.replace("mayfly@", f"mayfly:{password}@")
    printed = start_fails(broker, *words, lines=1)
    assert password not in printed and "postgresql://" not in printed, printed
    broker.options["database"] = uri


def test_the_server_is_down(server, broker):
    """The service manager tries again, as after every other exit status than 2."""
    server.stop()
    try:
        refused(broker, "no connection to PostgreSQL", "Connection refused", "Is the server running")
    finally:
        server.start()
    broker.start()


@pytest.mark.parametrize("part, wrong, words", [
    ("/mayfly?", "/nowhere?", 'database "nowhere" does not exist'), ("//mayfly", "//nobody", 'role "nobody" does not exist'),
    ("127.0.0.1", "no-host.invalid", "can't resolve the host's name"),
    ("mayfly@127.0.0.1", "mayfly:hunter2@secret@127.0.0.1", "can't resolve the host's name"),
    ("mayfly@127.0.0.1", "mayfly:hunter2/secret@127.0.0.1", "an option of the address"), ("postgresql://", "postgresql://mayfly:hunter2secret@[", "can't be parsed")])
def test_a_wrong_uri(broker, part, wrong, words):
    uri = broker.options["database"]
    broker.options["database"] = uri.replace(part, wrong)
    printed = start_fails(broker, words, lines=1)
    assert "hunter2" not in printed and "secret" not in printed and "postgresql://" not in printed.replace("postgresql://[user@]host", ""), printed


RIGHTS = [
    ("ALTER ROLE mayfly SUPERUSER", "ALTER ROLE mayfly NOSUPERUSER", "superuser. Give Mayfly a role of its own"),
    ("REVOKE pg_checkpoint FROM mayfly", "GRANT pg_checkpoint TO mayfly", "the role lacks rights. Grant it the role pg_checkpoint"),
    ("REVOKE EXECUTE ON FUNCTION pg_switch_wal() FROM mayfly", "GRANT EXECUTE ON FUNCTION pg_switch_wal() TO mayfly",
     "Grant it EXECUTE ON FUNCTION pg_switch_wal()"),
    ("ALTER SCHEMA {schema} OWNER TO postgres; GRANT USAGE ON SCHEMA {schema} TO mayfly", "ALTER SCHEMA {schema} OWNER TO mayfly",
     "Grant it CREATE ON SCHEMA"),
    ("ALTER ROLE mayfly SET synchronous_commit = off", "ALTER ROLE mayfly RESET synchronous_commit", "synchronous_commit off"),
    ("ALTER ROLE mayfly SET synchronous_commit = local", "ALTER ROLE mayfly RESET synchronous_commit", "Set it to on"),
    ("ALTER TABLE {schema}.node RENAME TO away", "ALTER TABLE {schema}.away RENAME TO node", "lacks this version's tables. Make them with `mayfly migrate`"),
    ("ALTER TABLE {schema}.node OWNER TO postgres", "ALTER TABLE {schema}.node OWNER TO mayfly", "belong to another role")]


@pytest.mark.parametrize("fault, mend, words", RIGHTS)
def test_a_role_without_a_right_or_with_too_many(server, state, broker, fault, mend, words):
    def run(statements):
        for statement in statements.format(schema=state.schema.name).split("; "):
            server.run(statement)
    run(fault)
    try:
        refused(broker, words)
    finally:
        run(mend)


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_can_lose_what_it_acknowledged(server, broker, setting):
    server.set(**{setting: "off"})
    try:
        eventually(lambda: server.run(f"SHOW {setting}") == [("off",)], what="the setting")
        refused(broker, f"{setting} off", "could lose what was acknowledged. Turn it on")
    finally:
        server.set(**{setting: None})


@pytest.fixture
def stranger(server):
    """The URI of a role without any right to the broker's tables."""
    server.run("CREATE ROLE stranger LOGIN")
    yield server.uri.replace("//mayfly@", "//stranger@")
    server.run("DROP ROLE stranger")


def test_another_role_can_not_connect(stranger):
    """By the statements of docs/postgresql.md, which scripts/postgres runs. Any role that can connect can hold the broker's advisory locks."""
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(stranger).close()


# Promise: foreign-locks-are-named
@pytest.mark.parametrize("is_writers", [False, True])
def test_another_role_holds_the_brokers_locks(server, broker, stranger, is_writers):
    """The lock of all short codes, or the locks of all writers: a call fails at the first time-out, and a line says who holds the lock."""
    server.run("GRANT CONNECT ON DATABASE mayfly TO stranger")
    broker.start()
    try:
        with psycopg.connect(stranger, autocommit=True) as held:
            space = int(server.run(f"SELECT '{broker.state.schema.name}.schedule'::regclass::oid::bigint")[0][0]) & 0x7FFFFFFF
            if is_writers:
                stamp = int(server.run(f"SELECT stamp FROM {broker.state.schema.name}.schedule")[0][0])
                for number in range(stamp, stamp + 50):
                    held.execute("SET lock_timeout = 100")
                    with suppress(psycopg.errors.LockNotAvailable):
                        held.execute("SELECT pg_advisory_lock(%s::bigint::int, %s::int)", (space, number))
            else:
                held.execute("SELECT pg_advisory_lock(%s)", ((3 << 56) ^ space,))
            process = held.info.backend_pid
            create(broker, "123456").expect(503, "storage_unavailable")
            printed = broker.printed()
            assert f'the role "stranger" (process {process}) holds a lock' in printed and "REVOKE CONNECT" in printed, printed
            assert "pg_advisory" not in printed and "postgresql://" not in printed
        eventually(lambda: create(broker, "123456").status == 201, 30, what="a room once the lock is free")
    finally:
        server.run("REVOKE CONNECT ON DATABASE mayfly FROM stranger")


def test_tables_of_another_version(server, state, broker):
    for version in (0, 2, 255):
        server.run(rf"UPDATE {state.schema.name}.node SET value = '\x{version:016x}' WHERE name = 'schema.version'")
        refused(broker, f"its tables have version {version}", "reads only version 4", "Run the release that made them")
        made = mayfly("migrate", "--database", state.schema.uri)
        assert made.returncode == 1 and f"its tables have version {version}" in made.stderr, made


def test_too_few_connections(server, broker):
    """A start waits for them or reports it. A broker that has some serves with these, and with all once it may."""
    server.run("ALTER ROLE mayfly CONNECTION LIMIT 2")
    try:
        broker.start(wait=False)
        eventually(lambda: "too many connections" in broker.printed(), what="the reason")
        assert broker.running and not is_ready(broker)
        server.run("ALTER ROLE mayfly CONNECTION LIMIT -1")
        eventually(lambda: is_ready(broker), 30, what="a start once there are enough")
        server.run("ALTER ROLE mayfly CONNECTION LIMIT 6")
        server.stop()
        server.start()
        answers = Counter(load(broker, lambda answers: len(answers) < 30)[0])
        assert broker.running and set(answers) <= {200, 201, 503} and answers[201], answers
    finally:
        server.run("ALTER ROLE mayfly CONNECTION LIMIT -1")
    eventually(lambda: [create(broker).status for _ in range(20)] == [201] * 20, what="all connections")


def test_a_role_that_must_not_serve_makes_no_tables(server):
    schema = Schema(server.uri)
    made = mayfly("migrate", "--database", schema.uri.replace("//mayfly@", "//postgres@"))
    assert made.returncode == 1 and "the role is a superuser" in made.stderr
    assert schema.run("SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace") == [(0,)]
    schema.drop()


def test_a_start_that_fails_after_a_move_keeps_the_keys(server, processes):
    """The key file is destroyed once the broker serves. A start beside rows that were not moved does nothing."""
    state = State()
    broker = Broker(state)
    processes.append(broker)
    broker.start()
    room = create(broker).expect(201).json["roomid"]
    assert broker.stop() == 0
    schema = Schema(server.uri)
    assert mayfly("migrate", "--database", schema.uri).returncode == 0
    broker.options["database"], key = schema.uri, state / "keys/ratchet.key"
    start_fails(broker, "has a broker's rows. Move them with `mayfly migrate --move`", lines=1)
    moved = mayfly("migrate", "--move", "--state", state.folder, "--database", schema.uri)
    assert moved.returncode == 0 and "moved 1 rooms, 1 tokens" in moved.stdout, moved.stdout + moved.stderr
    # What that means for restarts is said before anything is moved.
    assert moved.stdout.startswith("Before it moves: ") and "isn't wrapped, so start a second node" in moved.stdout.splitlines()[1]
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen, broker.options["listen"] = broker.options["listen"], f"127.0.0.1:{other.getsockname()[1]}"
        start_fails(broker, "in use: another program listens there")
        assert key.exists()
    broker.options["listen"] = listen
    broker.start()
    assert not key.exists() and "ratchet.key is destroyed" in broker.printed()
    with closing(Client(broker.port)) as client:
        assert client.status(room).json["creatorHasToken"]
    assert broker.stop() == 0
    verifies(state)
    schema.drop()
    state.remove()


def test_a_move_with_a_wrapped_key_file_warns_of_no_restart(server, processes, tmp_path):
    wrapping = tmp_path / "wrapping.key"
    wrapping.touch(0o600)
    wrapping.write_bytes(os.urandom(32))
    state = State(keys=None)
    made = mayfly("keys", "throwaway", "--state", state.folder, "--origin", ORIGIN, "--wrapping-key", wrapping)
    assert made.returncode == 0 and "in memory" not in made.stdout, made
    broker = Broker(state, wrapping_key=wrapping)
    processes.append(broker)
    broker.start()
    room = create(broker).expect(201).json["roomid"]
    assert broker.stop() == 0
    schema = Schema(server.uri)
    moved = mayfly("migrate", "--move", "--state", state.folder, "--database", schema.uri)
    assert moved.returncode == 0 and moved.stdout.startswith("moved 1 rooms"), moved.stdout + moved.stderr
    broker.options["database"] = schema.uri
    for _ in range(2):
        broker.start()
        assert Client(broker.port).status(room).json["creatorHasToken"] and "is alone" not in broker.printed()
        assert broker.stop() == 0
    schema.drop()
    state.remove()


def test_new_keys_in_memory_say_what_a_restart_costs(server, tmp_path):
    schema = Schema(server.uri)
    made = mayfly("keys", "init", "--state", tmp_path / "state", "--database", schema.uri, "--origin", ORIGIN)
    assert made.returncode == 0 and "stops or restarts, e.g. for an upgrade, everything sealed is forgotten" in made.stdout, made.stdout
    schema.drop()


# A running broker.

def load(broker, goes_on, workers=8):
    """Makes rooms, and accepts half of them, as long as `goes_on(answers of the worker)`. Returns all answers, and the rooms and accepts that
    were acknowledged, and the codes of refused creates."""
    answers, created, accepted, refused = [], [], [], []

    def work():
        mine = []
        while goes_on(mine):
            code = new_code()
            with closing(Client(broker.port, timeout=60, checked=False)) as client:
                made = client.create(code, token=new_token())
                mine.append(made.status)
                if made.status != 201:
                    refused.append(code)
                    time.sleep(0.02)
                    continue
                created.append(made.json["roomid"])
                if len(mine) % 2:
                    continue
                answer = client.accept(code, token=new_token())
                mine.append(answer.status)
                if answer.status == 200:
                    accepted.append(made.json["roomid"])
        answers.extend(mine)
    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers, created, accepted, refused


def crashed(server, broker, times):
    """The server crashes so often under load, and is started again."""
    done, result = threading.Event(), []
    loading = threading.Thread(target=lambda: result.extend(load(broker, lambda _: not done.is_set(), workers=12)))
    loading.start()
    try:
        for _ in range(times):
            time.sleep(0.5)
            server.stop()
            server.start()
        time.sleep(0.5)
    finally:
        done.set()
        loading.join()
    return result


def held(broker, created, accepted, refused):
    """Checks that each acknowledged call still holds, and that no refused one happened."""
    with closing(Client(broker.port, checked=False)) as client:
        found = {room: client.status(room) for room in created}
        lost = [room for room, answer in found.items() if answer.status != 200]
        unaccepted = [room for room in accepted if room not in lost and not found[room].json["joinerHasToken"]]
    assert not lost and not unaccepted, f"{len(lost)} of {len(created)} rooms and {len(unaccepted)} of {len(accepted)} accepts are lost"
    for code in refused[:200]:
        with closing(Client(broker.port, checked=False)) as client:
            client.accept(code).expect(404, "room_not_found")


@pytest.mark.parametrize("times", [2, pytest.param(30, marks=pytest.mark.campaign)])
def test_a_crash_of_the_server_loses_nothing_acknowledged(server, state, broker, times):
    """The broker answers 503 meanwhile, and recovers without a restart."""
    broker.start()
    answers, created, accepted, refused = crashed(server, broker, times)
    # An accept answers 404 if its create was lost, which `held` reports.
    assert broker.running and set(answers) <= {200, 201, 404, 503} and {201, 503} <= set(answers), Counter(answers)
    eventually(lambda: is_ready(broker), what="a broker that is ready again")
    held(broker, created, accepted, refused)
    eventually(lambda: "ledger: publishing again" in broker.printed() or "can't publish" not in broker.printed(), what="publication")
    verifies(state)
    assert broker.stop() == 0


class Cut(Relay):
    """Ends a connection in place of passing on the server's answer to a COMMIT, as often as `left` says."""
    left = 0

    def copy(self, one, other):
        with suppress(OSError):
            while data := one.recv(65_536):
                if self.left > 0 and b"C\0\0\0\x0bCOMMIT\0" in data:
                    self.left -= 1
                    for end in (one, other):
                        end.shutdown(socket.SHUT_RDWR)
                    return
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)


def test_a_connection_is_cut_in_mid_commit(server, state, broker):
    """The server knows that the commit happened. So the caller gets its answer, and nothing is done twice."""
    with Cut(server.port) as cut:
        broker.options["database"] = broker.options["database"].replace(f":{server.port}/", f":{cut.port}/")
        broker.start()
        for _ in range(20):
            create(broker).expect(201)
        cut.left = 20
        for _ in range(20):
            create(broker).expect(201)
        eventually(lambda: cut.left == 0, what="all cuts")
        assert state.counts()["room"] == 40
        eventually(lambda: is_ready(broker), what="a broker that is ready")
        assert broker.stop() == 0
    verifies(state)


def test_a_broker_is_not_ready_without_its_lease(server, broker):
    """It lasts ten seconds. Requests fail at once."""
    broker.start()
    server.stop()
    try:
        answer = create(broker)
        answer.expect(503, "storage_unavailable")
        assert int(answer.headers["retry-after"]) >= 1 and "could not confirm" in answer.json["detail"], answer
        eventually(lambda: http_status(f"{broker.operator_url}/readyz") == 503, 20, what="an end of its readiness")
    finally:
        server.start()
    eventually(lambda: create(broker).status == 201 and is_ready(broker), what="its recovery")
    for part in ("store", "ledger", "lease"):
        assert f"error: {part}: " in broker.printed(), broker.printed()
    assert "postgresql://" not in broker.printed()


# Promise: lost-commits-stop-pushes
@pytest.mark.background
def test_a_failover_that_lost_commits():
    """An asynchronous standby lacks a head that is published, and a push that was acknowledged."""
    with Server() as primary, Standby(primary) as standby, ExitStack() as cleanup:
        ports = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        state = State(postgres=f"postgresql://mayfly@{ports}/mayfly")
        simulator = Simulator(state)
        broker = Broker(state, simulator.port)
        cleanup.callback(simulator.kill)
        cleanup.callback(broker.kill)
        policy = quick_rooms()
        # A knock at a room from before the start waits for so long.
        policy["limits"]["startGraceSeconds"] = 20
        (broker.cwd / "rooms").write_text(json.dumps(policy))
        simulator.start()
        broker.start()
        room = Client(broker.port).room()
        broker.stop()
        broker.start()
        eventually(lambda: standby.run("SELECT pg_last_wal_replay_lsn() = pg_last_wal_receive_lsn()")[0][0], what="a standby that keeps up")
        standby.set(primary_conninfo="")
        size = int((state / "ledger/checkpoint").read_text().split("\n")[1])
        assert Client(broker.port).presence(room.roomid, room.joiner.client).expect(202).json["delivery"] == "queued"
        eventually(lambda: int((state / "ledger/checkpoint").read_text().split("\n")[1]) > size, what="a head that the standby lacks")
        primary.stop()
        standby.promote()
        eventually(lambda: "has lost commits" in broker.printed(), 30, what="the line")
        create(broker).expect(503, "storage_unavailable")
        ready = f"{broker.operator_url}/readyz"
        assert http_status(ready) == 503 and broker.metric("alarms_total") >= 1
        with pytest.raises(urllib.error.HTTPError) as answer:
            urllib.request.urlopen(ready, timeout=2)
        assert "Bring back the server that has them" in answer.value.read().decode()
        assert "another broker" not in broker.printed()
        # Its time comes meanwhile. It must not leave without its entry.
        time.sleep(20)
        assert simulator.pushes() == [], broker.printed()
        # The right server is back.
        standby.stop()
        primary.start()
        eventually(lambda: http_status(ready) == 200 and create(broker).status == 201, 40, what="a broker that stores again")
        broker.stop()
        verifies(state)


@pytest.mark.campaign
def test_a_slow_standby(processes):
    """A synchronous standby answers nothing for 20 s. Calls wait, then get 503, and everything goes on after that."""
    with Server() as primary, Standby(primary, synchronous=True):
        state = State(postgres=primary.uri)
        broker = Broker(state)
        processes.append(broker)
        broker.start()
        eventually(lambda: create(broker).status == 201, 30, what="a standby that keeps up")
        created = [create(broker).expect(201).json["roomid"] for _ in range(5)]
        [(sender,)] = primary.run("SELECT pid FROM pg_stat_replication")
        os.kill(sender, signal.SIGSTOP)
        try:
            start = time.monotonic()
            create(broker).expect(503, "storage_unavailable")
            assert 5 < time.monotonic() - start < 25
            assert not is_ready(broker)
        finally:
            os.kill(sender, signal.SIGCONT)
        eventually(lambda: is_ready(broker), 30, what="a broker that is ready again")
        created += [create(broker).expect(201).json["roomid"] for _ in range(5)]
        held(broker, created, [], [])
        eventually(lambda: "ledger: publishing again" in broker.printed() or "can't publish" not in broker.printed(), what="publication")
        verifies(state)
        assert broker.stop() == 0
        state.remove()


@pytest.fixture
def server_disk():
    """A disk for a server that other users can reach: it runs under a user of its own."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a full disk needs root, for a tmpfs of its own")
    mount = Path(tempfile.mkdtemp(prefix="mayfly-server-"))
    mount.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m,mode=755", "tmpfs", mount], check=True)
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)
    shutil.rmtree(mount)


def test_the_servers_disk_is_full(server_disk, processes):
    """Calls get 503. A server that ends for want of a write-ahead log is started again by its operator, once there is space."""
    with Server(server_disk / "server") as server:
        state = State(postgres=server.uri)
        broker = Broker(state)
        processes.append(broker)
        broker.start()
        created = [create(broker).expect(201).json["roomid"] for _ in range(20)]
        refused = []
        # The server deletes old segments of its log now and then, so the disk is filled up again and again.
        end = time.monotonic() + 3
        while time.monotonic() < end:
            filler = filled(server_disk)
            code = new_code()
            answer = create(broker, code)
            if answer.status == 201:
                created.append(answer.json["roomid"])
            else:
                answer.expect(503, "storage_unavailable")
                refused.append(code)
                time.sleep(0.05)
        assert refused and broker.running
        assert "the disk is full" in broker.printed(), broker.printed()
        filler.unlink()
        if server.control("status") != 0:
            server.start()
        eventually(lambda: create(broker).status == 201 and is_ready(broker), 30, what="a room once there is space")
        held(broker, created, [], refused)
        eventually(lambda: "ledger: publishing again" in broker.printed() or "can't publish" not in broker.printed(), what="publication")
        verifies(state)
        assert broker.stop() == 0
        state.remove()
