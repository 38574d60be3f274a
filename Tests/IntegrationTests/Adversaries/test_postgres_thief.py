"""Thieves with the disk of a PostgreSQL server: its tables, write-ahead log, log and temporary files, and those of a streaming standby.

`pytest -m campaign -s` on this file prints how long sealed bytes remain where (docs/postgresql.md).
"""

import json
import time

import pytest

import carving
import table
from canary import Canaries
from databases import Server, Standby
from key_reader import unwrapped
from long_story import WORDS
from mayfly import Client, new_client, new_code, new_token
from postgres_remains import Watch, left, places
from postgres_rows import Heap
from processes import Broker, Simulator, State, eventually, free_port, quick_rooms
from push_services import PushServices
from stage import DAY
from thief import Thief
from truth import Phone, Truth, six_digits
from verdict import hold

pytestmark = pytest.mark.campaign

ROOMS = 150
# So many values of each kind are looked for, and the secrets of so many rooms: a look at all files must take a second.
SAMPLE, NAMED = 8, 3


class Scene:
    """A broker on a server with a standby. Some rooms are closed, some expire, and some stay."""

    def __init__(self):
        self.server = Server()
        self.standby = self.state = None
        try:
            self.standby = Standby(self.server)
            self.state = State(postgres=self.server.uri)
            policy = quick_rooms()
            policy["limits"]["roomLifeSeconds"]["min"] = policy["limits"]["joinCode"]["lifeSeconds"]["min"] = 1
            path = self.state.prints / "brief.json"
            path.write_text(json.dumps(policy))
            self.simulator = Simulator(self.state)
            self.broker = Broker(self.state, self.simulator.port, policy=path)
            self.canaries = Canaries()
            self.simulator.start()
            self.broker.start()
        except BaseException:
            self.close()
            raise

    def close(self):
        for process in (getattr(self, "broker", None), getattr(self, "simulator", None)):
            if process:
                process.kill()
        if self.state:
            self.state.remove()
        for server in (self.standby, self.server):
            if server:
                server.close()

    @property
    def servers(self):
        return {"": self.server, "standby: ": self.standby}

    def rooms(self, count, expires):
        """Accepted rooms; their secrets are canaries."""
        made = []
        for number in range(count):
            if number % 20 == 0:
                client = Client(self.broker.port, checked=False)
            code, tokens, clients = new_code(), (new_token(), new_token()), (new_client(), new_client())
            created = client.create(code, clients[0], tokens[0], expires).expect(201).json
            accepted = client.accept(code, clients[1], tokens[1]).expect(200).json
            made.append((client, created["roomid"], clients[1]))
            if number >= NAMED:
                continue
            for name, value in (("token", tokens[0]), ("token", tokens[1]), ("room id", created["roomid"]), ("join code", code),
                                ("client id", clients[0]), ("client id", clients[1]), ("member secret", created["member"]),
                                ("member secret", accepted["member"]), ("ref", created["ref"]), ("ref", accepted["ref"])):
                self.canaries.add(name, value)
                if name == "token":
                    self.canaries.add(name, bytes.fromhex(value))
        return made

    def sealed(self):
        """Sealed bytes of all rows, by kind."""
        found = {"token": "SELECT sealed FROM token", "job": "SELECT sealed FROM job", "room": "SELECT retry FROM room WHERE retry IS NOT NULL"}
        with self.state.database() as database:
            return {kind: {bytes(value) for value, in database.execute(query)} for kind, query in found.items()}


@pytest.fixture(scope="module")
def scene():
    scene = Scene()
    yield scene
    scene.close()


