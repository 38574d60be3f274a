"""`mayfly demo --stay`: its page in a real browser, who gets the page's data, and its end."""

import http.client
import json
import os
import signal
import sqlite3
import subprocess
import urllib.request
from pathlib import Path

import pytest

from page_fixtures import browser, examine, fits_a_finger, hosts  # noqa: F401
from processes import BINARY, REPOSITORY, clean_environment, eventually, free_port

LISTENERS = ("MAYFLY_LISTEN", "MAYFLY_OPERATOR_LISTEN", "MAYFLY_APNS_SIMULATOR_LISTEN", "MAYFLY_APNS_SIMULATOR_CONTROL")
SIZE = {"width": 1080, "height": 840}


class Demo:
    """A running `mayfly demo --stay`."""

    def __init__(self, folder, **settings):
        self.state, self.printed = folder / "var", folder / "printed"
        self.ports = [free_port() for _ in LISTENERS]
        self.url, self.control = f"http://127.0.0.1:{self.ports[0]}", f"http://127.0.0.1:{self.ports[3]}"
        listeners = {name: f"127.0.0.1:{port}" for name, port in zip(LISTENERS, self.ports)}
        with open(self.printed, "wb") as out:
            self.child = subprocess.Popen(
                [BINARY, "demo", "--stay"], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder,
                env=clean_environment(MAYFLY_STATE="var", **listeners, **settings))
        try:
            eventually(lambda: "Ctrl-C ends it" in self.printed.read_text() or self.child.poll() is not None, 30, what="the demo's start")
            assert self.child.poll() is None, self.printed.read_text()
        except BaseException:
            self.close()
            raise

    def close(self):
        self.child.terminate()
        self.child.wait(30)

    def send(self, method, path, **headers):
        """Returns status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=10)
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, body

    def pushes(self):
        with urllib.request.urlopen(f"{self.control}/pushes") as answer:
            return json.load(answer)

    def tokens(self):
        connection = sqlite3.connect(f"file:{self.state}/mayfly.sqlite?mode=ro", uri=True, timeout=5)
        try:
            return connection.execute("SELECT count(*) FROM token").fetchone()[0]
        finally:
            connection.close()

    def simulator(self):
        """The process id of the simulator."""
        tasks = Path(f"/proc/{self.child.pid}/task").iterdir()
        [child] = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        return child


@pytest.fixture
def demo(tmp_path):
    demo = Demo(tmp_path)
    yield demo
    demo.close()


def reached(page, *steps, seconds=30):
    page.wait(f"{json.dumps(steps)}.includes(document.documentElement.dataset.step)", seconds)


def press_next(page, *steps):
    """Takes the story's next step by the keyboard, and waits for one of these steps."""
    page.wait("document.getElementById('next').getAttribute('aria-disabled') === 'false'", 30)
    page.press("Enter")
    reached(page, *steps)


# Promise: demo-page
def test_the_page_plays_the_story_by_the_keyboard(demo, browser):
    """DEMO_PICTURE=docs/demo.png renews the picture in README.md."""
    page = browser.open(f"{demo.url}/demo", **SIZE)
    with page:
        reached(page, "start")
        assert page.value("location.pathname") == "/demo/"
        examine(page, SIZE)
        # The longest life, so that a slow machine gets to the end of the story first.
        page.value("document.getElementById('life').value = 120; document.getElementById('next').focus()")
        press_next(page, "made")
        assert demo.tokens() == 1 and "648 bytes" in page.text("#told")
        press_next(page, "locked")
        assert page.value("document.getElementById('ann').hasAttribute('data-locked')")
        # Ann's socket is open and answers nothing. So the broker asks, waits, and pushes.
        press_next(page, "asking", "pushing", "pushed")
        reached(page, "pushed")
        [push] = demo.pushes()
        shown = page.value("document.querySelector('#ann .seen').textContent")
        assert "Your chat partner is waiting" in page.text("#ann .push") and push["token"] in shown
        assert push["headers"]["apns-id"] in shown and push["payload"]["roomId"] in shown
        assert demo.tokens() == 2
        if "DEMO_PICTURE" in os.environ:
            page.wait("document.querySelectorAll('#log li.own').length > 3")
            page.value("document.documentElement.style.overflow = 'hidden'")
            page.wait("document.getAnimations().length === 0")
            page.screenshot(REPOSITORY / os.environ["DEMO_PICTURE"])
        examine(page, SIZE)
        press_next(page, "back")
        page.wait("document.querySelector('#ann .body').innerText.includes('Chatting with Ben')")
        page.wait("document.querySelector('#ben .body').innerText.includes('Chatting with Ann')")
        page.value("[...document.querySelectorAll('#ben button')].find((button) => button.innerText === 'End the room').click()")
        reached(page, "over")
        assert demo.tokens() == 0
        reached(page, "documented", seconds=60)
        # The page recognises by their refs what the log says of both tokens.
        own = page.value("[...document.querySelectorAll('#log li.own')].map((line) => line.innerText).reverse()")
        for name, count in (("Ann", 4), ("Ben", 2)):
            assert len([line for line in own if f"{name}'s" in line]) == count, own
        page.value("document.getElementById('next').focus()")
        press_next(page, "checked")
        assert "The log is right" in page.text("#checked") and "opened for 1 push" in page.text("#told")
        examine(page, SIZE)
        assert hosts(page) == {f"127.0.0.1:{demo.ports[0]}"}
        assert page.complaints == []
    assert (REPOSITORY / "docs/demo.png").stat().st_size < 150_000


# What is left empty at the end of each box, in pixels. A phone that isn't locked keeps its own space.
HOLES = """[...document.querySelectorAll('#narrator, #knowledge section, #published')].map((box) => {
    const bottom = Math.max(...[...box.children].map((part) => part.getBoundingClientRect().bottom));
    return [box.id || box.innerText.slice(0, 20), Math.round(box.getBoundingClientRect().bottom - bottom)];
})"""


