"""Web Push from outside: a service and subscribers that were written from the specifications alone."""

import json
import re
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest

import ledger
from certificates import Certificate
from mayfly import new_client, new_code, new_token
from preload import library
from processes import BINARY, audit_verify, clean_environment, eventually, mayfly
from web_push_service import Subscriber, WebPushService, check_vapid, make_vapid_key
from world import World

CONTACT, APP = "mailto:ops@chat.example", "https://app.example"
TEXT = "Your chat partner is waiting"


class PushWorld(World):
    """A broker that sends Web Push, and a service on loopback that its list of hosts names. `listed`: false if it doesn't. `lines`: returns more lines."""

    def __init__(self, listed=True, services=3, lines=lambda certificate: (), **more):
        self.folder = Path(tempfile.mkdtemp(prefix="mayfly-push-"))
        self.certificate = Certificate(self.folder)
        # A host gets 60 messages a minute at most, so tests of many have others.
        self.service, *self.others = services = [WebPushService(self.certificate) for _ in range(services)]
        hosts = self.folder / "hosts"
        listings = [f"localhost:{each.port} private ca {self.certificate.path}" for each in services]
        hosts.write_text("\n".join(["# a test's", *listings, *lines(self.certificate)]))
        key = self.folder / "vapid.pem"
        self.public_key, self.key_number = make_vapid_key(key)
        environment = more.pop("environment", {})
        super().__init__(
            start=False, vapid_key=key, vapid_contact=CONTACT, web_origin=APP, web_push_hosts=hosts if listed else None, **more)
        self.enabled = mayfly("push", "enable", *self.state.flags, *self.flags)
        assert self.enabled.returncode == 0, self.enabled
        rooms = self.broker.cwd / "rooms"
        policy = json.loads(rooms.read_text())
        policy["limits"]["knockThrottleSeconds"] = 10
        rooms.write_text(json.dumps(policy))
        self.broker.start(**environment)

    @property
    def flags(self):
        names = ("vapid-key", "vapid-contact", "web-origin", "web-push-hosts", "vapid-previous-key")
        return [word for name in names if self.broker.options.get(name) for word in (f"--{name}", self.broker.options[name])]

    def close(self):
        super().close()
        for service in (self.service, *self.others):
            service.close()

    def knock(self, subscriber, client=None):
        """A room whose creator has this address and whose joiner waits: its capabilities."""
        client = client or self.client()
        code = new_code()
        created = client.create(code, token=subscriber.json() if isinstance(subscriber, Subscriber) else subscriber).expect(201).json
        joiner = new_client()
        accepted = client.accept(code, joiner).expect(200).json
        client.presence(created["roomid"], joiner, member=accepted["member"]).expect(202)
        return created, joiner, accepted


@pytest.fixture(scope="module")
def world():
    with PushWorld() as world:
        yield world


def message(subscriber, count=1):
    return eventually(lambda: len(subscriber.messages()) >= count and subscriber.messages()[count - 1], 10, what="a message")


def knock_again(client, browser, created, joiner, accepted):
    """The message of a second knock. These policies allow one in ten seconds."""
    def second():
        client.presence(created["roomid"], joiner, member=accepted["member"], leaving=True).expect(202)
        client.presence(created["roomid"], joiner, member=accepted["member"]).expect(202)
        return len(browser.messages()) > 1 and browser.messages()[1]
    return eventually(second, 40, 4, "the second message")


