"""clients/unifiedpush/receiver.py as an Android app runs it: a distributor at the simulator, and the real broker."""

import base64
import sys

import pytest

from mayfly import new_client
from processes import REPOSITORY, eventually
from push_world import SimulatorPushWorld

sys.path.insert(0, str(REPOSITORY / "clients/unifiedpush"))
import receiver  # noqa: E402


class Distributor:
    """A distributor whose server is the simulator as ntfy. It hands messages on as they came: the simulator doesn't know the app's keys."""

    def __init__(self, world):
        self.world, self.subscriptions, self.shown = world, {}, []
        self.app = receiver.App(world.broker.url, self.register, lambda *shown: self.shown.append(shown))

    def register(self, instance, vapid):
        self.subscriptions[instance] = self.world.simulator.subscribe("ntfy", vapid)
        self.app.on_new_endpoint(instance, self.subscriptions[instance]["endpoint"])

    def bodies(self, subscription):
        pushes = self.world.simulator.web_pushes(subscription)
        assert all(push["text"] is None and len(push["body"]) == 1_503 for push in pushes), pushes
        return [base64.urlsafe_b64decode(push["body"] + "=") for push in pushes]

    def deliver(self, room):
        """Waits for the room's next message, and gives it to the app."""
        [body] = eventually(lambda: self.bodies(self.subscriptions[room.instance]), 15, what="the message")
        self.app.on_message(room.instance, body)
        return body


@pytest.fixture(scope="module")
def distributor():
    with SimulatorPushWorld() as world:
        yield Distributor(world)


def knock(world, room):
    """The other person comes, and the app is away."""
    client, joiner = world.client(), new_client()
    accepted = client.accept(room.code, joiner).expect(200).json
    client.presence(accepted["roomid"], joiner, member=accepted["member"]).expect(202)


def test_an_app_shows_its_own_text_for_the_room(distributor):
    ben, cem = (distributor.app.make_room(name) for name in ("Ben", "Cem"))
    assert len({each["endpoint"] for each in distributor.subscriptions.values()}) == 2
    knock(distributor.world, cem)
    knock(distributor.world, ben)
    distributor.deliver(ben)
    body = distributor.deliver(cem)
    assert distributor.shown == [("Ben", "wartet auf dich"), ("Cem", "wartet auf dich")]
    # Another room's message, or a stranger's, can't be opened.
    distributor.app.on_message(ben.instance, body)
    assert len(distributor.shown) == 2


def test_a_new_endpoint_replaces_the_token(distributor):
    room = distributor.app.make_room("Dan")
    old = distributor.subscriptions[room.instance]
    distributor.register(room.instance, distributor.app.call("GET", "/api/push")["webPush"]["applicationServerKey"])
    knock(distributor.world, room)
    distributor.deliver(room)
    assert distributor.shown[-1] == ("Dan", "wartet auf dich") and distributor.bodies(old) == []


def test_without_a_distributor_the_token_goes(distributor):
    room = distributor.app.make_room("Eve")
    distributor.app.on_unregistered(room.instance)
    assert distributor.world.client().status(room.roomid).expect(200).json["creatorHasToken"] is False
