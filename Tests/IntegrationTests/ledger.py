"""A reader of the log that shares nothing with the broker: C2SP signed note, checkpoint and tiles on hashlib and PyNaCl."""

import base64
import functools
import hashlib
import json
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path

from nacl.signing import VerifyKey

WIDTH = 256


def _hash(data):
    return hashlib.sha256(data).digest()


def leaf_hash(entry):
    return _hash(b"\0" + entry)


def root_of(hashes):
    """RFC 6962: the tree splits at the largest power of two below its size."""
    if not hashes:
        return _hash(b"")
    if len(hashes) == 1:
        return hashes[0]
    split = 1 << (len(hashes) - 1).bit_length() - 1
    return _hash(b"\1" + root_of(hashes[:split]) + root_of(hashes[split:]))


def tile_path(index):
    groups = [f"{index % 1000:03}"]
    while index := index // 1000:
        groups.insert(0, f"x{index % 1000:03}")
    return "/".join(groups)


def seconds(moment):
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


class Checkpoint:
    """A signed head; raises AssertionError unless the key of `vkey` signed it."""

    def __init__(self, note, vkey):
        name, key_id, encoded = vkey.split("+", 2)
        key = base64.b64decode(encoded, validate=True)
        assert key[0] == 1 and len(key) == 33, "not an Ed25519 key"
        assert _hash(name.encode() + b"\n" + key)[:4].hex() == key_id, "the key's id is not its own"
        text, _, signatures = note.rpartition(b"\n\n")
        text += b"\n"
        assert signatures.endswith(b"\n")
        ours = []
        for line in signatures.decode().splitlines():
            dash, signer, encoded = line.split(" ")
            signature = base64.b64decode(encoded, validate=True)
            assert dash == "—"
            if signer == name and signature[:4].hex() == key_id:
                ours.append(signature[4:])
        assert len(ours) == 1, f"{len(ours)} signatures of {name}"
        VerifyKey(key[1:]).verify(text, ours[0])
        self.origin, size, root, rest = text.decode().split("\n")
        assert rest == "" and self.origin == name and size == str(int(size)), text
        self.size, self.root = int(size), base64.b64decode(root, validate=True)
        assert len(self.root) == 32


class Ledger:
    """The log at one checkpoint: every entry, with its hashes recomputed and held against root and tiles."""

    def __init__(self, folder, vkey, note=None):
        self.folder = Path(folder)
        self.checkpoint = Checkpoint(note or (self.folder / "checkpoint").read_bytes(), vkey)
        self.raw = self._read_entries()
        self.hashes = [leaf_hash(entry) for entry in self.raw]
        assert root_of(self.hashes) == self.checkpoint.root, "the entries do not give the signed root"
        self.entries = [json.loads(entry) for entry in self.raw]

    def _tile(self, kind, index, width):
        """A full tile, or the partial one; a partial may have gone once the full tile stands."""
        full = self.folder / "tile" / str(kind) / tile_path(index)
        if width < WIDTH:
            partial = full.with_name(f"{full.name}.p") / str(width)
            if partial.exists():
                return partial.read_bytes()
        return full.read_bytes()

    def _read_entries(self):
        found, size = [], self.checkpoint.size
        for index in range(-(-size // WIDTH)):
            width = min(WIDTH, size - index * WIDTH)
            data, offset = self._tile("entries", index, width), 0
            for _ in range(width):
                length = int.from_bytes(data[offset:offset + 2], "big")
                entry = data[offset + 2:offset + 2 + length]
                assert len(entry) == length, f"bundle {index} is cut short"
                found.append(entry)
                offset += 2 + length
        return found

    def check_tiles(self):
        """Every hash tile of this size, level by level."""
        hashes, level = self.hashes, 0
        while hashes:
            for index in range(-(-len(hashes) // WIDTH)):
                want = hashes[index * WIDTH:(index + 1) * WIDTH]
                data = self._tile(level, index, len(want))
                assert data[:32 * len(want)] == b"".join(want), f"tile {level}/{index} differs from the entries"
            hashes = [root_of(hashes[at:at + WIDTH]) for at in range(0, len(hashes) - WIDTH + 1, WIDTH)]
            level += 1

    def check_entries(self):
        """Form: one object, keys sorted, no spaces, `at` never decreasing, only the keys its kind may have."""
        keys = {
            "broker.started": {"node", "version", "policy", "resolution"}, "broker.stopped": {"node"},
            "policy.loaded": {"name", "policy"}, "keys.generated": {"generation"}, "keys.ratcheted": {"epoch"},
            "token.sealed": {"kind", "ref", "until"}, "token.opened": {"job", "ref", "template"},
            "push.delivered": {"job", "ref", "status"}, "push.failed": {"job", "ref", "status", "reason"},
            "token.purged": {"cause", "ref"}, "request.refused": {"cause", "count"}, "ledger.closed": {"next"}}
        last = 0
        for raw, entry in zip(self.raw, self.entries):
            again = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
            assert again == raw, f"not in canonical form: {raw}"
            assert set(entry) - {"at", "op"} == keys[entry["op"]], f"keys of {raw}"
            assert seconds(entry["at"]) >= last, f"time goes back at {raw}"
            last = seconds(entry["at"])

    def check_lives(self):
        """Of each ref: sealed once, purged at most once, opened only in between, one outcome at most for each opened job."""
        sealed, purged, opened, outcomes = {}, {}, {}, {}
        for position, entry in enumerate(self.entries):
            op, ref, job = entry["op"], entry.get("ref"), entry.get("job")
            if op == "token.sealed":
                assert ref not in sealed, f"{ref} sealed twice"
                sealed[ref] = position
            elif op == "token.opened":
                assert ref in sealed and ref not in purged, f"{ref} opened outside its life"
                assert job not in opened, f"job {job} opened twice"
                opened[job] = ref
            elif op in ("push.delivered", "push.failed"):
                assert opened.get(job) == ref, f"outcome of {job}, which never opened {ref}"
                assert job not in outcomes, f"job {job} has two outcomes"
                outcomes[job] = entry
            elif op == "token.purged":
                assert ref in sealed, f"{ref} purged but never sealed"
                assert ref not in purged, f"{ref} purged twice"
                purged[ref] = position
        return self

    def check(self):
        self.check_tiles()
        self.check_entries()
        return self.check_lives()

    def of(self, ref, op=None):
        return [entry for entry in self.by_ref.get(ref, ()) if op in (None, entry["op"])]

    def outcomes(self, ref):
        return [entry for entry in self.of(ref) if entry["op"] in ("push.delivered", "push.failed")]

    def counts(self):
        return Counter(entry["op"] for entry in self.entries)

    @functools.cached_property
    def by_ref(self):
        lives = defaultdict(list)
        for entry in self.entries:
            if "ref" in entry:
                lives[entry["ref"]].append(entry)
        return lives


def read(state):
    """The log of a state folder. A window may be published in between: then once more."""
    for attempt in range(5):
        try:
            return Ledger(state / "ledger", state.vkey)
        except FileNotFoundError:
            if attempt == 4:
                raise