def test_a_browser_gets_the_policys_text(world):
    assert world.client().send("GET", "/api/push").expect(200).json["webPush"]["applicationServerKey"] == world.public_key
    with urlopen(f"http://127.0.0.1:{world.broker.port}/api/push") as services:
        assert services.headers.get_all("cache-control") == ["public, max-age=3600"]
    browser = Subscriber(world.service)
    created, _, _ = world.knock(browser)
    got = message(browser)
    shown = browser.open(got)
    handle = shown["notification"]["tag"]
    assert shown == {
        "mutable": True, "web_push": 8030,
        "notification": {"title": TEXT, "tag": handle, "navigate": APP + "/", "data": {"roomId": handle, "template": "peer_waiting"}}}
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", handle)
    assert len(got.body) == 1_127
    fields = {name: got.headers[name] for name in ("ttl", "urgency", "topic", "content-encoding", "content-type", "content-length")}
    assert fields == {
        "ttl": "120", "urgency": "high", "topic": handle, "content-encoding": "aes128gcm",
        "content-type": "application/octet-stream", "content-length": "1127"}
    check_vapid(got, f"https://localhost:{world.service.port}", world.public_key, CONTACT)
    # Nothing in the request names the room, its members or the broker's software.
    assert set(got.headers) == set(fields) | {"host", "authorization"}
    assert created["roomid"] not in str(got)


# Promise: web-text-and-second-knock
def test_a_second_knock_replaces_the_first(world):
    browser, client = Subscriber(world.service), world.client()
    created, joiner, accepted = world.knock(browser, client)
    first = message(browser)
    second = knock_again(client, browser, created, joiner, accepted)
    assert first.headers["topic"] == second.headers["topic"]
    assert browser.open(first) == browser.open(second) and first.body != second.body


# Promise: web-one-body-length
def test_all_bodies_open_with_the_reference_library(world):
    client, browsers = world.client(), [Subscriber(world.others[0]) for _ in range(40)]
    for browser in browsers:
        world.knock(browser, client)
    for browser in browsers:
        got = message(browser)
        assert len(got.body) == 1_127 and browser.open(got)["notification"]["title"] == TEXT


def rows(world):
    with closing(sqlite3.connect(f"file:{world.state / 'mayfly.sqlite'}?mode=ro", uri=True)) as database:
        return database.execute("SELECT length(sealed), kind FROM token").fetchall()


# Promise: web-one-row-length
def test_no_row_and_no_entry_shows_the_service(world):
    client = world.client()
    client.create(token=Subscriber(world.service).json()).expect(201)
    client.create(token=new_token()).expect(201)
    client.create(token="ab").expect(201)
    assert len(set(rows(world))) == 1, rows(world)
    log = world.whole_log()
    assert "web" not in json.dumps([str(entry) for entry in log.entries]).lower().replace("webhook", "")


@pytest.mark.campaign
def test_a_thousand_bodies_open_with_http_ece():
    with PushWorld(services=20) as world:
        browsers = [Subscriber(service) for service in (world.service, *world.others) for _ in range(50)]
        for browser in browsers:
            world.knock(browser)
        eventually(lambda: all(browser.messages() for browser in browsers), 60, 0.5, "the messages")
        bodies = [browser.messages()[0].body for browser in browsers]
        assert {len(body) for body in bodies} == {1_127}
        # The salt has 16 bytes, then follow the record's size and the sender's key, 65 bytes after its length (RFC 8188 section 2.1).
        assert len({body[:16] for body in bodies}) == len({body[21:86] for body in bodies}) == len(bodies) == 1_000
        assert {browser.open(browser.messages()[0])["notification"]["title"] for browser in browsers} == {TEXT}


# Promise: web-gone-is-purged
def test_an_endpoint_that_is_gone_is_purged(world):
    browser, client = Subscriber(world.service), world.client()
    world.service.answers[browser.path] = [(410, {})]
    created, _, _ = world.knock(browser, client)
    message(browser)
    eventually(lambda: not client.status(created["roomid"]).json["creatorHasToken"], what="the purge")


# Promise: web-gone-is-purged
@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 415, 301, 307])
def test_other_answers_purge_nothing_and_are_not_repeated(world, status):
    browser, client = Subscriber(world.service), world.client()
    world.service.answers[browser.path] = [(status, {"location": f"https://localhost:{world.service.port}/elsewhere"})]
    created, _, _ = world.knock(browser, client)
    message(browser)
    eventually(lambda: world.state.jobs() == 0, 20, what="the outcome")
    assert client.status(created["roomid"]).json["creatorHasToken"] and len(browser.messages()) == 1
    assert not any(each.path == "/elsewhere" for each in world.service.messages)
    # A stranger must not make up refusals by Apple.
    refused = [line for line in world.broker.metrics().splitlines() if line.startswith("mayfly_pushes_refused_total")]
    assert refused and all(line.endswith(" 0") for line in refused), refused


