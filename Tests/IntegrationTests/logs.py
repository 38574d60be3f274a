"""Logs made to order: C2SP folders from lists of entries, and honest stories of any length. Shares nothing with the broker.

    publications = story(10_000, seed=1)
    vkey = write(folder, publications)
"""

import base64
import hashlib
import heapq
import json
import random
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from nacl.signing import SigningKey

from ledger import RANKS, place, token_id  # noqa: F401

WIDTH, EPOCH, GRACE = 256, 300, 120
ORIGIN = "mayfly.test/log"
SEED = bytes(range(32))
START = 1_767_225_600  # 2026-01-01T00:00:00Z
BUILT_IN = {path.stem: path.read_bytes() for path in (Path(__file__).resolve().parents[2] / "policies").glob("*[!a].json")}
ROOMS = json.loads(BUILT_IN["rooms"])


POLICIES = {hashlib.sha256(text).hexdigest(): text for text in BUILT_IN.values()}  # By digest. A Log puts those that its entries name beside them.


def policy(hour=600, day=3600, seals=4, **more):
    """The built-in rooms policy with another timing, in which a story has many batches and midnights."""
    text = json.dumps(ROOMS | {"ledger": {"hourSeconds": hour, "daySeconds": day, "batchSeals": seals}} | more, indent=2).encode()
    return POLICIES.setdefault(hashlib.sha256(text).hexdigest(), text)


POLICY = policy()
POLICY_NAME = hashlib.sha256(POLICY).hexdigest()


def leaf_hash(entry):
    return hashlib.sha256(b"\0" + entry).digest()


