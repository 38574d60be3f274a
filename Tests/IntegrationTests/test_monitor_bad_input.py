"""Bad input to the monitor: each has its exact answer with the fields of the seed's clients. Nothing is stored or pushed."""

import json
import random
from secrets import token_hex

import pytest

from companion_world import UNKNOWN
from mayfly import new_token
from monitor_client import SETTINGS, PrinterServer
from monitor_world import MonitorWorld, new_printer
from processes import eventually
from test_companion_bad_input import ABSENT, BAD_IDS, ENVIRONMENT, SESSIONS_OF_PATHS, missing, text_field, token_field

STATUSES = "running complete failed paused finish pause idle init prepare slicing offline unknown unavailable cancelled error".split()
ROUTES = [
    ("POST", "/api/devices/register", {"apnsToken": "ab" * 32, "printerPrefix": "p"}), ("PATCH", f"/api/devices/{UNKNOWN}/settings", {"onStart": True}),
    ("DELETE", f"/api/devices/{UNKNOWN}", None), ("GET", "/api/devices/by-printer/p", None),
    ("POST", "/api/monitors/p/status", {"oldStatus": "idle", "newStatus": "running"}), ("POST", "/api/monitors/p/progress", {"progress": 50})]


make_world = MonitorWorld


@pytest.fixture(scope="module")
def phone(world):
    phone = world.user().watch("p")
    yield phone
    phone.close()


def invalid(answer, code, fields):
    """A 400 as the seed's clients read it, and a problem document about the first of the fields."""
    told = (answer.status, answer.body)
    assert answer.status == 400, told
    problem = answer.json
    assert (problem["success"], problem["error"], problem["code"]) == (False, "Invalid request", code), told
    assert problem.get("field") == (fields[0] if fields else None) and sorted(problem["details"]) == sorted(fields), told
    assert all(len(said) == 1 and said[0] for said in problem["details"].values()), told
    assert not fields or problem["details"][fields[0]] == [problem["detail"]], told
    return problem


def word_field(field):
    return missing(field) + [("wrong_type", field, bad) for bad in (1, True, [], {}, ["running"])]


FLAGS = [("wrong_type", field, bad) for field in SETTINGS for bad in (1, 0, "true", "", [], {})]
PROGRESS = missing("progress") + [("wrong_type", "progress", bad) for bad in ("50", "", True, False, [50], {})] + [
    ("out_of_range", "progress", bad) for bad in (-1, -0.001, 101, 100.1, 1e300, -1e300, 2**64, 10**400)]
CALLS = {
    "register": (ROUTES[0], missing("apnsToken") + token_field("apnsToken") + text_field("printerPrefix") + ENVIRONMENT),
    "settings": (ROUTES[1], FLAGS), "status": (ROUTES[4], word_field("oldStatus") + word_field("newStatus") + text_field("eventId")),
    "progress": (ROUTES[5], PROGRESS + text_field("eventId"))}


@pytest.mark.parametrize("name", CALLS)
def test_fields_of_calls(world, phone, server, nothing_kept, name):
    (method, path, good), wrong = CALLS[name]
    caller = server if "monitors" in path else phone
    for code, field, value in wrong:
        body = {key: one for key, one in (good | {field: value}).items() if one is not ABSENT}
        problem = invalid(caller.call(method, path, body), code, [field])
        assert not isinstance(value, str) or len(value) < 5 or value not in problem["detail"], "the answer says it back"


def test_every_bad_field_is_listed(phone, server, nothing_kept):
    answer = phone.call("POST", "/api/devices/register", {"printerPrefix": 5, "environment": "moon", "bundleId": "", "printerName": 7})
    invalid(answer, "missing_field", ["apnsToken", "printerPrefix", "environment", "bundleId"])
    assert answer.json["details"]["apnsToken"] == ["The field apnsToken is missing. Add it."]
    invalid(phone.set(onStart=1, onPaused="x", onFailed=True), "wrong_type", ["onStart", "onPaused"])
    invalid(server.status("p", None, 7, eventId=""), "missing_field", ["oldStatus", "newStatus", "eventId"])


def test_an_app_that_is_not_served(phone, nothing_kept):
    """Told in words once nothing else is wrong: it is no fault of the body's form."""
    answer = phone.register(bundleId="org.example.other").expect(400, "app_not_served").json
    assert answer["error"] == answer["detail"] and "details" not in answer
    invalid(phone.register(printerPrefix=5, bundleId="org.example.other"), "wrong_type", ["printerPrefix"])


