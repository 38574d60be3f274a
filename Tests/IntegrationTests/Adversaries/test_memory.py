"""Reads all memory of the broker under load and a second after the last answer. MEMORY_SECONDS makes the load longer."""

import os
import random
import signal
import time
from datetime import datetime
from functools import partial
from secrets import token_bytes, token_hex

import pytest

import table
from certificates import Certificate
from companion_world import settings
from memory_companion import LIMITS, companion
from memory_load import Load, Turn, new_word, rooms
from memory_scan import Mapping, Search, Secret, forms, memory_of, size_of, told, xor4
from processes import BINARY, REPOSITORY, eventually, free_port, subscription_id
from push_services import HOSTS
from web_push_service import Subscriber, WebPushService, base64url
from world import World

pytestmark = [pytest.mark.campaign, pytest.mark.alone]

SECONDS = float(os.environ.get("MEMORY_SECONDS", 3))
RATE = 1000
# So many of the secrets are searched for, the first and the last among them.
SOUGHT = 6_000 if SECONDS < 10 else 40_000
# Release builds leave other copies than debug builds.
RELEASE = REPOSITORY / ".build/release/mayfly" if "MAYFLY_BINARY" not in os.environ else BINARY
POLICY = REPOSITORY / "Benchmarks/policy.json"


class Loaded:
    """A broker under a load of everything it serves: its memory in the middle of it, and a second after the last answer or at once."""

    def __init__(self, folder, tls, seconds=SECONDS, rate=RATE, environment={}, at_once=False):
        assert RELEASE.exists(), f"no {RELEASE}: run `swift build -c release --product mayfly` first, or set MAYFLY_BINARY"
        certificate = Certificate(folder) if tls else None
        # Half of the subscriptions are at the simulator, with HTTP/2.
        port, host = free_port(), HOSTS["mozilla"]
        self.world = World(start=False, binary=RELEASE, web_push={port: host}, **(certificate.flags if tls else {}))
        self.service, self.subscribers, self.subscriptions = WebPushService(self.world.push, host, port=port), {}, {}
        self.world.broker.options |= settings(self.world.state, rooms=POLICY, **LIMITS)
        secret = (self.world.state / "keys/jwt.secret").read_bytes().strip()
        self.jwt_secret = Secret("JWT secret", None, secret, Turn())
        contexts = (certificate.context("http/1.1"), certificate.context("h2")) if tls else None
        # A timeout begun this early doesn't delay the test.
        stories = rooms, partial(companion, secret, lambda: self.load.began + seconds - 2.5)
        self.load = Load(self.world.broker.port, contexts, rate, seconds, stories=stories, subscribe=self.subscribe)
        try:
            self.world.broker.start(**environment)
            self.world.simulator.fault(always=[
                {"reset": True, "rate": 0.05}, {"reason": "Unregistered", "rate": 0.03}, {"problem": "unsubscribed", "rate": 0.03}])
            self.load.start()
            time.sleep(seconds * 0.4)
            self.world.simulator.fault()
            # It reads the secret of HS256 again.
            self.world.broker.child.send_signal(signal.SIGHUP)
            time.sleep(seconds * 0.3)
            self.middle, self.middle_at = memory_of(self.pid), time.monotonic()
            settled = [secret for secret in self.load.secrets if secret.turn.ended < self.middle_at]
            self.load.finish()
            if not at_once:
                eventually(lambda: not any(self.waiting()), 20, what="the end of all that waited")
                # No later call would overwrite what this one leaves on a stack.
                self.load.one_more(stories[1])
                time.sleep(1)
            self.end, self.end_at = memory_of(self.pid), time.monotonic()
            self.note_pushes()
            self.settled = [secret for secret in settled if secret.turn.is_over(self.middle_at)]
        except BaseException:
            self.close()
            raise

    @property
    def pid(self):
        return self.world.broker.child.pid

    def subscribe(self, turn):
        """Some endpoints are nearly as long as may be."""
        length = random.choice((16, 16, 200))
        if random.random() < 0.5:
            made = self.world.push.subscribe("google", id=token_hex(length))
            self.subscriptions[subscription_id(made)] = turn
        else:
            subscriber = Subscriber(self.service, "/up/" + base64url(token_bytes(length)))
            self.subscribers[subscriber.path] = subscriber, turn
            made = subscriber.json()
        return made

    def note_pushes(self):
        """Records in each turn when its last push left, and the keys of messages."""
        turns = {secret.text.decode(): secret.turn for secret in self.load.secrets if secret.kind == "token"}
        behind = time.time() - time.monotonic()
        for push in self.world.simulator.pushes():
            if turn := turns.get(push["token"]):
                turn.pushed_at = max(turn.pushed_at, datetime.fromisoformat(push["at"]).timestamp() - behind)
        for push in self.world.simulator.web_pushes():
            turn = self.subscriptions[push["subscription"]]
            turn.pushed_at = max(turn.pushed_at, datetime.fromisoformat(push["at"]).timestamp() - behind)
        self.message_keys = []
        for message in self.service.messages:
            subscriber, turn = self.subscribers[message.path]
            turn.pushed_at = max(turn.pushed_at, message.at)
            self.message_keys += [Secret("message key", key, key.hex().encode(), turn) for key in subscriber.message_keys(message)]
        # They are looked for with the others, of which a sample is.
        self.load.known[0].secrets += self.message_keys

    def waiting(self):
        """How many pushes, updates of Live Activities, and approvals."""
        with self.world.state.database() as database:
            return [database.execute(f"SELECT count(*) FROM {what}").fetchone()[0]
                    for what in ("job", "registration WHERE waiting IS NOT NULL", "timer WHERE answer = 0")]

    @property
    def description(self):
        apns = self.world.broker.metric('pushes_delivered_total{service="apns"}')
        web_pushes = len(self.service.messages) + len(self.world.simulator.web_pushes())
        return f"{self.load.calls:,} calls at {self.load.calls / self.load.lasted:,.0f} a second, {apns:,} pushes to Apple, {web_pushes:,} by Web Push"

    def search(self, secrets=None):
        secrets = self.load.secrets if secrets is None else secrets
        if len(secrets) > SOUGHT:
            third = SOUGHT // 3
            secrets = secrets[:third] + random.sample(secrets[third:-third], third) + secrets[-third:]
        return Search([self.jwt_secret, *secrets, *(secret for secret in self.load.secrets if secret.turn.held)])

    def close(self):
        self.load.close()
        self.world.close()
        self.service.close()


