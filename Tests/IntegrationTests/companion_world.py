"""A broker for apps with accounts, with its simulator; its policy's limits are for tests to change."""

import json
import secrets
from pathlib import Path

from companion_client import Caller, Phone, Users
from processes import REPOSITORY
from world import World


class CompanionWorld(World):
    """`limits` replace those of the built-in policy; without any that one is in force."""

    def __init__(self, start=True, **limits):
        super().__init__(start=False)
        secret = self.state / "keys/jwt.secret"
        self.users = Users(Path(secret).read_text().strip())
        self.broker.options |= {"jwt-algorithm": "HS256", "jwt-key": secret, "policy": f"rooms,{self._policy(limits)}"}
        try:
            if start:
                self.broker.start()
        except BaseException:
            self.close()
            raise

    def _policy(self, limits):
        if not limits:
            return "companion"
        policy = json.loads((REPOSITORY / "policies/companion.json").read_text())
        unknown = set(limits) - set(policy["limits"])
        assert not unknown, f"no limits of the policy: {unknown}"
        policy["limits"] |= limits
        if "approvalSeconds" in limits:
            policy["templates"]["approval_request"]["times"]["expiresAt"] = limits["approvalSeconds"]
        path = self.state.prints / "companion.json"
        path.write_text(json.dumps(policy))
        return path

    def phone(self, user):
        return Phone(self.broker, self.simulator, self.users.token(user), user)

    def back_end(self, name="back-end"):
        return Caller(self.broker, self.users.back_end(name), name)

    def user(self, user=None):
        """A user of its own, with one phone."""
        return self.phone(user or "user-" + secrets.token_hex(6)).log_in()

    def restart(self):
        """kill -9, and the same broker again."""
        self.broker.kill()
        self.broker.start()


def new_session():
    return "session-" + secrets.token_hex(6)
