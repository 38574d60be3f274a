"""Logs made to order: C2SP folders from lists of entries, and honest stories of any length. Shares nothing with the broker.

    publications = story(10_000, seed=1)
    vkey = write(folder, publications)
"""

import base64
import hashlib
import json
import random
from datetime import datetime, timezone
from pathlib import Path

from nacl.signing import SigningKey

WIDTH, EPOCH, GRACE = 256, 300, 120
ORIGIN = "mayfly.test/log"
SEED = bytes(range(32))
START = 1_767_225_600  # 2026-01-01T00:00:00Z
POLICY = (Path(__file__).resolve().parents[2] / "policies/rooms.json").read_bytes()
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
        """A signature line over the note's text; a witness says its time too (cosignature/v1)."""
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
    """(path, content) of what going from size `old` to `new` publishes: full tiles, and the partials of `new`."""
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
    """A folder and what is in it. `publish` adds entries under a new checkpoint and returns that. `time`: of all cosignatures."""

    def __init__(self, folder, key=None, policies=(POLICY,), witnesses=(), partials=True, time=START):
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
    """A Log whose checkpoints stand one for each publication; with `partials=False` only the last one's partial files are
    written (which a log may clean up to)."""
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
    """An entry as it stands in the log."""
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


CAUSES = ("deleted", "replaced", "unregistered", "room_closed")
REASONS = ("BadDeviceToken", "Unregistered", "TooManyRequests", "unreachable", "expired", "peer_present", "other")
KINDS = ("alert", "voip", "liveactivity")
REFUSALS = ("throttled", "forbidden", "unauthorized", "unavailable")


def story(count, seed=0, start=START, resolution=60, seconds=None, outages=None, longest=None):
    """An honest story of exactly `count` entries (more than about ten), as publications: lists of entries, one list a window.

    It takes about `seconds` and holds `outages` stops or crashes; lives last at most `longest` seconds.
    """
    chance = random.Random(seed)
    seconds = seconds or int(7200 * max(1, count / 300) ** (1 / 3))
    longest = longest or seconds // 3
    outages = chance.randint(0, 3) if outages is None else outages
    end, events, order, times = start + seconds, [], 0, {}

    def at(time):
        time -= time % resolution
        if time not in times:
            times[time] = moment(time)
        return times[time]

    # Runs: (first, last second), each after the first follows an outage. None begins or ends where an epoch does, so that
    # whatever fell due in an outage fell due in silence.
    cuts = sorted(chance.sample(range(start + 600, end - 600, 900), min(outages, (seconds - 1200) // 900)))
    runs, begin = [], start + 7
    for cut in cuts:
        stop = cut - cut % EPOCH + 2 * resolution % 100 + chance.randint(62, 290 - 100)
        if stop <= begin + 60:
            continue
        runs.append((begin, stop))
        begin = stop + chance.choice((1, 20, 400, 1500))
    runs.append((begin, end + EPOCH))
    starts = [run[0] for run in runs]

    def run_of(time):
        """The run that does what falls due now, and when it can."""
        for number, (first, last) in enumerate(runs):
            if time < last:
                return number, max(time, first)
        return len(runs), time

    def add(run, time, ref, text):
        nonlocal order
        order += 1
        events.append((run, time - time % resolution, ref, order, text))

    generation, born = 0, None
    for number, (first, last) in enumerate(runs):
        add(number, first, "", f'{{"at":"{at(first)}","node":"node-1","op":"broker.started","policy":"{POLICY_NAME}",'
            f'"resolution":{resolution},"version":"0.1.0"}}')
        add(number, first, "", f'{{"at":"{at(first)}","name":"rooms","op":"policy.loaded","policy":"{POLICY_NAME}"}}')
        steps = range(first - first % EPOCH + EPOCH, last, EPOCH)
        steps = [first, *steps] if number else steps
        for step in steps:
            if step != first or step // EPOCH > runs[number - 1][1] // EPOCH:
                add(number, step, "", f'{{"at":"{at(step)}","epoch":{step // EPOCH - 2},"op":"keys.ratcheted"}}')
            if born is not None and step - born >= 86400:
                generation, born = generation + 1, step
                add(number, step, "", f'{{"at":"{at(step)}","generation":{generation},"op":"keys.generated"}}')
        if born is None:
            generation, born = 1, first
            add(number, first, "", f'{{"at":"{at(first)}","generation":1,"op":"keys.generated"}}')
        if number < len(runs) - 1 and chance.random() < 0.6:
            add(number, last, "", f'{{"at":"{at(last)}","node":"node-1","op":"broker.stopped"}}')
        for window in range(first - first % resolution + resolution, last, resolution * 20):
            if count > 50 and chance.random() < 0.3:
                cause, few = chance.choice(REFUSALS), chance.choice((5, 10, 25, 1200))
                add(number, window, "", f'{{"at":"{at(window)}","cause":"{cause}","count":{few},"op":"request.refused"}}')

    # Lives, spread evenly, a few more than needed: the story is cut where it has `count` entries.
    lives = int(count / 2.4) + 20
    randbytes, uniform = chance.randbytes, chance.random
    while lives > 0 or len(events) < count:
        lives -= 1
        sealed = int(start + 7 + seconds * uniform())
        run, now = run_of(sealed)
        if now != sealed or run == len(runs):
            continue
        ref, expiry = randbytes(16).hex(), sealed + 10 + int(longest * uniform() ** 2)
        until = -(-expiry // EPOCH) * EPOCH
        add(run, sealed, ref, f'{{"at":"{at(sealed)}","kind":"{KINDS[int(uniform() * 1.2)]}","op":"token.sealed","ref":"{ref}",'
            f'"until":"{moment(until) if until not in times else times[until]}"}}')
        goes, cause = expiry, "expired"
        if uniform() < 0.4:
            goes, cause = int(sealed + (expiry - sealed) * uniform()), CAUSES[int(4 * uniform())]
        run, goes = run_of(goes)
        if goes in starts:
            goes, cause = goes + int(uniform() * 100), "expired"
        pushes = int(uniform() ** 2 * 3)
        for opened in sorted(int(sealed + (min(goes, expiry) - sealed) * uniform()) for _ in range(pushes)):
            opening, now = run_of(opened)
            if now != opened:
                continue
            job = randbytes(16).hex()
            add(opening, opened, ref, f'{{"at":"{at(opened)}","job":"{job}","op":"token.opened","ref":"{ref}",'
                '"template":"peer_waiting"}')
            answered = opened + int(uniform() ** 8 * 120)
            answering, now = run_of(answered)
            if uniform() < 0.85 and now == answered:
                add(answering, now, ref, f'{{"at":"{at(now)}","job":"{job}","op":"push.delivered","ref":"{ref}","status":200}}')
            else:
                reason = REASONS[int(uniform() * 7)] if now == answered else "unknown"
                add(answering, now, ref, f'{{"at":"{at(now)}","job":"{job}","op":"push.failed","reason":"{reason}",'
                    f'"ref":"{ref}","status":{400 if now == answered else 0}}}')
        add(run, goes, ref, f'{{"at":"{at(goes)}","cause":"{cause}","op":"token.purged","ref":"{ref}"}}')

    # A ref's own entries in their order, in time: sorted by window, then ref, then the order of adding (outcomes of one
    # window stand after their opening; an outcome may follow the purge).
    events.sort()
    publications, last = [], None
    for run, window, _, _, text in events[:count]:
        if (run, window) != last:
            publications.append([])
            last = run, window
        publications[-1].append(text.encode())
    return publications