def test_unknown_settings_are_ignored(phone, nothing_kept):
    """A request without any field is valid, as the seed's clients send it."""
    for fine in ({}, {"on_paused": False}, {"onpaused": False, "x" * 40: 1}, {"onPaused": None}, {"onPaused": True, "on_paused": False}):
        assert phone.set(**fine).expect(200).json["message"] == "Settings updated"
    assert phone.set(on_paused=False, printerName="Attic").expect(200).json["dropped"] == ["printerName"]


def test_unknown_statuses_are_ignored(server, nothing_kept):
    """Each printer server has words of its own. The seed's document ignores unknown ones; words in capitals are unknown."""
    for word in ("", "Running", "on fire"):
        for old, new in ((word, "running"), ("running", word), ("idle", word), (word, word)):
            answer = server.status("p", old, new, filename="x.3mf", eventId=None).expect(200)
            assert answer.json == {"success": True, "pushes": 0, "ignored": "unknown_status", "dropped": ["filename"]}
        # It is an error still if the rest of the body is.
        invalid(server.status("p", word, "running", eventId=""), "out_of_range", ["eventId"])


def test_null_counts_as_absent(world, server):
    phone = world.user()
    phone.register(printerPrefix=None, environment=None, bundleId=None, printerName=None).expect(200)
    server.status(new_printer(), "idle", "idle", eventId=None).expect(202)
    server.progress(new_printer(), 1, eventId=None).expect(202)
    phone.close()


def test_a_body_must_be_one_json_object(phone, server, nothing_kept):
    for method, path, good in ROUTES:
        if good:
            invalid((server if "monitors" in path else phone).call(method, path, b"{"), "malformed_json", [])


def test_bodies_over_their_limit(phone, server, nothing_kept):
    """16 KiB; 256 KiB for events."""
    for method, path, good in ROUTES:
        if good:
            is_event = "monitors" in path
            body = json.dumps({"filename": "x" * (262_144 if is_event else 16_400)}).encode()
            (server if is_event else phone).call(method, path, body).expect(413, "body_too_large")


def test_content_is_dropped_unread(server):
    for filename in (r'"\ud83d"', "[" * 100_000 + "]" * 100_000, json.dumps("x" * 261_000)):
        body = f'{{"oldStatus":"idle","newStatus":"offline","filename":{filename}}}'.encode()
        assert "filename" in server.call("POST", "/api/monitors/p/status", body).expect(202).json["dropped"]
        server.call("POST", "/api/monitors/p/progress", f'{{"progress":1,"filename":{filename}}}'.encode()).expect(202)


def test_prefixes_in_paths(server, nothing_kept):
    for prefix, _ in SESSIONS_OF_PATHS.values():
        for answer in (server.devices(prefix), server.status(prefix, "idle", "running"), server.progress(prefix, 50)):
            if prefix:
                invalid(answer, "out_of_range", ["prefix"])
            else:
                # No printer, or none that has a name.
                assert answer.status == 400 or answer.code == "not_found", answer


def test_unknown_methods_and_paths_are_refused(phone, server, nothing_kept):
    for method, path, body in ROUTES:
        for wrong in {"GET", "POST", "PUT", "DELETE", "PATCH"} - {method}:
            phone.call(wrong, path, body if wrong != "GET" else None).expect(405, "method_not_allowed")
    for path in ("/api/devices", "/api/devices/a/b", "/api/devices/a/settings/b", "/api/monitors", "/api/monitors/p", "/api/monitors/p/filename",
                 "/api/monitors/p/q/status", "/api/Monitors/p/status", "/api/devices/by-printer/p/q"):
        answer = server.call("POST", path, {})
        assert answer.status in (404, 405), (path, answer)


# Callers.

def test_unknown_devices_are_not_found(world, phone, nothing_kept):
    other = world.user()
    for caller, bad in [(phone, bad) for bad in BAD_IDS] + [(other, phone.id)]:
        if bad and bad != "..":
            problem = caller.set(bad, onStart=False).expect(404, "device_not_found").json
            assert (problem["success"], problem["error"]) == (False, "Device not found")
            assert caller.unregister(bad).expect(200).json["message"] == "Device unregistered"
    # A device's id is good under its own call only.
    assert phone.call("DELETE", f"/api/push/token/tok_{phone.id}").code == "audiences_off"
    other.close()


