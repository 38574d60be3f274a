"""Purged rows leave the database's file and its write-ahead log within a minute, despite readers and crashes."""

import os
import sqlite3
import time
from pathlib import Path

import pytest

from clocks import Clocks
from mayfly import ask, new_code, new_token
from processes import Broker, Simulator, State, eventually

pytestmark = pytest.mark.campaign


class Database:
    """A broker whose clocks the test moves, and the bytes in its database's files."""

    def __init__(self):
        self.state = State()
        self.clocks = Clocks(self.state.prints / "clocks")
        self.simulator = Simulator(self.state)
        self.broker = Broker(self.state, self.simulator.port)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.broker.kill()
        self.simulator.kill()
        self.state.remove()

    def start(self):
        self.broker.start(**self.clocks.environment)

    def secrets(self):
        """Everything sealed or keyed that a row holds, by the row's room."""
        with self.state.database() as database:
            database.row_factory = sqlite3.Row
            found = {}
            for row in database.execute("SELECT * FROM room"):
                found.setdefault(row["room"], []).extend(
                    row[name] for name in ("creator_client", "joiner_client", "code", "pending", "creator", "retry") if row[name])
            for row in database.execute("SELECT room, sealed FROM token"):
                found[row["room"]].append(row["sealed"])
            return found

    def left(self, secrets):
        """The secrets that are in the files; 16 bytes of one count."""
        content = b"".join(path.read_bytes() for path in self.state.folder.glob("mayfly.sqlite*"))
        return [secret for secret in secrets if any(secret[at:at + 16] in content for at in range(0, len(secret) - 15, 8))]

    def is_clean_of(self, gone, what):
        eventually(lambda: not self.left(gone), 10, 0.1, f"{what}: none of {len(gone)} purged values in the files")


# Promise: wal-emptied
@pytest.mark.background
def test_purged_rows_leave_the_files():
    """Rooms that expire, are closed or accepted, and tokens that are replaced or withdrawn, among many that stay."""
    with Database() as here:
        def rooms(client, count, expires):
            codes = [new_code() for _ in range(count)]
            return [(code, client.create(code, "creator", new_token(), expires=expires).expect(201).json["roomid"]) for code in codes]
        ask(here.broker, lambda client: rooms(client, 60, 3600))
        kept = {room: list(values) for room, values in here.secrets().items()}
        ask(here.broker, lambda client: rooms(client, 60, 60))
        closing = ask(here.broker, lambda client: rooms(client, 60, 7200))
        accepted = ask(here.broker, lambda client: rooms(client, 20, 3600))
        before = here.secrets()

        def change(client):
            for code, roomid in accepted:
                client.accept(code, "joiner", new_token()).expect(200)
                client.put_token(roomid, "creator", new_token()).expect(200)
            for _, roomid in closing:
                client.delete(roomid).expect(200)
        ask(here.broker, change)
        between = here.secrets()
        here.clocks.go_on(70)
        eventually(lambda: len(here.secrets()) == 80, what="the purge of what has expired")
        after = here.secrets()

        def values(*moments):
            return {value for rooms in moments for values in rooms.values() for value in values}
        gone = values(before, between) - values(after)
        assert len(gone) > 600, len(gone)
        here.clocks.go_on(11)
        here.is_clean_of(gone, "after the purges")
        # Answers to accepts are kept for two minutes.
        here.clocks.go_on(120)
        eventually(lambda: values(after) - values(here.secrets()), what="the purge of the answers to accepts")
        gone |= values(after) - values(here.secrets())
        here.clocks.go_on(11)
        here.is_clean_of(gone, "after the accepts")
        # The copy for a repeated create has gone from the rooms that stay.
        stays = values(kept) & values(here.secrets())
        here.is_clean_of(values(kept) - stays, "after two minutes")
        assert len(stays) > 200 and set(here.left(stays)) == stays, "the search does not find what is there"


@pytest.mark.background
def test_a_finished_push_leaves_the_files():
    """The broker alone could open its row, with a key that lives ten minutes more. Nothing else is purged meanwhile."""
    with Database() as here:
        here.simulator.start(**here.clocks.environment)
        room = ask(here.broker, lambda client: client.room(expires=3600))
        here.clocks.go_on(150)
        # The start's grace: pushes wait 15 s for their peers.
        here.broker.kill()
        here.start()
        ask(here.broker, lambda client: client.presence(room.roomid, room.joiner.client).expect(202))
        with here.state.database() as database:
            gone = [row[0] for row in database.execute("SELECT sealed FROM job")]
        assert len(gone) == 1 and here.left(gone) == gone
        here.clocks.go_on(16)
        eventually(lambda: here.simulator.pushes(room.creator.token), what="the push")
        eventually(lambda: here.state.jobs() == 0, what="its end")
        here.clocks.go_on(11)
        here.is_clean_of(gone, "after the push")


@pytest.mark.background
def test_a_reader_delays_the_scrub_and_nothing_else():
    """Somebody reads the database for long, as a backup does. The broker serves on and raises an alarm, and empties the log afterwards."""
    with Database() as here:
        room = ask(here.broker, lambda client: client.room(expires=3600))
        gone = [value for values in here.secrets().values() for value in values]
        with here.state.database() as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM token").fetchone() == (2,)
            ask(here.broker, lambda client: client.delete(room.roomid).expect(200))
            slowest = 0
            for _ in range(30):
                here.clocks.go_on(3)
                start = time.monotonic()
                ask(here.broker, lambda client: client.create(new_code(), "creator").expect(201))
                slowest = max(slowest, time.monotonic() - start)
            assert slowest < 2, f"a create waited {slowest:.1f} s for someone else's reader"
            assert here.left(gone), "the reader held nothing open"
            eventually(lambda: "write-ahead log" in here.broker.printed(), what="the alarm")
        here.clocks.go_on(2)
        here.is_clean_of(gone, "when the reader has gone")
        eventually(lambda: "was emptied again" in here.broker.printed(), what="the end of the alarm")


@pytest.mark.background
def test_a_start_empties_the_log_after_a_crash():
    """The broker is killed between a purge and the scrub."""
    with Database() as here:
        room = ask(here.broker, lambda client: client.room(expires=3600))
        gone = [value for values in here.secrets().values() for value in values]
        ask(here.broker, lambda client: client.delete(room.roomid).expect(200))
        here.broker.kill()
        assert here.left(gone), "there is nothing to do for the start"
        here.start()
        eventually(lambda: not here.left(gone), 5, what="a log emptied by the start")


@pytest.mark.background
def test_no_temporary_file_is_written():
    """With or without a name, whatever the database has to do."""
    with Database() as here:
        def rooms(client):
            for _ in range(100):
                client.create(new_code(), "creator", new_token(), expires=60).expect(201)
        ask(here.broker, rooms)
        here.clocks.go_on(70)
        files = set()
        for _ in range(20):
            for link in Path(f"/proc/{here.broker.child.pid}/fd").iterdir():
                try:
                    files.add(os.readlink(link))
                except FileNotFoundError:
                    pass
            time.sleep(0.01)
        own = (str(here.state.folder), str(here.state.prints))
        strange = [file for file in files if file.startswith("/") and file not in ("/dev/null", "/dev/urandom") and not file.startswith(own)]
        assert any(file.startswith(own) for file in files) and not strange, strange
        assert not [file for file in files if file.endswith("(deleted)")], files
