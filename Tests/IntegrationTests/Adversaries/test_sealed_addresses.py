"""A thief of the database learns neither the app nor the environment of a token: from its files, its log of writes, a dump, or by comparing rows."""

import json
import sqlite3
import tempfile
from pathlib import Path

import ledger
import table
from canary import Canaries
from companion_client import Caller
from companion_world import settings, users
from databases import Server
from mayfly import Client, new_client, new_code, new_token
from opening import app_id
from processes import BUNDLE_ID, KEY_ID, TEAM_ID, Broker, Simulator, State, eventually
from push_services import PushServices
from test_apps import ALONE, KEY, write

OTHER = "org.example.another-app-with-a-longer-bundle-id"
APPS = [(app, environment) for app in (BUNDLE_ID, OTHER) for environment in ("production", "sandbox")]
# Whatever would name an app, an environment or the developer.
NAMES = Canaries()
for app in (BUNDLE_ID, OTHER):
    NAMES.add("a bundle id", app, app.encode("utf-16-le"))
    NAMES.add("an app's id", app_id(app))
NAMES.add("an environment", "production", "development")
NAMES.forms[b"sandbox"] = "an environment"
NAMES.add("the team's id", TEAM_ID)
NAMES.add("the key's id", KEY_ID)


class Deployment:
    """A broker that serves these apps, with a room, a device, a Live Activity and two queued pushes of each. Push services have no time for pushes.
    `then`: "tokens" or "subscriptions", with which it plays the first app's story once more, in a deployment that sends Web Push."""

    def __init__(self, *apps, server=None, then=None):
        self.server = server
        self.state = State(postgres=server.uri if server else False)
        self.simulator = Simulator(self.state)
        try:
            known = self.state.prints / "app.json"
            known.write_text(json.dumps({
                "keyID": KEY_ID, "teamID": TEAM_ID, "key": str(self.state / "keys/apns.p8"), "topics": [BUNDLE_ID, OTHER]}))
            self.simulator.more = ["--app", known]
            listed = {}
            for app, environment in apps:
                listed.setdefault(app, []).append(environment)
            path = write(self.state, *(f"{app} {','.join(environments)} {KEY}" for app, environments in listed.items()))
            self.broker = Broker(self.state, self.simulator.port, apns_apps=path, **ALONE)
            self.broker.options |= settings(self.state)
            push = PushServices(self.state, self.simulator, self.broker) if then else None
            self.simulator.start()
            self.simulator.fault(always=[{"status": 503, "reason": "ServiceUnavailable"}, {"problem": "unavailable"}])
            self.broker.start()
            self.rooms = [self._story(*app) for app in apps]
            if then:
                self.rooms.append(self._story(*apps[0], {"tokens": new_token, "subscriptions": push.subscribe}[then]))
            eventually(self._has_asked, what="a provider token")
            assert self.state.jobs() == 2 * len(self.rooms), "a push did not stay queued"
        except BaseException:
            self.close()
            raise

    def _has_asked(self):
        with self.state.database() as database:
            return database.execute("SELECT count(*) FROM node WHERE name = 'apns.issued'").fetchone()[0]

    def _story(self, app, environment, address=new_token):
        """The joiner and the device are pushed to. Returns the room."""
        named = {"bundleId": app, "environment": environment} if address is new_token else {}
        client, code, clients = Client(self.broker.port), new_code(), (new_client(), new_client())
        created = client.create(code, clients[0], address(), **named).expect(201).json
        client.accept(code, clients[1], address(), **named).expect(200)
        assert client.presence(created["roomid"], clients[0]).expect(202).json["delivery"] == "queued"
        user, people = "user-" + new_client(), users(self.state)
        caller = Caller(self.broker, people.token(user), user)
        caller.register(address(), environment, **{"bundleId": app} if named else {}).expect(200)
        caller.register_activity(new_token(), "activity", "session", environment=environment, bundleId=app).expect(200)
        Caller(self.broker, people.back_end(), "back-end").event("another", "approval_request", {}, user).expect(202)
        return created["roomid"]

    def entries(self):
        """{operation: the shapes of its entries} of the log, after the pushes have met their ends and the rooms theirs."""
        self.simulator.fault()
        eventually(lambda: self.state.jobs() == 0, 60, what="the end of the pushes")
        for room in self.rooms:
            Client(self.broker.port).delete(room).expect(200)
        def look(name, value):
            return value if name in ("op", "template", "status", "reason", "cause") else len(value) if isinstance(value, str) else type(value)

        def shapes_of_entries():
            found = {}
            for entry in ledger.read(self.state).entries:
                found.setdefault(entry["op"], set()).add(tuple((name, look(name, value)) for name, value in entry.items()))
            return found if {"token.sealed", "token.purged", "push.delivered"} <= found.keys() else None
        return eventually(shapes_of_entries, 30, what="an entry of each kind")

    def rows(self):
        """{table: [{column: value}]} of all that SQL shows."""
        with self.state.database() as database:
            if self.server:
                names = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition"
            else:
                names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            found = {}
            for name, in database.execute(names).fetchall():
                cursor = database.execute(f'SELECT * FROM "{name}"')
                columns = [column[0] for column in cursor.description]
                found[name] = [dict(zip(columns, row)) for row in cursor.fetchall()]
            return found

    def close(self):
        for process in (getattr(self, "broker", None), self.simulator):
            if process:
                process.kill()
        self.state.remove()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def shape(value):
    """What a value shows without a key: of bytes and texts their length, of numbers how long they are if they are no code."""
    if isinstance(value, (bytes, memoryview, str)):
        return type(value).__name__, len(value)
    return value if value is None or abs(value) < 1_000 else ("number", len(str(abs(value))))


