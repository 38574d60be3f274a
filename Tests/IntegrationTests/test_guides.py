"""Every message that the guides print is sent to a broker, or compared with what it sends. test_documents.py runs their commands and programs."""

import json
import re

import pytest

from call_world import CallWorld
from companion_client import SessionSocket
from companion_world import new_session
from mayfly import Socket, new_token
from processes import REPOSITORY, eventually

PAGES = ["rooms", "companion", "monitor", "calls", "accounts", "api"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
INLINE = re.compile(r"`(\{\".*?\})`")


def printed(page):
    """(heading, message) of each JSON message in a page, in order."""
    text = (REPOSITORY / f"docs/{page}.md").read_text()
    for section in re.split(r"^(?=##)", text, flags=re.M):
        heading = section.partition("\n")[0].lstrip("# ")
        found = [(block.start(), block[2]) for block in BLOCK.finditer(section) if block[1] == "json"]
        prose = BLOCK.sub(lambda block: " " * len(block[0]), section)
        found += [(code.start(), code[1]) for code in INLINE.finditer(prose)]
        for _, message in sorted(found):
            yield heading, json.loads(message)


MESSAGES = [(page, heading, message) for page in PAGES for heading, message in printed(page)]


@pytest.fixture(scope="module")
def world():
    with CallWorld(policies="rooms,companion,monitor") as world:
        yield world


class Api:
    """Makes the calls of docs/api.md in their order. Each needs what the ones before it have made."""

    def __init__(self, world):
        self.world, self.client = world, world.client()
        self.device = None

    def send(self, method, path, body):
        users = self.world.users
        caller = users.back_end() if path.startswith(("/api/monitors", "/api/sessions")) else users.token(body.get("uid", "user-1"))
        places = {"sessionId": "session-1", "prefix": "p1s_01", "deviceId": self.device}
        route = re.sub(r"\{(\w+)\}", lambda name: places[name[1]], path)
        if path == "/webhooks/call":
            return self.world.service().send(json.dumps(body).encode())
        answer = self.client.send(method, route, body, bearer=None if path.startswith("/api/room") else caller)
        if path == "/api/devices/register":
            self.device = answer.json["deviceId"]
        return answer


def test_every_call_that_the_api_page_prints_is_taken(world):
    api, calls = Api(world), 0
    for page, heading, body in MESSAGES:
        if page == "api" and not heading.startswith("GET /ws"):
            method, path = heading.split()
            answer = api.send(method, path, body)
            assert answer.status in (200, 201, 202), f"{heading} {body}: {answer}"
            calls += 1
    assert calls > 10


def test_every_message_of_the_rooms_socket_is_answered(world):
    messages = [message for page, heading, message in MESSAGES if page == "rooms" or heading == "GET /ws"]
    assert [message["type"] for message in messages] == ["ping", "pong", "leave_room"]
    ping, pong, leave = messages
    room = world.client().room()
    with Socket(world.broker) as socket:
        socket.join(room.roomid, room.creator.client, room.creator.member)
        socket.send(ping)
        assert socket.receive() == pong
        socket.send(leave)
        assert socket.closed() == (1000, [])


def test_every_message_of_the_sessions_socket_is_answered(world):
    """The table of companion.md, with its second column."""
    rows = re.findall(r"^\| `(\{\".*?\})`[^|]*\| (?:`(\w+)`|none)", (REPOSITORY / "docs/companion.md").read_text(), re.M)
    assert [json.loads(message) for message, _ in rows] == [message for page, _, message in MESSAGES if page == "companion"]
    assert len(rows) == 5
    user = "user-" + new_session()
    phone, back_end = world.phone(user), world.back_end()
    socket = SessionSocket(world.broker)
    with socket:
        for text, answer in rows:
            if "ID" in text:
                asked = back_end.call("POST", "/api/sessions/session-1/events", {"userId": user, "type": "approval_request", "data": {}})
                text = text.replace('"ID"', json.dumps(asked.expect(202).json["requestId"]))
            message = json.loads(text.replace('"JWT"', json.dumps(phone.jwt)))
            if answer:
                assert socket.ask(message)["type"] == answer, message
            else:
                socket.send(message)
                # Answers come in the order of the messages, so this one had none.
                assert socket.ask({"type": "ping"}) == {"type": "pong"}
    ping, pong = [message for _, heading, message in MESSAGES if heading == "GET /ws/sessions"]
    with SessionSocket(world.broker) as socket:
        socket.send({"type": "auth", "token": phone.jwt})
        socket.expect("authenticated")
        assert socket.ask(ping) == pong


def test_a_claim_without_a_type_hands_the_session_over(world):
    """As the table prints it, and as the clients of the seed's server send it."""
    [claim] = [message for page, _, message in MESSAGES if page == "companion" and "type" not in message]
    user, token = "user-" + new_session(), new_token()
    phone = world.phone(user)
    phone.call("POST", "/api/push/register", {"deviceToken": token}).expect(200)
    with SessionSocket(world.broker) as socket:
        socket.send({"type": "auth", "token": phone.jwt})
        socket.expect("authenticated")
        socket.send(claim | {"pushToken": token})
        socket.send(claim | {"deviceId": "my-desktop", "clientType": "desktop"})
        assert socket.ask({"type": "ping"}) == {"type": "pong"}
    [push] = eventually(lambda: world.simulator.pushes(token), what="the hand-off")
    assert push["payload"]["handedOffTo"] == "desktop"


def test_the_push_of_a_call_is_the_printed_one(world):
    [expected] = [message for page, _, message in MESSAGES if page == "calls"]
    phone = world.phone().launch()
    world.service().send(json.dumps({
        "trigger": "call_initiated", "data": {"sessionId": new_session(), "type": "audio", "initiator": {"uid": "alice"}, "receiver": {"uid": phone.uid},
                                              "receiverType": "user"}}).encode()).expect(200)
    [push] = eventually(phone.pushes, what="the push")
    assert {name: "…" if expected[name] == "…" else value for name, value in push["payload"].items()} == expected


def test_no_printed_message_is_left_out():
    """The tests above pick theirs by page and heading."""
    picked = {page for page, heading, _ in MESSAGES if page == "api" or page in ("companion", "calls", "rooms")}
    assert {page for page, _, _ in MESSAGES} == picked
    assert {heading for page, heading, _ in MESSAGES if page == "companion"} == {"The socket"}
    assert {heading for page, heading, _ in MESSAGES if page == "calls"} == {"The push"}
    assert not [heading for page, heading, _ in MESSAGES if page == "rooms"]
