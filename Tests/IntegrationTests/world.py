"""A broker with its simulator, as one thing."""

from mayfly import Client
from processes import Broker, Simulator, State


class World:
    """A state folder, its broker and its simulator."""

    def __init__(self, apns=True, **broker):
        self.state = State()
        self.simulator = Simulator(self.state)
        self.broker = Broker(self.state, self.simulator.port, **broker)
        try:
            if apns:
                self.simulator.start()
            self.broker.start()
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
