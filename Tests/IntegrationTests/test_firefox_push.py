"""A real Firefox gets messages through the simulator. Only Firefox knows its keys: it, and no code of ours, decrypts them."""

import json

import pytest

from file_server import FileServer
from firefox import Firefox
from mayfly import new_client, new_code
from push_world import SimulatorPushWorld
from processes import REPOSITORY, Simulator, State, eventually, free_port, mayfly
from test_demo_page import Demo
from test_web_push_simulator import Sender, post_http1, post_http2

pytestmark = pytest.mark.campaign  # `make check` installs Firefox.

PAGE = "<!doctype html><title>Push</title>"
WORKER = """
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", event => event.waitUntil(self.clients.claim()));
self.addEventListener("push", event => {
  const { title, body, tag } = event.data.json().notification;
  event.waitUntil(self.registration.showNotification(title, { body, tag }));
});
"""
SUBSCRIBE = """
const key = Uint8Array.from(atob(given[0].replace(/-/g, "+").replace(/_/g, "/")), letter => letter.charCodeAt(0));
await navigator.serviceWorker.register("/worker.js");
const { pushManager } = await navigator.serviceWorker.ready;
return (await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key })).toJSON();
"""
SHOWN = """
const registration = await navigator.serviceWorker.ready;
return (await registration.getNotifications()).map(({ title, body, tag }) => [title, body, tag]);
"""
UNSUBSCRIBE = """
const subscription = await (await navigator.serviceWorker.ready).pushManager.getSubscription();
return await subscription.unsubscribe();
"""


def text(body, tag):
    return json.dumps({"web_push": 8030, "notification": {"title": "Chat", "body": body, "tag": tag}}).encode()


@pytest.fixture(scope="module")
def simulator():
    state = State()
    simulator = Simulator(state)
    simulator.browsers = free_port()
    simulator.more = ["--browsers", f"127.0.0.1:{simulator.browsers}"]
    try:
        yield simulator.start()
    finally:
        simulator.kill()
        state.remove()


@pytest.fixture(scope="module")
def firefox(simulator):
    with FileServer() as server:
        (server.files / "index.html").write_text(PAGE)
        (server.files / "worker.js").write_text(WORKER)
        browser = Firefox(simulator.browsers)
        try:
            browser.open(f"{server.url}/index.html")
            yield browser
        finally:
            browser.close()


def acknowledgements(simulator, subscription):
    return [push["acknowledgement"] for push in simulator.web_pushes(subscription)]


def test_firefox_shows_a_message_and_leaves(simulator, firefox):
    sender = Sender()
    subscription = firefox.run(SUBSCRIBE, sender.public_key)
    assert post_http2(simulator, *sender.message(subscription, text("Grüße", "a")))[0] == 201
    eventually(lambda: ["Chat", "Grüße", "a"] in firefox.run(SHOWN), 10, what="the notification")
    eventually(lambda: acknowledgements(simulator, subscription) == [100], 10, what="Firefox's acknowledgement")
    [push] = simulator.web_pushes(subscription)
    assert (push["state"], push["text"]) == ("delivered", None)

    parts, fields, body = sender.message(subscription, text("damaged", "b"))
    assert post_http1(simulator, parts, fields, body[:100] + bytes([body[100] ^ 1]) + body[101:])[0] == 201
    eventually(lambda: acknowledgements(simulator, subscription) == [100, 101], 10, what="the refusal of a damaged message")

    assert firefox.run(UNSUBSCRIBE) is True
    status, _, content = post_http2(simulator, *sender.message(subscription))
    assert (status, json.loads(content)["errno"]) == (410, 106)


def test_messages_wait_for_firefox(simulator, firefox):
    sender = Sender()
    subscription = firefox.run(SUBSCRIBE, sender.public_key)
    simulator.set_subscription(subscription, "offline")
    for body in ("early", "late"):
        assert post_http2(simulator, *sender.message(subscription, text(body, "c")))[0] == 201
    assert [push["state"] for push in simulator.web_pushes(subscription)] == ["replaced", "waiting"]
    simulator.set_subscription(subscription, "online")
    eventually(lambda: ["Chat", "late", "c"] in firefox.run(SHOWN), 10, what="the notification")
    eventually(lambda: acknowledgements(simulator, subscription) == [None, 100], 10, what="Firefox's acknowledgement")
    assert firefox.run(UNSUBSCRIBE) is True


