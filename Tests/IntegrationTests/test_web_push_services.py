"""The answers of the large services over HTTP/2, as the simulator gives them: what follows for address, log and operator. A preloaded library
resolves their names to loopback."""

import json
from hashlib import sha256

import pytest

import ledger
from mayfly import new_client, new_code
from processes import eventually, mayfly
from push_services import HOSTS
from web_push_service import make_vapid_key, point_of
from world import World


class ServicesWorld(World):
    """A broker whose subscriptions are at the simulator under the services' names."""

    def __init__(self):
        super().__init__(web_push=True)

    def subscribe(self, dialect):
        return self.push.subscribe(dialect)

    def knock(self, subscription):
        """The room whose creator has this address, knocked at."""
        client, code, joiner = self.client(), new_code(), new_client()
        created = client.create(code, token=subscription).expect(201).json
        accepted = client.accept(code, joiner).expect(200).json
        client.presence(created["roomid"], joiner, member=accepted["member"]).expect(202)
        return created["roomid"]

    def outcome(self, subscription):
        """How a push to this address ended: whether it is kept, and the entries of pushes in the log."""
        before = self.failures()
        room = self.knock(subscription)
        eventually(lambda: self.state.jobs() == 0, 30, what="the outcome")
        new = eventually(lambda: self.failures()[len(before):], 10, what="the entry")
        return self.client().status(room).expect(200).json["creatorHasToken"], new[-1]

    def failures(self):
        return [(entry["status"], entry["reason"]) for entry in ledger.read(self.state).entries if entry["op"] == "push.failed"]

    def alarms(self):
        return [line for line in self.broker.printed().splitlines() if "Web Push" in line and "courier" in line]


@pytest.fixture(scope="module")
def world():
    with ServicesWorld() as world:
        yield world


@pytest.mark.parametrize("dialect", HOSTS)
def test_each_service_takes_messages(world, dialect):
    subscription = world.subscribe(dialect)
    world.knock(subscription)
    [push] = eventually(lambda: world.simulator.web_pushes(subscription), 15, what="the push")
    shown = json.loads(push["text"])["notification"]
    assert shown["title"] == "Your chat partner is waiting" and shown["tag"] == push["topic"]
    assert (push["http"], push["bodyBytes"], push["ttl"], push["urgency"], push["dialect"]) == ("2", 1_127, 120, "high", dialect), push


@pytest.mark.parametrize("dialect", HOSTS)
@pytest.mark.parametrize("state", ["expired", "unsubscribed"])
def test_a_subscription_that_has_ended_is_purged(world, dialect, state):
    # The breaker trusts a 404 only of a service that has taken a message.
    world.knock(world.subscribe(dialect))
    eventually(lambda: world.state.jobs() == 0, 20, what="the first push")
    subscription = world.subscribe(dialect)
    world.simulator.set_subscription(subscription, state)
    assert world.outcome(subscription) == (False, (410, "Unregistered"))


def test_a_service_that_refuses_the_sender_alarms_and_purges_nothing(world):
    subscriptions = [world.subscribe("google") for _ in range(3)]
    world.simulator.fault(status=403, dialect="google")
    try:
        # Anybody can register one or two subscriptions that were made for another key.
        for subscription in subscriptions:
            assert not world.alarms() and world.broker.metric("web_push_refused_total") == 0
            assert world.outcome(subscription) == (True, (403, "InvalidProviderToken"))
    finally:
        world.simulator.fault()
    said = eventually(world.alarms, 10, what="the alarm")
    assert any("Web Push (google) refuses this deployment" in line for line in said) and HOSTS["google"] not in str(said)
    assert world.broker.metric("web_push_refused_total") == 5
    assert world.broker.metric('pushes_refused_total{reason="InvalidProviderToken"}') == 5
    assert world.broker.metric('pushes_failed_total{service="web_push"}') > 0
    assert world.broker.metric('pushes_failed_total{service="apns"}') == 0


@pytest.mark.parametrize("problem", ["dropped", "channelThrottled"])
def test_a_message_that_microsoft_drops_is_no_delivery(world, problem):
    subscription = world.subscribe("microsoft")
    world.simulator.fault(problem=problem, dialect="microsoft")
    try:
        assert world.outcome(subscription) == (True, (429, "TooManyRequests"))
    finally:
        world.simulator.fault()


def test_apples_service_refuses_a_subscription_for_another_key(world):
    public, _ = make_vapid_key(world.state.parent / "other.pem")
    assert world.outcome(world.push.subscribe("apple", public)) == (True, (403, "InvalidProviderToken"))


def test_a_page_that_knows_the_key_before_gets_its_pushes_at_apples_service():
    """It registers in a new room, for which the broker tries the new key first."""
    with ServicesWorld() as world:
        old, new = world.broker.options["vapid-key"], world.state.parent / "new.pem"
        make_vapid_key(new, besides=sha256(point_of(world.push.vapid)).digest()[0])
        world.broker.stop()
        world.broker.options |= {"vapid-key": new, "vapid-previous-key": old}
        settings = [word for name, value in world.broker.options.items() if name.startswith(("vapid", "web-")) for word in (f"--{name}", value)]
        enabled = mayfly("push", "enable", *world.state.flags, *settings)
        assert enabled.returncode == 0, enabled
        world.broker.start()
        late = world.subscribe("apple")
        world.knock(late)
        eventually(lambda: world.simulator.web_pushes(late), 15, what="the push")
        eventually(lambda: world.state.jobs() == 0, 15, what="the outcome")
        assert world.failures() == [] and world.broker.metric("web_push_refused_total") == 0


def test_a_busy_service_gets_the_message_later(world):
    subscription = world.subscribe("microsoft")
    world.simulator.fault(problem="throttled", dialect="microsoft")
    try:
        world.knock(subscription)
        eventually(lambda: world.state.jobs() == 1, 10, what="the job that waits")
    finally:
        world.simulator.fault()
    eventually(lambda: world.simulator.web_pushes(subscription), 60, 0.2, what="the push")


def test_a_redirect_is_not_followed(world):
    subscription = world.subscribe("mozilla")
    world.simulator.fault(status=307, headers={"location": "https://127.0.0.1:1/"}, dialect="mozilla")
    try:
        assert world.outcome(subscription) == (True, (400, "other"))
    finally:
        world.simulator.fault()


def test_the_log_balances(world):
    world.whole_log()


# Promise: web-hosts-no-alarm
def test_a_made_up_name_of_a_large_service_raises_no_alarm(world):
    before = world.alarms()
    world.knock(world.subscribe("microsoft") | {"endpoint": "https://no-such-host.notify.windows.com/?token=x"})
    # Its job stays until the deadline. The first look-up fails at once.
    with pytest.raises(AssertionError):
        eventually(lambda: world.alarms() != before, 5)
    assert world.state.jobs() == 1
