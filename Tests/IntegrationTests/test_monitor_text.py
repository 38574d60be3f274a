"""Text in every field of every call is kept nowhere, since the monitor uses none of it."""

import time

import pytest

import ledger
from companion_client import Device
from monitor_world import MonitorWorld
from processes import eventually
from test_companion_text import Planted

pytestmark = pytest.mark.campaign


def test_text_of_a_monitor_is_kept_nowhere():
    """Names, file names, URLs, prefixes and uids, in each field and path of good and bad calls, before and after a kill and a stop."""
    with MonitorWorld() as world:
        plant_and_search(world)


def plant_and_search(world):
    planted = Planted()
    text, token = planted.text, planted.token

    def more(call):
        fields = {name: text(f"{call} {name}") for name in (
            "haUrl", "printerName", "filename", "fileName", "title", "body", "summary", "message", "url", "name", "platform", "unknown")}
        return fields | {"haUrl": f"http://{text(call + ' host')}.local:8123/{text(call + ' path')}",
                         "filename": {text(f"{call}, a name inside"): [text(f"{call} inside")]}, text(f"{call}, a name"): text(f"{call} value")}
    prefix, user = text("prefix"), text("user")
    phone, server = world.phone(user), world.server(text("back end"))
    phone.jwt = world.users.token(user, name=text("JWT name"), email=text("JWT email"))
    phone.device = Device(token("device token"))
    phone.device.answer = phone.call(
        "POST", "/api/devices/register", {"apnsToken": phone.device.token, "printerPrefix": prefix} | more("register")).expect(200).json
    assert phone.device.answer["dropped"] == ["body", "fileName", "filename", "haUrl", "message", "name", "printerName", "summary", "title", "url"]
    phone.set(onFailed=False, **more("settings")).expect(200)
    moved = {"apnsToken": token("second token"), "printerPrefix": text("printer before")} | more("second")
    phone.call("POST", "/api/devices/register", moved).expect(200)
    phone.call("POST", "/api/devices/register", moved | {"printerPrefix": prefix}).expect(200)
    def settled():
        eventually(lambda: world.state.jobs() == 0, what="the end of all pushes")
    listed = server.devices(prefix).expect(200)
    assert len(listed.json["devices"]) == 2 and planted.canaries.in_bytes(listed.body) == []
    for old, new in (("idle", "running"), ("running", "paused"), ("paused", "running"), ("running", "failed")):
        server.status(prefix, old, new, eventId=text("event id"), **more("status")).expect(202)
        settled()
    for percent in (26, 51.5):
        server.progress(prefix, percent, eventId=text("event id"), **more("progress")).expect(202)
        settled()
    server.progress(text("unwatched prefix"), 30).expect(202)
    ignored = server.status(prefix, text("old status"), text("new status")).expect(200)
    assert ignored.json["ignored"] == "unknown_status"
    refused = [
        phone.call("POST", "/api/devices/register", {"apnsToken": text("token") + "zz", "printerPrefix": [text("prefix")]}),
        phone.call("POST", "/api/devices/register", {"apnsToken": token("token of a wrong environment"), "environment": text("environment")}),
        phone.call("POST", "/api/devices/register", {"apnsToken": token("token of another app"), "bundleId": text("bundle")}),
        phone.call("POST", "/api/devices/register", {"apnsToken": token("long prefix"), "printerPrefix": text("long prefix") * 5}),
        phone.call("POST", "/api/devices/register", ('{"apnsToken":"' + text("cut short")).encode()),
        phone.set(text("device id"), onStart=text("flag")), phone.set(onStart=text("flag")), phone.call("GET", f"/api/devices/{text('path')}"),
        phone.call("POST", f"/api/monitors/{text('prefix')}/status", {}),
        server.progress(prefix, text("progress")),
        server.status(prefix, "idle", "running", eventId=text("event id") * 5), server.devices(text("prefix") * 5),
        server.call("POST", f"/api/monitors/{prefix}/{text('path')}", {})]
    assert all(answer.status >= 400 for answer in refused), [answer.status for answer in refused]
    planted.is_not_in([*refused, ignored])
    phone.call("DELETE", f"/api/devices/{text('device id')}").expect(200)
    # Of two devices, one wants no news of failures.
    assert len(world.simulator.pushes()) == 11
    # The log has waited for its window.
    time.sleep(1.5)
    planted.search(world, "while devices watch")
    assert (world.state / "mayfly.sqlite-wal").stat().st_size > 0, "there is no log to look into"
    world.broker.kill()
    planted.search(world, "killed")
    world.broker.start()
    phone.close()
    server.close()
    server.status(prefix, "running", "complete").expect(202)
    phone.unregister().expect(200)
    settled()
    assert world.broker.stop() == 0
    planted.search(world, "stopped")
    assert ledger.read(world.state).check().counts()["push.delivered"] > 10
    phone.close()
    server.close()
