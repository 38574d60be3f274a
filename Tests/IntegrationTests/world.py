"""A broker with its simulator, as one thing."""

from mayfly import Client
from processes import Broker, Simulator, State


class World:
    """A state folder, its broker and its simulator. `binary`, `prefix` and `environment` are the broker's."""

    def __init__(self, apns=True, start=True, binary=None, prefix=(), environment={}, **broker):
        self.state = State()
        self.simulator = Simulator(self.state)
        self.broker = Broker(self.state, self.simulator.port, **broker)
        self.broker.binary, self.broker.prefix = binary or self.broker.binary, prefix
        try:
            if apns:
                self.simulator.start()
            if start:
                self.broker.start(**environment)
        except BaseException:
            self.close()
            raise

    def client(self, **more):
        return Client(self.broker.port, **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.broker.kill()
        self.simulator.kill()
        self.state.remove()
