"""A broker whose Web Push goes to the simulator."""

import json

from processes import free_port, mayfly
from world import World


class SimulatorPushWorld(World):
    """A second knock at a room may push after 10 seconds. `browsers`: true if a Firefox may call the simulator."""

    def __init__(self, browsers=False, **broker):
        super().__init__(apns=False, start=False, **broker)
        if browsers:
            self.simulator.browsers = free_port()
            self.simulator.more = ["--browsers", f"127.0.0.1:{self.simulator.browsers}"]
        self.simulator.start()
        hosts, key = self.state.parent / "hosts", self.state.parent / "vapid.pem"
        hosts.write_text("".join(
            f"{host}:{self.simulator.port} private ca {self.state / 'keys/simulator-ca.pem'}\n" for host in ("127.0.0.1", "localhost")))
        assert mayfly("push", "keys", key).returncode == 0
        options = {"vapid-key": key, "vapid-contact": "mailto:ops@chat.example", "web-origin": "https://app.example", "web-push-hosts": hosts}
        self.broker.options |= options
        enabled = mayfly("push", "enable", *self.state.flags, *(word for name, value in options.items() for word in (f"--{name}", value)))
        assert enabled.returncode == 0, enabled
        rooms = self.broker.cwd / "rooms"
        policy = json.loads(rooms.read_text())
        policy["limits"]["knockThrottleSeconds"] = 10
        rooms.write_text(json.dumps(policy))
        self.broker.start()
