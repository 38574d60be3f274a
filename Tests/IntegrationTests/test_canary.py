"""A canary's token or subscription, room id and code are found in no file and no output, while the room lives and after."""

import base64
import json
import time
from functools import partial
from secrets import token_bytes, token_hex
from types import SimpleNamespace

import pytest

from canary import Canaries, given
from mayfly import Socket, base64url_bytes, new_client, new_code, new_token
from processes import REPOSITORY, State, eventually, free_port, mayfly
from web_push_service import Subscriber, WebPushService
from world import World


class make_world(World):
    """Sends Web Push to the simulator, and to a host of somebody's own, whose name may name its owner."""

    def __init__(self):
        port, host = free_port(), f"ann-{token_hex(8)}.home.example"
        super().__init__(web_push={port: host})
        self.own = WebPushService(self.push, host, port=port)

    def close(self):
        super().close()
        self.own.close()


def test_the_search_finds_planted_secrets(tmp_path):
    """Every form, between other bytes. Bytes without one give no find."""
    secret = token_bytes(32)
    canaries = Canaries()
    canaries.add("canary", secret)
    forms = [secret, secret.hex().encode(), secret.hex().upper().encode()]
    forms += [encode(token_bytes(n) + secret) for n in range(4) for encode in (base64.b64encode, base64.urlsafe_b64encode)]
    for number, form in enumerate(forms):
        (tmp_path / f"{number}").write_bytes(token_bytes(50) + form + token_bytes(50))
    (tmp_path / "none").write_bytes(token_bytes(5000))
    (tmp_path / secret.hex()).mkdir()
    (tmp_path / secret.hex() / "file").touch()
    (tmp_path / base64.urlsafe_b64encode(secret).decode()).touch()
    assert len(canaries.in_files(tmp_path)) == len(forms) + 3


def test_every_run_searches_its_output_for_its_tokens(tmp_path):
    """In every form, by `State.remove` at the end of each test, and by `mayfly`."""
    token, other = new_token(), token_bytes(32)
    secret, browser = bytes.fromhex(token), Subscriber(SimpleNamespace(host="push.example", port=443))
    given.add_subscription(browser.json())
    forms = [browser.path.encode(), browser.endpoint.encode(), browser.point, browser.point.hex().encode(), browser.auth]
    forms += [value.encode() for value in browser.json()["keys"].values()]
    forms += [secret, token.encode(), token.upper().encode(), str(list(secret)).encode(), token[:16].encode()]
    forms += [encode(token_bytes(n) + secret + token_bytes(n)) for n in range(4) for encode in (base64.b64encode, base64.urlsafe_b64encode)]
    forms += [base64.b64encode(b'{"token":"' + token.encode() + b'"}')]
    for form in forms:
        for before in (b"", b"/3/device/", b"a", b"0", b" "):
            state = State(keys=None)
            (state.prints / "broker.err").write_bytes(b"1795224945 ready\n" + before + form + b"\n")
            state.outputs.append(state.prints / "broker.err")
            with pytest.raises(AssertionError) as failure:
                state.remove()
            assert token not in str(failure.value) and not state.prints.exists()
    state = State(keys=None)
    for number, form in enumerate((other, other.hex().encode(), base64.b64encode(other), str(list(other)).encode(), token_bytes(100_000))):
        (state.prints / f"{number}.out").write_bytes(form)
        state.outputs.append(state.prints / f"{number}.out")
    state.remove()
    # A policy's name is printed, whatever it is.
    policy = tmp_path / "policy.json"
    policy.write_text((REPOSITORY / "policies/rooms.json").read_text().replace('"rooms"', f'"{token}"', 1))
    with pytest.raises(AssertionError):
        mayfly("policy", "show", policy)


