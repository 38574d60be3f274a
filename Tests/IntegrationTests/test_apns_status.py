"""A broker without APNs credentials."""

import re

import pytest

import ledger
from companion_world import CompanionWorld, new_session
from mayfly import Client, new_token
from processes import BUNDLE_ID, KEY_ID, TEAM_ID, Broker, eventually
from test_startup_errors import start_fails

CREDENTIALS = ("apns-key-path", "apns-key-id", "apns-team-id")


def count(broker, name):
    text = Client(broker.operator_port).send("GET", "/metrics").body.decode()
    return int(re.search(rf"^mayfly_{name} (\d+)$", text, re.M)[1])


def outcome(world, ref):
    found = eventually(lambda: ledger.read(world.state).outcomes(ref), what="an outcome in the log")
    assert len(found) == 1, found
    return found[0]


@pytest.fixture(scope="module")
def without():
    """A broker for rooms and companions that has a bundle id and nothing else."""
    with CompanionWorld(start=False) as world:
        world.given = {name: world.broker.options.pop(name) for name in CREDENTIALS}
        world.broker.start()
        yield world


def test_one_warning_at_the_start(without):
    warnings = [line for line in without.broker.printed().splitlines() if "no APNs credentials" in line]
    assert len(warnings) == 1 and "warning" in warnings[0], warnings
    for name in ("APNS_TEAM_ID", "APNS_KEY_ID", "APNS_KEY_PATH"):
        assert name in warnings[0]


def test_a_knock_fails_at_once_and_purges_nothing(without):
    room = without.client().room()
    without.client().presence(room.roomid, room.joiner.client).expect(202)
    entry = outcome(without, room.creator.ref)
    assert (entry["op"], entry["reason"], entry["status"]) == ("push.failed", "unreachable", 0)
    assert not ledger.read(without.state).of(room.creator.ref, "token.purged")
    assert count(without.broker, "pushes_not_configured_total") > 0 and count(without.broker, "pushes_failed_total") > 0
    lines = [line for line in without.broker.printed().splitlines() if "there is no APNs key or certificate for alert pushes" in line]
    assert len(lines) == 1, lines


def test_devices_register_and_are_pushed_to_when_the_day_has_come(without):
    phone, back_end = without.user(), without.back_end()
    back_end.event(new_session(), "task_complete", {}, phone.name).expect(202)
    entry = outcome(without, phone.device.ref)
    assert (entry["op"], entry["reason"], entry["status"]) == ("push.failed", "unreachable", 0)
    without.client().create(token=new_token(), bundleId="org.example.other").expect(400, "app_not_served")

    back_end.close()
    without.broker.stop()
    without.simulator.start()
    without.broker.options |= without.given
    without.broker.start()
    back_end.event(new_session(), "task_complete", {}, phone.name).expect(202)
    phone.wait(1)
    assert not ledger.read(without.state).of(phone.device.ref, "token.purged")


@pytest.fixture
def broker(state, processes):
    broker = Broker(state)
    processes.append(broker)
    return broker


@pytest.mark.parametrize("given", [
    {"apns-key-id": KEY_ID}, {"apns-team-id": TEAM_ID}, {"apns-key-id": KEY_ID, "apns-team-id": TEAM_ID},
    {"apns-key-path": "keys/apns.p8"}, {"apns-key-path": "keys/apns.p8", "apns-key-id": KEY_ID},
    {"apns-certificate-passphrase": "nothing"}])
def test_half_of_them_are_refused(state, broker, given):
    for name in CREDENTIALS:
        del broker.options[name]
    broker.options |= {name: state / value if value == "keys/apns.p8" else value for name, value in given.items()}
    start_fails(broker, "is missing", status=2)


def test_the_bundle_id_is_needed(broker):
    for name in (*CREDENTIALS, "apns-bundle-id"):
        del broker.options[name]
    start_fails(broker, "--apns-bundle-id (APNS_BUNDLE_ID) is missing", "registrations", status=2)
    broker.options["apns-bundle-id"] = "no bundle id"
    start_fails(broker, "is no bundle id", status=2)
