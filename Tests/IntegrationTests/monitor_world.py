"""A broker for monitors, with its simulator; its policy's limits are for tests to change."""

import secrets

from companion_world import CompanionWorld
from monitor_client import MonitorPhone, PrinterServer


class MonitorWorld(CompanionWorld):
    kind = "monitor"

    def phone(self, user):
        return MonitorPhone(self.broker, self.simulator, self.users.token(user), user)

    def user(self, user=None):
        """A phone of a new user, not registered."""
        return self.phone(user or "user-" + secrets.token_hex(6))

    def server(self, name="back-end"):
        return PrinterServer(self.broker, self.users.back_end(name), name)


def new_printer():
    return "printer-" + secrets.token_hex(6)
