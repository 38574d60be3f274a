"""Who may act on a token: the peer, a phone's other rooms, a recreated room, and strangers who know the token."""

import json
import threading
import time
from itertools import combinations
from secrets import token_urlsafe

import pytest

import table
from mayfly import Socket, new_client, new_code, new_token
from processes import REPOSITORY, eventually
from traces import idle, knock, log, parts, purges, pushed, room_row, rows, same, token_row
from world import World

MEMBER, KNOWS_TOKEN = "one member", "who knows another's token"


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """The built-in policy with short lives."""
    policy = json.loads((REPOSITORY / "policies/rooms.json").read_text())
    limits = policy["limits"]
    limits["roomLifeSeconds"]["min"] = limits["joinCode"]["lifeSeconds"]["min"] = 1
    policy["ledger"] = {"hourSeconds": 1, "daySeconds": 1, "batchSeals": 1}
    path = tmp_path_factory.mktemp("policy") / "policy.json"
    path.write_text(json.dumps(policy))
    return path


@pytest.fixture(scope="module")
def world(policy):
    with World(policy=policy) as world:
        yield world
        assert world.broker.running, "the broker ended while the tests of this file ran"


@pytest.fixture(autouse=True)
def no_faults(world):
    yield
    world.simulator.fault()


# The other side of the room.

def as_the_other(client, room, victim, **secret):
    """Each call that acts for a side, with the victim's client id: (status, code) of the answers."""
    calls = (
        lambda: client.put_token(room.roomid, victim.client, new_token(), **secret),
        lambda: client.delete_token(room.roomid, victim.client, **secret),
        lambda: client.presence(room.roomid, victim.client, **secret),
        lambda: client.presence(room.roomid, victim.client, leaving=True, **secret))
    return [(answer.status, answer.code) for answer in (call() for call in calls)]


def as_the_other_over_a_socket(world, room, victim, **secret):
    with Socket(world.broker) as socket:
        socket.send({"type": "join_room", "roomid": room.roomid, "client": victim.client, **secret})
        close, messages = socket.closed()
        return close, [message.get("code", message["type"]) for message in messages]


@pytest.mark.campaign
@pytest.mark.parametrize("victim", ["creator", "joiner"])
@pytest.mark.parametrize("proof", ["put", "presence", "socket"])
def test_the_peer_can_not_act_for_the_victim(world, client, victim, proof):
    """It has the victim's client id and every secret that is not the victim's."""
    room, elsewhere = client.room(), client.room()
    other = room.joiner if victim == "creator" else room.creator
    victim = getattr(room, victim)
    wrong = [other.member, elsewhere.creator.member, token_urlsafe(32)]
    before = token_row(world, victim.ref), room_row(world, victim.ref)
    for member in wrong:
        assert set(as_the_other(client, room, victim, member=member)) == {(403, "not_a_member")}
        assert as_the_other_over_a_socket(world, room, victim, member=member) == (1008, ["not_a_member"])
    assert (token_row(world, victim.ref), room_row(world, victim.ref)) == before
    status = client.status(room.roomid).expect(200).json
    assert not status["creatorPresent"] and not status["joinerPresent"]

    # The victim uses its member secret once, however it likes: from then on its client id alone is worth nothing.
    if proof == "put":
        victim.answer["ref"] = client.put_token(room.roomid, victim.client, victim.token, member=victim.member).expect(200).json["ref"]
    elif proof == "presence":
        client.presence(room.roomid, victim.client, member=victim.member, leaving=True).expect(202)
    else:
        with Socket(world.broker) as socket:
            socket.join(room.roomid, victim.client, victim.member)
    before = token_row(world, victim.ref)
    assert set(as_the_other(client, room, victim)) == {(403, "member_required")}
    assert as_the_other_over_a_socket(world, room, victim) == (1008, ["member_required"])
    for member in wrong:
        assert set(as_the_other(client, room, victim, member=member)) == {(403, "not_a_member")}
        assert as_the_other_over_a_socket(world, room, victim, member=member) == (1008, ["not_a_member"])
    assert before and token_row(world, victim.ref) == before
    table.record(
        MEMBER, "every call with the other's client id and any secret but the other's, over HTTP and a socket", "nothing: 403, and no row changed",
        "can't read, replace or withdraw the other's token")


def test_a_client_id_suffices_until_the_member_secret_is_used(world, client):
    """The limit that the threat model names."""
    room = client.room()
    taken = client.put_token(room.roomid, room.creator.client, new_token()).expect(200).json["ref"]
    assert token_row(world, room.creator.ref) is None and token_row(world, taken)
    # The owner can take its place back for good.
    client.put_token(room.roomid, room.creator.client, room.creator.token, member=room.creator.member).expect(200)
    client.put_token(room.roomid, room.creator.client, new_token()).expect(403, "member_required")
    table.record(
        MEMBER, "the other's client id alone, before the other used its secret", "spoke for the other until the other did",
        "until then who knows the other's client id can speak for it")


