"""`mayfly drill` reports what the operator could hand over, and prints no secret."""

import base64
import json
import os
import re
import subprocess
import threading
from datetime import datetime, timedelta

import pytest
from nacl.signing import VerifyKey

from canary import Canaries
from mayfly import Socket, base64url_bytes, new_client, new_code, new_token
from push_world import SimulatorPushWorld
from processes import BINARY, clean_environment, eventually, mayfly
from world import World


@pytest.fixture(scope="module")
def held():
    """Rooms in every stage, and one push under way: the simulator keeps silent."""
    with World() as world:
        client = world.client()
        full, bare, spare = client.room(), client.room(tokens=(False, False)), client.room(tokens=(True, False))
        pending = {"code": new_code(), "client": new_client(), "token": new_token()}
        pending |= client.create(pending["code"], pending["client"], pending["token"], expires=7200).expect(201).json
        short = "%06d" % 271828
        client.create(short, new_client(), new_token()).expect(201)
        closed = client.room()
        client.delete(closed.roomid).expect(200)
        world.simulator.fault(silent=True)
        assert client.presence(full.roomid, full.joiner.client).expect(202).json["delivery"] == "queued"
        with Socket(world.broker) as socket:
            socket.join(bare.roomid, bare.creator.client)
            yield world, full, bare, spare, pending, short, closed


def drill(world, *words, given=None):
    arguments = [BINARY, "drill", "--state", world.state.folder, "--operator-listen", f"127.0.0.1:{world.broker.operator_port}"]
    return subprocess.run(
        [*map(str, arguments), *words], input=given, capture_output=True, text=True, timeout=30, env=clean_environment())


def findings(world, *words, given=None):
    lines = drill(world, *words, given=given).stdout.splitlines()
    assert 0 < len(lines) <= 24 and max(map(len, lines)) <= 79, lines
    ran = drill(world, *words, "--json", given=given)
    assert ran.returncode == 0, ran.stderr
    return {each["subject"]: (each["held"], each["opens"]) for each in json.loads(ran.stdout)["findings"]}


def test_a_drill_counts_everything(held):
    world, *_ = held
    found = findings(world)
    assert findings(world, "--all").keys() == found.keys()
    assert found == {
        "room_tokens": (5, 0), "queued_tokens": (1, 1), "audience_tokens": (0, 0), "room_ids": (2, 0), "join_codes": (5, 0),
        "short_join_codes": (1, 0), "accept_answers": (3, 0), "members": (8, 0), "pairs": (1, 1), "ends_of_rooms": (5, 5),
        "last_knocks": (1, 1), "addresses": (0, 0), "users": (0, 0), "approvals": (0, 0), "activity_names": (0, 0), "sessions": (0, 0),
        "named_events": (0, 0), "open_sockets": (5, 5),
        "waiting_entries": found["waiting_entries"]}


def test_a_drill_prints_no_secret(held):
    world, full, bare, spare, pending, short, closed = held
    canaries = Canaries()
    for room in (full, bare, spare, closed):
        canaries.add("room id", room.roomid, base64url_bytes(room.roomid))
        canaries.add("code", room.code)
        for side in (room.creator, room.joiner):
            canaries.add("side", side.client, side.member, base64url_bytes(side.member))
            if side.token:
                canaries.add("token", bytes.fromhex(side.token))
    canaries.add("pending", pending["code"], pending["client"], pending["roomid"], bytes.fromhex(pending["token"]))
    for question in ((), ("--token", full.creator.token), ("--room", full.roomid), ("--code", pending["code"]), ("--room", "nonsense"),
                     ("--code", full.code), ("--user", full.creator.client), ("--printer", full.creator.client), ("--token", "nonsense" + full.creator.token)):
        for form in ((), ("--json",)):
            ran = drill(world, *question, *form)
            assert canaries.in_bytes((ran.stdout + ran.stderr).encode()) == [], question


