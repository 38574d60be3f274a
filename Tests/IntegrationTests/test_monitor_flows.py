"""Each flow of the seed's document, by a client written from it. The pushes are checked field by field."""

import json
import re
import time

import pytest

import ledger
from companion_pushes import seconds
from mayfly import new_token
from monitor_client import MILESTONES, SETTINGS, DeviceRegistrationResponse
from monitor_pushes import check_push
from monitor_world import MonitorWorld, new_printer
from processes import eventually, mayfly

DAY = 86_400
NAME = re.compile(r"[A-Za-z0-9_-]{22}")
CHANGES = [
    ("idle", "running", "print_started", "onStart"), ("running", "complete", "print_complete", "onComplete"),
    ("running", "failed", "print_failed", "onFailed"), ("running", "paused", "print_paused", "onPaused")]


make_world = MonitorWorld


@pytest.fixture
def printer():
    return new_printer()


@pytest.fixture
def phone(world, printer):
    phone = world.user().watch(printer)
    yield phone
    phone.close()


# Devices.

def test_register_a_device(world, printer):
    phone = world.user()
    answer = phone.register(printer, name="Workshop", environment="development").expect(200).json
    assert set(answer) == {"success", "deviceId", "message", "ref", "expiresAt", "handleKey", "dropped"}
    assert DeviceRegistrationResponse.decode(answer) == DeviceRegistrationResponse(True, answer["deviceId"], "Device registered")
    assert NAME.fullmatch(answer["deviceId"]) and answer["dropped"] == ["haUrl", "printerName"]
    assert 28 * DAY < seconds(answer["expiresAt"]) - time.time() <= 30 * DAY
    again = phone.register(printer, environment="development").expect(200).json
    assert again == answer | {"message": "Device updated", "dropped": ["haUrl"]}
    assert phone.register(printer, new_token()).expect(200).json["message"] == "Device registered"
    sealed = eventually(lambda: ledger.read(world.state).of(answer["ref"]), what="the entry")
    assert [entry["op"] for entry in sealed] == ["token.sealed"]
    phone.close()


def test_a_device_watches_one_printer(world, server, printer, phone):
    """Another printer replaces the first."""
    phone.set(onPaused=False).expect(200)
    other, before = new_printer(), phone.device.answer
    phone.device.answer = phone.register(other).expect(200).json
    kept = ("deviceId", "handleKey")
    assert phone.device.answer["message"] == "Device updated"
    assert [phone.device.answer[key] for key in kept] == [before[key] for key in kept] and phone.device.answer["ref"] != before["ref"]
    assert server.devices(printer).expect(200).json["devices"] == []
    # Its settings stay.
    assert [(one["id"], one["on_paused"], one["on_start"]) for one in server.devices(other).json["devices"]] == [(phone.id, 0, 1)]
    assert server.status(printer, "idle", "running").expect(202).json["pushes"] == 0
    assert server.status(other, "idle", "running").expect(202).json["pushes"] == 1
    check_push(phone.wait(1)[0], phone, other, "print_started")
    purged = eventually(lambda: ledger.read(world.state).of(before["ref"], "token.purged"), what="the purge")
    assert [entry["cause"] for entry in purged] == ["ended"]


def test_a_device_without_a_printer(world, server):
    phone = world.user()
    assert phone.register().expect(200).json["message"] == "Device registered"
    assert phone.register(printerPrefix=None).expect(200).json["message"] == "Device updated"
    phone.close()


def test_settings(server, printer, phone):
    assert phone.set(onStart=False, onMilestone=False).expect(200).json == {"success": True, "message": "Settings updated"}

    def columns():
        return server.devices(printer).expect(200).json
    expected = {"id": phone.id} | dict.fromkeys(SETTINGS.values(), 1) | {"on_start": 0, "on_milestone": 0}
    assert columns() == {"success": True, "devices": [expected]}
    # Settings that aren't named stay. A request may name none.
    phone.set().expect(200)
    phone.set(onStart=True, onFailed=None).expect(200)
    assert columns()["devices"] == [expected | {"on_start": 1}]
    phone.set(notificationsEnabled=False).expect(200)
    assert columns()["devices"] == []
    phone.set(notificationsEnabled=True).expect(200)
    assert columns()["devices"] == [expected | {"on_start": 1}]


def test_unregister(world, server, printer, phone):
    other = world.user()
    # Another's is left alone, and looks the same.
    for caller, left in ((other, 1), (phone, 0), (phone, 0)):
        assert caller.unregister(phone.id).expect(200).json == {"success": True, "message": "Device unregistered"}
        assert len(server.devices(printer).json["devices"]) == left
    phone.set(onStart=True).expect(404, "device_not_found")
    assert server.status(printer, "idle", "running").expect(202).json["pushes"] == 0
    purged = eventually(lambda: ledger.read(world.state).of(phone.device.ref, "token.purged"), what="the purge")
    assert [entry["cause"] for entry in purged] == ["ended"]
    # The same token again is another device.
    assert phone.register(printer).expect(200).json["deviceId"] != phone.id
    other.close()


# Printers.