def together(*works):
    """Runs each in a thread of its own, and raises the error of any."""
    failures = []

    def run(work):
        try:
            work()
        except BaseException as failure:
            failures.append(failure)
    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_both_sides_replace_their_tokens_at_once(world):
    client = world.client()
    room = client.room()
    latest = {}

    def replace(side):
        mine = world.client()
        for _ in range(6):
            token = new_token()
            ref = mine.put_token(room.roomid, side.client, token, member=side.member).expect(200).json["ref"]
            latest[side.client] = ref, token
    together(*(lambda side=side: replace(side) for side in (room.creator, room.joiner)))
    row = room_row(world, latest[room.creator.client][0])
    assert row["joiner_token"] == token_row(world, latest[room.joiner.client][0])["purge_id"]
    assert len(rows(world, "token", room=row["room"])) == 2
    assert knock(client, room.roomid, room.joiner.client, member=room.joiner.member) == "queued"
    pushed(world, latest[room.creator.client][1])


def test_a_proven_owner_keeps_its_token(world):
    """Whatever the peer does at that moment."""
    client = world.client()
    for _ in range(8):
        room, over = client.room(), threading.Event()
        owners = []

        def own():
            time.sleep(0.005)
            answer = client.put_token(room.roomid, room.creator.client, room.creator.token, member=room.creator.member)
            owners.append(answer.expect(200).json["ref"])
            over.set()

        def take():
            thief = world.client()
            while True:
                was_over = over.is_set()
                answer = thief.put_token(room.roomid, room.creator.client, new_token())
                if was_over:
                    return answer.status == 429 or answer.expect(403, "member_required")
                # A side may replace its token six times.
                assert answer.status in (200, 403, 429)
        together(own, take, take)
        assert token_row(world, owners[0]) and room_row(world, owners[0])


# One phone in two rooms.

def own(row):
    """The random parts of a token's row."""
    return {name: row[name] for name in ("sealed", "ref", "purge_id")}


def test_one_phone_in_two_rooms_is_unlinkable(world, client):
    """Compares every column, every six bytes, each entry of the log, and each header at Apple except the token."""
    token, clients = new_token(), (new_client(), new_client())
    phones, strangers = [], []
    for _ in range(2):
        for tokens, found in (((token, token), phones), ((new_token(), new_token()), strangers)):
            code = new_code()
            created = client.create(code, clients[0], tokens[0], 3600).expect(201).json
            accepted = client.accept(code, clients[1], tokens[1]).expect(200).json
            # As different as rooms made a moment apart are: by some milliseconds.
            time.sleep(0.003)
            found.append((created, accepted))
    refs = [side["ref"] for room in phones for side in room]
    sealed = [token_row(world, ref) for ref in refs]
    # Within one room the two slots have more in common, and that is no secret: the room.
    for one, other in ((sealed[0], sealed[2]), (sealed[1], sealed[3]), (sealed[0], sealed[3]), (sealed[1], sealed[2])):
        assert same(one, other) <= {"slot", "kind", "generation"}, same(one, other)
    for one, other in combinations(sealed, 2):
        assert not parts(own(one), 6) & parts(own(other), 6)
    rooms = [room_row(world, room[0]["ref"]) for room in phones]
    assert same(*rooms) <= {"creator_generation", "joiner_generation", "code_generation"}, same(*rooms)
    assert not parts(rooms[0], 6) & parts(rooms[1], 6)
    # Two rooms of four phones share the same columns, so columns don't distinguish them.
    other_rooms = [room_row(world, room[0]["ref"]) for room in strangers]
    assert same(*rooms) == same(*other_rooms)

    # The rooms' pushes, at Apple's and in the ledger.
    for created, _ in phones:
        assert knock(client, created["roomid"], clients[1]) == "queued"
    pushes = pushed(world, token, 2)
    values = [{name: value for name, value in push["headers"].items() if name != "authorization"} | {"payload": push["payload"]}
              for push in pushes]
    assert same(*values) <= {"apns-topic", "apns-push-type", "apns-priority", "apns-expiration", "content-length", "content-type"}, same(*values)
    idle(world)
    found = log(world)
    entries = [found.of(ref) + found.outcomes(ref) for ref in (refs[0], refs[2])]
    assert [len(of) for of in entries] == [3, 3]
    for one in entries[0]:
        for other in entries[1]:
            assert same(one, other) <= {"at", "op", "until", "template", "status", "cause"}, (one, other)
    table.record(
        "database, WAL and backups", "two rooms of one phone, column by column, and their entries in the ledger",
        "what all rooms made at one time share", "no link between two rooms of one phone but their time")


