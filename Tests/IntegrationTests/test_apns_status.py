"""A broker without APNs credentials, and one whose credentials are replaced while it runs."""

import json
import signal
import subprocess
import time
from types import SimpleNamespace

import jwt
import pytest

import ledger
from apns_recorder import APNsRecorder
from certificates import openssl
from companion_world import CompanionWorld, new_session
from mayfly import Client, new_token
from processes import BUNDLE_ID, KEY_ID, TEAM_ID, Broker, Simulator, eventually
from test_startup_errors import start_fails
from world import World

CREDENTIALS = ("apns-key-path", "apns-key-id", "apns-team-id")


def outcome(world, ref):
    found = eventually(lambda: ledger.read(world.state).outcomes(ref), what="an outcome in the log")
    assert len(found) == 1, found
    return found[0]


STATUS, RENEW = "/api/config/apns/status", "/api/config/apns/init"


def operator(broker, method="POST", path=RENEW, **more):
    return Client(broker.operator_port, address="127.0.0.1").send(method, path, **more)


def renewed(broker):
    assert operator(broker).expect(200).json == {"success": True, "message": "APNs configured"}


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
    for name in ("not_configured", "failed"):
        assert without.broker.metric(f'pushes_{name}_total{{service="apns"}}') > 0
    lines = [line for line in without.broker.printed().splitlines() if "no APNs key or certificate is configured for alert pushes" in line]
    assert len(lines) == 1, lines


def test_a_renewal_without_credentials_is_refused(without):
    assert operator(without.broker, "GET", STATUS).expect(200).json == {"configured": False, "bundleId": BUNDLE_ID, "production": True}
    answer = operator(without.broker).expect(400).json
    assert answer["success"] is False
    for name in ("APNS_TEAM_ID", "APNS_KEY_ID", "APNS_KEY_PATH"):
        assert name in answer["error"]


def test_devices_registered_without_credentials_are_pushed_to_later(without):
    phone, back_end = without.user(), without.back_end()
    back_end.event(new_session(), "task_complete", {}, phone.name).expect(202)
    entry = outcome(without, phone.device.ref)
    assert (entry["op"], entry["reason"], entry["status"]) == ("push.failed", "unreachable", 0)
    without.client().create(token=new_token(), bundleId="org.example.other").expect(400, "app_not_served")

    back_end.close()
    without.broker.stop()
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
def test_incomplete_credentials_are_refused(state, broker, given):
    for name in CREDENTIALS:
        del broker.options[name]
    broker.options |= {name: state / value if value == "keys/apns.p8" else value for name, value in given.items()}
    start_fails(broker, "is missing", status=2)


def test_the_bundle_id_is_needed(broker):
    for name in (*CREDENTIALS, "apns-bundle-id"):
        del broker.options[name]
    start_fails(broker, "--apns-bundle-id (APNS_BUNDLE_ID) is missing", "Registrations", status=2)
    broker.options["apns-bundle-id"] = "no bundle id"
    start_fails(broker, "is not a bundle id", status=2)


# Replaced while it runs

def put(path, content):
    """In one piece, as an operator does."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(content)
    new.chmod(0o600)
    new.rename(path)


def new_key(path):
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)
    path.chmod(0o600)
    return path.read_bytes()


@pytest.fixture(scope="module")
def world():
    """A broker whose key's file can be replaced. The simulator knows the first key alone."""
    with World(start=False) as world:
        world.key = world.state.prints / "in-use.p8"
        world.first = (world.state / "keys/apns.p8").read_bytes()
        world.second = new_key(world.state.prints / "second.p8")
        put(world.key, world.first)
        world.broker.options["apns-key-path"] = world.key
        world.broker.options["apns-production"] = "false"
        world.broker.start()
        yield world


def knock(world, **more):
    room = world.client().room(**more)
    assert world.client().presence(room.roomid, room.joiner.client).expect(202).json == {"delivery": "queued"}
    return room.creator