def test_a_proxy_that_answers_404_to_everybody_ends_no_subscription(world):
    client, browsers = world.client(), [Subscriber(world.others[1]) for _ in range(8)]
    for browser in browsers:
        browser.service.answers[browser.path] = [(404, {})]
    rooms = [world.knock(browser, client)[0]["roomid"] for browser in browsers]
    for browser in browsers:
        message(browser)
    eventually(lambda: world.state.jobs() == 0, 20, what="the outcomes")
    assert all(client.status(room).json["creatorHasToken"] for room in rooms)


def test_the_longest_endpoint_has_505_bytes(world):
    start = f"https://localhost:{world.service.port}/"
    longest = Subscriber(world.service, "/" + "x" * (505 - len(start)))
    world.knock(longest)
    assert longest.open(message(longest))["notification"]["title"] == TEXT
    longest.path += "x"
    answer = world.client(checked=False).create(token=longest.json())
    assert answer.status == 400 and "505 bytes" in str(answer.json["details"]), answer


# Promise: web-status-counts
@pytest.mark.parametrize("headers, body", [
    ({"content-length": "40000"}, b"x" * 40_000), ({"content-length": "100", "connection": "close"}, b"cut off"),
    ({"content-length": None, "connection": "close"}, b"without a length, ended by TCP alone"),
    ({"content-length": None, "transfer-encoding": "chunked", "connection": "close"}, b"zz\r\nno chunk"),
])
def test_an_answer_counts_by_its_status_whatever_its_body(world, headers, body):
    browser, client = Subscriber(world.service), world.client()
    world.service.answers[browser.path] = [(410, headers, body)]
    created, _, _ = world.knock(browser, client)
    eventually(lambda: not client.status(created["roomid"]).json["creatorHasToken"], 20, what="the purge")
    assert len(browser.messages()) == 1


@pytest.mark.parametrize("status, headers", [
    (429, {"retry-after": "1"}), (503, {}), (507, {}), (406, {"retry-after": "1"}), (408, {"connection": "close"}), (421, {}), (425, {})])
def test_a_busy_service_is_asked_again(world, status, headers):
    browser = Subscriber(world.service)
    world.service.answers[browser.path] = [(status, headers), (201, {})]
    world.knock(browser)
    assert browser.open(message(browser, 2))["notification"]["title"] == TEXT


def test_a_connection_that_ends_after_each_answer_serves(world):
    browsers, client = [Subscriber(world.others[1]) for _ in range(5)], world.client()
    for browser in browsers:
        browser.service.answers[browser.path] = [(201, {"connection": "close"})]
        world.knock(browser, client)
    for browser in browsers:
        message(browser)