def test_changes_of_state(world, server):
    for old, new, kind, setting in CHANGES:
        printer = new_printer()
        phone, silent, off = (world.user().watch(printer) for _ in range(3))
        silent.set(**{setting: False}).expect(200)
        off.set(notificationsEnabled=False).expect(200)
        answer = server.status(printer, old, new, filename="benchy.3mf").expect(202).json
        assert answer == {"success": True, "notification": kind, "pushes": 1, "dropped": ["filename"]}
        check_push(phone.wait(1)[0], phone, printer, kind)
        assert silent.pushes() == off.pushes() == []
        for caller in (phone, silent, off):
            caller.close()


WORDS = [
    ("running", "finish", "print_complete"), ("running", "pause", "print_paused"), ("pause", "running", "print_started"),
    ("paused", "running", "print_started"), ("unavailable", "running", "print_started"), ("running", "running", None),
    ("running", "idle", None), ("running", "cancelled", None), ("idle", "complete", None), ("paused", "failed", None), ("idle", "prepare", None)]


def test_printers_words_for_a_status_are_understood(world, server):
    for old, new, kind in WORDS:
        printer = new_printer()
        phone = world.user().watch(printer)
        answer = server.status(printer, old, new).expect(202).json
        assert answer == {"success": True, "pushes": int(kind is not None)} | ({"notification": kind} if kind else {})
        if kind:
            check_push(phone.wait(1)[0], phone, printer, kind)
        phone.close()


def test_the_first_status_after_a_start(world, server, printer, phone):
    """A server that doesn't know the old status sends `unknown`, as docs/coming-from.md says."""
    refused = server.status(printer, None, "running")
    assert (refused.status, refused.code, refused.json["field"]) == (400, "missing_field", "oldStatus")
    assert server.status(printer, "unknown", "running").expect(202).json == {"success": True, "notification": "print_started", "pushes": 1}
    check_push(phone.wait(1)[0], phone, printer, "print_started")


# Promise: seed-monitor
def test_a_print_from_start_to_end(server, printer, phone):
    """Progress as a printer sends it, and the pushes on a phone."""
    server.status(printer, "prepare", "running").expect(202)
    phone.wait(1)
    told = []
    for percent in (0, 3, 12.5, 24.9, 25.0, 26, 31.4, 50.1, 49, 50, 74, 88, 87.5, 99, 100):
        answer = server.progress(printer, percent, filename="benchy.3mf").expect(202).json
        told += [percent] if answer.get("notification") else []
        # A push that Apple hasn't accepted is replaced by the next.
        phone.wait(1 + len(told))
        assert answer["pushes"] == int("notification" in answer) and answer["dropped"] == ["filename"]
    assert told == [25.0, 50.1, 88]
    server.status(printer, "running", "complete").expect(202)
    pushes = phone.wait(5)
    check_push(pushes[0], phone, printer, "print_started")
    for push, milestone in zip(pushes[1:4], MILESTONES):
        assert check_push(push, phone, printer, "progress_milestone", milestone).progress == milestone
    check_push(pushes[4], phone, printer, "print_complete")
    # Apple's screen: the end in place of the start, and the last milestone.
    shown = {push["headers"]["apns-collapse-id"]: push["payload"]["printerState"]["type"] for push in pushes}
    assert sorted(shown.values()) == ["print_complete", "progress_milestone"]


def test_milestones_are_pushed_once_a_run(world, server, printer, phone):
    def told(percent):
        answer = server.progress(printer, percent).expect(202).json
        eventually(lambda: world.state.jobs() == 0, what="the end of the push")
        return answer.get("notification")
    # The highest of the passed milestones. Lower ones are never pushed.
    assert told(80) and not told(30) and not told(60) and not told(100)
    # A pause ends no run, a start begins one.
    server.status(printer, "running", "paused").expect(202)
    server.status(printer, "paused", "running").expect(202)
    assert not told(76)
    server.status(printer, "complete", "running").expect(202)
    assert told(30) and not told(25) and told(55)
    assert [state.progress for state in phone.told() if state.type == "progress_milestone"] == [75, 25, 50]


def test_a_run_survives_kills(world, server, printer, phone):
    """kill -9 after each step: no push is repeated, and none is missing."""
    def restart():
        world.restart()
        server.close()
        phone.close()
    server.status(printer, "idle", "running", eventId="start").expect(202)
    for percent, told in ((30, True), (31, False), (50, True), (51, False), (24, False), (99, True), (100, False)):
        restart()
        # A newer milestone replaces one that still waits.
        eventually(lambda: world.state.jobs() == 0, 10, what="the end of all pushes")
        answer = server.progress(printer, percent, eventId=f"at {percent}").expect(202).json
        assert ("notification" in answer) == told, (percent, answer)
    restart()
    again = server.status(printer, "idle", "running", eventId="start").expect(202).json
    assert again == {"success": True, "pushes": 0, "repeated": True}
    assert "notification" not in server.progress(printer, 60).expect(202).json
    server.status(printer, "complete", "running", eventId="second").expect(202)
    eventually(lambda: world.state.jobs() == 0, 10, what="the end of all pushes")
    restart()
    assert "notification" in server.progress(printer, 60).expect(202).json
    eventually(lambda: world.state.jobs() == 0, 10, what="the end of all pushes")
    # A push under way at the kill is sent again under the same id, and Apple shows it once.
    pushes = {push["headers"]["apns-id"]: push["payload"]["printerState"].get("progress") for push in phone.pushes()}
    assert list(pushes.values()) == [None, 25, 50, 75, None, 50]


