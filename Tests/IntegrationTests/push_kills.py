"""kill -9 of broker and simulator under load: each acknowledged push is delivered or recorded as failed, and none is delivered twice unless its
answer was lost. Captures of their TLS sessions (tls_capture.py) show what a killed process forgets. Every fourth address is a browser's, at a
service that loses answers.

MAYFLY_BINARY=.build/release/mayfly .build/venv/bin/python Tests/IntegrationTests/push_kills.py [KILLS OF EACH] [SEED]
"""

import asyncio
import json
import random
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count as count_up
from pathlib import Path

import ledger
from canary import Canaries
from mayfly import base64url_bytes, new_client, new_code, new_token, other_address
from processes import REPOSITORY, audit_verify, eventually, free_port
from push_services import HOSTS
from tls_capture import captured, exchanges
from web_push_service import Subscriber, WebPushService
from world import World

RATE, CONNECTIONS, THROTTLE = 1000, 24, 1
NEVER = 1_000_000_000


def policy(path):
    """The rooms policy without the limits that prevent a thousand knocks a second."""
    content = json.loads((REPOSITORY / "policies/rooms.json").read_text())
    everything = {"count": NEVER, "seconds": 300}
    content["limits"] |= {
        "knockThrottleSeconds": THROTTLE, "tokenKnocks": everything, "startGraceSeconds": 0,
        "creations": {"perAddress": everything, "overall": everything}}
    path.write_text(json.dumps(content))
    return path


class Room:
    """`service`: of the creator's subscription, if it isn't a phone."""

    def __init__(self, service=None):
        self.code, self.creator, self.joiner = new_code(), new_client(), new_client()
        self.browser = service and Subscriber(service)
        self.token = self.browser.json() if self.browser else new_token()
        self.roomid = self.ref = self.knock = None
        self.asked = self.acknowledged = 0
        self.at = 0.0  # of the last knock

    def made(self, answer):
        self.roomid, self.ref = answer["roomid"], answer["ref"]
        self.knock = request("/api/room/presence", {"client": self.joiner}, self.roomid)


def request(path, body, bearer=None):
    content = json.dumps(body).encode()
    bearer = f"Authorization: Bearer {bearer}\r\n" if bearer else ""
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{bearer}Content-Length: {len(content)}\r\n\r\n".encode() + content


class Caller(asyncio.Protocol):
    """One connection with one request at a time. `lost` is called instead of `answered` when the connection breaks."""

    def __init__(self):
        self.buffer, self.waiting, self.transport, self.lost = b"", None, None, None

    def connection_made(self, transport):
        self.transport = transport

    def ask(self, content, answered, lost):
        self.waiting, self.lost = answered, lost
        self.transport.write(content)

    def data_received(self, data):
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        at = lower.index(b"content-length:") + 15
        length = int(lower[at:].split(b"\r\n", 1)[0])
        if len(rest) < length:
            return
        answered, self.waiting, self.lost, self.buffer = self.waiting, None, None, rest[length:]
        answered(int(head[9:12]), rest[:length])

    def connection_lost(self, _):
        self.transport = None
        if self.lost:
            self.lost()
        self.waiting = self.lost = None

    @property
    def is_free(self):
        return self.transport is not None and self.waiting is None