def test_a_drill_of_a_token(held):
    world, full, bare, spare, *_ = held
    apps = {"audience_tokens": (0, 0)}
    assert findings(world, "--token", full.creator.token) == {"room_tokens": (5, 0), "queued_tokens": (1, 1)} | apps
    assert findings(world, "--token", full.creator.token.upper())["queued_tokens"] == (1, 1)
    assert findings(world, "--token", full.joiner.token) == {"room_tokens": (5, 0), "queued_tokens": (1, 0)} | apps
    assert findings(world, "--token", new_token()) == {"room_tokens": (5, 0), "queued_tokens": (1, 0)} | apps


def test_a_drill_of_a_subscription():
    with SimulatorPushWorld() as world:
        key = world.client().send("GET", "/api/push").expect(200).json["webPush"]["applicationServerKey"]
        pushed, other = (world.simulator.subscribe("mozilla", key) for _ in range(2))
        world.simulator.fault(silent=True)
        client, code, joiner = world.client(), new_code(), new_client()
        created = client.create(code, token=pushed).expect(201).json
        member = client.accept(code, joiner).expect(200).json["member"]
        client.presence(created["roomid"], joiner, member=member).expect(202)
        found = {"room_tokens": (1, 0), "queued_tokens": (1, 1), "audience_tokens": (0, 0)}
        # As the page has it, or the endpoint alone, as the push service's operator would name it.
        for given in (json.dumps(pushed), pushed["endpoint"]):
            assert findings(world, "--token", "-", given=given + "\n") == found
        assert findings(world, "--token", other["endpoint"])["queued_tokens"] == (1, 0)
        assert findings(world, "--room", created["roomid"])["creator_token"] == (1, 1)
        assert findings(world)["queued_tokens"] == (1, 1)
        canaries = Canaries()
        for subscription in (pushed, other):
            canaries.add("subscription", subscription["endpoint"].rsplit("/", 1)[1], *subscription["keys"].values())
        for given in (json.dumps(pushed), other["endpoint"], json.dumps(pushed)[:-1], pushed["endpoint"] + "#", '{"endpoint": 1}'):
            ran = drill(world, "--token", given)
            assert canaries.in_bytes((ran.stdout + ran.stderr).encode()) == [], given


def test_a_drill_of_a_room(held):
    world, full, bare, spare, pending, short, closed = held
    assert findings(world, "--room", full.roomid) == {
        "room": (1, 1), "creator_token": (1, 1), "joiner_token": (1, 1), "refs": (2, 2), "members": (2, 0), "last_knocks": (1, 1)}
    assert findings(world, "--room", "-", given=spare.roomid + "\n") == {
        "room": (1, 1), "creator_token": (1, 1), "joiner_token": (0, 0), "refs": (1, 1), "members": (2, 0), "last_knocks": (0, 0)}
    assert findings(world, "--room", pending["roomid"])["members"] == (1, 0)
    for gone in (closed.roomid, base64.urlsafe_b64encode(bytes(32)).decode().rstrip("=")):
        assert findings(world, "--room", gone) == {"room": (0, 0)}
    assert drill(world, "--room", closed.roomid).stdout.splitlines()[1:] == drill(world, "--room", "A" * 43).stdout.splitlines()[1:]


def test_a_drill_of_a_code(held):
    world, full, bare, spare, pending, short, closed = held
    assert findings(world, "--code", pending["code"]) == {
        "room_ids": (1, 1), "room": (1, 1), "creator_token": (1, 1), "joiner_token": (0, 0), "refs": (1, 1), "members": (1, 0),
        "last_knocks": (0, 0)}
    for end in ("", "\n", "\r\n"):
        assert findings(world, "--code", "-", given=short + end)["room_ids"] == (1, 1)
    assert findings(world, "--code", full.code) == {"room_ids": (1, 0), "ends_of_rooms": (1, 1)}
    assert findings(world, "--code", closed.code) == findings(world, "--code", new_code()) == {"room": (0, 0)}


def test_a_drill_of_rooms_finds_no_address_user_or_printer(held):
    world, full, *_ = held
    assert findings(world, "--address", "192.0.2.1") == {"addresses": (0, 0)}
    assert findings(world, "--user", full.creator.client) == {"users": (0, 0)}
    assert findings(world, "--printer", "-", given=full.creator.client) == {"printer_devices": (0, 0)}


