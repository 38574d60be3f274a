"""A broker with its simulator, as one thing."""

import ledger
from mayfly import Client
from processes import Broker, Simulator, State, audit_verify, eventually
from push_services import PushServices


class World:
    """A state, its broker and its simulator. `postgres`: see State. `binary`, `prefix` and `environment` are the broker's. `web_push`: true if it
    sends Web Push, or the hosts of PushServices."""

    def __init__(self, apns=True, start=True, binary=None, prefix=(), environment={}, postgres=False, web_push=False, **broker):
        self.state = State(postgres=postgres)
        self.simulator = Simulator(self.state)
        self.broker = Broker(self.state, self.simulator.port, **broker)
        self.broker.binary, self.broker.prefix = binary or self.broker.binary, prefix
        try:
            self.push = web_push and PushServices(self.state, self.simulator, self.broker, {} if web_push is True else web_push)
            if apns:
                self.simulator.start()
            if start:
                self.broker.start(**environment)
        except BaseException:
            self.close()
            raise

    def client(self, **more):
        return Client(self.broker.port, **more)

    def whole_log(self):
        """Waits for the outcome of each push, and returns the log, which must verify."""
        def is_balanced():
            counts = ledger.read(self.state).counts()
            return counts["token.opened"] == counts["push.delivered"] + counts["push.failed"]
        eventually(lambda: self.state.jobs() == 0 and is_balanced(), 30, 0.2, "an outcome for each push in the log")
        verified = audit_verify(self.state)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        return ledger.read(self.state).check()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.broker.kill()
        self.simulator.kill()
        self.state.remove()
