"""Two hundred users act at random at once. A model predicts every push, and none reaches another user."""

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from secrets import token_hex

import pytest

import ledger
from companion_client import Device, Notification, handle
from companion_world import CompanionWorld
from mayfly import new_token
from processes import audit_verify, eventually

pytestmark = pytest.mark.campaign

USERS, OPERATIONS, THREADS, LISTENERS = 200, 14, 16, 24
# All have sessions of the same names, and some tokens are several users': those of a phone that changed hands.
SESSIONS = [f"session-{number}" for number in range(4)]
SHARED = [new_token() for _ in range(12)]


def make_world():
    return CompanionWorld(activityUpdateSeconds=1)


# Two hundred.

class Member:
    """One user and the model's predictions. One thread at a time plays it."""

    def __init__(self, crowd, number):
        self.crowd, self.world = crowd, crowd.world
        self.phone = self.world.phone(f"user-{number}-{token_hex(4)}")
        self.name = self.phone.name
        self.chance = random.Random(f"{crowd.seed} {number}")
        self.devices, self.activities = {}, {}  # by token: Device; (Device, session, activity)
        self.requests, self.questions = {}, set()  # requestId: (session, state)
        self.expected = Counter()  # (token, type, id): the most pushes
        self.lost = Counter()  # of them, those that a deletion may have caught up with
        self.ends = Counter()
        self.keys = []  # (token, handleKey) of every registration there was
        self.socket = None

    def expect(self, kind, id, but=None):
        told = [token for token in self.devices if token != but]
        for token in told:
            self.expected[token, kind, id] += 1
        return len(told)

    def forget(self, token):
        for key, count in self.expected.items():
            if key[0] == token:
                self.lost[key] = count

    def of_session(self, session):
        return [token for token, (_, of, _) in self.activities.items() if of == session]

    # The user's actions and their predicted results.

    def register(self):
        known = self.chance.choice(list(self.devices) or [new_token()])
        token = self.chance.choice([new_token(), known, self.chance.choice(SHARED)])
        answer = self.phone.register(token).expect(200).json
        if token in self.devices:
            assert answer["tokenId"] == self.devices[token].id
        else:
            self.crowd.claim(self.name, answer["tokenId"])
        self.devices[token] = Device(token, answer)
        self.keys.append((token, answer["handleKey"]))

    def start_activity(self):
        session, device = self.chance.choice(SESSIONS), Device()
        own = self.chance.choice(list(self.activities) or [None])
        # The user's own token, another's, or none. Another's registration stays.
        previous = self.chance.choice([None, own, self.crowd.some_token(self.chance)])
        name = f"activity-{self.chance.randrange(5)}"
        device.answer = self.phone.register_activity(device.token, name, session, previous=previous).expect(200).json
        if previous in self.activities:
            del self.activities[previous]
        else:
            self.crowd.claim(self.name, device.id)
        self.activities[device.token] = (device, session, name)
        self.keys.append((device.token, device.answer["handleKey"]))
        self.crowd.tokens.append(device.token)

    def delete(self):
        everything = self.devices | {token: device for token, (device, _, _) in self.activities.items()}
        if not everything:
            return
        token = self.chance.choice(list(everything))
        self.phone.delete_token(everything[token].id).expect(200)
        self.phone.delete_token(everything[token].id).expect(404, "token_not_found")
        self.devices.pop(token, None)
        self.activities.pop(token, None)
        self.forget(token)

    def delete_anothers(self):
        owner, name = self.crowd.some_id(self.chance)
        if owner != self.name:
            self.phone.delete_token(name).expect(404, "token_not_found")

    def status(self):
        status = self.phone.status().expect(200).json
        assert status["deviceTokenRegistered"] is bool(self.devices)
        listed = Counter((one["activityId"], one["sessionId"]) for one in status["liveActivityTokens"])
        assert listed == Counter((name, session) for _, session, name in self.activities.values())

    def caller(self):
        return (self.phone, None) if self.chance.random() < 0.3 else (self.chance.choice(self.crowd.back_ends), self.name)

    def event(self, session, kind, data=None):
        caller, user = self.caller()
        if user is None:
            return caller.event(session, kind, data or {}).expect(202).json
        with caller.lock:
            return caller.event(session, kind, data or {}, user).expect(202).json

    def ask(self):
        session = self.chance.choice(SESSIONS)
        answer = self.event(session, "approval_request")
        request = answer["requestId"]
        self.requests[request] = (session, "pending")
        self.crowd.claim(self.name, request)
        assert answer["pushes"] == self.expect("approval", request) + len(self.of_session(session)), answer

    def question(self):
        session = self.chance.choice(SESSIONS)
        answer = self.event(session, "question_asked")
        self.questions.add(answer["requestId"])
        assert answer["pushes"] == self.expect("question", answer["requestId"]) + len(self.of_session(session)), answer

    def state(self):
        session = self.chance.choice(SESSIONS)
        kind, data = self.chance.choice([
            ("state_change", {"newState": "processing"}), ("progress_update", {"elapsedSeconds": 10, "todoProgress": {"completed": 1, "total": 3}})])
        assert self.event(session, kind, data)["pushes"] == len(self.of_session(session))

    def end(self, session):
        ended = self.of_session(session)
        for token in ended:
            self.ends[token] += 1
            del self.activities[token]
        return len(ended)

    def complete(self):
        session = self.chance.choice(SESSIONS)
        answer = self.event(session, "task_complete", {"status": "success"})
        assert answer["pushes"] == self.expect("complete", session) + self.end(session), answer

    def clear_session(self):
        session = self.chance.choice(SESSIONS)
        answer = self.phone.clear_session(session).expect(200).json
        assert answer["clearedCount"] == self.expect("clear_session", session) + self.end(session), answer

    def respond(self):
        if not self.requests:
            return
        request = self.chance.choice(list(self.requests))
        session, state = self.requests[request]
        approved, but = self.chance.random() < 0.5, self.chance.choice([None, *self.devices, self.crowd.some_token(self.chance)])
        answer = self.phone.respond(request, approved, but)
        assert answer.expect(200).json["success"] is (state == "pending")
        if state == "pending":
            self.requests[request] = (session, "approved" if approved else "denied")
            self.expect("clear_approval", request, but)
        assert self.phone.approval(request).expect(200).json["status"] == self.requests[request][1]

    def clear_approval(self):
        if not self.requests:
            return
        request, but = self.chance.choice(list(self.requests)), self.chance.choice([None, *self.devices])
        answer = self.phone.clear_approval(request, but).expect(200).json
        assert answer["devicesNotified"] == self.expect("clear_approval", request, but), answer

    def anothers_request(self):
        owner, name = self.crowd.some_id(self.chance)
        if owner == self.name:
            return
        call = self.chance.choice(["read", "clear", "answer"])
        if call == "read":
            self.phone.approval(name).expect(404, "request_not_found")
        elif call == "clear":
            assert self.phone.clear_approval(name).expect(200).json["devicesNotified"] == 0
        else:
            assert self.phone.is_late(name)

    def speak_for_another(self):
        other = self.chance.choice(self.crowd.members)
        if other is not self:
            kind = self.chance.choice(["approval_request", "task_complete", "state_change"])
            self.phone.event(self.chance.choice(SESSIONS), kind, {"newState": "error"}, other.name).expect(403, "another_user")

    OPERATIONS = {
        register: 4, start_activity: 4, delete: 2, delete_anothers: 2, status: 3, ask: 4, question: 1, state: 2, complete: 1, clear_session: 1,
        respond: 4, clear_approval: 1, anothers_request: 2, speak_for_another: 1}

    def act(self):
        operation = self.chance.choices(list(self.OPERATIONS), self.OPERATIONS.values())[0]
        self.crowd.done[operation.__name__] += 1
        operation(self)


