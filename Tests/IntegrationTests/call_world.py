"""A broker for calls, with its simulator and the secret that its webhooks are signed by."""

import secrets

from call_client import CallingService, PhoneThatRings
from companion_client import Caller
from companion_world import users
from world import World


class CallWorld(World):
    """`policies`: those in force besides the one for calls. The webhooks' secret is in a file."""

    def __init__(self, start=True, policies="rooms,companion", environment={}, postgres=False, **broker):
        super().__init__(start=False, postgres=postgres, policy=f"{policies},calls", **broker)
        self.users = users(self.state)
        self.secret = (self.state / "keys/webhook.secret").read_text().strip()
        self.broker.options |= {
            "jwt-algorithm": "HS256", "jwt-key": self.state / "keys/jwt.secret", "webhook-secrets": self.state / "keys/webhook.secret"} | {
                name.replace("_", "-"): value for name, value in broker.items()}
        try:
            if start:
                self.broker.start(**environment)
        except BaseException:
            self.close()
            raise

    def phone(self, uid=None, contacts=()):
        uid = uid or "user-" + secrets.token_hex(6)
        return PhoneThatRings(self.broker, self.simulator, self.users.token(uid), uid, contacts)

    def back_end(self, name="back-end"):
        return Caller(self.broker, self.users.back_end(name), name)

    def restart(self):
        """kill -9, and the same broker again."""
        self.broker.kill()
        self.broker.start()

    def service(self, secret=None, **more):
        return CallingService(self.broker, secret or self.secret, **more)