@pytest.fixture(scope="module")
def watch(scene):
    """Until the answers to accepts are gone too, two minutes after the last one, and the write-ahead log was emptied again."""
    # Those that stay and those that go are in the same pages: an empty end of a table is cut off.
    rooms = scene.rooms(2 * ROOMS, 3600)
    closed, kept = rooms[::2], rooms[1::2]
    for client, roomid, joiner in closed[:30]:
        client.presence(roomid, joiner).expect(202)
    jobs = scene.sealed()["job"]
    assert jobs, "no push was queued"
    eventually(lambda: scene.state.jobs() == 0, what="the end of all pushes")
    scene.rooms(30, 8)
    scene.live, before = places(scene.server), scene.sealed()
    for client, roomid, _ in closed:
        client.delete(roomid).expect(200)
    deleted = time.monotonic()

    def has_kept_only():
        with scene.state.database() as database:
            return database.execute("SELECT count(*) FROM room").fetchone()[0] == len(kept)
    eventually(has_kept_only, 20, what="the end of the brief rooms")
    after = scene.sealed()
    scene.kept = after["token"]
    values = {"token": before["token"] - after["token"], "room": before["room"] - after["room"], "job": jobs}
    watch = Watch(scene.servers, {kind: sorted(some)[::max(1, len(some) // SAMPLE)] for kind, some in values.items()}, deleted)
    watch.until(210)
    return watch


def test_no_secret_is_on_a_disk_in_the_clear(scene, watch):
    """Nowhere, and at no time: while rooms live, and after their end."""
    moments = [scene.live, *(places(server, name) for name, server in scene.servers.items())]
    found = {place: names for moment in moments for place, contents in moment.items()
             if (names := sorted({name for content in contents for name in scene.canaries.in_bytes(content)}))}
    table.record(table.DATABASE, "PostgreSQL's tables, write-ahead log, server log, temporary files and a standby, in the clear",
                 str(found or "nothing"), "nothing")
    assert not found, found
    # The search finds what is there.
    tables = [content for place, contents in places(scene.server).items() if place == "table token" for content in contents]
    sample = sorted(scene.kept)[:SAMPLE]
    assert left(tables, sample) == len(sample)


def test_sealed_bytes_leave_the_write_ahead_log(scene, watch):
    """On the primary and the standby, a minute after the last change of their pages: a change copies the whole page, with what remains in it."""
    print("\n" + "\n".join(watch.lines()))
    for name in scene.servers:
        for kind in watch.values:
            assert not watch.now[f"{name}write-ahead log", kind], watch.now
            table.record(table.DATABASE, f"sealed bytes of a deleted {kind} in PostgreSQL's {name}write-ahead log",
                         f"the last seen after {watch.last(f'{name}write-ahead log', kind)}", "gone a minute after its page was last changed")
            for place in ("other files", "server log", "statistics (pg_statistic)", "other tables, temporary files"):
                assert (name + place, kind) not in watch.seen, (name, place, kind)


def test_a_rewritten_table_has_no_sealed_bytes(scene, watch):
    """VACUUM leaves bytes of deleted rows; VACUUM FULL writes the table anew."""
    before = {}
    for words in ("VACUUM", "VACUUM FULL"):
        schema = scene.state.schema.name
        for name in ("room", "token", "job"):
            scene.server.run(f"{words} {schema}.{name}")
        now = Watch({"": scene.server}, watch.values, watch.deleted).look()
        before[words] = {place: count for place, count in now.items() if count}
        print(f"\nafter {words}: {before[words]}")
    assert not {place: count for place, count in before["VACUUM FULL"].items() if place[0].startswith("table")}, before


class Evening:
    """A broker with rooms in each state, half of them browsers', every version of their rows, and the keys of a thief who unwrapped the file."""

    def __init__(self, server):
        server.set(autovacuum="off")
        self.state = State(postgres=server.uri)
        self.broker, self.simulator = Broker(self.state, free_port()), Simulator(self.state)
        self.push = PushServices(self.state, self.simulator, self.broker)
        self.truth, self.heap = Truth(self), Heap(server, self.state.schema.name)
        try:
            self.simulator.start()
            self.simulator.fault(problem="unavailable")
            self.broker.start()
            self._play()
        except BaseException:
            self.close()
            raise

    @property
    def now(self):
        return time.time()

    def close(self):
        self.broker.kill()
        self.simulator.kill()
        self.state.remove()

    def _play(self):
        truth, client = self.truth, Client(self.broker.port)
        shared = Phone()
        for _ in range(30):
            self.see(truth.pair(client, life=DAY))
        self.accepted = self.see(truth.pair(client, code=six_digits(), names=(None, "bob"), life=DAY))
        self.pending = [truth.create(client, shared, code=six_digits(), name="alice", life=DAY) for _ in range(2)]
        self.pending_long = truth.create(client, shared, name="alice", life=DAY)
        self.replaced, self.withdrawn, self.closed, self.member_room, self.knocked = (truth.pair(client, life=DAY) for _ in range(5))
        self.see()
        truth.replace(client, self.replaced, 1)
        truth.withdraw(client, self.withdrawn, 2)
        truth.close(client, self.closed)
        # A browser's, whose service has no time for it.
        assert self.knocked.phones[2].subscription
        assert truth.knock(client, self.knocked, by=1) == "queued"
        self.files = self.heap.look()
        wrapping = self.state.options["wrapping-key"].read_bytes()
        self.keys = {"ratchet.key": unwrapped((self.state / "keys/ratchet.key").read_bytes(), wrapping)}

    def see(self, room=None):
        self.heap.look()
        return room


@pytest.fixture(scope="module")
def evening():
    with Server() as server:
        evening = Evening(server)
        yield evening
        evening.close()


def stolen(evening, keys=None, rooms=()):
    return Thief(evening.files, keys, [room.roomid for room in rooms], WORDS).work()


def test_the_tables_alone_open_no_room(evening):
    live = carving.select(evening.files)
    deleted = {name: len(evening.heap.versions[name]) - len(live[name]) for name in ("room", "token")}
    assert deleted["room"] > 10 and deleted["token"] > 3, f"{deleted} deleted versions: this proves nothing"
    hold(stolen(evening), evening.truth, table.DATABASE, "all of that in PostgreSQL, deleted versions of rows too",
         "no token, room id, join code, client id; no link between two rooms of one phone")


def test_keys_open_queued_pushes_and_valid_codes(evening):
    """A deleted version has the code of an accepted room until it is overwritten. It opens until the key of the code's epoch is destroyed."""
    codes = [*evening.pending, evening.accepted]
    rooms = {room.roomid for room in codes}
    tokens = set().union(*(room.tokens for room in codes), {evening.knocked.phones[2].token})
    hold(stolen(evening, evening.keys), evening.truth, table.WAITING, "the same in PostgreSQL",
         "codes of six digits and their rooms; answers, if the client id is guessed; a queued knock's token",
         tokens=tokens, rooms=rooms, codes={room.code for room in codes}, clients={"alice", "bob"},
         members={evening.accepted.members[2], *(room.members[1] for room in evening.pending)}, links=evening.truth.links(evening.pending))


def test_a_member_with_tables_and_keys_opens_their_room_only(evening):
    """Deleted versions open like an earlier image: until the token would have expired."""
    for room, what in ((evening.member_room, "an accepted room"), (evening.replaced, "a token was replaced"),
                       (evening.withdrawn, "a token was withdrawn"), (evening.closed, "the room was closed")):
        got = Thief(evening.files, evening.keys, [room.roomid], WORDS, tries_codes=False).work()
        tokens = room.tokens | {phone.token for phone in room.earlier}
        hold(got, evening.truth, table.MEMBER_WITH_DISK, f"{what}, in PostgreSQL", "the peer's token, until expiry",
             tokens=tokens | {evening.knocked.phones[2].token}, clients=set())
