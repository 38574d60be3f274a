"""Lets a broker send Web Push to services on loopback under the large services' names, which a preloaded library resolves."""

from cryptography.hazmat.primitives.serialization import load_pem_private_key

from certificates import openssl
from preload import library
from processes import mayfly
from web_push_service import base64url, point_of

HOSTS = {
    "mozilla": "updates.push.services.mozilla.com", "google": "fcm.googleapis.com", "apple": "web.push.apple.com",
    "microsoft": "wns2-am3p.notify.windows.com"}


class PushServices:
    """Makes the simulator's certificate and the broker's settings before either starts, and switches Web Push on. `hosts`: names of services at
    other ports, by port. `clock`: the environment of moved clocks."""

    def __init__(self, state, simulator, broker, hosts={}, clock={}):
        self.simulator = simulator
        hosts = [*((name, simulator.port) for name in HOSTS.values()), *((name, port) for port, name in hosts.items())]
        self.path, self.key, both = state / "keys/simulator-ca.pem", state.parent / "services.key", state / "keys/simulator.pem"
        names = {name for name, _ in hosts}
        # A name of somebody's own is in no file of the broker.
        certified = {*HOSTS.values(), *("*." + name.split(".", 1)[1] for name in names), "localhost"}
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key, "-out", self.path,
                "-days", 30, "-subj", "/CN=push.mayfly.test", "-addext",
                "subjectAltName=" + ",".join(f"DNS:{name}" for name in certified) + ",IP:127.0.0.1")
        both.write_bytes(self.path.read_bytes() + self.key.read_bytes())
        listed, vapid = state.parent / "hosts", state.parent / "vapid.pem"
        listed.write_text("".join(f"{name}:{port} private ca {self.path}\n" for name, port in hosts))
        assert mayfly("push", "keys", vapid).returncode == 0
        self.vapid = load_pem_private_key(vapid.read_bytes(), None)
        options = {"vapid-key": vapid, "vapid-contact": "mailto:ops@chat.example", "web-origin": "https://app.example", "web-push-hosts": listed}
        broker.options |= options
        store = {name: state.options[name] for name in ("state", "database") if name in state.options}
        enabled = mayfly("push", "enable", *(word for name, value in (store | options).items() for word in (f"--{name}", value)), **clock)
        assert enabled.returncode == 0, enabled
        broker.environment = {"LD_PRELOAD": library("names.c"), "TEST_NAMES": ",".join(f"{name}=127.0.0.1" for name in names)}

    def subscribe(self, dialect="google", key=None, **more):
        """A new subscription at the simulator, for this public key or the broker's first one."""
        key = key or base64url(point_of(self.vapid))
        return self.simulator.subscribe(dialect, key, origin=f"https://{HOSTS[dialect]}:{self.simulator.port}", **more)
