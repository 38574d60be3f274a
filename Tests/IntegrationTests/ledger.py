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


RANKS = {"token.opened": (1, "id"), "push.delivered": (2, "job"), "push.failed": (2, "job"), "token.sealed": (3, "id"),
         "token.purged": (4, "id"), "bucket.closed": (5, "until"), "ledger.closed": (6, "op")}
KEYS = {op: set(keys.split()) for op, keys in {
    "broker.started": "binary node policy resolution version", "broker.stopped": "node", "policy.loaded": "name policy",
    "keys.generated": "generation", "keys.ratcheted": "epoch swept", "token.opened": "id job template", "push.delivered": "job status",
    "push.failed": "job reason status", "token.sealed": "id until", "token.purged": "cause id until",
    "bucket.closed": "ended expired sealed until", "request.refused": "cause count", "ledger.opened": "jobs previous root size",
    "bucket.carried": "live until", "ledger.closed": "next"}.items()}


@functools.lru_cache(1 << 16)
def token_id(ref, label, what):
    """An entry's id. `label`: sealed, opened or purged. `what`: the job, or `until` in unix seconds."""
    what = bytes.fromhex(what) if isinstance(what, str) else what.to_bytes(8, "big")
    text = b"mayfly/v1 ledger/" + label.encode() + b"\0" + len(what).to_bytes(4, "big") + what
    return hashlib.blake2b(text, digest_size=32, key=bytes.fromhex(ref)).digest()[:16].hex()


def place(entry):
    """The sort key of entries of one window. Those of rank 0 keep their order."""
    rank, key = RANKS.get(entry["op"], (0, None))
    return rank, entry[key] if key else ""


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
    """The log at one checkpoint: every entry. Its hashes are recomputed and compared with root and tiles."""

    def __init__(self, folder, vkey, note=None):
        self.folder = Path(folder)
        self.checkpoint = Checkpoint(note or (self.folder / "checkpoint").read_bytes(), vkey)
        self.raw = self._read_entries()
        self.hashes = [leaf_hash(entry) for entry in self.raw]
        assert root_of(self.hashes) == self.checkpoint.root, "the entries do not give the signed root"
        self.entries = [json.loads(entry) for entry in self.raw]

    def _tile(self, kind, index, width):
        """A full tile, or the partial one. A partial tile may be gone once the full tile exists."""
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
        """Form and order: one object, keys sorted, no spaces, only the keys its kind may have; `at` never decreases; batches are sorted."""
        last, before = 0, (0, "")
        for raw, entry in zip(self.raw, self.entries):
            again = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
            assert again == raw, f"not in canonical form: {raw}"
            wanted = KEYS[entry["op"]] - ({"until"} if entry.get("cause") in ("ended", "policy") else set())
            assert set(entry) - {"at", "op"} == wanted, f"keys of {raw}"
            assert seconds(entry["at"]) >= last, f"time goes back at {raw}"
            here = place(entry)
            assert seconds(entry["at"]) > last or here[0] == 0 or here > before, f"out of order: {raw}"
            last, before = seconds(entry["at"]), here

    def check_balances(self):
        """Each bucket that closes balances, and each outcome is of an opened job. For logs that a `ledger.closed` doesn't end."""
        buckets, jobs = defaultdict(Counter), set()
        for entry in self.entries:
            op, until, job = entry["op"], entry.get("until"), entry.get("job")
            if op == "bucket.carried":
                buckets[until]["carried"] += entry["live"]
            elif op == "token.sealed":
                buckets[until]["sealed"] += 1
            elif op == "token.purged" and until:
                buckets[until]["expired"] += 1
            elif op == "bucket.closed":
                counts = buckets.pop(until, Counter())
                assert (counts["sealed"], counts["expired"]) == (entry["sealed"], entry["expired"]), f"another count than in {entry}"
                rest = counts["sealed"] + counts["carried"] - entry["expired"] - entry["ended"]
                assert rest == 0 or rest > 0 and until > entry["at"], f"{rest} tokens left by {entry}"
            elif op == "token.opened":
                assert job not in jobs, f"job {job} opened twice"
                jobs.add(job)
            elif op in ("push.delivered", "push.failed"):
                assert job in jobs or self.entries[0]["op"] == "ledger.opened", f"outcome of {job}, which opened nothing"
                jobs.discard(job)
        return self

    def check(self):
        self.check_tiles()
        self.check_entries()
        return self.check_balances()

    def of(self, ref, op=None):
        """The entries about the token with this ref, which only its owner can find: seals, openings, purges."""
        names = ("token.sealed", "token.opened", "token.purged")
        return [entry for name in names if op in (None, name) for entry in self._of(ref, name)]

    def _of(self, ref, op):
        whats = self._by_id[op].values() if op == "token.opened" else self.days
        ids = (token_id(ref, op[6:], what["job"] if op == "token.opened" else what) for what in whats)
        return [self._by_id[op][name] for name in ids if name in self._by_id[op]]

    @functools.cached_property
    def _by_id(self):
        found = defaultdict(dict)
        for entry in self.entries:
            if "id" in entry:
                found[entry["op"]][entry["id"]] = entry
        return found

    @functools.cached_property
    def days(self):
        """The ends of the days that the log names, in unix seconds."""
        return sorted(int(seconds(until)) for until in self.untils)

    def outcomes(self, ref):
        jobs = {entry["job"] for entry in self.of(ref, "token.opened")}
        return [entry for entry in self.entries if entry["op"] in ("push.delivered", "push.failed") and entry["job"] in jobs]

    def counts(self):
        return Counter(entry["op"] for entry in self.entries)

    @functools.cached_property
    def untils(self):
        return {entry["until"] for entry in self.entries if "until" in entry}


def read(state):
    """The log of a state folder. A window may be published in between: then once more."""
    for attempt in range(5):
        try:
            return Ledger(state / "ledger", state.vkey)
        except FileNotFoundError:
            if attempt == 4:
                raise