def delivered(world, **more):
    side = knock(world, **more)
    eventually(lambda: world.simulator.pushes(side.token), what="the push")


def test_status(world):
    operator(world.broker, "HEAD", STATUS, checked=False).expect(200)
    assert operator(world.broker, "GET", STATUS).json == {"configured": True, "bundleId": BUNDLE_ID, "production": False}
    assert operator(world.broker, "GET", RENEW).expect(405, "method_not_allowed").headers["allow"] == "POST"
    assert operator(world.broker, "POST", STATUS).expect(405, "method_not_allowed").headers["allow"] == "GET, HEAD"
    for method in ("PUT", "DELETE", "PATCH"):
        operator(world.broker, method, RENEW).expect(405)
        operator(world.broker, method, STATUS).expect(405)
    assert Client(world.broker.port).send("GET", STATUS, checked=False).status == 404, "apps see it"
    assert Client(world.broker.port).send("POST", RENEW, checked=False).status == 404, "apps can do it"


@pytest.mark.parametrize("way", ["call", "signal"])
def test_a_key_that_apple_refuses_stays_out_of_use(world, way):
    def again(told, status):
        before = world.broker.printed().count(told)
        if way == "call":
            answer = operator(world.broker).expect(status).json
            assert answer["success"] is (status == 200), answer
            assert status == 200 or "InvalidProviderToken. The previous keys and certificates stay in use." in answer["error"], answer
        else:
            world.broker.child.send_signal(signal.SIGHUP)
        eventually(lambda: world.broker.printed().count(told) > before, what="the renewal")

    stays = f"apns: the present credentials stay in use. APNs (sandbox) refuses the new credentials for {BUNDLE_ID}: InvalidProviderToken."
    alarms = world.broker.metric("last_alarm_timestamp_seconds")
    delivered(world)
    put(world.key, world.second)
    # Pushes that wait while the key is refused are not lost.
    world.simulator.fault(delayMs=100)
    sides = [knock(world) for _ in range(10)]
    again(stays, 400)
    sides += [knock(world) for _ in range(10)]
    world.simulator.fault()
    for side in sides:
        eventually(lambda: world.simulator.pushes(side.token), what="each push")
    assert all(len(world.simulator.pushes(side.token)) == 1 for side in sides)
    assert world.broker.metric("last_alarm_timestamp_seconds") >= alarms
    put(world.key, world.first)
    again("apns: the files are unchanged", 200)
    delivered(world)


def test_a_key_is_not_used_while_apple_cannot_be_asked(world):
    put(world.key, world.second)
    world.simulator.fault(at="headers", token="00" * 32, silent=True)
    answer = operator(world.broker).expect(503)
    assert answer.json["success"] is False and "could not check the new credentials" in answer.json["error"], answer
    assert answer.headers["retry-after"] == "30"
    delivered(world)
    world.simulator.fault()
    put(world.key, world.first)
    world.simulator.forget()
    renewed(world.broker)
    assert world.simulator.pushes() == [], "Apple is asked about files that say what is in use"
    delivered(world)


def test_a_bad_file_changes_nothing(world):
    public = subprocess.run(["openssl", "pkey", "-pubout"], input=world.second, capture_output=True, check=True).stdout
    alarms = world.broker.metric("last_alarm_timestamp_seconds")
    eventually(lambda: time.time() >= alarms + 1, what="another second")
    before = world.broker.printed().count("apns: the present credentials stay in use. ")
    for number, content in enumerate((b"", b"hunter2 is no key", world.second[:80], public, b"\0" * 70_000, None)):
        world.key.unlink() if content is None else put(world.key, content)
        answer = operator(world.broker).expect(400)
        assert answer.json["success"] is False and str(world.key) in answer.json["error"], answer
        assert answer.json["error"].startswith("--apns-key-path (APNS_KEY_PATH): "), answer
        assert b"hunter2" not in answer.body and world.second[30:60] not in answer.body
        assert world.broker.printed().count("apns: the present credentials stay in use. ") == before + number + 1
    assert "hunter2" not in world.broker.printed()
    assert world.broker.metric("last_alarm_timestamp_seconds") > alarms
    delivered(world)
    put(world.key, world.first)
    renewed(world.broker)
    delivered(world)