def test_the_same_token_sealed_again_is_another_row(world, client):
    room = client.room()
    first = token_row(world, room.creator.ref)
    client.put_token(room.roomid, room.creator.client, new_token()).expect(200)
    again = client.put_token(room.roomid, room.creator.client, room.creator.token).expect(200).json["ref"]
    second = token_row(world, again)
    assert same(first, second) <= {"slot", "kind", "generation", "room", "expires"}
    assert not parts(own(first), 6) & parts(own(second), 6)


def test_a_token_that_ends_in_one_room_survives_in_another(world, client):
    """Six rooms of one phone: in five of them it ends, each in another way."""
    token, refs, rooms = new_token(), {}, {}
    for end in ("room_closed", "deleted", "replaced", "expired", "unregistered", "none"):
        rooms[end] = room = client.room(expires=1 if end == "expired" else 3600)
        refs[end] = client.put_token(room.roomid, room.creator.client, token).expect(200).json["ref"]
    before = token_row(world, refs["none"]), room_row(world, refs["none"])
    client.delete(rooms["room_closed"].roomid).expect(200)
    client.delete_token(rooms["deleted"].roomid, rooms["deleted"].creator.client).expect(200)
    client.put_token(rooms["replaced"].roomid, rooms["replaced"].creator.client, new_token()).expect(200)
    world.simulator.fault(next=[{"token": token, "reason": "Unregistered", "timestamp": int(time.time() * 1000) + 1000}])
    assert knock(client, rooms["unregistered"].roomid, rooms["unregistered"].joiner.client) == "queued"
    for end, ref in refs.items():
        eventually(lambda: (token_row(world, ref) is None) == (end != "none"), what=end)
    assert (token_row(world, refs["none"]), room_row(world, refs["none"])) == before
    assert knock(client, rooms["none"].roomid, rooms["none"].joiner.client) == "queued"
    pushed(world, token)
    idle(world)
    found = log(world)
    assert {end: purges(found, ref) for end, ref in refs.items()} == {
        end: ["expired"] if end == "expired" else ["ended"] if end != "none" else [] for end in refs}
    assert [entry["op"] for entry in found.outcomes(refs["none"])] == ["push.delivered"]


def test_a_410_purges_only_the_pushed_row(world, client):
    """The broker can't find the other rows of that token. Each ends at its own next push."""
    token, refs, rooms = new_token(), [], []
    for _ in range(3):
        rooms.append(room := client.room())
        refs.append(client.put_token(room.roomid, room.creator.client, token).expect(200).json["ref"])
    world.simulator.fault(token=token, reason="Unregistered", timestamp=int(time.time() * 1000) + 1000)
    for number, room in enumerate(rooms):
        assert knock(client, room.roomid, room.joiner.client) == "queued"
        idle(world)
        assert [token_row(world, ref) is None for ref in refs] == [True] * (number + 1) + [False] * (2 - number)
        assert client.status(room.roomid).expect(200).json["creatorHasToken"] is False
    found = log(world)
    assert [purges(found, ref) for ref in refs] == [["ended"]] * 3
    assert [len(found.outcomes(ref)) for ref in refs] == [1, 1, 1] and world.simulator.pushes(token) == []


# A room deleted and made again.

