"""Webhooks: accepted senders, refused webhooks, and one ring for each call. `CallsTests` has restarts."""

import http.client
import json
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from secrets import token_hex, token_urlsafe

import pytest

from call_client import CallingService, new_call
from call_world import CallWorld
from companion_world import nothing_kept_by
from mayfly import Client
from processes import Broker, audit_verify, eventually
from test_startup_errors import start_fails
from world import World


make_world = CallWorld


@pytest.fixture(scope="module")
def phone(world):
    phone = world.phone().launch()
    yield phone
    phone.close()


# Signatures. `WebhookSecretsTests` has malformed ones.

def changed(body, at):
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1:]


def test_a_signature_of_another_body_or_secret_is_refused(world, service, phone):
    body = service.body(new_call(), "alice", phone.uid)
    with nothing_kept_by(world):
        service.send(changed(body, len(body) // 2), service.sign(body)).expect(401, "invalid_signature")
        service.send(body, service.sign(body, world.users.secret)).expect(401, "invalid_signature")
        # Whatever the body is: it is not looked at.
        for other in (b"", b"{", b"[]", json.dumps({"trigger": "call_ended"}).encode()):
            service.send(other, "").expect(401, "invalid_signature")
        # The same signature under another header's name.
        service.send(body, "", {"X-Signature": service.sign(body)}).expect(401, "invalid_signature")
        service.send(body, "", {"Authorization": f"Bearer {world.users.back_end()}"}).expect(401, "invalid_signature")
    # A header's name has no case, and a JWT that is sent along no meaning.
    service.send(body, "", {"x-cometchat-signature": service.sign(body), "Authorization": "Bearer x"}).expect(200)
    phone.wait(1)
    world.simulator.forget()


def test_a_body_of_five_mebibytes_is_refused_unread(world, service, phone):
    """Whoever signed it."""
    body = service.body(new_call(), "alice", phone.uid, note="x" * 5_000_000)
    with nothing_kept_by(world):
        for signature in (service.sign(body), "0" * 64, ""):
            connection = http.client.HTTPConnection("127.0.0.1", world.broker.port, timeout=10)
            connection.putrequest("POST", CallingService.ROUTE)
            connection.putheader("Content-Length", str(len(body)))
            connection.putheader("X-CometChat-Signature", signature)
            connection.endheaders()
            try:
                connection.send(body)
            except OSError:
                pass  # It was answered, and the rest is not wanted.
            response = connection.getresponse()
            assert response.status == 413 and json.loads(response.read())["code"] == "body_too_large"
            connection.close()
        service.send(service.body(new_call(), "alice", phone.uid, note="x" * 262_144)).expect(413, "body_too_large")
    # The largest allowed body is accepted.
    room = 262_144 - len(service.body("s", "alice", phone.uid, note=""))
    assert service.send(service.body("s", "alice", phone.uid, note="x" * room)).expect(200).json["rang"] == 1
    phone.wait(1)
    world.simulator.forget()


@pytest.mark.parametrize("value", [r'"\ud83d"', "[" * 100_000 + "]" * 100_000, '{"uid":1,"uid":2}'])
def test_content_is_dropped_unread(world, service, phone, value):
    world.simulator.forget()
    body = service.body(new_call(), "alice", phone.uid, note="NOTE").replace(b'"NOTE"', value.encode())
    answer = service.send(body).expect(200).json
    assert answer["rang"] == 1 and "data.note" in answer["dropped"]
    phone.wait(1)
    world.simulator.forget()


# Bodies.

def without(name):
    return lambda body: {**body, "data": {key: value for key, value in body["data"].items() if key != name}}


def with_data(**more):
    return lambda body: {**body, "data": body["data"] | more}


def test_bad_bodies_are_refused(world, service, phone):
    """`CallBodyTests` has the other rows."""
    cases = [
        ("missing_field", "data.type", without("type")), ("missing_field", "data.receiverType", without("receiverType")),
        ("wrong_type", "data.type", with_data(type=True)),
        ("wrong_type", "data.receiverType", with_data(receiverType=["user"])), ("out_of_range", "data.sessionId", with_data(sessionId="s" * 129))]
    body = json.loads(service.body(new_call(), "alice", phone.uid))
    with nothing_kept_by(world):
        for code, field, change in cases:
            service.send(json.dumps(change(body)).encode()).expect(400, code, field)


def test_a_webhook_that_rings_nobody_is_no_error(world, service, phone):
    """Senders repeat webhooks that are answered with an error."""
    cases = [
        ("group_call", with_data(receiverType="group", receiver={"guid": "group-1", "name": "Friends"})),
        ("unknown_type", with_data(type="screen")), ("other_trigger", lambda body: body | {"trigger": "message_sent"})]
    body = json.loads(service.body(new_call(), "alice", phone.uid))
    with nothing_kept_by(world):
        for reason, change in cases:
            assert service.send(json.dumps(change(body)).encode()).expect(200).json == {"success": True, "rang": 0, "ignored": reason}


def test_all_faults_are_reported_at_once(world, service, phone):
    body = {"trigger": "call_initiated", "data": {"type": 7, "initiator": {}, "receiver": {"uid": ""}, "receiverType": "user"}}
    with nothing_kept_by(world):
        details = service.send(json.dumps(body).encode()).expect(400, "wrong_type", "data.type").json["details"]
    assert sorted(details) == ["data.id", "data.initiator.uid", "data.receiver.uid", "data.type"]


def test_other_methods_and_bodies_that_are_not_json_are_refused(world, service):
    with nothing_kept_by(world):
        for body in (b"", b"{", b"[]", b"null", b"\xff", b'{"trigger":"call_initiated","trigger":"call_ended"}', b"trigger=call_initiated"):
            service.send(body).expect(400, "malformed_json")
        assert service.http.send("GET", CallingService.ROUTE).expect(405, "method_not_allowed").headers["allow"] == "POST"


# Once.


def test_a_hundred_copies_of_a_webhook_ring_once(world, service, phone):
    world.simulator.forget()
    session = new_call()
    body = service.body(session, "alice", phone.uid)
    gate = threading.Barrier(20)

    def copy(number):
        mine = world.service()
        gate.wait()
        answers = [mine.send(body).expect(200).json for _ in range(5)]
        mine.close()
        return answers
    with ThreadPoolExecutor(20) as threads:
        answers = [answer for part in threads.map(copy, range(20)) for answer in part]
    assert sorted(answer["rang"] for answer in answers) == [0] * 99 + [1]
    assert sum(answer.get("repeated", False) for answer in answers) == 99
    phone.wait(1)


@pytest.mark.campaign
def test_copies_of_a_webhook_ring_once_across_kills():
    """A hundred copies of each call. Each answered call has rung once."""
    kills, chance = int(os.environ.get("MAYFLY_TEST_KILLS", 5)), random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    with CallWorld(policies="rooms") as world:
        phone = world.phone().launch()
        calls = {}

        def copies(session, rang):
            mine = world.service(timeout=5)
            body = mine.body(session, "alice", phone.uid)
            for _ in range(10):
                try:
                    rang.append(mine.send(body).expect(200).json["rang"])
                except (OSError, HTTPException):
                    mine.close()
                    time.sleep(0.02)
            mine.close()
        for _ in range(kills):
            session = new_call()
            rang = calls[session] = []
            threads = [threading.Thread(target=copies, args=(session, rang)) for _ in range(10)]
            for thread in threads:
                thread.start()
            time.sleep(chance.uniform(0, 0.06))
            world.restart()
            for thread in threads:
                thread.join(20)
                assert not thread.is_alive()
            # The sender repeats the webhook until it is answered.
            service = world.service()
            rang.append(service.initiate(session, "alice", phone.uid).expect(200).json["rang"])
            service.close()
            assert sum(rang) <= 1, (seed, rang)
        eventually(lambda: world.state.jobs() == 0, 40, 0.2, "the end of all pushes")
        arrived = {}
        for push in phone.pushes():
            # After a crash a push may be sent again, under its own id: Apple and the phone know it for the same.
            arrived.setdefault(push["payload"]["sessionId"], set()).add(push["headers"]["apns-id"])
        assert arrived.keys() == {phone.handle(session, "session") for session in calls}, seed
        assert all(len(ids) == 1 for ids in arrived.values()), (seed, arrived)
        phone.close()
        assert world.broker.stop() == 0
        verified = audit_verify(world.state)
        assert verified.returncode == 0, verified.stdout + verified.stderr


# Secrets.

def test_secrets_are_replaced_without_a_restart():
    """From a file and the environment. SIGHUP reads the file again; a bad file changes nothing."""
    file_secret, own = token_urlsafe(24), token_hex(32)
    with CallWorld(start=False, policies="rooms") as world:
        path = world.state / "keys/webhook.secret"
        path.write_text(f"{file_secret}\n")
        world.broker.start(COMETCHAT_WEBHOOK_SECRET=own)
        assert own.encode() not in Path(f"/proc/{world.broker.child.pid}/environ").read_bytes()
        services = {name: world.service(secret) for name, secret in (("file", file_secret), ("own", own), ("next", "the next secret in turn"))}

        def good():
            return [name for name, service in services.items() if service.initiate(new_call(), "alice", "nobody").status == 200]
        assert good() == ["file", "own"]

        def reload(text, told, mode=0o600):
            path.write_text(text)
            path.chmod(mode)
            before = world.broker.printed().count(told)
            world.broker.child.send_signal(signal.SIGHUP)
            eventually(lambda: world.broker.printed().count(told) > before, what=told)
        reload(f"{file_secret}\nthe next secret in turn\n", "webhooks: 3 secrets")
        assert good() == ["file", "own", "next"]
        reload("the next secret in turn\n", "webhooks: 2 secrets")
        assert good() == ["own", "next"]
        for text, mode, why in ((f"{file_secret}\n short\n", 0o600, "line 2"), ("", 0o600, "no secret"), (f"{file_secret}\n", 0o644, "the file named there has mode 0644, so others")):
            reload(text, "the present secrets stay in use", mode)
            assert why in world.broker.printed() and good() == ["own", "next"]
        printed = world.broker.printed()
        assert not any(secret in printed for secret in (file_secret, own, "the next secret in turn"))
        assert world.broker.metric("alarms_total") >= 3


def test_a_bad_secrets_file_is_refused(state, processes):
    path = state / "keys/webhook.secret"
    path.write_text("a good one, it seems \n")
    broker = Broker(state, policy="rooms,companion,calls", webhook_secrets=path)
    processes.append(broker)
    printed = start_fails(broker, "--webhook-secrets", "the file named there can't be used: line 1: a secret must not contain")
    assert str(path) not in printed and "a good one" not in printed


def test_calls_need_a_secret_and_users(state, processes):
    """A policy for calls without a secret or without users is refused. A secret alone is reported as unused."""
    broker = Broker(state, policy="rooms,companion,calls")
    processes.append(broker)
    start_fails(broker, "--webhook-secrets", "COMETCHAT_WEBHOOK_SECRET", status=2)
    alone = Broker(state, policy="rooms,calls", webhook_secrets=state / "keys/webhook.secret")
    processes.append(alone)
    start_fails(alone, "--jwt-algorithm", status=2)
    for bad in (" a space before", "x" * 129):
        broker.start(wait=False, COMETCHAT_WEBHOOK_SECRET=bad)
        assert broker.child.wait(15) == 2 and "COMETCHAT_WEBHOOK_SECRET" in broker.printed() and bad not in broker.printed()


def test_a_short_secret_works_with_a_warning():
    """Some calling services sign with one."""
    with World(jwt_algorithm="HS256", start=False) as world:
        world.broker.options["jwt-key"] = world.state / "keys/jwt.secret"
        world.broker.start(COMETCHAT_WEBHOOK_SECRET="sesam")
        service = CallingService(world.broker, "sesam")
        assert service.initiate(new_call(), "alice", "bob").expect(200).json["rang"] == 0
        service.close()
        assert "1 of 1 webhook secrets has fewer than 16 bytes" in world.broker.printed() and "sesam" not in world.broker.printed()


def test_calls_are_on_by_default_with_users_and_a_secret():
    with World(jwt_algorithm="HS256", start=False) as world:
        world.broker.options["jwt-key"] = world.state / "keys/jwt.secret"
        world.broker.start(COMETCHAT_WEBHOOK_SECRET="x" * 32)
        service = CallingService(world.broker, "x" * 32)
        assert service.initiate(new_call(), "alice", "bob").expect(200).json["rang"] == 0
        service.http.send("POST", "/api/voip/token", {"uid": "bob", "token": "ab" * 32}).expect(401, "no_jwt")
        service.close()
        assert world.broker.stop() == 0
        # Without a secret there are no calls.
        service.close()
        world.broker.start()
        service.initiate(new_call(), "alice", "bob").expect(404, "audiences_off")
        service.close()
    with World(environment={"COMETCHAT_WEBHOOK_SECRET": "x" * 32}) as world:
        assert "warning: webhook secrets are set" in world.broker.printed()
        Client(world.broker.port).send("POST", CallingService.ROUTE, {}).expect(404, "audiences_off")