@pytest.fixture(scope="module")
def story(world):
    """Rooms in every stage of a life, all canaries, with pushes made and refused; then bad calls that name them."""
    client, canaries, rooms = world.client(), Canaries(), []

    def token():
        secret = token_bytes(32)
        canaries.add("token", secret)
        return secret.hex(), partial(world.simulator.pushes, secret.hex())

    def subscription():
        made = world.push.subscribe("google")
        canaries.add_subscription(made)
        return made, partial(world.simulator.web_pushes, made)

    def subscription_at_home():
        made = Subscriber(world.own)
        canaries.add_subscription(made.json())
        return made.json(), made.messages

    def member(answer, name):
        canaries.add("room id", answer["roomid"], base64url_bytes(answer["roomid"]))
        canaries.add(f"member secret of the {name}", answer["member"], base64url_bytes(answer["member"]))

    canaries.add("host", world.own.host)
    canaries.add("VAPID key", world.push.vapid.private_numbers().private_value.to_bytes(32, "big"))
    # The first line of the file begins as that of every such key does.
    canaries.add("VAPID key", *world.broker.options["vapid-key"].read_text().splitlines()[2:-1])
    for life, one, other in ((3600, token, subscription), (12, subscription_at_home, token)):
        code = "canary-" + new_code()
        (first, pushed), (second, _) = one(), other()
        creator, joiner = new_client(), new_client()
        canaries.add("join code", code)
        canaries.add("client id", creator, joiner)
        created = client.create(code, creator, first, life).expect(201).json
        member(created, "creator")
        client.create(code, creator, first, life).expect(200)
        client.create(code, new_client(), first, life).expect(409)
        client.accept(code, creator, first).expect(403)
        accepted = client.accept(code, joiner, second).expect(200).json
        member(accepted, "joiner")
        client.accept(code, new_client(), first).expect(409)
        roomid = created["roomid"]
        with Socket(world.broker) as socket:
            socket.join(roomid, joiner, accepted["member"])
            eventually(pushed, what="the push")
        cut = first[:-1] if isinstance(first, str) else first | {"keys": first["keys"] | {"auth": first["keys"]["auth"][:-1]}}
        client.put_token(roomid, creator, cut, member=created["member"]).expect(400)
        client.put_token(roomid + "A", creator, first).expect(401)
        client.send("GET", "/api/room/" + roomid).expect(404)
        client.send("POST", "/api/rooms", b'{"client1_token":' + json.dumps(first).encode()[:-1]).expect(400)
        world.simulator.fault(always=[{"reason": "BadDeviceToken"}, {"problem": "badToken", "dialect": "google"}])
        client.put_token(roomid, joiner, second, member=accepted["member"]).expect(200)
        client.presence(roomid, creator).expect(202)
        eventually(lambda: world.state.jobs() == 0, what="the outcome")
        world.simulator.fault()
        rooms.append((roomid, creator, created["member"]))
    pending = "canary-" + new_code()
    canaries.add("join code", pending)
    member(client.create(pending, new_client(), subscription()[0]).expect(201).json, "creator of a pending room")
    return client, canaries, rooms


def places(world):
    return world.state.folder, world.state.prints


# Promise: no-secret-in-files, no-secret-in-file-names
def test_a_live_room_leaves_no_secret_in_files(world, story):
    client, canaries, rooms = story
    client.status(rooms[0][0]).expect(200)
    assert (world.state / "mayfly.sqlite-wal").exists() and (world.state / "mayfly.sqlite").exists()
    assert canaries.in_files(*places(world)) == []
    metrics = world.broker.metrics().encode()
    assert canaries.in_bytes(metrics) == []


@pytest.mark.campaign
def test_an_ended_room_leaves_no_secret_in_files(world, story):
    client, canaries, rooms = story
    client.delete(rooms[0][0]).expect(200)
    eventually(lambda: client.status(rooms[1][0]).status == 404, 15, 0.2, "the end of the short room")
    time.sleep(1.5)
    assert canaries.in_files(*places(world)) == []


# Promise: state-folder
def test_a_stopped_broker_leaves_no_secret_in_files(world, story):
    _, canaries, _ = story
    assert world.broker.stop() == 0
    names = sorted(path.name for path in world.state.folder.iterdir())
    assert set(names) - {"mayfly.sqlite-wal", "mayfly.sqlite-shm"} == {"keys", "ledger", "ledger.vkey", "mayfly.sqlite"}
    assert canaries.in_files(*places(world)) == []
    world.broker.start()
