"""PostgreSQL for tests: a schema for each state in the shared server, and servers that a test may stop."""

import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts/postgres"


def shared_server():
    """The URI of the server that all tests share."""
    uri = os.environ.get("MAYFLY_TEST_POSTGRES")
    if not uri:
        pytest.skip("NOT TESTED: PostgreSQL needs MAYFLY_TEST_POSTGRES, the output of `scripts/postgres start FOLDER`")
    return uri


# Tables of the log and of jobs, which change by themselves.
MOVING = {"job", "entry", "waiting", "batch", "bucket", "schedule", "unpublished", "log", "node", "lease", "member", "incarnation"}


def row_counts(connection):
    """{table: its rows} of a connection's schema."""
    names = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition").fetchall()
    return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name, in names}


class Schema:
    """A schema of one test's own. `uri` finds it without naming it in statements."""

    def __init__(self, server):
        self.server, self.name = server, "test_" + secrets.token_hex(6)
        self.uri = f"{server}?options={quote(f'-csearch_path={self.name}')}"
        self.run(f"CREATE SCHEMA {self.name}")

    def run(self, sql, *values):
        """Runs one statement, and returns its rows."""
        with psycopg.connect(self.server, autocommit=True, target_session_attrs="read-write") as connection:
            connection.execute(f"SET search_path = {self.name}")
            cursor = connection.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def drop(self):
        # A test's own server may be gone. A broker that was killed may still have a transaction open.
        with suppress(psycopg.OperationalError), psycopg.connect(
                self.server, autocommit=True, connect_timeout=3, target_session_attrs="read-write") as connection:
            connection.execute("SET lock_timeout = '20s'; SET client_min_messages = warning")
            connection.execute(f"DROP SCHEMA {self.name} CASCADE")


class Server:
    """A server that a test may stop, damage and fill up. `folder` is empty or doesn't exist; default: one in memory."""

    def __init__(self, folder=None, environment=None):
        self.environment = environment
        self.folder = Path(folder or self._script("folder"))
        try:
            self.uri = self._script("start", self.folder)
        except BaseException:
            self.close()
            raise
        self.port = int(re.search(r":(\d+)/", self.uri)[1])

    environment = None  # of the server, beside the tests' own

    def _script(self, *words):
        more = {name: str(value) for name, value in (self.environment or {}).items()}
        return subprocess.run(
            [SCRIPT, *words], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, timeout=60, check=True, env=os.environ | more).stdout.strip()

    @property
    def data(self):
        return self.folder / "data"

    @property
    def log(self):
        return self.folder / "server.log"

    @cached_property
    def programs(self):
        """The folder of the server's programs."""
        return Path(self.run("SELECT setting FROM pg_config WHERE name = 'BINDIR'")[0][0])

    def program(self, name, *words, **more):
        """Runs one of the server's programs. They refuse to run as root."""
        owner = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.geteuid() == 0 else []
        return subprocess.run(
            [*owner, self.programs / name, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=60, **more).returncode

    def control(self, *words):
        return self.program("pg_ctl", "-D", self.data, "-l", self.log, "-w", "-t", "30", *words)

    def stop(self, mode="immediate"):
        """`immediate` is a crash: the next start recovers from the write-ahead log."""
        _ = self.programs  # known before the server is down
        assert self.control("-m", mode, "stop") == 0

    def start(self):
        # Another process may be using the port for a moment.
        assert any(self.control("start") == 0 for _ in range(3)), self.log.read_text()[-2000:]

    def run(self, sql, database="mayfly"):
        """Runs one statement as a superuser, outside of a transaction, and returns its rows."""
        with psycopg.connect(f"postgresql://postgres@127.0.0.1:{self.port}/{database}", autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def set(self, **settings):
        """Changes settings that a reload puts in force. None resets one."""
        for name, value in settings.items():
            self.run(f"ALTER SYSTEM SET {name} = '{value}'" if value is not None else f"ALTER SYSTEM RESET {name}")
        self.run("SELECT pg_reload_conf()")

    def close(self):
        self._script("stop", self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Standby(Server):
    """A streaming copy of a server, with a replication slot: otherwise a busy machine makes it lose the stream, since the broker's checkpoints delete the log.
    `synchronous`: the server waits for it at each commit."""

    def __init__(self, primary, synchronous=False, port=None):
        self.folder = Path(self._script("folder"))
        self.programs, self.uri = primary.programs, None
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self.port = port or primary.port
        while self.port == primary.port:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
        copied = self.program("pg_basebackup", "-D", self.data, "-R", "-c", "fast", "--create-slot", "--slot", "second",
                              "-d", f"postgresql://postgres@127.0.0.1:{primary.port}/postgres")
        assert copied == 0, "no base backup"
        with open(self.data / "postgresql.auto.conf", "a") as file:
            file.write(f"port = {self.port}\nprimary_conninfo = 'host=127.0.0.1 port={primary.port} user=postgres application_name=second'\n")
        self.start()
        if synchronous:
            primary.set(synchronous_standby_names="second")
            is_synchronous = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            assert any(primary.run(is_synchronous) or time.sleep(0.1) for _ in range(200)), "no synchronous standby"

    def promote(self):
        """Makes it the primary. It must not wait for a standby of its own."""
        assert self.control("promote") == 0
        self.set(synchronous_standby_names=None)
