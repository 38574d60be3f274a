"""A canary's token, room id and code are found in no file and no output, while the room lives and after."""

import base64
import time
from secrets import token_bytes

import pytest

from canary import Canaries
from mayfly import Socket, base64url_bytes, new_client, new_code, new_token
from processes import REPOSITORY, State, eventually, mayfly


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
    secret = bytes.fromhex(token)
    forms = [secret, token.encode(), token.upper().encode(), str(list(secret)).encode(), token[:16].encode()]
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

    def side(token):
        canaries.add("token", token)
        return token.hex(), new_client()

    def member(answer, name):
        canaries.add("room id", answer["roomid"], base64url_bytes(answer["roomid"]))
        canaries.add(f"member secret of the {name}", answer["member"], base64url_bytes(answer["member"]))

    for life in (3600, 12):
        code = "canary-" + new_code()
        (first, creator), (second, joiner) = side(token_bytes(32)), side(token_bytes(32))
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
            eventually(lambda: world.simulator.pushes(first), what="the push")
        client.put_token(roomid, creator, first[:-1], member=created["member"]).expect(400)
        client.put_token(roomid + "A", creator, first).expect(401)
        client.send("GET", "/api/room/" + roomid).expect(404)
        client.send("POST", "/api/rooms", b'{"client1_token":"' + first.encode()).expect(400)
        world.simulator.fault(reason="BadDeviceToken")
        client.put_token(roomid, joiner, second, member=accepted["member"]).expect(200)
        client.presence(roomid, creator).expect(202)
        time.sleep(0.3)
        world.simulator.fault()
        rooms.append((roomid, creator, created["member"]))
    pending = "canary-" + new_code()
    canaries.add("join code", pending)
    token, creator = side(token_bytes(32))
    member(client.create(pending, creator, token).expect(201).json, "creator of a pending room")
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
