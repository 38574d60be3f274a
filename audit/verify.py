#!/usr/bin/env python3
"""Verifies a Mayfly log. Shares no code with `mayfly audit verify`.

    verify.py [DIR|URL] --key VKEY|FILE [--since CHECKPOINT]... [--policy TLOG-POLICY] [--max-age SECONDS] [--allow-gaps] [--unique]
              [--proof FILE] [--ref REF]

Exit 0: prints `good` and figures, or `consistent, not compared` without a checkpoint or witness to compare with. 1: prints the first fault and its place.
2: bad use. Needs PyNaCl, and entry.schema.json beside it. Ignores files that no checkpoint covers, unless they contradict the log.
--ref recomputes the ids of one's own token: prints its entries in the log, or checks that the proof is about it.
"""
import argparse, base64, collections, contextlib, datetime, functools, hashlib, heapq, http.client, json, os, pathlib, queue, re, sqlite3, sys, threading, time, urllib.request
try: import nacl.exceptions, nacl.signing
except ImportError: sys.exit("verify.py needs PyNaCl: apt install python3-nacl, or pip install pynacl in a virtual environment")
GRACE, EPOCH, JOB, GAP, DAY_GAPS, SKEW = 120, 300, 190, 60, 3600, 600  # Seconds: allowed lateness; a key's life; a push; the shortest gap; allowed gaps a day; clock skew.
PATIENCE, LARGEST, LONGEST, AGE = 60, 256 * (2 + 65535), 65536, "seconds since the last entry"  # Seconds to read a file; bytes of a log's largest file, and of a note.
class Bad(Exception): pass  # Code, place, fault.
class Missing(Bad): pass

# 1. Files. Any may be missing, damaged, endless or not a plain file.
def read(place, answer):
    try:
        with urllib.request.urlopen(place, timeout=30) if re.match("https?://", place) else open(place, "rb") as file: data = file.read(LARGEST + 1)
        answer.put(data if len(data) <= LARGEST else "is larger than any file of a log")
    except (OSError, http.client.HTTPException, ValueError, MemoryError) as error: answer.put(error)
def fetch(place):
    if os.path.exists(place) and not os.path.isfile(place): raise Missing("missing", place, "isn't a file")
    threading.Thread(target=read, args=(place, answer := queue.SimpleQueue()), daemon=True).start()
    try: data = answer.get(timeout=PATIENCE)
    except queue.Empty: data = f"takes longer than {PATIENCE} seconds"
    if isinstance(data, bytes): return data
    gone = getattr(data, "code", 0) in (404, 410) or isinstance(data, (FileNotFoundError, NotADirectoryError, IsADirectoryError))
    raise Missing("missing", place, data) if gone else Bad("unreadable", place, data)