class Crowd:
    def __init__(self, world, seed):
        self.world, self.seed, self.done = world, seed, Counter()
        self.ids, self.tokens = [], list(SHARED)
        self.owners = {}
        self.back_ends = [world.back_end(f"back-end-{number}") for number in range(4)]
        for caller in self.back_ends:
            caller.lock = threading.Lock()
        self.members = [Member(self, number) for number in range(USERS)]

    def claim(self, owner, name):
        assert self.owners.setdefault(name, owner) == owner, f"{name} was given to two users"
        self.ids.append((owner, name))

    def some_id(self, chance):
        return chance.choice(self.ids) if self.ids else (None, "A" * 22)

    def some_token(self, chance):
        return chance.choice(self.tokens)

    def play(self):
        turns = [member for member in self.members for _ in range(OPERATIONS)]
        random.Random(self.seed).shuffle(turns)
        # A user's turns stay in one thread, and so in one order; users of different threads meet at random.
        lanes = [[member for member in turns if self.members.index(member) % THREADS == lane] for lane in range(THREADS)]

        def run(lane):
            for member in lane:
                member.act()
        with ThreadPoolExecutor(THREADS) as threads:
            for work in [threads.submit(run, lane) for lane in lanes]:
                work.result()


def test_nothing_crosses_between_two_hundred_users(world):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    crowd = Crowd(world, seed)
    world.simulator.forget()
    for member in crowd.members[:LISTENERS]:
        member.socket = member.phone.socket()
    crowd.play()
    eventually(lambda: world.state.jobs() == 0, 30, 0.1, what="the end of all pushes")
    time.sleep(1.2)
    eventually(lambda: world.state.jobs() == 0, 30, 0.1, what="the end of the updates that waited")
    for member in crowd.members:
        member.status()
    check_pushes(crowd, world.simulator.pushes())
    check_sockets(crowd)
    print(f"{sum(crowd.done.values())} operations: {dict(crowd.done)}")
    for member in crowd.members:
        member.phone.close()
    for caller in crowd.back_ends:
        caller.close()
    time.sleep(1.5)
    ledger.read(world.state).check()
    verified = audit_verify(world.state)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def check_pushes(crowd, pushes):
    """Each belongs to one user's registration of that token, and was expected; none that was expected is missing."""
    assert 200 < len(pushes) < 10_000, len(pushes)
    devices, owners = {}, {}
    for member in crowd.members:
        for token, key in member.keys:
            owners.setdefault(token, set()).add(member)
            for session in SESSIONS:
                devices[token, handle(key, session)] = member, session
    seen = {member: Counter() for member in crowd.members}
    for push in pushes:
        token, payload, collapse = push["token"], push["payload"], push["headers"]["apns-collapse-id"]
        if push["headers"]["apns-push-type"] == "liveactivity":
            member, session = devices[token, collapse]
            request = payload["aps"]["content-state"]["approvalRequest"]
            assert request is None or crowd.owners[request["requestId"]] == member.name
            assert request is None or member.requests[request["requestId"]][0] == session
            if payload["aps"]["event"] == "end":
                seen[member][token, "end"] += 1
            continue
        note = Notification.decode(payload)
        if note.type in ("approval", "clear_approval"):
            id = note.info["requestId"]
            member = next(member for member in owners[token] if member.name == crowd.owners[id])
        elif note.type == "question":
            id = note.info["questionId"]
            member = next(member for member in owners[token] if id in member.questions)
        else:
            member, id = devices[token, note.info["sessionId"]]
        seen[member][token, note.type, id] += 1
    for member, found in seen.items():
        ends = Counter({key[0]: count for key, count in found.items() if key[1] == "end"})
        assert ends == member.ends, f"{member.name}: {ends} ended, not {member.ends}"
        for key in set(found) | set(member.expected):
            if key[1] != "end":
                most = member.expected[key]
                assert most - member.lost[key] <= found[key] <= most, f"{member.name}: {found[key]} of {most} pushes {key}"