@pytest.mark.parametrize("change, field", [
    ({"endpoint": "http://push.example/x"}, "endpoint"), ({"endpoint": "https://127.0.0.1/x"}, "endpoint"),
    ({"endpoint": "https://10.0.0.1:443/x"}, "endpoint"), ({"endpoint": "https://[::1]/x"}, "endpoint"),
    ({"endpoint": "https://0x7f000001/x"}, "endpoint"), ({"endpoint": "https://127.1/x"}, "endpoint"),
    ({"endpoint": "https://push.example:8443/x"}, "endpoint"), ({"endpoint": "https://printer.local/x"}, "endpoint"),
    ({"endpoint": "https://push.example/#x"}, "endpoint"), ({"endpoint": "https://user@push.example/"}, "endpoint"),
    ({"endpoint": "https://push.example/" + "x" * 485}, "endpoint"),
    # Off the curve, compressed, infinite.
    ({"keys": {"p256dh": "B" * 87, "auth": "A" * 22}}, "keys.p256dh"), ({"keys": {"p256dh": "BA" + "A" * 85, "auth": "A" * 22}}, "keys.p256dh"),
    ({"keys": {"p256dh": "A2sX0fLhLEJH-Lzm5WOkQPJ3A32BLeszoPShOUXYmMKW", "auth": "A" * 22}}, "keys.p256dh"),
    ({"keys": {"p256dh": "AA", "auth": "A" * 22}}, "keys.p256dh"), ({"keys": {"p256dh": "", "auth": "A" * 22}}, "keys.p256dh"),
    ({"keys": {"p256dh": None, "auth": "A" * 22}}, "keys.p256dh"), ({"keys": {}}, "keys.p256dh"),
    ({"fcm": "0123456789abcdef0123"}, "fcm"),
])
def test_a_subscription_that_can_not_be_served_is_refused(world, change, field):
    answer = world.client(checked=False).create(token=Subscriber(world.service).json() | change)
    assert answer.status == 400 and f"client1_token.{field}" in answer.json["details"], answer
    assert not any(str(value)[:20] in answer.body.decode() for value in change.values() if isinstance(value, str))


def test_escaped_and_padded_forms_are_the_same(world):
    client, browser = world.client(), Subscriber(world.service)
    subscription = browser.json()
    subscription["keys"] = {"p256dh": subscription["keys"]["p256dh"] + "=", "auth": subscription["keys"]["auth"] + "=="}
    body = json.dumps({"joinid": new_code(), "client1": new_client(), "client1_token": subscription}).replace("/", "\\/")
    client.send("POST", "/api/rooms", body.replace("https:\\/\\/", "https:\\u002f\\u002f").encode(),
                headers={"Content-Type": "application/json"}).expect(201)


@pytest.mark.parametrize("first, second", [(Subscriber.json, lambda _: new_token()), (lambda _: new_token(), Subscriber.json)])
def test_two_addresses_at_once_are_refused(world, first, second):
    browser = Subscriber(world.service)
    answer = world.client(checked=False).send(
        "POST", "/api/rooms", {"joinid": new_code(), "client1": new_client(), "client1_token": first(browser), "token": second(browser)})
    assert answer.status == 400 and "only one of client1_token and token" in str(answer.json["details"]), answer


def test_other_members_are_dropped(world):
    answer = world.client().create(
        token=Subscriber(world.service).json() | {"more": 1}, environment="sandbox", bundleId="com.example.other").expect(201)
    assert answer.json["dropped"] == ["bundleId", "client1_token.more", "environment"]


def test_a_token_field_takes_either(world):
    client, browser = world.client(), Subscriber(world.service)
    room = client.room(tokens=(True, False))
    for address in (browser.json(), browser.new_keys().json(), new_token(), browser.json()):
        client.put_token(room.roomid, room.creator.client, address, member=room.creator.member).expect(200)
    client.presence(room.roomid, room.joiner.client, member=room.joiner.member).expect(202)
    assert browser.open(message(browser))["notification"]["title"] == TEXT


# Promise: web-no-inward-address
def test_a_name_with_an_inward_address_is_not_called():
    # The name is public in form. A resolver that lies sends it to loopback, where somebody listens.
    with PushWorld(listed=False, environment={"LD_PRELOAD": library("names.c"), "TEST_NAMES": "push.example=127.0.0.1"}) as world:
        client = world.client()
        with WatchedPort(443) as port:
            created, _, _ = world.knock({**Subscriber(world.service).json(), "endpoint": "https://push.example/x"}, client)
            eventually(lambda: world.broker.metric("web_push_inward_total") > 0, 10, what="the counter")
            assert port.connections() == 0
        assert client.status(created["roomid"]).json["creatorHasToken"]


