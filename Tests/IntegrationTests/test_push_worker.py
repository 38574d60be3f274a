"""The JavaScript client's service worker in a real browser, whose DevTools deliver pushes. Web Push from end to end needs a push service."""

import json
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from browser import Page
from page_fixtures import browser  # noqa: F401
from push_world import SimulatorPushWorld
from processes import REPOSITORY, eventually


class _App(SimpleHTTPRequestHandler):
    """The client's files, and a broker's `GET /api/push`."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path != "/api/push":
            return super().do_GET()
        # A public key of nobody's.
        key = "BNNL5ZaTfK81qhXOx23-wewhigUeFb632jN6LvRWCFH1ubQr77FE_9qV1FuojuRmHP42zmf34rXgW80OvUVDgTk"
        answer = json.dumps({"webPush": {"applicationServerKey": key, "longest": 505}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@pytest.fixture(scope="module")
def origin():
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_App, directory=REPOSITORY / "clients/javascript"))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


START = """(async () => {
    window.push = await import('./push.js');
    const { Client } = await import('./mayfly.js');
    await navigator.serviceWorker.register('sw.js');
    window.registration = await navigator.serviceWorker.ready;
    window.opened = [];
    push.onOpenRoom((handle, room) => opened.push([handle, room?.nickname]));
    window.client = new Client(location.origin, { environment: 'production' });
    window.room = client.room({ roomid: 'R'.repeat(43), client: 'c', member: 'm'.repeat(43), side: 1, expiresAt: '2099-01-02T03:04:05Z' });
    await push.keepRoom(room, { nickname: 'Ben', token: { endpoint: 'https://push.example.net/1' } });
    await push.setTexts({ peer_waiting: { body: 'wartet auf dich' } });
    return room.handle;
})()"""

CLICK = """typeof ServiceWorkerGlobalScope !== 'undefined' && registration.getNotifications({ tag: TAG }).then(([notification]) =>
    dispatchEvent(new NotificationEvent('notificationclick', { notification })))"""


class _Phone(Page):
    """A page that may show notifications, and gets pushes."""

    def __init__(self, browser, origin, page="example.html"):  # noqa: F811
        self.origin, self.registrations = origin, {}
        super().__init__(browser)
        browser.call("Browser.grantPermissions", permissions=["notifications"], origin=origin, browserContextId=self.context)
        self.call("ServiceWorker.enable")
        self.go(f"{origin}/{page}")

    def happened(self, method, event, session):
        if method == "ServiceWorker.workerRegistrationUpdated":
            self.registrations |= {one["scopeURL"]: one["registrationId"] for one in event["registrations"]}
        super().happened(method, event, session)

    def push(self, data):
        registration = eventually(lambda: self.registrations.get(f"{self.origin}/"), what="the service worker")
        self.call("ServiceWorker.deliverPushMessage", origin=self.origin, registrationId=registration, data=data)

    def shown(self):
        return json.loads(self.value("registration.getNotifications().then((all) => JSON.stringify(all.map(({ title, body }) => [title, body])))"))

    def json(self, expression):
        return json.loads(self.value(f"JSON.stringify({expression})"))


def test_the_worker_shows_pushes_and_opens_the_room_of_a_tapped_one(browser, origin):  # noqa: F811
    with _Phone(browser, origin) as page:
        handle = page.value(START)

        def message(body, template):
            return json.dumps({"web_push": 8030, "notification": {
                "title": "Chat", "body": body, "tag": handle, "navigate": f"{origin}/example.html", "data": {"template": template, "roomId": handle}}})

        page.push(message("Your chat partner is waiting", "peer_waiting"))
        eventually(lambda: page.shown() == [["Ben", "wartet auf dich"]], 45, what="the notification")
        page.push(message("A later one", "another"))
        eventually(lambda: page.shown() == [["Ben", "A later one"]], 45, what="the notification in its place")
        page.push("{")
        eventually(lambda: ["New notification", "Open the app to see it."] in page.shown(), 45, what="the constant text")

        for worker in page.workers:
            browser.call("Runtime.evaluate", worker, expression=CLICK.replace("TAG", json.dumps(handle)), awaitPromise=True)
        eventually(lambda: page.json("opened") == [[handle, "Ben"]], 45, what="the room of the tapped notification")
        eventually(lambda: page.shown() == [["New notification", "Open the app to see it."]], 45, what="the end of the tapped notification")
        # As a new window would be opened, and as Safari navigates.
        page.value(f"location.hash = 'mayfly-room={handle}'")
        eventually(lambda: len(page.json("opened")) == 2, 45, what="the room of the address")
        assert page.value("location.href") == f"{origin}/example.html"

        page.value("push.forgetRoom(room)")
        page.push(message("Your chat partner is waiting", "peer_waiting"))
        eventually(lambda: ["Chat", "wartet auf dich"] in page.shown(), 45, what="a notification without a name")
        # This browser can't reach the push service of its maker.
        assert page.value("push.subscribe(client, registration).catch(({ kind, code }) => kind + ' ' + code)") == "unreachable push_service"


SUBSCRIBE = """(({ key, subscription }) => {
    PushManager.prototype.subscribe = async ({ applicationServerKey }) => {
        if (applicationServerKey !== key) throw new Error('another key');
        return { ...subscription, toJSON: () => subscription };
    };
})(GIVEN)"""


def test_the_push_example_plays_with_a_broker(browser, origin):  # noqa: F811
    """Chromium has no push service here. So its subscription is the simulator's, whose decrypted message is given to the worker."""
    with SimulatorPushWorld(cors_origins=origin) as world, _Phone(browser, origin, f"push-example.html?broker={world.broker.url}") as page:
        def said(count):
            lines = "[...document.querySelectorAll('li')].map((line) => line.innerText)"
            return eventually(lambda: (found := page.json(lines))[count - 1:] and found, 45, what="words")

        page.wait("document.documentElement.dataset.ready")
        page.value("make.click()")
        assert said(1) == ["The browser's push service can't be reached. Check the network and try again."]
        key = world.client().send("GET", "/api/push").expect(200).json["webPush"]["applicationServerKey"]
        subscription = world.simulator.subscribe("google", key)
        page.value(SUBSCRIBE.replace("GIVEN", json.dumps({"key": key, "subscription": subscription})))
        page.value("make.click()")
        assert "You are away from the room." in said(2)[1]
        page.value("knock.click()")
        assert said(3)[2] == "Ben came and went. Your push: queued."
        [push] = eventually(lambda: world.simulator.web_pushes(subscription), 15, what="the message")
        page.push(push["text"])
        eventually(lambda: page.value("navigator.serviceWorker.ready.then((one) => one.getNotifications()).then(([one]) => `${one?.title} ${one?.body}`)")
                   == "Ben is waiting for you", 45, what="the notification")
        for worker in page.workers:
            browser.call("Runtime.evaluate", worker, expression=CLICK.replace("TAG", json.dumps(push["topic"])), awaitPromise=True)
        assert said(4)[3] == "You tapped the push of Ben."