@pytest.fixture(scope="module", params=["cleartext", "TLS"])
def loaded(request, tmp_path_factory):
    loaded = Loaded(tmp_path_factory.mktemp("memory"), request.param == "TLS")
    loaded.listener = request.param
    yield loaded
    still_running = loaded.world.broker.running
    loaded.close()
    assert still_running, "the broker ended while it was looked at"


def outside_the_arena(found):
    return [find for find in found if find.mapping.kind != "arena"]


def held(loaded, kind):
    """The secrets that open sockets need."""
    return {secret.text for secret in loaded.load.secrets if secret.kind == kind and secret.text.decode() in secret.turn.held}


def except_looks(found, moment):
    """Without the ids of rooms that the broker is about to look at again, because one side left a moment ago."""
    return [find for find in found if (find.secret.kind, find.form, find.mapping.kind) != ("room id", "raw", "arena")
            or find.secret.turn.looked_at < moment]


def test_the_search_finds_planted_secrets():
    """Every form of every kind of secret, whole and cut at both ends, also under a WebSocket's mask. Random bytes contain none."""
    value, text, mask = token_bytes(32), new_word().encode(), token_bytes(4)
    for secret in (Secret("token", value, value.hex().encode()), Secret("client id", None, text)):
        search, here = Search([secret]), Mapping(0, 0, "heap")
        planted = list(forms(secret))
        assert len(planted) >= 14
        for name, form in planted:
            for part in (form, form[3:], form[:-3]):
                found = search.in_block(token_bytes(33) + part + token_bytes(500), here, 0)
                assert any(find.address <= 33 and find.address + find.length >= 33 + len(part) for find in found), name
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(secret.text))
        assert [find.form for find in search.in_block(token_bytes(33) + masked + token_bytes(500), here, 0)] == ["masked"]
        assert search.in_block(token_bytes(1 << 20), here, 0) == []
        assert search.in_block(xor4(token_bytes(1 << 20)), here, 0) == []


def test_finds_are_reported_without_neighbouring_secrets():
    token, other = token_bytes(32), token_hex(32)
    search = Search([Secret("token", token, token.hex().encode())])
    find, = search.in_block(b'{"client1_token":"' + token.hex().encode() + b'","other":"' + other.encode() + b'"}', Mapping(0, 0, "heap"), 0)
    assert token.hex()[:10] not in str(find) and other[:10] not in str(find)
    assert '"client1_token":"[64]","other":"<' in str(find)


# Promise: no-copy-after-a-second
def test_under_load_secrets_are_gone_a_second_after_the_answer(loaded):
    found = outside_the_arena(loaded.search(loaded.settled).in_image(loaded.middle))
    assert len(loaded.settled) > 100
    assert found == [], told(found)
    table.record(
        "the running process", f"all its memory under load, {loaded.listener}: what was answered a second before", "nothing",
        "tokens of pushes in flight, room and user ids of open sockets")


# Promise: memory-holds-what-sockets-need
def test_open_sockets_keep_only_the_secrets_they_need(loaded):
    """The search finds exactly those, which shows that it would find others."""
    search = loaded.search()
    found = except_looks(search.in_image(loaded.end), loaded.end_at)
    outside = outside_the_arena(found)
    assert {(find.secret.kind, find.form) for find in outside} == {("user id", "text")}, told(found)
    # Each of them once.
    assert sorted(find.secret.text for find in outside) == sorted(held(loaded, "user id")) != []
    inside = [find for find in found if find not in outside and find.secret is not loaded.jwt_secret]
    assert {(find.secret.kind, find.form) for find in inside} == {("room id", "raw")}, told(found)
    assert {find.secret.text for find in inside} == held(loaded, "room id") != set()
    assert len(found) > len(outside) + len(inside), "the secret of HS256 was not found"
    table.record(
        "the running process",
        f"all its memory a second after the last answer, {loaded.listener}: {loaded.description}; "
        f"{len(search.secrets):,} secrets in {len(search.forms):,} forms, {size_of(loaded.end) >> 20} MiB",
        f"of the sockets that are open: {len(held(loaded, 'room id'))} room ids in locked memory, {len(outside)} user ids in ordinary "
        "memory; the secret of HS256 in locked memory", "the same")


def test_closed_sockets_leave_no_secret(loaded):
    search = loaded.search()
    loaded.load.close()
    # On a busy machine the broker may learn of it late.
    eventually(lambda: loaded.world.broker.metric("connections") == 0, what="the end of all connections")
    time.sleep(1)
    found = except_looks(search.in_image(memory_of(loaded.pid)), time.monotonic())
    assert {(find.secret, find.mapping.kind) for find in found} == {(loaded.jwt_secret, "arena")}, told(found)
    table.record(
        "the running process", f"all its memory a second after the last socket, {loaded.listener}", "the secret of HS256 in locked memory",
        "the same")