class WatchedPort:
    """Counts connections to a port of loopback."""

    def __init__(self, port):
        import socket
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", port))
        self.socket.listen()
        self.socket.setblocking(False)

    def connections(self):
        count = 0
        while True:
            try:
                self.socket.accept()
            except BlockingIOError:
                return count
            count += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def push_check(world, subscription, *words):
    return subprocess.run(
        [BINARY, "push", "check", *map(str, world.flags), *words], input=subscription + "\n", capture_output=True, text=True, timeout=30,
        env=clean_environment())


def test_an_operator_tries_a_subscription(world):
    browser = Subscriber(world.service)
    ran = push_check(world, json.dumps(browser.json()))
    assert ran.returncode == 0 and ran.stdout.startswith("delivered"), ran
    assert browser.open(message(browser))["notification"]["title"] == TEXT
    for status, said in [(410, "doesn't know the subscription"), (403, "made for another key"), (413, "size"), (400, "refused the message")]:
        world.service.answers[browser.path] = [(status, {})]
        ran = push_check(world, json.dumps(browser.json()))
        assert ran.returncode == 1 and said in ran.stderr, ran
    for wrong, said in [
            ("", "JSON.stringify"), ("{}", "JSON.stringify"), (json.dumps(browser.json() | {"endpoint": "https://10.0.0.1/"}), "public host name"),
            (json.dumps(browser.json() | {"keys": {"p256dh": "x", "auth": "y"}}), "malformed")]:
        ran = push_check(world, wrong)
        assert ran.returncode in (1, 2) and said in ran.stderr and browser.path not in ran.stderr, ran


def test_the_check_names_an_inward_host(world):
    # localhost is an inward name, and a name that resolves to it an inward host.
    environment = {"LD_PRELOAD": library("names.c"), "TEST_NAMES": "push.example=127.0.0.1"}
    subscription = json.dumps(Subscriber(world.service).json() | {"endpoint": "https://push.example/x"})
    ran = subprocess.run(
        [BINARY, "push", "check", *map(str, world.flags)], input=subscription + "\n", capture_output=True, text=True, timeout=30,
        env=clean_environment(**environment))
    assert ran.returncode == 1 and "private networks" in ran.stderr and "--web-push-hosts" in ran.stderr, ran


def test_a_key_is_never_replaced(world):
    ran = mayfly("push", "keys", world.broker.options["vapid-key"])
    assert ran.returncode == 1 and "is not replaced" in ran.stderr, ran


@pytest.mark.parametrize("changes, said", [
    ({"vapid_contact": None}, "--vapid-contact"), ({"vapid_contact": "ops@chat.example"}, "mailto:"), ({"web_origin": None}, "--web-origin"),
    ({"web_origin": "https://app.example/"}, "final slash"), ({"web_origin": "http://app.example"}, "https://"),
    ({"vapid_key": None}, "has no effect"),
])
def test_wrong_settings_are_refused(world, changes, said):
    options = world.broker.options | {name.replace("_", "-"): value for name, value in changes.items()}
    flags = [word for name, value in options.items() if value is not None for word in (f"--{name}", value)]
    ran = mayfly("serve", *flags)
    assert ran.returncode in (1, 2) and said in ran.stderr, ran


def test_without_a_key_no_subscription_is_taken():
    with World() as world:
        client = world.client()
        services = client.send("GET", "/api/push").expect(200)
        assert services.json == {} and services.headers["cache-control"] == "no-store"
        browser = Subscriber(type("Service", (), {"host": "push.example", "port": 443}))
        client.create(token=browser.json()).expect(400, "web_push_off")
        client.create(token=new_token()).expect(201)


