"""Recomputes sealing.json from docs/sealing.md, with hashlib and PyNaCl. Prints one line. Exits with 1 if a vector differs."""

import hashlib
import hmac
import json
import pathlib
import struct
import sys
import uuid

from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as aead_open
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as aead_seal

KINDS = {"alert": 1, "voip": 2, "liveactivity": 3}
ENVIRONMENTS = {"production": 1, "sandbox": 2}
APNS = 1
KEY_0 = bytes(32)


def derive(key, label, *fields):
    """The function D of docs/sealing.md."""
    message = b"mayfly/v1 " + label.encode() + b"\0"
    for field in fields:
        message += struct.pack(">I", len(field)) + field
    return hashlib.blake2b(message, digest_size=32, key=key).digest()


def pad(plaintext, block):
    return plaintext + b"\x80" + bytes(-(len(plaintext) + 1) % block)


def app_id(bundle_id):
    return derive(KEY_0, "app", bundle_id.encode())[:16]


def counted(text):
    return struct.pack(">H", len(text.encode())) + text.encode()


class Keys:
    """A parsed ratchet.key."""

    def __init__(self, file):
        head, self.day_chain, entries = file[:32], file[32:64], file[64:-32]
        magic, version, count, self.steps, self.base = struct.unpack(">8sIIQQ", head)
        assert magic == b"mayflyrk" and version == 1 and len(entries) == 44 * count
        assert file[-32:] == derive(KEY_0, "ratchet-file", file[:-32])
        self.generations = {}
        for start in range(0, len(entries), 44):
            number, born, chain = struct.unpack(">IQ32s", entries[start : start + 44])
            self.generations[number] = (born, chain)

    def epoch_key(self, generation, ms):
        chain = self.generations[generation][1]
        for _ in range(self.base, ms // 300_000):
            chain = derive(chain, "chain")
        return derive(chain, "epoch")

    def day_key(self, day):
        chain = self.day_chain
        for _ in range((self.base + 1) // 288 - 2, day):
            chain = derive(chain, "chain")
        return derive(chain, "day")

    def stepped(self, base):
        """Returns the file after a step to a later base epoch. No generation may start or end in between."""
        day_chain = self.day_chain
        for _ in range((self.base + 1) // 288, (base + 1) // 288):
            day_chain = derive(day_chain, "chain")
        file = struct.pack(">8sIIQQ", b"mayflyrk", 1, len(self.generations), self.steps + 1, base) + day_chain
        for number, (born, chain) in self.generations.items():
            for _ in range(self.base, base):
                chain = derive(chain, "chain")
            file += struct.pack(">IQ", number, born) + chain
        return file + derive(KEY_0, "ratchet-file", file)


def wrapped(file, wrapping, nonce):
    """Returns a wrapped key file (version 2)."""
    head = struct.pack(">8sII16s", b"mayflyrk", 2, len(file), derive(wrapping, "wrapping-id")[:16])
    return head + nonce + aead_seal(file, head, nonce, derive(wrapping, "wrapping"))


class Case:
    """The inputs of one vector, with hexadecimal and text as bytes."""

    def __init__(self, keys, values):
        self.keys, self.values = keys, values

    def __getattr__(self, name):
        value = self.values[name]
        if name in ("room", "member", "token", "ref", "purge", "job", "nonce", "handle", "code", "key", "id", "note"):
            return bytes.fromhex(value)
        if name == "fields":
            return [bytes.fromhex(field) for field in value]
        return value.encode() if name in ("joinid", "client", "audience", "owner") else value

    def seal(self, key, data, plaintext):
        sealed = aead_seal(plaintext, data, self.nonce, key)
        assert aead_open(sealed, data, self.nonce, key) == plaintext
        return (self.nonce + sealed).hex()

    def epoch_key(self, ms):
        return self.keys.epoch_key(self.generation, ms)

    # -- indexes of rows
    def room_index(self):
        return (bytes(2) + self.room[:6] + derive(KEY_0, "room", self.room)[:24]).hex()

    def member_hash(self):
        return derive(KEY_0, "member", self.member).hex()

    def app_id(self):
        return app_id(self.app).hex()

    def code_indexes(self):
        today = self.now // 86_400_000
        return [derive(self.keys.day_key(day), "join", self.joinid).hex() for day in (today, today - 1, today - 2)]

    def client_index(self):
        return derive(self.epoch_key(self.expiry), "client", self.room, bytes([self.slot]), self.client).hex()

    def audience_index(self):
        keyed = derive(self.epoch_key(self.expiry), self.label, *self.fields)
        return (struct.pack(">Q", self.expiry) + keyed[:24]).hex()

    def device_index(self):
        keyed = derive(self.epoch_key(self.expiry), "device-index", self.owner, bytes([KINDS[self.kind]]), self.token)
        return (struct.pack(">Q", self.expiry) + keyed[:24]).hex()

    def places(self):
        """Returns all slots in which an unexpired row with this life may be, latest first. `now` is in the ratchet's epoch."""
        births = sorted((born * 300_000, number) for number, (born, _) in self.keys.generations.items())
        found = []
        for (born, number), (end, _) in zip(births, births[1:] + [(self.now + 1, None)]):
            for start in range(born, min(end, born + 86_400_000), self.step):
                if start + self.life > self.now:
                    found.append((start + self.life, number))
        return [f"{number} {expiry}" for expiry, number in sorted(found, reverse=True)]

    # -- seals
    def seal_note(self):
        key = derive(self.epoch_key(self.expiry), self.label, *self.fields)
        data = struct.pack(">4sIQ", b"MFN1", self.generation, self.expiry) + counted(self.label)
        data += b"".join(struct.pack(">H", len(field)) + field for field in self.fields)
        return self.seal(key, data, pad(struct.pack(">H", len(self.note)) + self.note, self.block))

    def token_data(self):
        return struct.pack(">4sIBBQ", b"MFT2", self.generation, KINDS[self.kind], self.slot, self.expiry) + self.purge

    def address_text(self, name):
        """The plaintext of a token, named by its ref, or of a job, named by its handle."""
        address = app_id(self.app) + self.token
        text = struct.pack(">Q16sBBBH", self.sealed, name, APNS, ENVIRONMENTS[self.environment], 0, len(address)) + address
        return pad(text, self.size)

    def ref_data(self):
        return struct.pack(">4sIBQ", b"MFI1", self.generation, self.slot, self.expiry) + self.purge

    def seal_token(self):
        key = derive(self.epoch_key(self.expiry), "token", bytes([self.slot]), self.room)
        return self.seal(key, self.token_data(), self.address_text(self.ref))

    def seal_audience_token(self):
        key = derive(self.epoch_key(self.expiry), "audience", self.audience)
        return self.seal(key, self.token_data(), self.address_text(self.ref))

    def seal_ref(self):
        key = derive(self.epoch_key(self.expiry), "ref", bytes([self.slot]), self.room)
        return self.seal(key, self.ref_data(), self.ref)

    def seal_audience_ref(self):
        key = derive(self.epoch_key(self.expiry), "ref", bytes([0]), self.audience)
        return self.seal(key, self.ref_data(), self.ref)

    def code_data(self, purpose, ms):
        return struct.pack(">4sIQ", purpose, self.generation, ms) + self.code

    def seal_pending(self):
        key = derive(self.epoch_key(self.expiry), "pending", self.joinid)
        return self.seal(key, self.code_data(b"MFP1", self.expiry), self.room)

    def seal_creator(self):
        key = derive(self.epoch_key(self.expiry), "creator", self.joinid, self.client)
        return self.seal(key, self.code_data(b"MFC1", self.expiry), self.member)

    def seal_retry(self):
        key = derive(self.epoch_key(self.until), "retry", self.joinid, self.client)
        return self.seal(key, self.code_data(b"MFR1", self.until), self.room + self.member)

    def seal_job(self):
        key = derive(self.epoch_key(self.deadline), "job", self.job)
        data = struct.pack(
            ">4sIBBQQ", b"MFJ2", self.generation, KINDS[self.kind], self.slot, self.deadline, self.expiry
        )
        data += self.job + self.purge + counted(self.template)
        return self.seal(key, data, self.address_text(self.handle))

    # -- names outside
    def ledger_ids(self):
        until = struct.pack(">Q", self.until // 1000)
        fields = {"sealed": until, "opened": self.job, "purged": until}
        return [derive(self.ref, "ledger/" + label, field)[:16].hex() for label, field in fields.items()]

    def apns_id(self):
        raw = bytearray(derive(self.epoch_key(self.deadline), "apns-id", self.job)[:16])
        raw[6], raw[8] = raw[6] & 0x0F | 0x80, raw[8] & 0x3F | 0x80
        return str(uuid.UUID(bytes=bytes(raw)))

    def make_handle(self):
        message = b"mayfly/v1 handle" + self.kind.encode() + bytes([self.slot]) + self.id
        return hmac.new(self.key, message, "sha256").digest()[:16].hex()


def main():
    vectors = json.loads(pathlib.Path(__file__).with_name("sealing.json").read_text())
    wrong = []
    for number, vector in enumerate(vectors["derivations"]):
        fields = [bytes.fromhex(field) for field in vector["fields"]]
        if derive(bytes.fromhex(vector["key"]), vector["label"], *fields).hex() != vector["output"]:
            wrong.append(f"derivation {number}")
    keys = Keys(bytes.fromhex(vectors["file"]))
    if keys.stepped(vectors["stepped"]["base"]).hex() != vectors["stepped"]["file"]:
        wrong.append("stepped file")
    vector = vectors["wrapped"]
    if wrapped(bytes.fromhex(vectors["file"]), *(bytes.fromhex(vector[name]) for name in ("key", "nonce"))).hex() != vector["file"]:
        wrong.append("wrapped file")
    for number, vector in enumerate(vectors["cases"]):
        if getattr(Case(keys, vector), vector["op"])() != vector["output"]:
            wrong.append(f"case {number} ({vector['op']})")
    total = len(vectors["derivations"]) + len(vectors["cases"]) + 3
    print(f"sealing: {', '.join(wrong)} differ" if wrong else f"sealing: {total} vectors agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