# What differs with chance and time, and is no column of an address.
ELSEWHERE = {"entry", "waiting", "batch", "bucket", "schedule", "log", "unpublished", "lease", "member", "incarnation", "seen"}


def shapes(rows):
    """{table.column: the shapes of its values}."""
    return {f"{name}.{column}": {shape(row[column]) for row in found} for name, found in rows.items() if name not in ELSEWHERE
            for column in (found[0] if found else ())}


def sqlite_contents(state):
    """The files, and a dump of them."""
    files = {path.name: path.read_bytes() for path in sorted(state.folder.glob("mayfly.sqlite*"))}
    assert any(name.endswith("-wal") and len(content) > 100_000 for name, content in files.items()), files.keys()
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        connection = sqlite3.connect(Path(folder) / "mayfly.sqlite")
        files["dump"] = "\n".join(connection.iterdump()).encode()
        connection.close()
    return files


# Promise: database-names-no-app
def test_sqlites_files_name_no_app():
    with Deployment(*APPS) as deployment:
        contents, rows = sqlite_contents(deployment.state), deployment.rows()
    assert len(rows["token"]) == 8 and len(rows["registration"]) == 8 and len(rows["job"]) == 8
    found = sorted({name for content in contents.values() for name in NAMES.in_bytes(content)})
    table.record(table.DATABASE, "looking for apps and environments in files, log of writes and dump", ", ".join(found) or "nothing", "nothing")
    assert not found
    # Not even by a column's name.
    columns = {column for found in rows.values() for row in found for column in row}
    assert not columns & {"environment", "topic", "app", "service", "variant"}
    # The search finds what is there.
    assert all(b"peer_waiting" in contents[name] for name in ("mayfly.sqlite-wal", "dump"))