class Load:
    """Makes rooms in a thread of its own, then knocks at them in turn, `RATE` times a second."""

    def __init__(self, port, count, service):
        self.port, self.rooms, self.callers = port, [Room(None if number % 4 else service) for number in range(count)], []
        self.deliveries, self.refused, self.skipped, self.ended = Counter(), [], 0, False
        self.knocked = []  # When each knock was acknowledged.
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()))
        self.error = None

    async def connect(self):
        """Keeps a connection open, as long as there is a broker."""
        loop, caller = asyncio.get_running_loop(), Caller()
        self.callers.append(caller)
        while not self.ended:
            if caller.transport is None:
                caller.buffer = b""
                try:
                    await loop.create_connection(lambda: caller, "127.0.0.1", self.port, local_addr=(other_address(), 0))
                except OSError:
                    pass
            await asyncio.sleep(0.02)
        if caller.transport:
            caller.transport.close()

    async def run(self):
        try:
            connecting = [asyncio.create_task(self.connect()) for _ in range(CONNECTIONS)]
            await asyncio.sleep(0.1)
            await asyncio.gather(*(self.make(self.rooms[at::CONNECTIONS], self.callers[at]) for at in range(CONNECTIONS)))
            self.ready.set()
            await self.knock_on()
            self.ended = True
            await asyncio.gather(*connecting)
        except BaseException as error:
            self.error = error
            self.ready.set()
            raise

    async def make(self, rooms, caller):
        async def ask(content):
            done = asyncio.get_running_loop().create_future()
            caller.ask(content, lambda status, body: done.set_result((status, body)), lambda: done.set_exception(OSError("lost")))
            return await done
        for room in rooms:
            status, body = await ask(request("/api/rooms", {
                "joinid": room.code, "expiresInSeconds": 7200, "client1": room.creator, "client1_token": room.token}))
            assert status == 201, body
            created = json.loads(body)
            status, body = await ask(request("/api/rooms/accept", {"joinid": room.code, "client2": room.joiner}))
            assert status == 200, body
            room.made(created)

    async def knock_on(self):
        turn, begin, due = deque(self.rooms), time.monotonic(), 0
        while not self.ended:
            now = time.monotonic()
            due += int((now - begin) * RATE)
            begin += int((now - begin) * RATE) / RATE
            free = [caller for caller in self.callers if caller.is_free]
            # A broker that is away or behind is not asked for more later.
            self.skipped += max(0, due - len(free))
            due = min(due, len(free))
            for caller in free[:due]:
                room = turn[0]
                if now - room.at < THROTTLE + 0.2:
                    break
                turn.rotate(-1)
                room.at, room.asked = now, room.asked + 1
                caller.ask(room.knock, partial(self.answered, room), partial(self.deliveries.update, ["(no answer)"]))
            due = 0
            await asyncio.sleep(0.004)

    def answered(self, room, status, body):
        if status != 202:
            self.refused.append((status, body))
            self.deliveries[f"({status})"] += 1
            return
        delivery = json.loads(body)["delivery"]
        self.deliveries[delivery] += 1
        if delivery == "queued":
            room.acknowledged += 1
            self.knocked.append(time.monotonic())

    def __enter__(self):
        self.thread.start()
        assert self.ready.wait(120) and self.error is None, self.error
        return self

    def __exit__(self, *_):
        self.ended = True
        self.thread.join(30)
        assert not self.thread.is_alive()


@dataclass
class Life:
    """One run of one of the two processes: where its sessions were captured, and when it was killed."""
    capture: Path
    killed: float | None = None


class Kills:
    def __init__(self, world, folder):
        self.world, self.folder = world, folder
        self.lives = {"broker": [], "simulator": []}
        self.told = []  # The pushes that the simulator reported as accepted before it was killed.

    def start(self, name):
        life = Life(self.folder / f"{name}-{len(self.lives[name])}.tls")
        getattr(self.world, name).start(**captured(life.capture))
        if name == "simulator":
            # Some answers take as long as Apple's, so that kills hit pushes under way.
            self.world.simulator.fault(always=[{"delayMs": 40, "rate": 0.3}])
        self.lives[name].append(life)

    def kill(self, name):
        process = getattr(self.world, name)
        assert process.running, f"the {name} ended by itself: {process.printed()}"
        self.lives[name][-1].killed = time.monotonic()
        process.kill()

    def ask_simulator(self):
        """The pushes that the simulator accepted in this life, without those still under way."""
        shown = {push["headers"]["apns-id"] for push in self.world.simulator.pushes()}
        self.told.append((self.lives["simulator"][-1].capture, shown))