def fetch_tile(log, level, first, size):  # Returns place and content of the tile from `first` on, and whether it is the full tile instead of a partial one.
    number, width = str(first // 256), min(256, size - first)
    path = re.sub("...(?=.)", r"x\g<0>/", number.zfill(-(-len(number) // 3) * 3))  # 1234067 is x001/x234/067.
    place = (full := f"{log}/tile/{level}/{path}") + (f".p/{width}" if width < 256 else "")
    try: data = fetch(place)
    except Missing: place, data, width = full, fetch(full), 256  # A partial tile may be gone once the full one exists.
    if level != "entries" and len(data) != 32 * width: raise Bad("damaged", place, f"is not {32 * width} bytes long")
    if level != "entries": check_older(place, data, range(32, 32 * min(256, size - first) + 1, 32))
    return place, data, width > size - first
def check_older(place, data, ends):  # Older partial tiles beside a tile must be prefixes of it. `ends`: the ends of its items.
    folder = re.sub("[.]p/[0-9]+$", "", place) + ".p"
    for old, end in ((f"{folder}/{width}", end) for width, end in enumerate(ends[:-1] if os.path.isdir(folder) else (), 1)):
        with contextlib.suppress(Missing):  # A growing log may delete them at any moment.
            if os.path.exists(old) and fetch(old) != data[:end]: raise Bad("tree", old, "isn't a prefix of the log's present tile")

# 2. Keys, checkpoints, witnesses: C2SP signed-note, tlog-checkpoint, tlog-cosignature, tlog-policy.
def from_base64(text):
    if base64.b64encode(data := base64.b64decode(text, validate=True)).decode() != text: raise ValueError("has base64 that isn't canonical")
    return data
def public_key(vkey, kind):  # Of a log (kind 1) or a witness (kind 4).
    name, identity, encoded = (vkey.split("+", 2) + ["", ""])[:3]
    public = from_base64(encoded)
    right = bytes([kind]), 33, hashlib.sha256(name.encode() + b"\n" + public).hexdigest()[:8]
    if (public[:1], len(public), identity) == right and re.fullmatch(r"\S+", name): return public
    raise ValueError(f"a key isn't NAME+ID+KEY of kind {kind}, and no file of this name exists")
def signed(vkey, kind, text, found, last=0):
    """Whether this key signed; a witness not before `last`. `found`: (name, ID and signature) of each line."""
    public, (name, identity, _) = public_key(vkey, kind), vkey.split("+", 2)
    signatures = [data[4:] for signer, data in found if signer == name and data[:4].hex() == identity]
    for signature in signatures:
        dated = b"cosignature/v1\ntime %d\n" % int.from_bytes(signature[:8], "big") if kind == 4 else b""
        if dated and signature[:1] >= b"\x80": raise ValueError(f"has a signature of {name} dated 2^63 seconds or later")
        try: nacl.signing.VerifyKey(public[1:]).verify(dated + text, signature[8 if dated else 0:])
        except (nacl.exceptions.CryptoError, ValueError): raise ValueError(f"has a forged signature of {name}") from None
    return any(kind == 1 or last - SKEW <= int.from_bytes(signature[:8], "big") <= time.time() + SKEW for signature in signatures)
def quorum(policy, vkey, text, found, last):
    """Whether a tlog-policy accepts this log with these signatures. Raises ValueError if it isn't a policy or a signature is forged."""
    votes, logs, witnesses, taken, verdict = {"none": True}, {}, [], {"none"}, None  # Taken: members of a group.
    if not policy.endswith("\n") or re.search(r"[\0-\x08\x0b-\x1f\x7f]", policy): raise ValueError("policy: truncated, or not text")
    for words in (re.findall(r"[^ \t]+", line) for line in policy.split("\n") if not re.match(r"[ \t]*(#|$)", line)):
        members = {*words[3:]} & votes.keys() - taken
        wanted = {"any": 1, "all": len(members)} | {str(count + 1): count + 1 for count in range(len(members))}
        match words:
            case ["log", key, *url] if not url[1:] and public_key(key, 1) not in logs.values(): logs[key] = public_key(key, 1)
            case ["witness", name, key, *url] if not (url[1:] or name in votes or public_key(key, 4) in witnesses):
                votes[name] = signed(key, 4, text, found, last)
                witnesses.append(public_key(key, 4))
            case ["group", name, need, _, *more] if name not in votes and need in wanted and len(members) == 1 + len(more):
                votes[name] = sum(votes[member] for member in members) >= wanted[need]
                taken |= members
            case ["quorum", name] if name in votes and verdict is None: verdict = votes[name] and (vkey in logs or not logs)
            case _: raise ValueError(f"policy: {' '.join(words)}")
    return verdict
def checkpoint(where, note, vkey, policy=None, last=0):
    """Returns size and root of a checkpoint signed by this key and the witnesses that `policy` requires, by these not before `last`."""
    text, _, lines = note.rpartition(b"\n\n")
    text, code = text + b"\n", "signature"
    try:
        head = re.fullmatch("([^\n]+)\n(0|[1-9][0-9]{0,18})\n([A-Za-z0-9+/]{43}=)\n", text.decode())
        if not head or head[1] != vkey.split("+")[0] or int(head[2]) >> 63 or len(note) > LONGEST or re.search(rb"[\0-\x09\x0b-\x1f\x7f]", note) or \
                not re.fullmatch("(— [^\\s+]+ [A-Za-z0-9+/]{7,}=*\n){1,64}", lines.decode()): raise ValueError("isn't a checkpoint of this log")
        found = [(line.split(" ")[1], from_base64(line.split(" ")[2])) for line in lines.decode().split("\n")[:-1]]
        if not signed(vkey, 1, text, found): raise ValueError("isn't signed with this key")
        root, code = from_base64(head[3]), "cosignatures"
        if policy is not None and not quorum(policy, vkey, text, found, last): raise ValueError("lacks signatures that the policy requires")
        return int(head[2]), root
    except ValueError as error: raise Bad(code, where, error) from None

# 3. The Merkle tree: RFC 9162, C2SP tlog-tiles, tlog-proof.
def leaf_hash(entry): return hashlib.sha256(b"\0" + entry).digest()
def node_hash(left, right): return hashlib.sha256(b"\1" + left + right).digest()
def split(size): return 1 << (size - 1).bit_length() - 1  # The largest power of two below `size`: the number of leaves on the left.
def root_of(leaves):
    if len(leaves) < 2: return leaves[0] if leaves else hashlib.sha256().digest()
    return node_hash(root_of(leaves[:split(len(leaves))]), root_of(leaves[split(len(leaves)):]))
def climb(leaf, index, size, path):  # Returns the root of an inclusion proof, or None if its length is wrong.
    if size < 2 or not path: return leaf if size == 1 and not path else None
    left, last = split(size), path[-1]
    below = climb(leaf, index, left, path[:-1]) if index < left else climb(leaf, index - left, size - left, path[:-1])
    return below and (node_hash(below, last) if index < left else node_hash(last, below))
def prove(where, proof, vkey, policy=None):  # Returns the entry of a .tlog-proof, its index, and size and root of the proof's checkpoint.
    lines, _, note = proof.partition(b"\n\n")
    form = "c2sp.org/tlog-proof@v1(?:\nextra ([A-Za-z0-9+/=]*))?\nindex (0|[1-9][0-9]{0,18})((?:\n[A-Za-z0-9+/]{43}=){0,63})"
    try:
        entry, index, path = re.fullmatch(form, lines.decode()).groups()
        entry, index, path = None if entry is None else from_base64(entry), int(index), [from_base64(line) for line in path.split()]
    except (ValueError, AttributeError): raise Bad("damaged", where, "isn't a tlog-proof") from None
    size, root = checkpoint(where, note, vkey, policy)
    if entry is None: raise Bad("missing", where, "has no entry, only an index")
    if index >= size or climb(leaf_hash(entry), index, size, path) != root: raise Bad("tree", where, f"doesn't lead from entry {index} to the root")
    checkpoint(where, note, vkey, policy, parse(entry, f"{where}, entry {index}")["at"])
    return entry.decode(), index, size, root

# 4. Entries: entry.schema.json, in canonical JSON.
SCHEMA, KINDS = json.loads(pathlib.Path(__file__).with_name("entry.schema.json").read_bytes()), collections.defaultdict(list)
for kind in SCHEMA["oneOf"]:
    rules = {name: SCHEMA["$defs"].get(rule.get("$ref", "")[8:], rule) for name, rule in kind["properties"].items()}
    KINDS[rules["op"]["const"]].append(rules)
RANKS = {"token.opened": (1, "id"), "push.delivered": (2, "job"), "push.failed": (2, "job"), "token.sealed": (3, "id"), "token.purged": (4, "id"),
         "bucket.closed": (5, "until"), "ledger.closed": (6, "at")}  # The order within a window: rank and key. Other entries come in the order of events.
seconds = functools.lru_cache(4096)(lambda time: int(datetime.datetime.strptime(time + "+0000", "%Y-%m-%dT%H:%M:%SZ%z").timestamp()))
def parse(raw, where):  # Returns keys and values of an entry, times in unix seconds.
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        entry = json.loads(raw)
        [kind] = [kind for kind in KINDS.get(entry["op"], ()) if entry.keys() == kind.keys()]
        good = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode() == raw
        for name, rule in kind.items():
            value = entry[name]
            good &= rule["minimum"] <= value <= rule["maximum"] if type(value) is int else \
                bool(re.fullmatch(rule["pattern"], value)) if "pattern" in rule else value in (rule.get("enum") or [rule["const"]])
        entry |= {name: seconds(entry[name]) for name in ("at", "until") if name in entry}
        if good and min(entry["at"], entry.get("until", 0)) >= 0: return entry
    raise Bad("entry", where, f"isn't an entry of the schema in canonical JSON: {raw[:300]!r}")
@functools.lru_cache(4096)
def token_id(ref, label, what):  # Only the owner of the ref can compute it. `what`: the job, or `until` in 8 bytes.
    text = b"mayfly/v1 ledger/" + label.encode() + b"\0" + len(what).to_bytes(4, "big") + what
    return hashlib.blake2b(text, digest_size=32, key=bytes.fromhex(ref)).digest()[:16].hex()
def is_of(ref, entry, untils):  # Whether an entry is about the ref. `untils`: to try for an early purge, which doesn't show its own.
    op, untils = entry["op"], [entry["until"]] if "until" in entry else untils
    whats = [bytes.fromhex(entry["job"])] if "job" in entry else (until.to_bytes(8, "big") for until in untils)
    return "id" in entry and any(token_id(ref, op[6:], what) == entry["id"] for what in whats)

# 5. The rules for the sequence of entries.
def members(pairs):  # Of an object. JSON readers differ in which of two members with one name they use.
    if len(found := dict(pairs)) < len(pairs): raise ValueError("a repeated name")
    return found
def depth(value): return 1 + max(map(depth, value.values() if type(value) is dict else value), default=0) if type(value) in (dict, list) else 0
def read_policy(place, digest, has_timing):  # Returns templates, the longest life, and the timing: hour, day, seals. The grammar is in log-format.md.
    if len(data := fetch(place)) > 1 << 20 or hashlib.sha256(data).hexdigest() != digest: raise Bad("damaged", place, "isn't the policy of its name")
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # 20 digits are too many for any number that is read here.
        policy = json.loads(data.decode(), object_pairs_hook=members, parse_int=lambda digits: int(digits[:20]), parse_constant=int)
        json.dumps(policy, ensure_ascii=False).encode()  # Fails for half a surrogate pair.
        limits, templates, timing = (policy.get(name, {}) for name in ("limits", "templates", "ledger"))
        lives = [limits[name] for name in {"deviceLifeSeconds", "activityLifeSeconds", "sessionLifeSeconds"} & limits.keys()] + \
            ([limits["roomLifeSeconds"]["max"]] if "roomLifeSeconds" in limits else [])
        hour, day, seals = [timing[name] for name in ("hourSeconds", "daySeconds", "batchSeals")] if has_timing and "ledger" in policy else (3600, 86400, 64)
        good = depth(policy) <= 33 and type(templates) is dict and {type(number) for number in (hour, day, seals, *lives)} == {int} and \
            all(0 < life < 1 << 53 for life in lives) and 1 <= hour <= 3600 and hour <= day <= 86400 and day % hour == 0 and 1 <= seals <= 10000
        if good: return set(templates), max(lives, default=0), (hour, day, seals)
    raise Bad("damaged", place, "isn't a valid policy")
class Story:
    def __init__(self, policies, allow_gaps):
        self.policies, self.allow_gaps, self.counts = policies, allow_gaps, collections.Counter()
        self.at = self.timing = self.batch = self.last_closed = self.last_swept = None  # Batch: seals, regular closings, closings of rotation, purges.
        self.window = self.longest = self.carried_jobs = self.early = self.booked = self.live = self.gap_day = self.gap_total = 0
        self.op, self.place, self.ending, self.closed, self.in_force, self.before = "", (0, 0), False, False, set(), set()
        self.buckets, self.jobs, self.gaps, self.ends = {}, {}, [], []  # Buckets: sealed or carried, sealed, expired. Ends: a heap of theirs.
    def late(self, due, grace):  # Time without a broker excuses lateness.
        over = self.at - due - grace - self.window
        return over > 0 and over > sum(max(0, min(end, self.at) - max(begin, due)) for begin, end in self.gaps)
    def job_late(self, opened): return self.late(opened, JOB) and self.late(opened, JOB + 2 * self.window * any(end > opened for _, end in self.gaps))  # Entries beside a gap may be a window later.
    def midnight(self):  # Returns the next midnight that must be closed. An empty one in a gap may be skipped.
        due, day = self.last_closed + self.timing[1], self.timing[1]
        while due not in self.buckets and (ends := [end for begin, end in self.gaps if begin - self.window <= due <= end + self.window]):
            while self.ends and self.ends[0] not in self.buckets: heapq.heappop(self.ends)
            due = min(self.ends[:1] + [(max(ends) + self.window) // day * day + day])
        return due
    def end_batch(self):
        ((seals, regular, rotation, purges), self.batch), (hour, _, least) = (self.batch, None), self.timing
        if seals < least and not regular and seals + purges: return "small_batch"
        if (regular or seals + purges) and hour > GRACE + self.window and self.late(self.at // hour * hour, GRACE): return "batch_late"
        if not rotation and self.early - self.booked > self.live: return "overbooked"
    def end_window(self):
        def slow(due): return self.late(due, GRACE + EPOCH * any(begin <= due + GRACE and end >= due for begin, end in self.gaps))
        if slow((self.gone_before + 4) * EPOCH): return "ratchet_late"  # The keys of epoch e are destroyed when e + 2 begins.
        if slow(self.sweep_due_before): return "swept_late"
        if self.job_late(next(iter(self.jobs.values()), self.at)) or self.carried_jobs and self.job_late(self.first): return "outcome_late"
        if self.timing and (due := self.midnight()) <= self.at and self.late(due, GRACE): return "midnight_missing"
    def add_gap(self, begin, end):  # Drops gaps that can't excuse anything any more.
        oldest = min(self.at - 3600, self.gone * EPOCH, (self.last_swept or 0) * EPOCH, *self.jobs.values(), *[self.first] * (self.carried_jobs > 0), *[self.last_closed] * (self.timing is not None))
        self.gaps = [gap for gap in self.gaps if gap[1] >= oldest - 60] + [(begin, end)]
        self.counts["gaps"] += end - begin
        first, last = begin // 86400, end // 86400
        total = min(end, (first + 1) * 86400) - begin + (self.gap_total if first == self.gap_day else 0)
        self.gap_day, self.gap_total = last, total if last == first else end % 86400
        return not self.allow_gaps and (max(total, self.gap_total) > DAY_GAPS or last > first + 1)
    def start(self, entry):
        templates, longest, timing = read_policy(f"{self.policies}/{entry['policy']}.json", entry["policy"], True)
        if timing[0] % entry["resolution"] or self.timing not in (None, timing): return "policy_changed"
        if not self.timing:
            day = timing[1]
            if any(until % day for until in self.buckets): return "carry"
            self.last_closed = min([self.first // day * day] + [until - day for until in self.buckets])
        self.before, self.in_force, self.longest = self.before | self.in_force, templates, max(self.longest, longest)
        self.window, self.timing = entry["resolution"], timing
    def tell(self, entry, index):  # Judges the next entry. Returns the code of the rule it breaks, or None.
        op, at, until, (rank, key) = entry["op"], entry["at"], entry.get("until"), RANKS.get(entry["op"], (0, None))
        if index and at < self.at: return "time"
        if self.batch and (at > self.at or not 3 <= rank <= 5) and (broken := self.end_batch()): return broken
        if not index: self.first, self.gone, self.sweep_due = at, max(at // EPOCH, 2) - 2, (at // EPOCH + 2) * EPOCH
        if not index or at > self.at:
            if index and (broken := self.end_window()): return broken
            if (self.window or op == "broker.started") and all(at % length for length in (self.window, entry.get("resolution")) if length): return "time"
            if index and op == "broker.started" and at - self.at - self.window >= GAP and self.add_gap(self.at + self.window, at): return "gaps"
            self.at, self.gone_before, self.sweep_due_before, self.place, self.before = at, self.gone, self.sweep_due, (0, 0), set()
        if op == "ledger.opened" and index or op == "bucket.carried" and self.op not in ("ledger.opened", "bucket.carried"): return "carry"
        if op == "bucket.carried" and self.op == op and until <= self.carried: return "carry"
        if not self.timing and op not in ("broker.started", "ledger.opened", "bucket.carried"): return "entry"
        if rank and (rank, entry[key]) <= self.place: return "entry"
        self.place, self.op = (rank, entry.get(key, 0)), op
        if self.ending and op not in ("bucket.closed", "ledger.closed"): return "unbalanced"
        if 3 <= rank <= 5:
            self.batch = self.batch or [0, 0, 0, 0]
            self.batch[3] += rank == 4
            if until is not None and (until % self.timing[1] or until <= self.last_closed): return "bucket_unknown"
        return self.judge(op, at, until, entry)
    def judge(self, op, at, until, entry):
        self.counts[op] += 1
        match op:
            case "broker.started": return self.start(entry)
            case "policy.loaded":
                templates, longest, _ = read_policy(f"{self.policies}/{entry['policy']}.json", entry["policy"], False)
                self.in_force |= templates
                self.longest = max(self.longest, longest)
            case "keys.ratcheted":
                if (entry["epoch"] + 1) * EPOCH > at + self.window: return "ratchet_early"
                if entry["swept"] * EPOCH > at + self.window or self.last_swept is not None and entry["swept"] < self.last_swept: return "swept_early"
                self.gone, self.last_swept = max(self.gone, entry["epoch"]), entry["swept"]
                self.sweep_due = max(self.last_swept + 2, at // EPOCH + 1) * EPOCH  # The time of the next such entry.
                if self.late((self.last_swept + 1) * EPOCH, GRACE): return "swept_late"
            case "token.opened":
                if entry["job"] in self.jobs: return "job_twice"
                if entry["template"] not in self.in_force and entry["template"] not in self.before: return "template_unknown"
                self.jobs[entry["job"]] = at
            case "push.delivered" | "push.failed":
                if (opened := self.jobs.pop(entry["job"], None)) is not None: return "outcome_late" if self.job_late(opened) else None
                if not self.carried_jobs or self.job_late(self.first): return "job_unknown"
                self.carried_jobs -= 1
            case "token.sealed":
                if until - self.timing[1] > at + self.window + self.longest: return "life_too_long"
                if until not in self.buckets: heapq.heappush(self.ends, until)
                bucket = self.buckets.setdefault(until, [0, 0, 0])
                bucket[0], bucket[1], self.batch[0], self.live = bucket[0] + 1, bucket[1] + 1, self.batch[0] + 1, self.live + 1
            case "token.purged" if until is not None:
                if until - self.timing[1] > at + self.window: return "purged_early"
                if not (bucket := self.buckets.get(until)) or bucket[0] <= bucket[2]: return "unbalanced"
                bucket[2], self.live = bucket[2] + 1, self.live - 1
            case "token.purged": self.early += 1
            case "bucket.closed":
                taken, sealed, expired = self.buckets.get(until, (0, 0, 0))
                rest, rotation = taken - entry["expired"] - entry["ended"], until > at
                if (entry["sealed"], entry["expired"]) != (sealed, expired): return "unbalanced"
                self.booked += entry["ended"]
                if self.booked > self.early: return "overbooked"
                if rest < 0 or rest and not rotation: return "unbalanced"
                if not rotation and self.midnight() < until: return "midnight_missing"
                if not rotation and self.late(until, GRACE): return "batch_late"
                self.batch[1 + rotation] += 1
                if rotation: self.ending = True
                else: self.last_closed = until
                if self.buckets.pop(until, None): self.live -= taken - expired
            case "ledger.closed":
                if self.buckets: return "unbalanced"
                if self.booked < self.early: return "overbooked"
                self.closed, self.ending = True, False
            case "ledger.opened": self.carried_jobs = entry["jobs"]
            case "bucket.carried":
                if self.live + entry["live"] >= 1 << 53: return "carry"
                self.buckets[until], self.carried = [entry["live"], 0, 0], until
                heapq.heappush(self.ends, until)
                self.live += entry["live"]
    def end(self):  # A large batch has several heads, and a broker may be killed between them. The next entry shows whether it was complete.
        broken = self.batch and self.op == "bucket.closed" and self.end_batch()
        return broken or ("unbalanced" if self.ending else self.counts and self.end_window() or None)
    def figures(self):
        count, early = self.counts, self.early - self.booked
        return {"sealed": count["token.sealed"], "live": self.live - early, "purged": count["token.purged"], "opened": count["token.opened"],
                "delivered": count["push.delivered"], "failed": count["push.failed"], "pending": len(self.jobs) + self.carried_jobs,
                "buckets closed": count["bucket.closed"], "seconds of gaps": count["gaps"]} | \
            dict(zip(("seconds an hour", "seconds a day", "seals a batch"), self.timing or ()))
def verify(log, vkey, since=(), policy=None, allow_gaps=False, unique=False, ref=None):
    """Verifies the whole log. `since`: (where, size, root) of checkpoints that it must continue. Returns its figures; raises Bad."""
    size, root = checkpoint(f"{log}/checkpoint", note := fetch(f"{log}/checkpoint"), vkey, policy)
    story, row, ids, own, own_jobs, old_roots = Story(f"{log}/policies", allow_gaps), [], unique and sqlite3.connect(""), [], set(), {0: root_of([])}
    if ids: ids.execute("create table ids (id)")  # In a temporary file.
    for first in range(0, size, 256):  # Of full tiles only the roots are kept.
        _, hashes, _ = fetch_tile(log, 0, first, size)
        place, data, longer = fetch_tile(log, "entries", first, size)
        ends, leaves = [0], []
        for index in range(first, min(first + 256, size)):
            where, at, end = f"{place}, entry {index}", ends[-1] + 2, ends[-1] + 2 + int.from_bytes(data[ends[-1]:][:2], "big")
            leaves.append(leaf_hash(data[at:end]))
            if len(data) < end: raise Bad("damaged", where, "ends within this entry")
            if leaves[-1] != hashes[32 * (index - first):][:32]: raise Bad("tree", where, "isn't the entry of the hash tile")
            if story.closed: raise Bad("after_closed", where, data[at:end].decode(errors="replace"))
            if broken := story.tell(entry := parse(data[at:end], where), index): raise Bad(broken, where, data[at:end].decode())
            if ref and (is_of(ref, entry, story.buckets) or "id" not in entry and entry.get("job") in own_jobs):
                own.append((index, data[at:end].decode()))
                own_jobs.add(entry.get("job", ""))
            if ids and entry["op"].startswith("token."): ids.executemany("insert into ids values (?)", [(entry[name],) for name in ("id", "job") if name in entry])
            ends.append(end)
        if ends[-1] < len(data) and not longer: raise Bad("damaged", place, "continues after its last entry")
        check_older(place, data, ends[1:])
        old_roots |= {older: root_of(row + [root_of(leaves[:older - first])]) for _, older, _ in since if first < older <= index + 1}
        row.append(root_of(leaves))
    roots, level, count = row, 1, size
    while count := count // 256:
        for first in range(0, count, 256):
            place, data, _ = fetch_tile(log, level, first, count)
            if not data.startswith(b"".join(roots[first:min(count, first + 256)])): raise Bad("tree", place, "has other hashes than the entries")
        roots, level = [root_of(roots[at:at + 256]) for at in range(0, count - 255, 256)], level + 1
    if root_of(row) != root: raise Bad("tree", f"{log}/checkpoint", "signs another root than the entries'")
    for where, older, old_root in since:
        if older > size: raise Bad("rewritten", where, f"signs {older} entries, and this log has {size}: it was cut back, or this copy lags")
        if old_roots.get(older) != old_root: raise Bad("rewritten", where, f"signs {older} entries that aren't the first of these {size}")
    checkpoint(f"{log}/checkpoint", note, vkey, policy, story.at or 0)
    if broken := story.end(): raise Bad(broken, log, "at the end of the log")
    if ids and (twice := ids.execute("select id from ids group by id having count(*) > 1").fetchone()): raise Bad("id_twice", log, *twice)
    for index, told in own: print(f"entry {index} of {size}: {told}")
    if ref and not own: raise Bad("missing", log, "has no entry of the ref: its batch isn't published yet, it is another log's, or it never existed")
    return dict(story.figures(), entries=size) | ({"from": story.first, "to": story.at, AGE: int(time.time()) - story.at} if size else {})
def main():
    (parser := argparse.ArgumentParser(usage=__doc__)).add_argument("log", nargs="?")
    for flag in ("--key", "--policy", "--proof", "--ref", "--max-age"): parser.add_argument(flag, required=flag == "--key", type=int if flag == "--max-age" else str)
    for flag in ("--since", "--allow-gaps", "--unique"): parser.add_argument(flag, action="append" if flag == "--since" else "store_true")
    asked = parser.parse_args()
    try:
        if os.path.isfile(asked.key): asked.key = fetch(asked.key).decode().split("\n")[0]
        public_key(asked.key, 1)
        if not asked.log and not asked.proof: raise ValueError("name a log or a proof")
        if asked.ref is not None and not re.fullmatch("[0-9a-f]{32}", asked.ref): raise ValueError("--ref must be 32 hexadecimal digits")
        policy = fetch(asked.policy).decode(errors="surrogateescape") if asked.policy else None
        unseen = policy is None or quorum(policy, asked.key, b"", [], 0)  # Whether it demands no witness. Also checks its syntax.
        since = [(where, *checkpoint(where, fetch(where), asked.key)) for where in asked.since or ()]
        if asked.proof:
            entry, index, size, root = prove(asked.proof, fetch(asked.proof), asked.key, policy)
            since.append((asked.proof, size, root))
            told = parse(entry.encode(), asked.proof)
            days = (until for day, most in ((86400, 33), (3600, 33), (60, 8), (1, 8)) for until in range(told["at"] // day * day - 2 * day, told["at"] + most * 86400, day))  # An early purge doesn't show its `until`.
            if asked.ref and not is_of(asked.ref, told, days): raise Bad("entry", asked.proof, f"isn't about the ref: {entry}")
            print(f"good: {asked.proof}: entry {index} of {size}: {entry}", "" if told["op"] == "token.purged" else " (this proves no purge)", sep="")
        if asked.log:
            age = (figures := verify(asked.log.rstrip("/"), asked.key, since, policy, asked.allow_gaps, asked.unique, asked.ref)).get(AGE, 1 << 62)
            if asked.max_age is not None and abs(age) > asked.max_age: raise Bad("stale", asked.log, f"{age} {AGE}, not {asked.max_age} at most")
            word = "good" if any(size for _, size, _ in since) or figures["entries"] and not unseen else "consistent, not compared"
            print(f"{word}: {asked.key.split('+')[0]}: " + ", ".join(f"{count} {name}" for name, count in sorted(figures.items()) if name not in ("from", "to")),
                  f"{len(since)} older checkpoints hold", *["the witnesses too"] if policy else [], sep="; ", flush=True)
            if word != "good": print("not compared with anything earlier: a log that was rewritten before looks the same. Use --since or --policy", file=sys.stderr)
    except ValueError as error: parser.error(str(error))
    except Bad as bad: sys.exit("".join(c if c.isprintable() else "?" for c in "bad: " + ": ".join(map(str, bad.args))))
if __name__ == "__main__": main()