def test_a_page_in_a_browser_renews_nothing(world):
    """A form or script of any page may POST to loopback. Browsers send its origin, so the broker refuses."""
    put(world.key, world.second)
    for origin in ("https://example.org", "null", f"http://127.0.0.1:{world.broker.operator_port}", ""):
        assert operator(world.broker, headers={"Origin": origin}).expect(403).json["success"] is False
    delivered(world)
    put(world.key, world.first)


def test_renewals_lose_and_repeat_no_push(world):
    world.simulator.fault(delayMs=30)
    sides = []
    for _ in range(5):
        sides += [knock(world) for _ in range(10)]
        renewed(world.broker)
    world.simulator.fault()
    for side in sides:
        eventually(lambda: world.simulator.pushes(side.token), what="each push")
    assert all(len(world.simulator.pushes(side.token)) == 1 for side in sides)
    assert all(outcome(world, side.ref)["op"] == "push.delivered" for side in sides)


def test_a_renewal_reads_the_list_of_apps_again(state, processes):
    """New lines and their keys come into use. The app of the start must still be in the list."""
    simulator, broker = Simulator(state), Broker(state)
    processes += [simulator, broker]
    place, other = state.prints, "org.example.other"
    new_key(place / "other.p8")
    for name, app, file in ((KEY_ID, BUNDLE_ID, state / "keys/apns.p8"), ("OTHERKEY12", other, place / "other.p8")):
        described = {"keyID": name, "teamID": TEAM_ID, "key": str(file), "topics": [app]}
        (place / f"{name}.json").write_text(json.dumps(described))
        simulator.more += ["--app", place / f"{name}.json"]
    simulator.start()
    apps = place / "apps"
    first, second = f"{BUNDLE_ID} production key {state / 'keys/apns.p8'} {KEY_ID} {TEAM_ID}\n", f"{other} production key other.p8 OTHERKEY12 {TEAM_ID}\n"
    put(apps, first.encode())
    broker.options = {name: value for name, value in broker.options.items() if name not in (*CREDENTIALS, "apns-bundle-id")}
    broker.options |= {"apns-apps": apps, "apns-endpoint": f"127.0.0.1:{simulator.port}"}
    broker.start()
    world = SimpleNamespace(client=lambda: Client(broker.port), simulator=simulator)
    Client(broker.port).create(token=new_token(), bundleId=other).expect(400, "app_not_served")
    put(apps, (second + first).encode())
    renewed(broker)
    delivered(world)
    delivered(world, bundleId=other)
    assert operator(broker, "GET", STATUS).json["bundleId"] == BUNDLE_ID
    for text in (second, first + "nonsense\n", ""):
        put(apps, text.encode())
        assert operator(broker).expect(400).json["error"]
    delivered(world)
    delivered(world, bundleId=other)


def test_a_renewal_makes_no_provider_token_too_soon(state, processes):
    """Apple allows one in twenty minutes: the new courier's token has the old one's birth and the new key's signature."""
    key = state.prints / "in-use.p8"
    put(key, (state / "keys/apns.p8").read_bytes())
    with APNsRecorder(state / "keys/simulator.pem", status=200) as recorder:
        broker = Broker(state, recorder.port, apns_key_path=key)
        processes.append(broker)
        broker.start()
        births = []
        for _ in range(2):
            knock(SimpleNamespace(client=lambda: Client(broker.port)))
            token = recorder.request(10)["authorization"].removeprefix("bearer ")
            public = subprocess.run(["openssl", "pkey", "-pubout", "-in", key], capture_output=True, check=True).stdout
            births.append(jwt.decode(token, public, algorithms=["ES256"], options={"verify_iat": False})["iat"])
            time.sleep(1.1)
            new_key(key)
            renewed(broker)
        assert births[0] == births[1]