def duplicates(kills, sent, accepted):
    """Pushes that the simulator accepted more than once, by the fate of the earlier answer. Raises if nothing explains one."""
    causes, after, unrecorded = Counter(), Counter(), 0.0
    by_id = defaultdict(list)
    for one in sent:
        by_id[one.apns_id].append(one)
    broker_killed = {life.capture: life.killed for life in kills.lives["broker"]}
    for apns_id, takes in accepted.items():
        attempts = sorted(by_id[apns_id], key=lambda one: one.asked or 1e18)
        if len(takes) > 1:
            after[len(takes)] += 1
        for take, following in zip(takes, takes[1:]):
            # The attempt that this acceptance belongs to: the last one begun before it.
            attempt = [one for one in attempts if one.asked and one.asked <= take.asked][-1]
            killed = broker_killed[attempt.source]
            again = [one for one in attempts if one.asked and take.asked < one.asked <= following.asked][-1]
            told = f"{apns_id}: {takes} by {attempts}"
            if attempt.answered is not None:
                assert again.source != attempt.source, f"sent again by a broker that had read the answer; {told}"
                assert attempt.status == 200 and killed is not None, f"an answer was read and not recorded; {told}"
                unrecorded = max(unrecorded, killed - attempt.answered)
                causes["the broker was killed before it had recorded the answer"] += 1
            elif killed is not None and killed < following.asked and again.source != attempt.source:
                causes["the broker was killed before it had read the answer"] += 1
            else:
                gone = [life.killed for life in kills.lives["simulator"] if life.capture == take.source]
                assert gone[0] is not None and take.asked <= gone[0] < following.asked, f"no answer was lost; {told}"
                causes["the simulator was killed before its answer had got through"] += 1
    assert unrecorded < 2, f"an answer stood unrecorded for {unrecorded:.1f} s"
    return causes, after, unrecorded


def check_browser(room, messages, delivered, failed, kills):
    """A message comes again only if its answer was lost or not yet recorded, and then with the same `Topic`. Returns how many came so."""
    times = [life.killed for life in kills.lives["broker"] if life.killed]
    lost = sum(not one.is_answered or any(one.at <= killed <= one.at + 2 for killed in times) for one in messages)
    told = f"room {room.ref}: {len(messages)} messages, {lost} of them with lost answers, delivered {delivered}, failed {failed}"
    assert not failed, told
    assert delivered <= sum(one.is_answered for one in messages) and len(messages) <= delivered + lost, told
    assert len({one.headers["topic"] for one in messages}) <= 1, told
    for one in messages[:1]:
        assert room.browser.open(one)["notification"]["tag"] == one.headers["topic"]
    return len(messages) - delivered


def check(kills, load, canaries, service):
    """Compares the ledger, the services' records and the callers' answers. Returns the figures."""
    log = ledger.read(kills.world.state)
    assert log.entries[-1]["op"] == "broker.stopped", "the last entries are published"
    log.check_entries()
    log.check_balances()
    verified = audit_verify(kills.world.state, timeout=600)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    with ProcessPoolExecutor(2) as pool:
        reading = {name: [pool.submit(exchanges, life.capture, name == "broker") for life in lives]
                   for name, lives in kills.lives.items()}
        sent, received = ([one for part in reading[name] for one in part.result()] for name in ("broker", "simulator"))
    accepted, unanswered = defaultdict(list), 0
    for one in received:
        assert one.status in (None, 200), one
        if one.status == 200:
            accepted[one.apns_id].append(one)
        elif one.asked:
            unanswered += 1
    for capture, told in kills.told:
        shown = {one.apns_id for one in received if one.source == capture and one.status == 200}
        assert told <= shown, f"the capture lacks {len(told - shown)} of {len(told)} pushes that the simulator says it accepted"
        if capture == kills.lives["simulator"][-1].capture:
            assert told == shown and told, "nor the other way round"

    tokens = defaultdict(set)
    for apns_id, takes in accepted.items():
        takes.sort(key=lambda one: one.asked)
        tokens[takes[0].token].add(apns_id)
        assert len({one.token for one in takes}) == 1
    totals, reasons, messages = Counter(), Counter(), defaultdict(list)
    for message in service.messages:
        messages[message.path].append(message)
    for room in load.rooms:
        outcomes, taken = log.outcomes(room.ref), len(() if room.browser else tokens.pop(room.token, ()))
        opened = len(log.of(room.ref, "token.opened"))
        delivered = sum(entry["op"] == "push.delivered" for entry in outcomes)
        failed = [entry["reason"] for entry in outcomes if entry["op"] == "push.failed"]
        told = f"room {room.ref}: asked {room.asked}, acknowledged {room.acknowledged}, opened {opened}, delivered {delivered}, " \
            f"failed {failed}, taken {taken}"
        assert room.acknowledged <= opened <= room.asked, told
        assert opened == delivered + len(failed), told
        if room.browser:
            again = check_browser(room, messages.pop(room.browser.path, []), delivered, failed, kills)
            totals.update(browsers=delivered, again=again)
        # A push that failed without an answer may have been accepted. Each delivered push was accepted, under an id of its own.
        assert room.browser or delivered <= taken <= delivered + failed.count("unknown"), told
        totals.update(asked=room.asked, acknowledged=room.acknowledged, opened=opened, delivered=delivered, failed=len(failed))
        reasons.update(failed)
    assert not tokens and not messages, "pushes to tokens that nobody gave"
    for status, body in load.refused:
        assert canaries.in_bytes(body) == [], status
    assert canaries.in_files(kills.world.state.prints, kills.world.state.folder) == []
    return totals, reasons, *duplicates(kills, sent, accepted), unanswered, verified.stdout.strip()


