"""Whoever reads all memory of the broker, under load and a second after the last answer. MEMORY_SECONDS makes the load longer than a few."""

import os
import random
import time
import urllib.request
from secrets import token_bytes, token_hex

import pytest

import table
from certificates import Certificate
from memory_load import Load, new_word
from memory_scan import Mapping, Search, Secret, forms, memory_of, size_of, told, xor4
from processes import BINARY, REPOSITORY, eventually
from world import World

SECONDS = float(os.environ.get("MEMORY_SECONDS", 3))
RATE = 1000
# So many of the secrets are looked for, the first and the last among them.
SOUGHT = 6_000 if SECONDS < 10 else 40_000
# What people run: other code leaves other things behind than a debug build's.
RELEASE = REPOSITORY / ".build/release/mayfly" if "MAYFLY_BINARY" not in os.environ else BINARY
POLICY = REPOSITORY / "Benchmarks/policy.json"


class Loaded:
    """A broker under a load of everything it serves: its memory in the middle of it, and a second after the last answer or at once."""

    def __init__(self, folder, tls, seconds=SECONDS, rate=RATE, environment={}, at_once=False):
        assert RELEASE.exists(), f"no {RELEASE}: run `swift build -c release --product mayfly` first, or set MAYFLY_BINARY"
        certificate = Certificate(folder) if tls else None
        self.world = World(policy=POLICY, binary=RELEASE, environment=environment, **(certificate.flags if tls else {}))
        contexts = (certificate.context("http/1.1"), certificate.context("h2")) if tls else None
        self.load = Load(self.world.broker.port, contexts, rate, seconds)
        try:
            self.world.simulator.fault(reset=True, rate=0.05)
            self.load.start()
            time.sleep(seconds * 0.7)
            self.world.simulator.fault()
            self.middle, self.middle_at = memory_of(self.pid), time.monotonic()
            self.settled = [secret for secret in self.load.secrets if secret.turn.is_over(self.middle_at)]
            self.load.finish()
            if not at_once:
                eventually(lambda: self.world.state.jobs() == 0, 20, what="the last push's end")
                time.sleep(1)
            self.end, self.end_at = memory_of(self.pid), time.monotonic()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self):
        return self.world.broker.child.pid

    @property
    def description(self):
        pushes = len(self.world.simulator.pushes())
        return f"{self.load.calls:,} calls at {self.load.calls / self.load.lasted:,.0f} a second, {pushes:,} pushes"

    def search(self, secrets=None):
        secrets = self.load.secrets if secrets is None else secrets
        if len(secrets) > SOUGHT:
            third = SOUGHT // 3
            secrets = secrets[:third] + random.sample(secrets[third:-third], third) + secrets[-third:]
        return Search([*secrets, *(secret for secret in self.load.secrets if secret.turn.socket)])

    def close(self):
        self.load.close()
        self.world.close()


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


def open_rooms(loaded):
    return {secret.text for secret in loaded.load.secrets if secret.kind == "room id" and secret.turn.socket}


def except_looks(found, moment):
    """Without the ids of rooms that the broker is about to look at again, because one side left a moment ago."""
    return [find for find in found if (find.secret.kind, find.form, find.mapping.kind) != ("room id", "raw", "arena")
            or find.secret.turn.looked_at < moment]


def test_the_search_finds_what_was_planted():
    """Every form of every kind of secret, whole and cut at both ends, under a WebSocket's mask too; and nothing in what is random."""
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


def test_neighbours_are_told_without_what_could_be_a_secret():
    token, other = token_bytes(32), token_hex(32)
    search = Search([Secret("token", token, token.hex().encode())])
    find, = search.in_block(b'{"client1_token":"' + token.hex().encode() + b'","other":"' + other.encode() + b'"}', Mapping(0, 0, "heap"), 0)
    assert token.hex()[:10] not in str(find) and other[:10] not in str(find)
    assert '"client1_token":"[64]","other":"<' in str(find)


def test_under_load_nothing_is_left_of_what_was_answered_a_second_ago(loaded):
    found = outside_the_arena(loaded.search(loaded.settled).in_image(loaded.middle))
    assert len(loaded.settled) > 100
    assert found == [], told(found)
    table.record(
        "the running process", f"all its memory under load, {loaded.listener}: what was answered a second before", "nothing",
        "tokens of pushes in flight, room ids of open sockets")


def test_a_second_after_the_last_answer_only_open_rooms_are_left(loaded):
    """The search must find exactly what is still needed: so it would have found more."""
    search = loaded.search()
    found = except_looks(search.in_image(loaded.end), loaded.end_at)
    outside = outside_the_arena(found)
    assert outside == [], told(outside)
    assert {(find.secret.kind, find.form) for find in found} == {("room id", "raw")}, told(found)
    assert {find.secret.text for find in found} == open_rooms(loaded) != set()
    table.record(
        "the running process",
        f"all its memory a second after the last answer, {loaded.listener}: {loaded.description}; "
        f"{len(search.secrets):,} secrets in {len(search.forms):,} forms, {size_of(loaded.end) >> 20} MiB",
        f"{len(open_rooms(loaded))} room ids, of the sockets that are open, in locked memory", "room ids of open sockets")


def test_once_the_sockets_are_closed_nothing_is_left(loaded):
    search = loaded.search()
    loaded.load.close()
    # A busy machine may take its time to tell the broker.
    metrics = f"{loaded.world.broker.operator_url}/metrics"
    eventually(lambda: b"\nmayfly_sockets 0\n" in urllib.request.urlopen(metrics).read(), what="the end of all sockets")
    time.sleep(1)
    found = except_looks(search.in_image(memory_of(loaded.pid)), time.monotonic())
    assert found == [], told(found)
    table.record(
        "the running process", f"all its memory a second after the last socket, {loaded.listener}", "nothing", "nothing")