def test_a_drill_fits_a_screen_beside_a_busy_broker(held):
    world, *_ = held
    busy = threading.Event()

    def load():
        client = world.client()
        while not busy.is_set():
            client.room()
    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            ran = drill(world, "--all")
            assert ran.returncode == 0, ran.stderr
            lines = ran.stdout.splitlines()
            assert len(lines) <= 24 and max(map(len, lines)) <= 79, ran.stdout
    finally:
        busy.set()
        for thread in threads:
            thread.join()


def test_a_report_is_a_signed_note_without_exact_counts(held, tmp_path):
    world, *_ = held
    ran = drill(world, "--report", str(tmp_path / "drill.note"))
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    text, _, signature = (tmp_path / "drill.note").read_text().rpartition("\n\n")
    text += "\n"
    name, key_id, encoded = world.state.vkey.split("+", 2)
    dash, signer, signed = signature.rstrip("\n").split(" ")
    signed = base64.b64decode(signed)
    assert (dash, signer, signed[:4].hex()) == ("—", name, key_id)
    VerifyKey(base64.b64decode(encoded)[1:]).verify(text.encode(), signed[4:])
    lines = text.splitlines()
    assert lines[0] == "mayfly drill" and lines[2] == name and re.fullmatch(r"size \d+", lines[3])
    assert abs(datetime.utcnow() - datetime.fromisoformat(lines[1].rstrip("Z"))) < timedelta(minutes=1)
    assert re.fullmatch(r"codes tried a second: [1-9]\d0*", lines[4]) and lines[5].startswith("subject, held, opens (rounded")
    rows = {line.split()[0]: line.split()[1:3] for line in lines[6:]}
    assert rows["queued_tokens"] == ["5", "5"] and rows["short_join_codes"] == ["5", "0"], "counts are rounded"
    assert all(re.fullmatch(r"0|5|[1-9]\d?0*|\?", count) for row in rows.values() for count in row)
    # No verifier accepts it as a checkpoint of the log.
    (tmp_path / "checkpoint").write_bytes((tmp_path / "drill.note").read_bytes())
    judged = mayfly("audit", "verify", tmp_path, "--key", world.state.vkey)
    assert judged.returncode == 1 and "checkpoint" in judged.stdout + judged.stderr


def test_bad_use(held, tmp_path):
    world, full, *_ = held
    for words in (("--token", "xyz"), ("--token", '{"endpoint": 1}'), ("--token", "http://push.example/x"),
                  ("--room", "short"), ("--token", "-"), ("--all", "--room", full.roomid), ("spare",),
                  ("--printer", "-"), ("--printer", ""), ("--printer", "one", "--user", "two"),
                  ("--room", full.roomid, "--report", "/dev/null"), ("--report", ""), ("--code",), ("--code", "")):
        ran = drill(world, *words, given="")
        assert ran.returncode == 2 and ran.stdout == "", words
    missing = mayfly("drill", "--state", tmp_path)
    assert missing.returncode == 1 and "keys init" in missing.stderr
    longer = drill(world, "--code", "-", given="x" * 300)
    assert longer.returncode == 2
    # A file that isn't a report is never replaced.
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        ran = drill(world, "--report", str(tmp_path / name))
        assert ran.returncode == 2 and "nothing was replaced" in ran.stderr, (name, ran)
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()


def test_a_drill_finds_no_ended_push(held):
    """A drill changes nothing."""
    world, full, *_ = held
    world.simulator.fault()
    eventually(lambda: findings(world, "--token", full.creator.token)["queued_tokens"] == (0, 0), 40, 0.5, "the end of the push")
    before = (world.state / "keys/ratchet.key").stat()
    findings(world)
    after = (world.state / "keys/ratchet.key").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_drill_works_after_a_stop(held):
    world, *_ = held
    assert world.broker.stop() == 0
    names = sorted(path.name for path in world.state.folder.iterdir())
    found = findings(world)
    assert found["open_sockets"] == (None, 0) and found["room_tokens"][0] >= 5
    assert set(path.name for path in world.state.folder.iterdir()) - set(names) <= {"mayfly.sqlite-wal", "mayfly.sqlite-shm"}