def test_a_back_end_can_not_change_devices(server, phone, nothing_kept):
    server.call("PATCH", f"/api/devices/{phone.id}/settings", {"onStart": False}).expect(404, "device_not_found")
    server.call("DELETE", f"/api/devices/{phone.id}").expect(200)


def test_users_can_not_report_for_printers(world, phone, nothing_kept):
    callers = [phone, PrinterServer(world.broker, world.users.token("user-1", scope="broker.notify.not notify broker"), "user-1")]
    for caller in callers:
        for method, path, body in ROUTES[3:]:
            caller.call(method, path, body).expect(403, "back_end_only")
        # Before anything of the path or the body is looked at.
        caller.call("POST", "/api/monitors/%zz/status", b"{").expect(403, "back_end_only")


def test_calls_need_a_jwt(world, nothing_kept):
    nobody = PrinterServer(world.broker, world.users.token("user-1") + "x")
    for method, path, body in ROUTES:
        nobody.call(method, path, body).expect(401, "invalid_jwt")
        nobody.call(method, path, body, bearer=None).expect(401, "no_jwt")
    nobody.close()


# One token, many devices.

def test_one_token_is_one_device_of_each_user(world, server):
    """Ten users' devices with that token don't affect each other."""
    printer, token = new_printer(), new_token()
    phone = world.user()
    ids = {phone.register(printer, token).expect(200).json["deviceId"] for _ in range(10)}
    assert len(ids) == 1 and len(server.devices(printer).json["devices"]) == 1
    others = [world.user() for _ in range(9)]
    ids |= {other.register(printer, token).expect(200).json["deviceId"] for other in others}
    assert len(ids) == 10 and server.status(printer, "idle", "running").expect(202).json["pushes"] == 10
    eventually(lambda: len(world.simulator.pushes(token)) == 10, what="ten pushes")
    others[0].unregister(others[0].register(printer, token).json["deviceId"]).expect(200)
    assert server.status(printer, "running", "paused").expect(202).json["pushes"] == 9
    for caller in [phone, *others]:
        caller.close()


def test_pushes_to_a_token_are_limited():
    """For all its registrations together. The answer counts the throttled ones."""
    with MonitorWorld(tokenPushes={"count": 3, "seconds": 300}) as world:
        server, printer, phones = world.server(), new_printer(), [world.user() for _ in range(2)]
        token = new_token()
        for phone in phones:
            phone.register(printer, token).expect(200)
        assert server.status(printer, "idle", "running").expect(202).json["pushes"] == 2
        answer = server.status(printer, "running", "paused").expect(202).json
        assert (answer["pushes"], answer["throttled"]) == (1, 1)
        phones[0].register(printer, new_token()).expect(200)
        answer = server.status(printer, "running", "failed").expect(202).json
        assert (answer["pushes"], answer["throttled"]) == (1, 2)


# Anything at all.

@pytest.mark.campaign
def test_random_bodies_are_answered(world):
    """None with a 5xx, and each as the document describes."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    phone, server = world.phone("fuzzer-" + token_hex(4)), world.server("fuzzer-server")
    names = ["apnsToken", "haUrl", "printerPrefix", "printerName", "environment", "bundleId", "token", "oldStatus", "newStatus", "progress", "eventId",
             "filename", *SETTINGS]
    words = [*STATUSES[:5], "sandbox", "ab" * 32, UNKNOWN, "", "\0", "é" * 64, "\u202e", "a" * 129]

    def anything(depth=0):
        kind = chance.randrange(8 if depth < 3 else 6)
        if kind < 3:
            return chance.choice(words)
        if kind < 6:
            return chance.choice([0, -1, 1, 45, 2**63, 10**30, 1.5, -0.0, 1e300, True, False, None, chance.randrange(101)])
        return [anything(depth + 1) for _ in range(3)] if kind == 6 else {name: anything(depth + 1) for name in chance.sample(names, 4)}
    statuses = set()
    for _ in range(400):
        method, path, _ = chance.choice([route for route in ROUTES if route[2]])
        body = {name: anything() for name in chance.sample(names, chance.randrange(1, len(names)))}
        statuses.add((server if "monitors" in path else phone).call(method, path, body).status)
    assert statuses <= {200, 202, 400, 404, 409, 429}, f"seed {seed}: {statuses}"
    phone.close()
    server.close()
