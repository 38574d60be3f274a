"""A slot with very many pushes: what each costs while it waits, and what callers notice when all leave together.

MAYFLY_BINARY=.build/release/mayfly .build/venv/bin/python Tests/IntegrationTests/full_slot.py [PUSHES]
"""

import re
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mayfly import Client
from test_timing import arrival, drawn, sleep_into_slot, timed_policy
from world import World

SLOT, WORKERS = 45, 4


def anonymous(process):
    status = Path(f"/proc/{process.child.pid}/status").read_text()
    return int(re.search(r"^RssAnon:\s+(\d+) kB", status, re.M)[1]) * 1024


def in_parts(world, items, work):
    def part(number):
        client = Client(world.broker.port, checked=False)
        try:
            return [work(client, item) for item in items[number::WORKERS]]
        finally:
            client.close()
    with ThreadPoolExecutor(WORKERS) as threads:
        return [done for found in threads.map(part, range(WORKERS)) for done in found]


class Asking:
    """Sends requests from a thread of its own, and records the time and the latency of each answer."""

    def __init__(self, what, ask):
        self.what, self.ask, self.took, self.ended = what, ask, [], False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ended:
            begin = time.time()
            assert self.ask().status == 200
            self.took.append((begin, (time.time() - begin) * 1000))
            time.sleep(0.001)

    def end(self):
        self.ended = True
        self.thread.join()

    def tell(self, when, first, last):
        took = sorted(ms for begin, ms in self.took if begin < last and begin + ms / 1000 > first)
        print(f"{self.what}, {when}: {len(took)} answers, median {took[len(took) // 2]:.1f} ms, longest {took[-1]:.1f} ms")


def main(count):
    with tempfile.TemporaryDirectory() as folder:
        with World(policy=timed_policy(Path(folder) / "policy.json", slot=SLOT), resolution=SLOT) as world:
            rooms = in_parts(world, range(count), lambda client, _: client.room(tokens=(True, False)))
            client, operator = Client(world.broker.port, checked=False), Client(world.broker.operator_port, checked=False)
            sleep_into_slot(SLOT, 0)
            before = anonymous(world.broker)
            begin = time.time()
            answers = in_parts(world, rooms, lambda client, room: client.presence(room.roomid, room.joiner.client).json["delivery"])
            assert answers == ["queued"] * count
            print(f"{count:,} knocks in {time.time() - begin:.1f} s")
            times = set(drawn(world).values())
            assert len(times) == 1, "this machine is too slow: they fell into two slots"
            leaves = times.pop()
            time.sleep(3)
            print(f"memory of one that waits: {(anonymous(world.broker) - before) / count:,.0f} bytes")
            time.sleep(max(0, leaves - 5 - time.time()))
            room = rooms[0].roomid
            askings = [
                Asking("a room's status", lambda: client.status(room)),
                Asking("health, without the store", lambda: operator.send("GET", "/healthz"))]
            time.sleep(leaves + 10 - time.time())
            for asking in askings:
                asking.end()
            pushes = world.simulator.pushes()
            assert len(pushes) == count, len(pushes)
            first, last = min(map(arrival, pushes)), max(map(arrival, pushes))
            for asking in askings:
                asking.tell("before", leaves - 4, leaves - 1)
                asking.tell("while they leave", first, last)
            print(f"the first came {first - leaves:.2f} s after the slot's time, the last {last - leaves:.2f} s")
            client.close()
            operator.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