def test_an_event_with_an_id_happens_once(server, printer, phone):
    first = server.progress(printer, 50, eventId="event-1").expect(202).json
    again = server.progress(printer, 80, eventId="event-1").expect(202).json
    assert first["pushes"] == 1 and again == {"success": True, "pushes": 0, "repeated": True}
    assert "repeated" not in server.progress(new_printer(), 50, eventId="event-1").expect(202).json
    assert server.progress(printer, 80).expect(202).json["pushes"] == 1
    phone.wait(2)


def test_many_devices_on_one_printer(world, server, printer):
    """Each by its own settings, in one transaction."""
    caller, devices = world.user(), []
    settings = [{}, {"onStart": False}, {"onMilestone": False}, {"notificationsEnabled": False}]
    for number in range(120):
        if number % 40 == 0:
            caller = world.user()
        token = new_token()
        device = caller.register(printer, token).expect(200).json["deviceId"]
        caller.set(device, **settings[number % 4]).expect(200)
        devices.append((token, settings[number % 4]))
    assert len(server.devices(printer).expect(200).json["devices"]) == 90
    for setting, call in (("onStart", lambda: server.status(printer, "idle", "running")), ("onMilestone", lambda: server.progress(printer, 25))):
        world.simulator.forget()
        assert call().expect(202).json["pushes"] == 60
        wanted = sorted(token for token, off in devices if setting not in off and "notificationsEnabled" not in off)
        pushes = eventually(lambda: len(found := world.simulator.pushes()) >= 60 and found, 10, what="60 pushes")
        assert sorted(push["token"] for push in pushes) == wanted
        assert len({push["payload"]["printerState"]["prefix"] for push in pushes}) == 60, "handles of two devices are alike"


def test_a_token_unknown_to_apple_is_destroyed(world, server, printer, phone):
    world.simulator.fault(next=[{"token": phone.device.token, "reason": "Unregistered", "timestamp": int(time.time() * 1000) + 1000}])
    server.status(printer, "idle", "running").expect(202)
    purged = eventually(lambda: ledger.read(world.state).of(phone.device.ref, "token.purged"), what="the purge")
    assert [entry["cause"] for entry in purged] == ["ended"]
    assert server.devices(printer).json["devices"] == [] and server.status(printer, "running", "paused").expect(202).json["pushes"] == 0
    phone.set(onStart=False).expect(404, "device_not_found")


def test_printers_have_names_in_any_characters(world, server):
    """Percent-encoded in paths. A slash, a percent sign and the words of a route are part of a name."""
    for prefix, encoded in (("a/b %é", "a%2Fb%20%25%C3%A9"), ("settings", "settings"), ("register", "register"), ("P1S", "P1S"), ("p1s", "p1s")):
        phone = world.user().watch(prefix)
        assert [one["id"] for one in server.devices(encoded).expect(200).json["devices"]] == [phone.id]
        assert server.status(encoded, "idle", "running").expect(202).json["pushes"] == 1
        check_push(phone.wait(1)[0], phone, prefix, "print_started")
        phone.close()


# The operator's drill.

def test_the_drill_counts_what_opens_for_a_printer(world, server, printer, phone):
    """A device with a printer opens with the printer's prefix, and one without opens alone. A user's name opens neither."""
    bare = world.user()
    bare.register().expect(200)
    server.status(printer, "idle", "running").expect(202)

    def drill(question, given, *form):
        ran = mayfly("drill", *world.state.flags, question, given, *form)
        assert ran.returncode == 0 and not any(each in ran.stdout for each in (printer, phone.name, phone.device.token)), ran
        lines = ran.stdout.splitlines()
        assert form or len(lines) <= 24 and max(map(len, lines)) <= 79, lines
        return form and {each["subject"]: (each["held"], each["opens"], each["because"]) for each in json.loads(ran.stdout)["findings"]}
    for question in (("--printer", printer), ("--user", phone.name), ("--user", bare.name)):
        drill(*question)
    assert drill("--printer", printer, "--json") == {
        "printer_devices": (1, 1, "by its prefix"), "run": (1, 1, "its start and progress")}
    assert drill("--user", phone.name, "--json")["printer_devices"] == (1, 0, "each needs its printer's prefix")
    assert drill("--user", bare.name, "--json")["printer_devices"] == (1, 1, "without a printer")
    assert drill("--printer", phone.name, "--json") == {"printer_devices": (0, 0, "none; one that ended looks the same")}
    assert drill("--token", bare.device.token, "--json")["audience_tokens"][1] == 1
    assert drill("--token", phone.device.token, "--json")["audience_tokens"][1] == 0
    bare.close()


def test_the_log_verifies(world):
    """Runs last."""
    world.whole_log()