def run(folder, kills_each, seed, count, longest):
    """Kills each of them so many times, prints the outcome, and returns how many knocks were acknowledged."""
    chance = random.Random(seed)
    port, host = free_port(), HOSTS["mozilla"]
    with World(apns=False, policy=policy(folder / "policy.json"), start=False, web_push={port: host}) as world, \
            closing(WebPushService(world.push, host, port=port)) as service:
        messages = count_up()  # The answer to the first is lost for certain.
        service.loses = lambda: next(messages) == 0 or chance.random() < 0.02
        kills = Kills(world, folder)
        kills.start("simulator")
        kills.start("broker")
        canaries, metrics, away = Canaries(), [], 0.0
        with Load(world.broker.port, count, service) as load:
            for room in load.rooms[:: max(1, count // 20)]:
                if room.browser:
                    canaries.add_subscription(room.token)
                else:
                    canaries.add("token", bytes.fromhex(room.token))
                canaries.add("room id", room.roomid, base64url_bytes(room.roomid))
                canaries.add("client id", room.joiner)
            begin = time.monotonic()
            victims = ["broker", "simulator"] * kills_each
            chance.shuffle(victims)
            for number, victim in enumerate(victims):
                time.sleep(chance.uniform(0.05, longest))
                assert load.error is None, load.error
                if number % 10 == 0:
                    kills.ask_simulator()
                    metrics.append(world.broker.metrics())
                kills.kill(victim)
                gone = time.monotonic()
                kills.start(victim)
                away += (time.monotonic() - gone) * (victim == "broker")
            time.sleep(0.5)
            took = time.monotonic() - begin
        settling = time.monotonic()
        eventually(lambda: world.state.jobs() == 0, 45, 0.2, "an outcome for each knock, long before any deadline")
        settled = time.monotonic() - settling

        kills.ask_simulator()
        metrics.append(world.broker.metrics())
        assert all("mayfly" in one and canaries.in_bytes(one.encode()) == [] for one in metrics)
        assert world.broker.stop() == 0
        totals, reasons, causes, after, unrecorded, unanswered, verified = check(kills, load, canaries, service)
        print(f"{kills_each} kills of the broker and {kills_each} of the simulator in {took:.0f} s, seed {seed}; "
              f"the broker was away for {away:.1f} s of them")
        up = took - away
        print(f"knocks: {totals['asked']:,} asked, {totals['acknowledged']:,} acknowledged as queued "
              f"({totals['acknowledged'] / up:,.0f} a second while there was a broker); answers: {dict(load.deliveries)}")
        print(f"jobs: {totals['opened']:,} opened = {totals['delivered']:,} delivered + {totals['failed']:,} failed {dict(reasons) or ''}; "
              f"the last {settled:.1f} s after the load")
        print(f"Web Push: {totals['browsers']:,} delivered, {totals['again']:,} messages came again after a lost answer")
        print(f"apns-ids taken twice: {after[2]:,}, more often: {sum(after.values()) - after[2]:,}; each had lost its answer:")
        for cause, times in sorted(causes.items()):
            print(f"  {times:,} times {cause}")
        print(f"  (no answer was older than {unrecorded * 1000:.0f} ms when the broker that had not yet recorded it was killed)")
        print(f"  besides, {unanswered:,} requests reached a simulator that was killed before it answered")
        print(f"ledger: {verified}")
        return totals


if __name__ == "__main__":
    import tempfile
    each = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory(prefix="mayfly-kills-") as place:
        run(Path(place), each, int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32), count=3000, longest=1.2)