# Promise: web-key-kept
def test_another_key_is_refused_and_a_rotated_one_serves_both():
    with PushWorld() as world:
        browser, client = Subscriber(world.service), world.client()
        created, joiner, accepted = world.knock(browser, client)
        message(browser)
        world.broker.stop()
        old, new = world.broker.options["vapid-key"], world.folder / "new.pem"
        new_key, _ = make_vapid_key(new, besides=world.key_number)
        world.broker.options |= {"vapid-key": new, "vapid-previous-key": None}
        refused = mayfly("push", "enable", *world.state.flags, *world.flags)
        assert refused.returncode == 1 and "--vapid-previous-key" in refused.stderr, refused
        world.broker.options["vapid-previous-key"] = old
        # Before it is recorded, a node must not hand it out.
        world.broker.start()
        handed_out = world.client().send("GET", "/api/push").expect(200).json["webPush"]
        assert handed_out["applicationServerKey"] == world.public_key and "previous" not in handed_out
        assert "not in force yet" in world.broker.printed()
        world.broker.stop()
        rotated = mayfly("push", "enable", *world.state.flags, *world.flags)
        assert rotated.returncode == 0, rotated
        assert f"Browsers get {new_key} from the next start on; {world.public_key} stays for" in rotated.stdout
        assert "visibly Apple's" in world.enabled.stdout and "visibly" not in rotated.stdout
        world.broker.start()
        services = world.client().send("GET", "/api/push").expect(200).json["webPush"]
        assert services["previous"] == world.public_key != services["applicationServerKey"]
        # The subscription of before gets its push under the key of before, a new one under the new key.
        other = Subscriber(world.service)
        world.knock(other)
        check_vapid(message(other), f"https://localhost:{world.service.port}", services["applicationServerKey"], CONTACT)
        check_vapid(knock_again(world.client(), browser, created, joiner, accepted), f"https://localhost:{world.service.port}", services["previous"], CONTACT)
        # A page that knew only the key of before: the service refuses the new one, and the message goes again with the other.
        late = Subscriber(world.service)
        world.service.answers[late.path] = [(403, {}), (201, {})]
        world.knock(late)
        check_vapid(message(late, 2), f"https://localhost:{world.service.port}", services["previous"], CONTACT)
        eventually(lambda: world.state.jobs() == 0, what="the outcome")
        assert world.broker.metric("web_push_failed_elsewhere_total") == 0


def test_without_its_key_a_broker_starts_only_once_web_push_is_switched_off():
    with PushWorld() as world:
        browser, client = Subscriber(world.service), world.client()
        created, joiner, accepted = world.knock(browser, client)
        message(browser)
        world.broker.stop()
        given = dict(world.broker.options)
        world.broker.options |= dict.fromkeys(("vapid-key", "vapid-contact", "web-origin", "web-push-hosts"))
        for command in ("serve", "check"):
            words = [command, *map(str, world.broker.arguments()[1:])]
            early = subprocess.run(
                [world.broker.binary, *words], cwd=world.broker.cwd, capture_output=True, text=True, timeout=30, env=clean_environment())
            assert early.returncode == 1 and "this deployment sends Web Push" in early.stdout + early.stderr, early
        assert mayfly("push", "disable", *world.state.flags).returncode == 0
        world.broker.start()
        assert "switched off: pushes" in world.broker.printed()
        client = world.client()
        assert client.send("GET", "/api/push").expect(200).json == {}

        def has_failed():
            client.presence(created["roomid"], joiner, member=accepted["member"], leaving=True).expect(202)
            client.presence(created["roomid"], joiner, member=accepted["member"]).expect(202)
            return world.broker.metric('pushes_failed_total{service="web_push"}') > 0
        eventually(has_failed, 40, 4, "the counter")
        world.broker.stop()
        # With the key again, but not recorded, it sends to the addresses of before and takes no new ones.
        world.broker.options = given
        world.broker.start()
        assert "switched off: remove --vapid-key" in world.broker.printed()
        checked = mayfly("check", *map(str, world.broker.arguments()[1:]))
        assert "switched off: remove --vapid-key" in checked.stdout, checked
        assert world.client().send("GET", "/api/push").expect(200).json == {}
        knock_again(world.client(), browser, created, joiner, accepted)


def test_a_verifier_of_before_accepts_the_log(world):
    world.whole_log()
    verified = audit_verify(world.state)
    assert verified.returncode == 0 and ledger.read(world.state).counts()["push.delivered"] > 0
