"""The seed's phone, and its server where it speaks to the service for devices, from its document alone: its routes, its field names, its messages, and
what its Swift types would decode.

Nothing here knows the server but by that document and the two things that were added to it: the JWT, and the handle key of a registration.
"""

from dataclasses import dataclass

from companion_client import Caller, Device, DecodingError, _value, handle
from mayfly import given
from processes import eventually

# The settings of a device: a call's name, and the table's.
SETTINGS = {
    "notificationsEnabled": "notifications_enabled", "onStart": "on_start", "onComplete": "on_complete", "onFailed": "on_failed",
    "onPaused": "on_paused", "onMilestone": "on_milestone"}
TYPES = ("print_started", "print_complete", "print_failed", "print_paused", "progress_milestone")
MILESTONES = (25, 50, 75)


@dataclass(frozen=True)
class DeviceRegistrationResponse:
    success: bool
    deviceId: str
    message: str

    @classmethod
    def decode(cls, values):
        return cls(_value(values, "success", bool), _value(values, "deviceId", str), _value(values, "message", str))


@dataclass(frozen=True)
class PrinterState:
    """`userInfo["printerState"]` of a notification, as the app reads it."""
    type: str
    prefix: str
    progress: int | None
    status: str | None
    filename: str | None

    @classmethod
    def decode(cls, payload):
        state = _value(payload, "printerState", dict)
        kind = _value(state, "type", str)
        if kind not in TYPES:
            raise DecodingError(f"{kind} is no type that the app knows")
        return cls(
            kind, _value(state, "prefix", str), _value(state, "progress", int, True), _value(state, "status", str, True),
            _value(state, "filename", str, True))


class MonitorPhone(Caller):
    """One phone of one user."""

    def __init__(self, broker, simulator, jwt, name=None):
        super().__init__(broker, jwt, name)
        self.simulator = simulator
        self.device = Device()

    def register(self, prefix=None, token=None, name=None, **more):
        """As the app's `registerDevice` sends it: a nil is not there."""
        body = {"apnsToken": token or self.device.token, "haUrl": "http://homeassistant.local:8123"}
        given.add(body["apnsToken"])
        body |= {key: value for key, value in (("printerPrefix", prefix), ("printerName", name)) if value is not None}
        return self.call("POST", "/api/devices/register", body | more)

    def watch(self, prefix):
        """Registered for a printer."""
        self.device.answer = self.register(prefix).expect(200).json
        DeviceRegistrationResponse.decode(self.device.answer)
        return self

    @property
    def id(self):
        return self.device.answer["deviceId"]

    def set(self, device=None, **settings):
        return self.call("PATCH", f"/api/devices/{device or self.id}/settings", settings)

    def unregister(self, device=None):
        return self.call("DELETE", f"/api/devices/{device or self.id}")

    def handle(self, prefix, kind="printer"):
        return handle(self.device.answer["handleKey"], prefix, kind)

    def pushes(self):
        return self.simulator.pushes(self.device.token)

    def wait(self, count, seconds=5):
        """Waits for exactly so many pushes."""
        eventually(lambda: len(self.pushes()) >= count, seconds, what=f"{count} pushes")
        pushes = self.pushes()
        assert len(pushes) == count, f"{len(pushes)} pushes, not {count}: {[push['payload'] for push in pushes]}"
        return pushes

    def told(self):
        return [PrinterState.decode(push["payload"]) for push in self.pushes()]


class PrinterServer(Caller):
    """The app's own server, which hears from printers: its notification trigger, with a call where it sent pushes itself."""

    def status(self, prefix, old, new, **more):
        return self.call("POST", f"/api/monitors/{prefix}/status", {"oldStatus": old, "newStatus": new} | more)

    def progress(self, prefix, progress, **more):
        return self.call("POST", f"/api/monitors/{prefix}/progress", {"progress": progress} | more)

    def devices(self, prefix):
        return self.call("GET", f"/api/devices/by-printer/{prefix}")
