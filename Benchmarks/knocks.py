"""Knocks at absent members. `Knocks` starts this file as a separate process, which makes rooms and prints `rooms`. Each line of its standard input then
names how many knocks to send, and how many a second."""

import json
import sys
import time

from steady import Connections, post


def token(room):
    """The creator's, unlike any other's."""
    return f"{room:064x}"


class Knocks:
    """`subscription`: a browser subscription that each creator uses instead of a token. `{}` in its endpoint becomes the room's number."""

    def __init__(self, port, rooms, subscription=None):
        from machine import LOAD_CPU
        from processes import Invalid, Process

        self.process = Process(f"knocks-{port}", [sys.executable, __file__, port, rooms, json.dumps(subscription)], {LOAD_CPU}, pipes=True)
        if self.process.child.stdout.readline().strip() != "rooms":
            raise Invalid(f"no rooms were made: {self.process.log()}")

    def knock(self, count, rate=None):
        """[(room; when the knock was sent, unix seconds; milliseconds until its answer; its `delivery`, or the problem's `code`)]"""
        from processes import Invalid

        self.process.child.stdin.write(f"{count} {rate or 0}\n")
        self.process.child.stdin.flush()
        told = self.process.child.stdout.readline()
        if not told:
            raise Invalid(f"knocking ended: {self.process.log()}")
        return json.loads(told)

    def stop(self):
        self.process.stop()


def made(connections, count, address=token):
    """Room ids, of rooms whose creator left a token and is away."""
    prefix, rooms = f"knocks-{time.time_ns()}", [None] * count
    creates = ((number, post("/api/rooms", {
        "joinid": f"{prefix}-{number}", "expiresInSeconds": 7200, "client1": "ann", "client1_token": address(number)})) for number in range(count))
    for asked in connections.ask(creates):
        if asked.status != 201:
            raise SystemExit(f"{asked.status} {asked.body!r}")
        rooms[asked.key] = json.loads(asked.body)["roomid"]
    accepts = ((number, post("/api/rooms/accept", {"joinid": f"{prefix}-{number}", "client2": "ben"})) for number in range(count))
    for asked in connections.ask(accepts):
        if asked.status != 200:
            raise SystemExit(f"{asked.status} {asked.body!r}")
    return rooms


def _came(body):
    told = json.loads(body)
    return told.get("delivery") or told.get("code")


def main(port, count, subscription):
    connections = Connections(port)
    address = (lambda room: subscription | {"endpoint": subscription["endpoint"].format(room)}) if subscription else token
    knocks = [post("/api/room/presence", {"client": "ben"}, room) for room in made(connections, count, address)]
    # Knocks within ten seconds of an accept leave a quarter of a second later.
    time.sleep(10)
    print("rooms", flush=True)
    turn = 0
    for line in sys.stdin:
        asked_for, rate = map(int, line.split())
        rooms = [(turn + number) % count for number in range(asked_for)]
        turn += asked_for
        seen = [
            (asked.key, round(asked.sent, 6), round((asked.answered - asked.sent) * 1000, 3), _came(asked.body))
            for asked in connections.ask(((room, knocks[room]) for room in rooms), rate or None)]
        print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
