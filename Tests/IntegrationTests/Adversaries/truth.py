"""The truth about a stage: every secret that a thief could want, and its owner."""

import itertools
import secrets
import threading
from dataclasses import dataclass, field

import opening
from canary import Canaries
from mayfly import base64url_bytes, new_client, new_code
from thief import Recovered


@dataclass(eq=False)
class Phone:
    """`subscription`: a browser's; then `token` is what is sealed of it, both keys and the endpoint without its scheme."""

    token: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    subscription: dict | None = None

    @classmethod
    def browser(cls, subscription):
        auth, point = (base64url_bytes(subscription["keys"][name]) for name in ("auth", "p256dh"))
        return cls(auth + point + subscription["endpoint"].removeprefix("https://").encode(), subscription)

    @property
    def address(self):
        """What the API takes."""
        return self.subscription or self.token.hex()


@dataclass(eq=False)
class Room:
    code: str
    roomid: bytes
    roomid_text: str
    expires: float
    clients: dict
    members: dict
    phones: dict = field(default_factory=dict)  # by slot, now
    refs: dict = field(default_factory=dict)
    earlier: list = field(default_factory=list)  # phones whose tokens were replaced or withdrawn

    @property
    def index(self):
        return opening.room_index(self.roomid)

    @property
    def tokens(self):
        return {phone.token for phone in self.phones.values()}


def six_digits():
    return f"{secrets.randbelow(1_000_000):06}"


class Truth:
    """Plays rooms through HTTP and records them."""

    def __init__(self, stage):
        self.stage, self.rooms = stage, []
        self.sealed = []  # refs in the order in which their tokens were taken in
        self._lock = threading.Lock()
        self._phones = itertools.count()

    def phone(self):
        """A new phone, or every other time a new browser."""
        push = getattr(self.stage, "push", None)
        return Phone.browser(push.subscribe()) if push and next(self._phones) % 2 else Phone()

    def create(self, client, phone=None, code=None, name=None, life=3600, **more):
        code, name, phone = code or new_code(), name or new_client(), phone or self.phone()
        answer = client.create(code, name, phone.address, life, **more).expect(201).json
        with self._lock:
            room = Room(
                code, base64url_bytes(answer["roomid"]), answer["roomid"], self.stage.now + life, {1: name},
                {1: base64url_bytes(answer["member"])}, {1: phone}, {1: answer["ref"]})
            self.rooms.append(room)
        self.sealed.append(answer["ref"])
        return room

    def accept(self, client, room, phone=None, name=None):
        name, phone = name or new_client(), phone or self.phone()
        answer = client.accept(room.code, name, phone.address).expect(200).json
        room.clients[2], room.members[2] = name, base64url_bytes(answer["member"])
        room.phones[2], room.refs[2] = phone, answer["ref"]
        self.sealed.append(answer["ref"])
        return room

    def pair(self, client, creator=None, joiner=None, names=(None, None), **more):
        return self.accept(client, self.create(client, creator, name=names[0], **more), joiner, names[1])

    def replace(self, client, room, slot, phone=None):
        phone = phone or self.phone()
        answer = client.put_token(room.roomid_text, room.clients[slot], phone.address).expect(200).json
        room.earlier.append(room.phones[slot])
        room.phones[slot], room.refs[slot] = phone, answer["ref"]
        self.sealed.append(answer["ref"])

    def withdraw(self, client, room, slot):
        client.delete_token(room.roomid_text, room.clients[slot]).expect(200)
        room.earlier.append(room.phones.pop(slot))
        room.refs.pop(slot)

    def close(self, client, room):
        client.delete(room.roomid_text).expect(200)
        room.earlier += room.phones.values()
        room.phones, room.refs = {}, {}

    def knock(self, client, room, by):
        """The side in slot `by` arrives and knocks at the other."""
        return client.presence(room.roomid_text, room.clients[by]).expect(202).json["delivery"]

    # What the thief could find.

    @property
    def all(self):
        """Everything that ever was."""
        everything = Recovered()
        for room in self.rooms:
            everything.tokens |= room.tokens | {phone.token for phone in room.earlier}
            everything.rooms.add(room.roomid)
            everything.codes.add(room.code)
            everything.clients |= set(room.clients.values())
            everything.members |= set(room.members.values())
        everything.links = self.links(self.rooms)
        return {kind: getattr(everything, kind) for kind in ("tokens", "rooms", "codes", "clients", "members", "links")}

    @staticmethod
    def links(rooms):
        """Pairs of rooms that one phone was in."""
        by_phone = {}
        for room in rooms:
            for phone in [*room.phones.values(), *room.earlier]:
                by_phone.setdefault(phone.token, set()).add(room.index)
        return {frozenset(pair) for rooms in by_phone.values() for pair in itertools.combinations(rooms, 2)}

    def canaries(self):
        """Canaries for all of it, in every form."""
        canaries = Canaries()
        canaries.add("ref", *self.sealed, *map(bytes.fromhex, self.sealed))
        for room in self.rooms:
            for phone in [*room.phones.values(), *room.earlier]:
                if phone.subscription:
                    canaries.add_subscription(phone.subscription)
                else:
                    canaries.add("token", phone.token)
            # A piece, too: a row has the room's end and a part of a hash.
            canaries.add("room id", room.roomid, room.roomid[6:22], room.roomid_text)
            canaries.add("member secret", *room.members.values())
            # Short ones are met by chance.
            canaries.add("join code", *[code for code in [room.code] if len(code) > 8])
            canaries.add("client id", *[name for name in room.clients.values() if len(name) > 8])
        return canaries