@pytest.mark.parametrize("size", [{"width": 320, "height": 640}, {"width": 1280, "height": 800}], ids=["phone", "desk"])
def test_the_page_is_neither_empty_nor_has_a_hole(demo, browser, size):
    """Before the program runs, at the start of the story, and when the phone has rung."""
    html = demo.send("GET", "/demo/")[1].decode()
    for part in ('<div role="status" id="told"><p>Ann wants to chat with Ben', 'aria-disabled="true">Ann makes a room</button>',
                 '<div class="body"><p>The chat app is open.</p></div>', "<p>No push address yet.</p>"):
        assert part in html, part
    page = browser.open(f"{demo.url}/demo/", **size)
    with page:
        reached(page, "start")
        page.wait("document.querySelectorAll('#log li').length > 0")

        def look():
            fits_a_finger(page)
            assert all(hole < 90 for _, hole in page.value(HOLES)), page.value(HOLES)
            for phone in ("ann", "ben"):
                text = page.text(f"#{phone} .body")
                assert "push address" in text and len(text) > 70, text
            assert page.value("document.querySelectorAll('#readers dt').length") == 5
            if size["width"] > 1000:
                ends = page.value("['phones', 'knowledge'].map((id) => document.getElementById(id).getBoundingClientRect().bottom)")
                assert abs(ends[0] - ends[1]) <= 2, ends
        look()
        page.value("document.getElementById('life').value = 120; document.getElementById('next').focus()")
        press_next(page, "made")
        press_next(page, "locked")
        press_next(page, "asking", "pushing", "pushed")
        reached(page, "pushed")
        look()


def test_a_room_on_the_page_ends_by_itself(demo, browser):
    page = browser.open(f"{demo.url}/demo/")
    with page:
        reached(page, "start")
        page.value("document.getElementById('life').min = 10; document.getElementById('life').value = 10; document.getElementById('next').click()")
        reached(page, "made")
        reached(page, "over")
        assert demo.tokens() == 0 and "No push address" in page.text("#stored")
        assert "is destroyed" in page.text("#stored")
        reached(page, "documented", seconds=60)
        assert "its time was over" in page.text("#log li.own")
        assert page.complaints == []


def test_only_the_page_gets_its_data(demo):
    port = demo.ports[0]
    page = {"Sec_Fetch_Site": "same-origin"}
    assert demo.send("GET", "/demo/holdings", **page)[0] == demo.send("GET", "/demo/pushes", **page)[0] == 200
    assert demo.send("POST", "/demo/phones/0123456789abcdef/suspend", **page)[0] == 204
    client = REPOSITORY / "clients/javascript/mayfly.js"
    assert demo.send("GET", "/demo/page/mayfly.js") == (200, client.read_bytes())
    for path in ("/demo/holdings", "/demo/pushes"):
        for headers in ({}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "none"}, {"Origin": "http://evil.test"},
                        {"Host": f"evil.test:{port}", **page}):
            assert demo.send("GET", path, **headers)[0] == 404, (path, headers)
    assert demo.send("POST", "/demo/phones/0123456789abcdef/suspend", Sec_Fetch_Site="cross-site")[0] == 404
    assert demo.send("GET", "/demo/", Host=f"evil.test:{port}")[0] == 404
    for path in ("/demo/page", "/demo/page/none.js", "/demo/../audit/", "/demo/phones/x/suspend", "/demonstration"):
        assert demo.send("GET", path, **page)[0] == 404, path


def test_a_broker_has_no_demo_page(client):
    for path in ("/demo", "/demo/", "/demo/holdings", "/demo/pushes"):
        client.send("GET", path, headers={"Sec-Fetch-Site": "same-origin"}, checked=False).expect(404, "not_found")


def test_a_killed_demo_leaves_no_simulator(demo):
    simulator = Path(f"/proc/{demo.simulator()}")
    # The threads of Swift's pool end after five idle seconds. The kernel forgets what one of them has asked for.
    eventually(lambda: not any("default-qos" in name.read_text() for name in simulator.glob("task/*/comm")), 60, 0.2,
               "the end of the pool's threads")
    os.kill(demo.child.pid, signal.SIGKILL)
    demo.child.wait(10)
    try:
        eventually(lambda: not simulator.exists() or "\nState:\tZ" in (simulator / "status").read_text(), what="the simulator's end")
    except AssertionError:
        os.kill(int(simulator.name), signal.SIGKILL)
        raise


def test_web_push_can_be_tried_at_once(demo):
    """With the throw-away key, and the simulator as the browser's service."""
    def call(url, body=None, bearer=None):
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {bearer}"} if bearer else {})
        with urllib.request.urlopen(urllib.request.Request(url, body and json.dumps(body).encode(), headers), timeout=10) as answer:
            return json.load(answer)

    key = call(f"{demo.url}/api/push")["webPush"]["applicationServerKey"]
    subscription = call(f"{demo.control}/subscriptions", {"dialect": "mozilla", "applicationServerKey": key})
    created = call(f"{demo.url}/api/rooms", {"joinid": "271828", "client1": "ann", "client1_token": subscription})
    call(f"{demo.url}/api/rooms/accept", {"joinid": "271828", "client2": "ben"})
    call(f"{demo.url}/api/room/presence", {"client": "ben"}, created["roomid"])
    [push] = eventually(demo.pushes, 10, what="the message")
    assert json.loads(push["text"])["notification"]["title"] == "Your chat partner is waiting"
    assert f"{demo.url}/api/push" in demo.printed.read_text() and "throw-away keys" in demo.printed.read_text()
