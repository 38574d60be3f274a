"""Background load: people who make and join rooms, change phones, leave, and are knocked at."""

import random
import threading
from contextlib import contextmanager


class Load:
    """Threads that play rooms and record them in `truth`, except while paused. `knocks`: whether they also knock."""

    def __init__(self, truth, threads=2):
        self.truth, self.knocks, self.failure = truth, False, None
        self.phones = [truth.phone() for _ in range(24)]
        self._ended = threading.Event()
        self._gates = [threading.Lock() for _ in range(threads)]
        self.done = 0
        self._threads = [threading.Thread(target=self._play, args=(gate, number)) for number, gate in enumerate(self._gates)]
        for thread in self._threads:
            thread.start()

    @contextmanager
    def resting(self):
        for gate in self._gates:
            gate.acquire()
        try:
            yield
        finally:
            for gate in self._gates:
                gate.release()

    def end(self):
        self._ended.set()
        for thread in self._threads:
            thread.join()
        assert self.failure is None, f"the load failed: {self.failure!r}"

    def _play(self, gate, number):
        chance, client, open_rooms = random.Random(number), self.truth.stage.client(), []
        while not self._ended.wait(0.004):
            with gate:
                try:
                    self._act(chance, client, open_rooms)
                    self.done += 1
                except BaseException as failure:
                    self.failure = failure
                    return

    def _act(self, chance, client, open_rooms):
        truth, now = self.truth, self.truth.stage.now
        open_rooms[:] = [room for room in open_rooms if room.expires > now + 30]
        roll = chance.random()
        if roll < 0.5 or not open_rooms:
            creator, joiner = chance.sample(self.phones, 2)
            room = truth.create(client, creator, life=chance.randrange(3_600, 400_000))
            if chance.random() < 0.8:
                open_rooms.append(truth.accept(client, room, joiner))
        elif roll < 0.7:
            room = chance.choice(open_rooms)
            others = [phone for phone in self.phones if phone not in room.phones.values()]
            truth.replace(client, room, chance.choice((1, 2)), chance.choice(others))
        elif roll < 0.75:
            truth.close(client, open_rooms.pop(chance.randrange(len(open_rooms))))
        elif self.knocks:
            truth.knock(client, chance.choice(open_rooms), chance.choice((1, 2)))