# Promise: database-names-no-app
def test_a_postgresql_servers_files_name_no_app():
    with Server() as server, Deployment(*APPS, server=server) as deployment:
        server.run("CHECKPOINT")
        dump = server.folder / "dump.sql"
        dump.touch()
        dump.chmod(0o666)
        assert server.program(
            "pg_dump", "-h", "127.0.0.1", "-p", server.port, "-U", "postgres", "--inserts", "-n", deployment.state.schema.name, "-f", dump, "mayfly") == 0
        dumped = dump.read_bytes()
        assert b"peer_waiting" in dumped
        assert not NAMES.in_bytes(dumped)
        # The server's own catalogues may have the words of environments.
        names = Canaries()
        names.forms = {form: name for form, name in NAMES.forms.items() if name != "an environment"}
        found = {}
        for path in server.data.rglob("*"):
            if path.is_file() and (told := names.in_bytes(path.read_bytes())):
                found[str(path.relative_to(server.data))] = told
        assert not found
        assert any(b"peer_waiting" in path.read_bytes() for path in (server.data / "pg_wal").iterdir() if path.is_file())


def test_rows_of_one_deployment_differ_by_nothing_of_the_address():
    """Of each app and environment a room, a device, a Live Activity and two pushes."""
    with Deployment(*APPS) as deployment:
        rows = deployment.rows()
    for name, count in (("token", 8), ("job", 8), ("registration", 8)):
        assert len(rows[name]) == count
        lengths = {len(row["sealed"]) for row in rows[name]}
        assert lengths == {200}, (name, lengths)
        # No value of a column is that of one app's or one environment's rows alone, but those that each row has for itself.
        for column in rows[name][0]:
            values = [row[column] for row in rows[name]]
            kinds = {shape(value) for value in values}
            assert len(kinds) <= 2, (name, column, kinds)
            counts = [values.count(value) for value in set(map(_hashable, values)) if not isinstance(value, bytes)]
            if column in ("slot", "kind", "generation", "is_long", "template", "is_last"):
                assert all(count % 4 == 0 for count in counts), (name, column, values)


def test_deployments_that_differ_by_app_and_environment_look_alike():
    """The same story with another app, another environment, or both: no column has other values or lengths."""
    looks = []
    for app in APPS:
        with Deployment(app) as deployment:
            looks.append(shapes(deployment.rows()))
    assert {"token.sealed", "job.sealed", "registration.sealed", "node.value"} <= looks[0].keys()
    for app, look in zip(APPS[1:], looks[1:]):
        differing = {column: (looks[0][column], look[column]) for column in looks[0].keys() | look.keys() if looks[0].get(column) != look.get(column)}
        assert not differing, (app, differing)
    table.record(
        table.DATABASE, "comparing brokers of another app or environment, column by column", "no value and no length that differs", "nothing")


# Promise: web-one-row-length
def test_a_life_with_subscriptions_looks_like_one_with_tokens():
    """Each plays the same beside a story with tokens: no column has other values or lengths, and no entry of the log another shape."""
    looks, logs = [], []
    for addresses in ("tokens", "subscriptions"):
        with Deployment(APPS[0], then=addresses) as deployment:
            rows = deployment.rows()
            for name in ("token", "job", "registration"):
                # Live Activities are Apple's alone, and have a length of their own.
                assert {len(row["sealed"]) for row in rows[name]} == {648} | ({200} if name == "registration" else set()), name
                assert len(rows[name]) == 4
            looks.append(shapes(rows))
            logs.append(deployment.entries())
    differing = {column: tuple(look.get(column) for look in looks) for column in looks[0] | looks[1] if looks[0].get(column) != looks[1].get(column)}
    assert not differing
    # The last ones of each life may still wait to be published.
    assert {operation: logs[0][operation] == logs[1][operation] for operation in logs[0].keys() & logs[1].keys()} == dict.fromkeys(
        ("broker.started", "policy.loaded", "keys.generated", "token.sealed", "token.opened", "token.purged", "push.delivered", "bucket.closed"), True)
    table.record(
        table.DATABASE, "comparing a life with subscriptions to one with tokens, column by column and entry by entry",
        "no value, no length and no shape that differs", "nothing")


def _hashable(value):
    return bytes(value) if isinstance(value, (bytes, memoryview)) else value