def check_sockets(crowd):
    """A user's socket hears of each answer to the user's own requests once, and of nobody else's events."""
    for member in crowd.members:
        if member.socket is None:
            continue
        told = Counter()
        with member.socket as socket, suppress(TimeoutError):
            while True:
                message = socket.receive(0.02)
                assert message["type"] in ("approval_response", "approval_request", "state_change", "progress_update"), message
                if message["type"] == "approval_request":
                    assert crowd.owners[message["requestId"]] == member.name, message
                if message["type"] != "approval_response":
                    continue
                told[message["requestId"], message["sessionId"], "approved" if message["approved"] else "denied"] += 1
        assert told == Counter(
            (request, session, state) for request, (session, state) in member.requests.items() if state != "pending"), member.name


def test_the_model_notices_a_crossed_push(world):
    """A push too many, one too few, and one to the wrong user."""
    seed = 1
    crowd = Crowd(world, seed)
    crowd.members = crowd.members[:2]
    for member in crowd.members:
        member.devices[SHARED[0]] = Device(SHARED[0], {"handleKey": token_hex(32)[:43]})
        member.keys = [(SHARED[0], member.devices[SHARED[0]].answer["handleKey"])]
        member.expect("complete", SESSIONS[0])
    one, other = crowd.members

    def push(member):
        name = handle(member.keys[0][1], SESSIONS[0])
        return {"token": SHARED[0], "headers": {"apns-push-type": "alert", "apns-collapse-id": name}, "payload": {
            "aps": {"alert": {"title": "t", "body": "b"}, "category": "TASK_COMPLETE"}, "type": "complete", "sessionId": name}}
    stranger = Member(crowd, 2)
    stranger.keys = [(SHARED[0], token_hex(32)[:43])]
    padding = [push(one), push(other)] * 101
    one.expected[SHARED[0], "complete", SESSIONS[0]] = other.expected[SHARED[0], "complete", SESSIONS[0]] = 101
    check_pushes(crowd, padding)
    for wrong in (padding[1:], padding + [push(one)], padding[:-1] + [push(one)]):
        with pytest.raises(AssertionError):
            check_pushes(crowd, wrong)
    with pytest.raises(KeyError):
        check_pushes(crowd, padding + [push(stranger)])
