"""A broker for apps with accounts, with its simulator; its policy's limits are for tests to change."""

import json
import secrets
from contextlib import contextmanager

from companion_client import Caller, Phone, Users
from processes import REPOSITORY, eventually
from world import World

# A well-formed id that nothing has.
UNKNOWN = "A" * 22
ROUTES = [
    ("POST", "/api/push/register", {"deviceToken": "ab" * 32}),
    ("POST", "/api/push/live-activity/register", {"activityToken": "ab" * 32, "activityId": "a", "sessionId": "s"}),
    ("DELETE", f"/api/push/token/tok_{UNKNOWN}", None), ("GET", "/api/push/status", None),
    ("POST", "/api/push/clear-approval", {"requestId": UNKNOWN}), ("DELETE", "/api/push/session/s/notifications", None),
    ("POST", "/api/sessions/s/events", {"type": "approval_request", "data": {}}),
    ("POST", f"/api/approval/{UNKNOWN}/respond", {"approved": True}), ("GET", f"/api/approval/{UNKNOWN}", None)]


def users(state):
    return Users((state / "keys/jwt.secret").read_text().strip())


def settings(state, kind="companion", rooms="rooms", **limits):
    """The options with which a broker serves a companion, or another `kind` of app. `rooms`: the policy for rooms beside it."""
    return {"jwt-algorithm": "HS256", "jwt-key": state / "keys/jwt.secret", "policy": f"{rooms},{_policy(state, kind, limits)}"}


def _policy(state, kind, limits):
    if not limits:
        return kind
    policy = json.loads((REPOSITORY / f"policies/{kind}.json").read_text())
    unknown = set(limits) - set(policy["limits"])
    assert not unknown, f"no limits of the policy: {unknown}"
    policy["limits"] |= limits
    if "approvalSeconds" in limits:
        policy["templates"]["approval_request"]["times"]["expiresAt"] = limits["approvalSeconds"]
    path = state.prints / f"{kind}.json"
    path.write_text(json.dumps(policy))
    return path


class CompanionWorld(World):
    """`limits` replace those of the built-in policy; without any that one is in force."""

    kind = "companion"

    def __init__(self, start=True, postgres=False, web_push=False, **limits):
        super().__init__(start=False, postgres=postgres, web_push=web_push)
        self.users = users(self.state)
        self.broker.options |= settings(self.state, self.kind, **limits)
        try:
            if start:
                self.broker.start()
        except BaseException:
            self.close()
            raise

    def phone(self, user):
        return Phone(self.broker, self.simulator, self.users.token(user), user)

    def back_end(self, name="back-end"):
        return Caller(self.broker, self.users.back_end(name), name)

    def user(self, user=None):
        """A new user with one phone."""
        return self.phone(user or "user-" + secrets.token_hex(6)).log_in()

    def restart(self):
        """kill -9, and the same broker again."""
        self.broker.kill()
        self.broker.start()


def new_session():
    return "session-" + secrets.token_hex(6)


@contextmanager
def nothing_kept_by(world):
    """Fails if the block adds a row or a push."""
    eventually(lambda: world.state.jobs() == 0, what="the end of earlier pushes")
    before, pushes = world.state.counts(), len(world.simulator.pushes())
    yield
    assert world.state.counts() == before, "a refused request left rows behind"
    assert world.state.jobs() == 0 and len(world.simulator.pushes()) == pushes, "a refused request left a push behind"
