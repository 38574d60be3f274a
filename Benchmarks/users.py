"""Users of an app with accounts. `Users` starts this file as a separate process. Each line of its standard input, a JSON array of a function's name and its
arguments, is answered with a line. JWTs are made here, by the broker's secret."""

import base64
import hashlib
import hmac
import json
import random
import sys
import time
from pathlib import Path

from steady import Connections, post

LIFE = 6 * 3600


def _base64url(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def read(file):
    """The secret in a file, which ends in a newline."""
    return Path(file).read_bytes().rstrip(b"\n")


def jwt(secret, sub, **more):
    now = int(time.time())
    claims = {"sub": sub, "iat": now, "exp": now + LIFE, **more}
    signed = ".".join(_base64url(json.dumps(part, separators=(",", ":")).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return f"{signed}.{_base64url(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


def back_end(secret):
    return jwt(secret, "back-end", scope="broker.notify")


def user(number):
    return f"user-{number}"


def device(number):
    return f"{number:064x}"


def activity(number):
    """A Live Activity's token is longer than a device's."""
    return f"{number + 1:0160x}"


class Users:
    """`secret`: the file that the broker verifies JWTs by."""

    def __init__(self, port, secret):
        # This file is the child's program, too, which has one core. Importing `machine` needs two.
        from machine import LOAD_CPU
        from processes import Process

        self.process = Process(f"users-{port}", [sys.executable, __file__, port, secret], {LOAD_CPU}, pipes=True)

    def _do(self, *command):
        from processes import Invalid

        self.process.child.stdin.write(json.dumps(command) + "\n")
        self.process.child.stdin.flush()
        told = self.process.child.stdout.readline()
        if not told:
            raise Invalid(f"{command[0]} ended: {self.process.log()}")
        return json.loads(told)

    def devices(self, first, end):
        """Registers a device for each of these users."""
        return self._do("devices", first, end)

    def activities(self, count, each=1):
        """Registers Live Activities, `each` for a user, each of a session of its own."""
        return self._do("activities", count, each)

    def phones(self, count):
        """Registers a phone that rings for each of so many users."""
        return self._do("phones", count)

    def calls(self, users, count, rate, seed):
        """Webhooks of so many calls, each to one of these users; the same seed again: the same calls. [(milliseconds from when it was due to the
        answer; its status; how many phones rang)]"""
        return self._do("calls", users, count, rate, seed)

    def monitors(self, count, printer, silent):
        """Registers a monitor's device for each of so many users. Each `silent`th wants no milestones."""
        return self._do("monitors", count, printer, silent)

    def complete(self, users, count, rate, seed):
        """Sends `task_complete` for so many of these users. Returns [(due time in unix seconds; milliseconds from there to the answer; status)]."""
        return self._do("complete", users, count, rate, seed)

    def progress(self, activities, each, count, rate, seed):
        """Updates of these Live Activities, so many in all. [(activity; how many it has had; when sent, when answered, unix seconds; milliseconds from
        when it was due; status)]"""
        return self._do("progress", activities, each, count, rate, seed)

    def approvals(self, users, seconds):
        """Approvals asked for, as fast as they are answered, and each answered at once, by the device that was told. (how many were; seconds;
        refused or failed requests)"""
        return self._do("approvals", users, seconds)

    def stop(self):
        self.process.stop()


class _Work:
    def __init__(self, port, secret):
        self.port, self.secret = port, read(secret)
        self.webhooks = read(Path(secret).with_name("webhook.secret"))
        self.back_end = back_end(self.secret)

    def do(self, name, *taken):
        # Fresh ones: those that were idle for a minute are closed.
        self.connections = Connections(self.port)
        return getattr(self, name)(*taken)

    def _register(self, requests):
        for asked in self.connections.ask(requests):
            if asked.status != 200:
                raise SystemExit(f"{asked.status} {asked.body!r}")

    def devices(self, first, end):
        self._register((
            (number, post("/api/push/register", {"deviceToken": device(number), "platform": "ios"}, jwt(self.secret, user(number))))
            for number in range(first, end)))
        return end - first

    def activities(self, count, each):
        self._register((
            (number, post("/api/push/live-activity/register", {
                "activityToken": activity(number), "activityId": f"activity-{number}", "sessionId": f"session-{number}"},
                jwt(self.secret, user(number // each))))
            for number in range(count)))
        return count

    def phones(self, count):
        self._register((
            (number, post("/api/voip/token", {"uid": user(number), "token": device(number)}, jwt(self.secret, user(number))))
            for number in range(count)))
        return count

    def calls(self, users, count, rate, seed):
        chosen = random.Random(seed)

        def requests():
            for number in range(count):
                session = f"session-{seed}-{number}"
                body = json.dumps({"trigger": "call_initiated", "data": {
                    "id": session, "sessionId": session, "type": "video", "initiator": {"uid": user(users + number), "name": "Alice"},
                    "receiver": {"uid": user(chosen.randrange(users)), "name": "Bob"}, "receiverType": "user"}}).encode()
                signature = hmac.new(self.webhooks, body, hashlib.sha256).hexdigest()
                yield None, (
                    f"POST /webhooks/call HTTP/1.1\r\nHost: bench\r\nX-CometChat-Signature: {signature}\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n").encode() + body

        return [
            (round((asked.answered - asked.due) * 1000, 3), asked.status, json.loads(asked.body).get("rang"))
            for asked in self.connections.ask(requests(), rate)]

    def monitors(self, count, printer, silent):
        jwts = [jwt(self.secret, user(number)) for number in range(count)]
        registered = (
            (number, post("/api/devices/register", {"apnsToken": device(number), "printerPrefix": printer}, jwts[number])) for number in range(count))
        ids = {asked.key: json.loads(asked.body)["deviceId"] for asked in self.connections.ask(registered)}
        quiet = (
            (number, post(f"/api/devices/{ids[number]}/settings", {"onMilestone": False}, jwts[number], "PATCH")) for number in range(0, count, silent))
        self._register(quiet)
        return len(ids)

    def complete(self, users, count, rate, seed):
        chosen = random.Random(seed)
        done = {"type": "task_complete", "status": "success"}
        requests = (
            (None, post("/api/sessions/task/events", {"userId": user(chosen.randrange(users)), **done}, self.back_end))
            for _ in range(count))
        return [
            (round(asked.due, 4), round((asked.answered - asked.due) * 1000, 3), asked.status)
            for asked in self.connections.ask(requests, rate)]

    def progress(self, activities, each, count, rate, seed):
        chosen, had, at = random.Random(seed), [0] * activities, [-rate] * activities

        def requests():
            for turn in range(count):
                number = chosen.randrange(activities)
                # Two at once might be taken in either order.
                while turn - at[number] < rate:
                    number = chosen.randrange(activities)
                at[number] = turn
                had[number] += 1
                yield (number, had[number]), post(f"/api/sessions/session-{number}/events", {
                    "userId": user(number // each), "type": "progress_update",
                    "data": {"elapsedSeconds": 10 * had[number], "todoProgress": {"completed": had[number], "total": 999}}}, self.back_end)

        return [
            (*asked.key, round(asked.sent, 4), round(asked.answered, 4), round((asked.answered - asked.due) * 1000, 3), asked.status)
            for asked in self.connections.ask(requests(), rate)]

    def approvals(self, users, seconds):
        jwts, answers = [jwt(self.secret, user(number)) for number in range(users)], []
        start, bad, answered = time.monotonic(), 0, 0

        def requests():
            number = 0
            while time.monotonic() < start + seconds:
                if answers:
                    told, request = answers.pop()
                    yield None, post(f"/api/approval/{request}/respond", {"approved": True, "deviceToken": device(told)}, jwts[told])
                else:
                    number = (number + 1) % users
                    yield number, post(f"/api/sessions/approval-{number}/events", {"userId": user(number), "type": "approval_request"}, self.back_end)

        for asked in self.connections.ask(requests()):
            if asked.status >= 300:
                bad += 1
            elif asked.key is None:
                answered += 1
            else:
                answers.append((asked.key, json.loads(asked.body)["requestId"]))
        return answered, time.monotonic() - start, bad


def main(port, secret):
    work = _Work(port, secret)
    for line in sys.stdin:
        print(json.dumps(work.do(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