def node_hash(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()


class Tree:
    """Hashes of every complete subtree: `levels[h][i]` covers the leaves from `i << h` to `i + 1 << h`."""

    def __init__(self, entries=()):
        self.levels = [[]]
        self.extend(entries)

    def __len__(self):
        return len(self.levels[0])

    def extend(self, entries):
        sha256 = hashlib.sha256
        self.levels[0] += [sha256(b"\0" + entry).digest() for entry in entries]
        for height, below in enumerate(self.levels):
            if len(below) < 2:
                break
            if height + 1 == len(self.levels):
                self.levels.append([])
            above = self.levels[height + 1]
            above += [sha256(b"\1" + below[at] + below[at + 1]).digest() for at in range(2 * len(above), len(below) - 1, 2)]

    def hash(self, start, end):
        """The Merkle tree hash of these leaves; `start` is a multiple of the span's own power of two, as in RFC 9162."""
        if start == end:
            return hashlib.sha256(b"").digest()
        height = (end - start - 1).bit_length()
        if end - start == 1 << height:
            return self.levels[height][start >> height]
        middle = start + (1 << height - 1)
        return node_hash(self.hash(start, middle), self.hash(middle, end))

    def root(self, size=None):
        return self.hash(0, len(self) if size is None else size)

    def inclusion(self, index, size=None):
        """RFC 9162, 2.1.3.1: the sibling first, the root's child last."""
        start, end, path = 0, len(self) if size is None else size, []
        while end - start > 1:
            middle = start + (1 << (end - start - 1).bit_length() - 1)
            if index < middle:
                path.append(self.hash(middle, end))
                end = middle
            else:
                path.append(self.hash(start, middle))
                start = middle
        return path[::-1]

    def consistency(self, old, size=None):
        """RFC 9162, 2.1.4.1."""
        def sub(old, start, end, whole):
            if old == end - start:
                return [] if whole else [self.hash(start, end)]
            split = 1 << (end - start - 1).bit_length() - 1
            if old <= split:
                return sub(old, start, start + split, whole) + [self.hash(start + split, end)]
            return sub(old - split, start + split, end, False) + [self.hash(start, start + split)]
        return sub(old, 0, len(self) if size is None else size, True) if old else []


class Key:
    """An Ed25519 key with a name: a log's (type 1) or a witness's (type 4)."""

    def __init__(self, name=ORIGIN, seed=SEED, kind=1):
        self.name, self.kind, self.secret = name, kind, SigningKey(seed)
        self.public = bytes([kind]) + bytes(self.secret.verify_key)
        self.id = hashlib.sha256(name.encode() + b"\n" + self.public).digest()[:4]
        self.vkey = f"{name}+{self.id.hex()}+{base64.b64encode(self.public).decode()}"

    def line(self, text, time=START):
        """A signature line over the note's text. A witness's also contains its time (cosignature/v1)."""
        if self.kind == 4:
            signature = time.to_bytes(8, "big") + self.secret.sign(f"cosignature/v1\ntime {time}\n".encode() + text).signature
        else:
            signature = self.secret.sign(text).signature
        return f"— {self.name} {base64.b64encode(self.id + signature).decode()}\n".encode()


def note(text, *keys, time=START):
    return text + b"\n" + b"".join(key.line(text, time) for key in keys)


def head(size, root, origin=ORIGIN):
    return f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n".encode()


def checkpoint(tree, key, *witnesses, size=None, time=START):
    size = len(tree) if size is None else size
    return note(head(size, tree.root(size), key.name), key, *witnesses, time=time)


def proof(tree, index, entry, signed, size=None):
    """A C2SP tlog-proof whose extra data is the entry."""
    lines = [f"extra {base64.b64encode(entry).decode()}", f"index {index}"]
    lines += [base64.b64encode(part).decode() for part in tree.inclusion(index, size)]
    return "".join(f"{line}\n" for line in ["c2sp.org/tlog-proof@v1", *lines]).encode() + b"\n" + signed


def number_path(number):
    groups = [f"{number % 1000:03}"]
    while number := number // 1000:
        groups.insert(0, f"x{number % 1000:03}")
    return "/".join(groups)


def tile_path(level, number, width=WIDTH):
    """Below the log's folder; `level` may be `entries`."""
    return f"tile/{level}/{number_path(number)}" + ("" if width == WIDTH else f".p/{width}")


def bundle(entries):
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


def tiles(tree, entries, old, new):
    """The files that a publication from size `old` to `new` writes, as (path, content): full tiles, and the partial ones of `new`."""
    level = 0
    while new >> 8 * level:
        first, last = old >> 8 * level, new >> 8 * level
        hashes = tree.levels[8 * level]
        for number in range(first // WIDTH, -(-last // WIDTH)) if last > first else ():
            start, end = number * WIDTH, min(last, number * WIDTH + WIDTH)
            yield tile_path(level, number, end - start), b"".join(hashes[start:end])
            if level == 0:
                yield tile_path("entries", number, end - start), bundle(entries[start:end])
        level += 1


class Log:
    """A folder with a log. `publish` adds entries under a new checkpoint and returns it. `time`: that of all cosignatures."""

    def __init__(self, folder, key=None, policies=(), witnesses=(), partials=True, time=START):
        self.folder, self.key, self.witnesses, self.partials = Path(folder), key or Key(), tuple(witnesses), partials
        self.time = time
        self.entries, self.tree, self.checkpoints, self._folders = [], Tree(), [], set()
        for content in policies:
            self.put(f"policies/{hashlib.sha256(content).hexdigest()}.json", content)

    @property
    def vkey(self):
        return self.key.vkey

    def put(self, path, content):
        path = self.folder / path
        if path.parent not in self._folders:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._folders.add(path.parent)
        path.write_bytes(content)

    def publish(self, entries, last=True):
        old = len(self.entries)
        for digest in {entry.partition(b'"policy":"')[2][:64].decode() for entry in entries if b'"policy":"' in entry} & POLICIES.keys():
            self.put(f"policies/{digest}.json", POLICIES[digest])
        self.entries += entries
        self.tree.extend(entries)
        for path, content in tiles(self.tree, self.entries, old, len(self.entries)):
            if last or self.partials or ".p/" not in path:
                self.put(path, content)
        if last or self.partials:
            self.checkpoints.append(checkpoint(self.tree, self.key, *self.witnesses, time=self.time))
            self.put("checkpoint", self.checkpoints[-1])
            return self.checkpoints[-1]

    def proof(self, index):
        return proof(self.tree, index, self.entries[index], self.checkpoints[-1])


def make(folder, publications, **more):
    """A Log with a checkpoint for each publication. With `partials=False` only the last one's partial files are written, as in a tidied log."""
    log, publications = Log(folder, **more), list(publications)
    for number, entries in enumerate(publications):
        log.publish(entries, last=number == len(publications) - 1)
    if not publications:
        log.publish([])
    if not log.partials:  # A tile that stopped growing before the last publication still has its partial file.
        for path, content in tiles(log.tree, log.entries, 0, len(log.entries)):
            if ".p/" in path:
                log.put(path, content)
    return log


def write(folder, publications, origin=ORIGIN, seed=SEED, **more):
    """The same; returns the verifier key."""
    return make(folder, publications, key=Key(origin, seed), **more).vkey


# Stories


def moment(seconds):
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def spell(entry):
    """An entry as it is written in the log."""
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


REASONS = ("BadDeviceToken", "Unregistered", "TooManyRequests", "unreachable", "unsent", "other")
REFUSALS = ("throttled", "forbidden", "unauthorized", "unavailable")


@dataclass
class Token:
    ref: str
    expiry: int
    until: int
    is_long: bool


class Simulation:
    """An honest broker second by second: what it would publish. `publications`: of the present log; `ended`: those of earlier ones.

    `policies`: texts, the first a rooms policy with the timing. `window`: the log's resolution.
    """

    def __init__(self, chance, policies=(POLICY,), window=60, start=START, longest=2400, rate=0.01):
        self.chance, self.window, self.longest, self.rate = chance, window, longest, rate
        self.set_policies(policies)
        self.publications, self.ended, self.tokens = [], [], []
        self.at, self.head, self.rest, self.size = None, [], [], 0  # The open window: entries of rank 0, and all others.
        self.waiting, self.frozen = {False: [], True: []}, None  # Seals and purges, by whether they are of long tokens.
        self.buckets = {}  # until: sealed, carried, expired, ended; published ones of this log.
        self.looked, self.closed = start - start % self.hour, start - start % self.day
        self.live, self.expiries, self.jobs, self.deferred, self.silences = {}, [], set(), [], []
        self.queue, self.order, self.up, self.now, self.generation, self.swept, self.destroyed = [], 0, False, start, 0, 0, 0
        self.plan(start, "start")

    def set_policies(self, policies):
        contents = [json.loads(text) for text in policies]
        self.policies = [(content["name"], hashlib.sha256(text).hexdigest()) for content, text in zip(contents, policies)]
        self.templates = [name for content in contents for name in content["templates"]]
        self.hour, self.day, self.seals = contents[0]["ledger"].values()

    def plan(self, time, kind, *what):
        self.order += 1
        heapq.heappush(self.queue, (time, self.order, kind, what))

    def run(self, count):
        """Runs until the present log has so many entries, or more."""
        while self.size < count:
            self.now, _, kind, what = heapq.heappop(self.queue)
            if not self.up and kind not in ("start", "down"):
                if kind not in ("open", "end"):
                    self.deferred.append((kind, what))
                continue
            getattr(self, kind)(*what)
            self.complete()
        return self

    # The log.

    def record(self, op, **fields):
        at = self.now - self.now % self.window
        if at != self.at:
            self.flush()
            self.at = at
        entry = {"at": moment(at), "op": op} | fields
        self.size += 1
        (self.rest if op in RANKS else self.head).append(entry)

    def flush(self):
        entries = self.head + sorted(self.rest, key=place)
        if entries:
            self.publications.append([spell(entry) for entry in entries])
        self.head, self.rest = [], []

    def wait(self, token, op, **fields):
        if self.frozen and op == "token.purged" and token.expiry < self.frozen[0]:
            self.frozen[1].append((token, op, fields))
        else:
            self.waiting[token.is_long].append((token, op, fields))

    def look(self):
        """At a new hour: perhaps a batch."""
        moment_of_batch = self.now - self.now % self.hour
        if self.frozen or moment_of_batch <= self.looked:
            return
        midnight = moment_of_batch // self.day > self.looked // self.day
        self.looked = moment_of_batch
        if midnight or sum(op == "token.sealed" for _, op, _ in self.waiting[False]) >= self.seals:
            self.frozen = moment_of_batch, self.waiting[False] + (self.waiting[True] if midnight else [])
            self.waiting = {False: [], True: [] if midnight else self.waiting[True]}

    def complete(self):
        """Publishes a frozen batch once all that expired before it is purged."""
        while self.expiries and self.expiries[0][1] not in self.live:
            heapq.heappop(self.expiries)
        if not self.frozen or self.expiries and self.expiries[0][0] < self.frozen[0]:
            return
        (end, entries), self.frozen = self.frozen, None
        for token, op, fields in entries:
            bucket = self.buckets.setdefault(token.until, [0, 0, 0, 0])
            bucket[0 if op == "token.sealed" else 2 if fields["cause"] == "expired" else 3] += 1
            self.record(op, id=token_id(token.ref, op[6:], token.until), **fields)
        due = [until for until in range(self.closed + self.day, end + 1, self.day) if until in self.buckets or until > end - 512 * self.day]
        if self.chance.random() < 0.3:  # An empty bucket in a gap needs no closing, but a batch of midnight has one.
            due = [until for until in due if until in self.buckets or until == due[-1]
                   or not any(begin <= until <= stop for begin, stop in self.silences)]
        for until in due:
            sealed, carried, expired, ended = self.buckets.pop(until, (0, 0, 0, 0))
            assert sealed + carried == expired + ended, "the broker's own books don't balance"
            self.record("bucket.closed", until=moment(until), sealed=sealed, expired=expired, ended=ended)
        self.closed = max(self.closed, end - end % self.day)

    # Events.

    def start(self, policies=None):
        if policies:
            self.set_policies(policies)
        if self.at is not None and self.now - self.at - self.window >= 60:
            self.silences.append((self.at + self.window, self.now - self.now % self.window))
        self.up = True
        self.record("broker.started", binary="b1" * 32, node="node-1", policy=self.policies[0][1], resolution=self.window, version="0.2.0")
        for name, digest in self.policies:
            self.record("policy.loaded", name=name, policy=digest)
        if not self.generation:
            self.generate()
            self.plan(self.now, "seal")
            self.plan(self.now + self.chance.randint(30, 900), "refuse")
        lag = self.chance.choice((0, 0, 1, 30, 90)) if self.deferred else 0
        for kind, what in self.deferred:
            self.plan(self.now + (lag if kind == "expire" else 0), kind, *what)
        self.deferred = []
        if self.destroyed and (self.now // EPOCH - 2 - self.destroyed < 2 or self.chance.random() < 0.7):
            self.ratchet(False)  # Or the clock leapt, and the keys keep the old pace for an epoch.
        self.destroyed = self.destroyed or self.now // EPOCH - 2
        self.plan(self.now - self.now % EPOCH + EPOCH, "ratchet")
        self.look()
        self.plan(self.now - self.now % self.hour + self.hour, "tick")

    def down(self, stops, silent, *policies):
        if self.up and stops:
            self.record("broker.stopped", node="node-1")
            self.flush()
        self.up = False
        self.queue = [event for event in self.queue if event[2] not in ("ratchet", "tick")]
        heapq.heapify(self.queue)
        self.plan(self.now + silent, "start", *policies)

    def tick(self):
        self.look()
        self.plan(self.now - self.now % self.hour + self.hour + self.chance.choice((0, 0, 0, 1, 2)) % self.hour, "tick")

    def generate(self):
        self.generation += 1
        self.record("keys.generated", generation=self.generation)
        self.plan(self.now + 86400, "generate")

    def ratchet(self, goes_on=True):
        epoch = self.now // EPOCH
        self.complete()
        if epoch - 2 > self.destroyed:
            self.destroyed, self.swept = epoch - 2, min([epoch] + [expiry // EPOCH for expiry, _ in self.expiries[:1]])
            self.record("keys.ratcheted", epoch=self.destroyed, swept=self.swept)
        if goes_on:
            self.plan(self.now - self.now % EPOCH + EPOCH, "ratchet")

    def refuse(self):
        self.record("request.refused", cause=self.chance.choice(REFUSALS), count=self.chance.choice((5, 10, 25, 1200)))
        self.plan(self.now + self.chance.randint(30, 1800), "refuse")

    def seal(self):
        chance = self.chance
        self.look()
        expiry = self.now + 10 + int(self.longest * chance.random() ** 2)
        token = Token(chance.randbytes(16).hex(), expiry, expiry // self.day * self.day + self.day, expiry - self.now > self.day)
        self.tokens.append(token)
        self.live[token.ref] = token
        heapq.heappush(self.expiries, (expiry, token.ref))
        self.wait(token, "token.sealed", until=moment(token.until))
        self.plan(expiry, "expire", token)
        if chance.random() < 0.4:
            self.plan(chance.randint(self.now, expiry - 1), "end", token)
        for _ in range(int(chance.random() ** 2 * 3)):
            self.plan(chance.randint(self.now, expiry - 1), "open", token)
        self.plan(self.now + int(chance.expovariate(self.rate)), "seal")

    def expire(self, token):
        self.look()
        if self.live.pop(token.ref, None):
            self.wait(token, "token.purged", cause="expired", until=moment(token.until))

    def end(self, token):
        self.look()
        if self.live.pop(token.ref, None):
            self.wait(token, "token.purged", cause="ended" if self.chance.random() < 0.9 else "policy")

    def open(self, token):
        if token.ref in self.live:
            job = self.chance.randbytes(16).hex()
            self.record("token.opened", id=token_id(token.ref, "opened", job), job=job, template=self.chance.choice(self.templates))
            self.jobs.add(job)
            self.plan(self.now + int(self.chance.random() ** 8 * 120), "outcome", job)

    def outcome(self, job):
        self.jobs.remove(job)
        if self.chance.random() < 0.85:
            self.record("push.delivered", job=job, status=200)
        else:
            self.record("push.failed", job=job, reason=self.chance.choice(REASONS), status=self.chance.choice((0, 400, 410)))

    def rotate(self, origin, next_origin, silent=0):
        """Ends this log and begins the next one while no broker runs."""
        self.look()
        self.complete()
        if self.frozen or not self.up:  # Not in the middle of a batch.
            return self.plan(self.now + 7, "rotate", origin, next_origin, silent)
        self.down(True, silent)
        for until, (sealed, carried, expired, ended) in self.buckets.items():
            self.record("bucket.closed", until=moment(until), sealed=sealed, expired=expired, ended=ended)
        self.record("ledger.closed", next=next_origin)
        self.flush()
        entries = [entry for publication in self.publications for entry in publication]
        self.ended.append(self.publications)
        self.publications, self.size = [], 0
        self.record("ledger.opened", jobs=len(self.jobs), previous=origin, root=Tree(entries).root().hex(), size=len(entries))
        rests = {until: sealed + carried - expired - ended for until, (sealed, carried, expired, ended) in sorted(self.buckets.items())}
        self.buckets = {until: [0, live, 0, 0] for until, live in rests.items() if live}
        for until, (_, live, _, _) in self.buckets.items():
            self.record("bucket.carried", live=live, until=moment(until))
        self.flush()


def simulate(count, seed=0, start=START, resolution=60, seconds=None, outages=None, longest=None, policies=(POLICY,)):
    """A Simulation of about `count` entries (exactly as many, if its publications are cut) in about `seconds`, with so many
    stops or crashes; lives last at most `longest` seconds."""
    chance = random.Random(seed)
    seconds = seconds or int(7200 * max(1, count / 300) ** (1 / 3))
    rate = max(count - seconds / 250, count / 2) / 3.3 / seconds
    simulation = Simulation(chance, policies, resolution, start + 7, longest or max(seconds // 3, 7000), rate)
    outages = chance.randint(0, 3) if outages is None else outages
    for cut in sorted(chance.sample(range(600, seconds - 600, 900), min(outages, (seconds - 1200) // 900))):
        simulation.plan(start + cut + chance.randint(0, 99), "down", chance.random() < 0.6, chance.choice((1, 20, 100, 400, 800)))
    return simulation.run(count)


def story(count, seed=0, **more):
    """An honest story of exactly `count` entries, as publications: lists of entries, one list a window. See `simulate`."""
    return cut(simulate(count, seed, **more), count)


def cut(simulation, count):
    simulation.flush()
    publications, left = [], count
    for publication in simulation.publications:
        publications.append(publication[:left])
        left -= len(publications[-1])
        if not left:
            break
    return publications