def test_a_room_made_again_inherits_nothing(world, client):
    """The new room has the same join code, client ids and token."""
    code, creator, joiner, token = new_code(), new_client(), new_client(), new_token()
    old = client.create(code, creator, token).expect(201).json
    old_side = client.accept(code, joiner, new_token()).expect(200).json
    # A push that waits for its next attempt, a throttle, a presence, secrets that were used, an answer kept for a repeat.
    world.simulator.fault(token=token, reason="ServiceUnavailable")
    assert knock(client, old["roomid"], joiner, member=old_side["member"]) == "queued"
    assert knock(client, old["roomid"], joiner, member=old_side["member"]) == "throttled"
    time.sleep(0.5)  # Its first attempt is answered with 503.
    client.presence(old["roomid"], creator, member=old["member"], leaving=True).expect(202)
    with Socket(world.broker) as left_over:
        left_over.join(old["roomid"], joiner, old_side["member"])
        old_rows = room_row(world, old["ref"]), token_row(world, old["ref"])
        assert old_rows[0]["retry"] and world.state.jobs()
        client.delete(old["roomid"]).expect(200)
        assert left_over.closed() == (1000, [{"type": "room_closed"}])

    new = client.create(code, creator, token).expect(201).json
    assert not {old[part] for part in ("roomid", "member", "ref")} & {new[part] for part in ("roomid", "member", "ref")}
    new_rows = room_row(world, new["ref"]), token_row(world, new["ref"])
    # The code is looked up by its day: its index is the same, and nothing else is.
    shared = {name: value for name, value in new_rows[0].items() if name == "code"}
    assert same(old_rows[0], new_rows[0]) <= {"creator_generation", "code_generation", "code"}
    assert not (parts(new_rows[0], 6) - parts(shared, 6)) & (parts(old_rows[0], 6) - parts(shared, 6))
    assert not parts(new_rows[1], 6) & parts(old_rows[1], 6)
    status = client.status(new["roomid"]).expect(200).json
    assert not (status["accepted"] or status["creatorPresent"] or status["joinerPresent"] or status["joinerHasToken"])
    for secret in (old["member"], old_side["member"]):
        client.presence(new["roomid"], creator, member=secret).expect(403, "not_a_member")
    client.presence(new["roomid"], joiner, member=old_side["member"]).expect(403, "not_a_member")
    for call in (client.status, client.delete):
        call(old["roomid"]).expect(404, "room_not_found")

    # The earlier joiner isn't a member any more: the same request is a new accept, not a repeat.
    new_side = client.accept(code, joiner, new_token()).expect(200).json
    assert new_side["roomid"] == new["roomid"]
    assert not {old_side[part] for part in ("roomid", "member", "ref")} & {new_side[part] for part in ("roomid", "member", "ref")}
    # No member secret was used, nobody is present, nobody was knocked at.
    world.simulator.fault()
    assert knock(client, new["roomid"], joiner) == "queued"
    pushes = pushed(world, token)
    idle(world)
    found = log(world)
    assert [entry["reason"] for entry in found.outcomes(old["ref"])] == ["unsent"]
    assert [entry["op"] for entry in found.outcomes(new["ref"])] == ["push.delivered"]
    assert world.simulator.pushes(token) == pushes, "a push of the room that was deleted"


# Strangers who know a token.

class Mallory:
    """A stranger who knows a token, and registers it in rooms of its own on either side."""

    def __init__(self, world, token):
        self.client, self.token, self.rooms = world.client(), token, 0

    def room(self, **more):
        """(the room's id, the token's ref there, the client id of the side that knocks)"""
        code, one, other = new_code(), new_client(), new_client()
        self.rooms += 1
        if self.rooms % 2:
            made = self.client.create(code, one, self.token, **more).expect(201).json
            self.client.accept(code, other).expect(200)
            return made["roomid"], made["ref"], other
        self.client.create(code, one).expect(201)
        joined = self.client.accept(code, other, self.token, **more).expect(200).json
        return joined["roomid"], joined["ref"], one

    def knock(self, **more):
        roomid, ref, name = self.room(**more)
        return knock(self.client, roomid, name), ref


def test_a_known_token_does_not_evict_its_owner(world, client):
    """Whatever Apple answers to a push for Mallory, at most Mallory's row is purged."""
    room = client.room()
    token, ref = room.creator.token, room.creator.ref
    before = token_row(world, ref), room_row(world, ref)
    mallory, theirs, soon = Mallory(world, token), {}, int(time.time() * 1000) + 5000
    # While Apple accepts nothing, a refusal purges no token.
    for environment in ("production", "sandbox"):
        other = client.room(environment=environment)
        assert knock(client, other.roomid, other.joiner.client) == "queued"
        pushed(world, other.creator.token)
    for reason, timestamp, environment in (
            ("Unregistered", soon, "production"), ("ExpiredToken", soon, "production"), ("Unregistered", 1, "production"),
            ("BadDeviceToken", 1, "sandbox"), ("DeviceTokenNotForTopic", 1, "production")):
        world.simulator.fault(token=token, reason=reason, timestamp=timestamp)
        for _ in range(2):
            delivery, their_ref = mallory.knock(environment=environment)
            assert delivery == "queued"
            idle(world)
            theirs[their_ref] = [] if timestamp == 1 and reason == "Unregistered" else ["ended"]
            assert (token_row(world, their_ref) is None) == bool(theirs[their_ref])
        # Rooms of its own don't help either.
        roomid, their_ref, _ = mallory.room()
        mallory.client.delete(roomid).expect(200)
        theirs[their_ref] = ["ended"]
    world.simulator.fault()
    assert (token_row(world, ref), room_row(world, ref)) == before
    assert knock(client, room.roomid, room.joiner.client) == "queued"
    pushed(world, token)
    found = log(world)
    assert purges(found, ref) == [] and {ref: purges(found, ref) for ref in theirs} == theirs
    table.record(
        KNOWS_TOKEN, "pushes of its own that Apple refuses: 410, wrong environment, wrong topic", "its own rows purged, never the owner's",
        "can't evict the owner")