@pytest.mark.parametrize("address", ["0.0.0.0:8791", "8791"])
def test_browsers_are_served_on_loopback_only(simulator, address):
    arguments = [str(word) for word in simulator.arguments() if word not in simulator.more]
    refused = mayfly(*arguments, "--browsers", address)
    assert refused.returncode == 2 and "--browsers must be ADDRESS:PORT on loopback" in refused.stderr


def test_a_peer_knocks_and_firefox_shows_the_policys_text():
    with SimulatorPushWorld(browsers=True) as world, FileServer() as server:
        (server.files / "index.html").write_text(PAGE)
        # The client's own worker.
        (server.files / "worker.js").write_bytes((REPOSITORY / "clients/javascript/sw.js").read_bytes())
        firefox = Firefox(world.simulator.browsers)
        try:
            firefox.open(f"{server.url}/index.html")
            client = world.client()
            key = client.send("GET", "/api/push").expect(200).json["webPush"]["applicationServerKey"]
            subscription = firefox.run(SUBSCRIBE, key)
            code, joiner = new_code(), new_client()
            # As a page sends it: {"client1_token": subscription}.
            created = client.create(code, token=subscription).expect(201).json
            accepted = client.accept(code, joiner).expect(200).json
            client.presence(created["roomid"], joiner, member=accepted["member"]).expect(202)
            eventually(lambda: acknowledgements(world.simulator, subscription) == [100], 20, what="Firefox's acknowledgement")
            shown = eventually(lambda: firefox.run(SHOWN), 20, what="the notification")
            assert [title for title, _, _ in shown] == ["Your chat partner is waiting"], shown

            def again():
                client.presence(created["roomid"], joiner, member=accepted["member"], leaving=True).expect(202)
                client.presence(created["roomid"], joiner, member=accepted["member"]).expect(202)
                return acknowledgements(world.simulator, subscription) == [100, 100]
            eventually(again, 40, 4, what="the second acknowledgement")
            assert firefox.run(SHOWN) == shown
        finally:
            firefox.close()
        world.whole_log()


def test_the_demo_page_makes_firefox_bens_phone(simulator, tmp_path):
    hosts, ca = tmp_path / "hosts", simulator.state / "keys/simulator-ca.pem"
    hosts.write_text("".join(f"{host}:{simulator.port} private ca {ca}\n" for host in ("127.0.0.1", "localhost")))
    Demo(tmp_path).close()  # Makes its keys.
    web_push = {
        "MAYFLY_VAPID_KEY": str(tmp_path / "var/keys/vapid.pem"), "MAYFLY_VAPID_CONTACT": "mailto:ops@chat.example",
        "MAYFLY_WEB_ORIGIN": "https://app.example", "MAYFLY_WEB_PUSH_HOSTS": str(hosts)}
    demo, firefox = Demo(tmp_path, **web_push), Firefox(simulator.browsers)

    # On a busy machine the story takes longer than the shortest room.
    longest = "document.getElementById('life').value = 120"
    script = """
        const button = [...document.querySelectorAll("button")].find(({ textContent, hidden, ariaDisabled }) =>
            textContent === given[0] && !hidden && ariaDisabled !== "true");
        button?.click();
        return button !== undefined;"""

    def press(words):
        """Presses a button once it has these words and can be pressed."""
        eventually(lambda: firefox.run(script, words), 30, what=words)

    def step(*names):
        told = "return [document.documentElement.dataset.step, document.getElementById('told').textContent]"

        def seen():
            found, text = firefox.run(told)
            assert found in names or found != "failed", text
            return found in names
        eventually(seen, 30, what=str(names))

    try:
        firefox.open(f"{demo.url}/demo/")
        firefox.run(longest)
        press("Use this browser as his phone")
        step("subscribed")
        press("Ann makes a room")
        press("Lock Ann's phone")
        press("Ben joins with the code")
        step("pushed")
        press("Ann taps the notification")
        press("Lock Ben's phone")

        def shown():
            # Without that, the broker notices his silence later.
            firefox.run(script, "Ann leaves and comes again")
            return [title for title, _, _ in firefox.run(SHOWN)]
        assert eventually(shown, 60, 1, "the notification") == ["Your chat partner is waiting"]
        assert len(demo.pushes()) == 1
        press("Unlock Ben's phone")
        eventually(lambda: firefox.run(SHOWN) == [], 10, what="the end of the notification")
    finally:
        firefox.close()
        demo.close()
