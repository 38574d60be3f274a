#!/usr/bin/env python3
"""Checks a Mayfly log from outside: an opinion that shares no code with Mayfly's own `mayfly audit verify`.

    verify.py [DIR|URL] --key VKEY|FILE [--since CHECKPOINT]... [--policy TLOG-POLICY] [--max-age SECONDS] [--proof FILE [--ref REF]]

Exit 0 and a line of figures; 1 and what is wrong, and where; 2 if asked wrongly. Needs PyNaCl, and entry.schema.json beside it.
Reads from first entry to last, up to the first fault. Files that no checkpoint covers don't matter, unless they contradict the log.
"""
import argparse, base64, collections, contextlib, datetime, functools, hashlib, http.client, json, os, pathlib, queue, re, sys, threading, time, urllib.request
try: import nacl.exceptions, nacl.signing
except ImportError: sys.exit("verify.py needs PyNaCl: apt install python3-nacl, or pip install pynacl in a virtual environment")
GRACE, EPOCH, SKEW = 120, 300, 600  # Seconds: how late a purge or step of the keys may be; what a key lives; how far clocks may differ.
PATIENCE, LARGEST, LONGEST, AGE = 60, 256 * (2 + 65535), 65536, "seconds since the last entry"  # Seconds that a file may take; bytes of a log's largest file, and of a note.
class Bad(Exception): pass  # Code word, place, what is wrong there.
class Missing(Bad): pass

# 1. Files. None is trusted to be what it should, or to have an end.
def read(place, answer):
    try:
        with urllib.request.urlopen(place, timeout=30) if re.match("https?://", place) else open(place, "rb") as file: data = file.read(LARGEST + 1)
        answer.put(data if len(data) <= LARGEST else "is larger than any file of a log")
    except (OSError, http.client.HTTPException, ValueError, MemoryError) as error: answer.put(error)
def fetch(place):
    if os.path.exists(place) and not os.path.isfile(place): raise Missing("missing", place, "is no file")
    threading.Thread(target=read, args=(place, answer := queue.SimpleQueue()), daemon=True).start()
    try: data = answer.get(timeout=PATIENCE)
    except queue.Empty: data = f"takes longer than {PATIENCE} seconds"
    if isinstance(data, bytes): return data
    gone = getattr(data, "code", 0) in (404, 410) or isinstance(data, (FileNotFoundError, NotADirectoryError, IsADirectoryError))
    raise Missing("missing", place, data) if gone else Bad("unreadable", place, data)
def fetch_tile(log, level, first, size):  # Place and content of the tile from `first` on, and whether it is the full one in place of a partial.
    number, width = str(first // 256), min(256, size - first)
    path = re.sub("...(?=.)", r"x\g<0>/", number.zfill(-(-len(number) // 3) * 3))  # 1234067 is x001/x234/067.
    place = (full := f"{log}/tile/{level}/{path}") + (f".p/{width}" if width < 256 else "")
    try: data = fetch(place)
    except Missing: place, data, width = full, fetch(full), 256  # A partial tile may have gone once the full one stands.
    if level != "entries" and len(data) != 32 * width: raise Bad("damaged", place, f"is not {32 * width} bytes long")
    if level != "entries": check_older(place, data, range(32, 32 * min(256, size - first) + 1, 32))
    return place, data, width > size - first
def check_older(place, data, ends):  # What earlier sizes left beside a tile must be a beginning of it; `ends`: where its items end.
    folder = re.sub("[.]p/[0-9]+$", "", place) + ".p"
    for old, end in ((f"{folder}/{width}", end) for width, end in enumerate(ends[:-1] if os.path.isdir(folder) else (), 1)):
        with contextlib.suppress(Missing):  # A growing log drops them at any moment.
            if os.path.exists(old) and fetch(old) != data[:end]: raise Bad("tree", old, "is not a beginning of what the log now holds")

# 2. Keys, checkpoints, witnesses: C2SP signed-note, tlog-checkpoint, tlog-cosignature, tlog-policy.
def from_base64(text):
    if base64.b64encode(data := base64.b64decode(text, validate=True)).decode() != text: raise ValueError("holds base64 in another spelling")
    return data
def public_key(vkey, kind):  # Of a log (kind 1) or a witness (kind 4).
    name, identity, encoded = (vkey.split("+", 2) + ["", ""])[:3]
    public = from_base64(encoded)
    right = bytes([kind]), 33, hashlib.sha256(name.encode() + b"\n" + public).hexdigest()[:8]
    if (public[:1], len(public), identity) == right and re.fullmatch(r"\S+", name): return public
    raise ValueError(f"{vkey} is no key NAME+ID+KEY of kind {kind}")
def signed(vkey, kind, text, found, last=0):
    """Whether this key signed. `found`: (name, ID and signature) of each line; a witness not before `last`."""
    public, (name, identity, _) = public_key(vkey, kind), vkey.split("+", 2)
    signatures = [data[4:] for signer, data in found if signer == name and data[:4].hex() == identity]
    for signature in signatures:
        dated = b"cosignature/v1\ntime %d\n" % int.from_bytes(signature[:8], "big") if kind == 4 else b""
        if dated and signature[:1] >= b"\x80": raise ValueError(f"holds a signature of {name} from 2^63 seconds on")
        try: nacl.signing.VerifyKey(public[1:]).verify(dated + text, signature[8 if dated else 0:])
        except (nacl.exceptions.CryptoError, ValueError): raise ValueError(f"holds a forged signature of {name}") from None
    return any(kind == 1 or last - SKEW <= int.from_bytes(signature[:8], "big") <= time.time() + SKEW for signature in signatures)
def quorum(policy, vkey, text, found, last):
    """Whether a tlog-policy takes this log, and those signed whom it asks for. ValueError: it is no policy, or a signature is forged."""
    votes, logs, witnesses, taken, verdict = {"none": True}, {}, [], {"none"}, None  # Taken: members of a group.
    if not policy.endswith("\n") or re.search(r"[\0-\x08\x0b-\x1f\x7f]", policy): raise ValueError("policy: cut short, or no text")
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
    """Size and root of a checkpoint that this key signed, and the witnesses whom `policy` asks for, not before `last`."""
    text, _, lines = note.rpartition(b"\n\n")
    text, code = text + b"\n", "signature"
    try:
        head = re.fullmatch("([^\n]+)\n(0|[1-9][0-9]{0,18})\n([A-Za-z0-9+/]{43}=)\n", text.decode())
        if not head or head[1] != vkey.split("+")[0] or int(head[2]) >> 63 or len(note) > LONGEST or re.search(rb"[\0-\x09\x0b-\x1f\x7f]", note) or \
                not re.fullmatch("(— [^\\s+]+ [A-Za-z0-9+/]{7,}=*\n){1,64}", lines.decode()): raise ValueError("is no checkpoint of this log")
        found = [(line.split(" ")[1], from_base64(line.split(" ")[2])) for line in lines.decode().split("\n")[:-1]]
        if not signed(vkey, 1, text, found): raise ValueError("is not signed with this key")
        code = "cosignatures"
        if policy is not None and not quorum(policy, vkey, text, found, last): raise ValueError("lacks signatures that the policy asks for")
        return int(head[2]), from_base64(head[3])
    except ValueError as error: raise Bad(code, where, error) from None

# 3. The Merkle tree: RFC 9162, C2SP tlog-tiles, tlog-proof.
def leaf_hash(entry): return hashlib.sha256(b"\0" + entry).digest()
def node_hash(left, right): return hashlib.sha256(b"\1" + left + right).digest()
def split(size): return 1 << (size - 1).bit_length() - 1  # The largest power of two below: as many leaves lie to the left.
def root_of(leaves):
    if len(leaves) < 2: return leaves[0] if leaves else hashlib.sha256().digest()
    return node_hash(root_of(leaves[:split(len(leaves))]), root_of(leaves[split(len(leaves)):]))
def climb(leaf, index, size, path):  # The root that an inclusion proof leads to; None if it has a step too few or too many.
    if size < 2 or not path: return leaf if size == 1 and not path else None
    left, last = split(size), path[-1]
    below = climb(leaf, index, left, path[:-1]) if index < left else climb(leaf, index - left, size - left, path[:-1])
    return below and (node_hash(below, last) if index < left else node_hash(last, below))
def prove(where, proof, vkey, policy=None):  # The entry that a .tlog-proof proves, its index, and size and root of the proof's checkpoint.
    lines, _, note = proof.partition(b"\n\n")
    form = "c2sp.org/tlog-proof@v1(?:\nextra ([A-Za-z0-9+/=]*))?\nindex (0|[1-9][0-9]{0,18})((?:\n[A-Za-z0-9+/]{43}=){0,63})"
    try:
        entry, index, path = re.fullmatch(form, lines.decode()).groups()
        entry, index, path = None if entry is None else from_base64(entry), int(index), [from_base64(line) for line in path.split()]
    except (ValueError, AttributeError): raise Bad("damaged", where, "is no tlog-proof") from None
    size, root = checkpoint(where, note, vkey, policy)
    if entry is None: raise Bad("missing", where, "holds no entry, only the place of one")
    if index >= size or climb(leaf_hash(entry), index, size, path) != root: raise Bad("tree", where, f"leads from entry {index} elsewhere")
    checkpoint(where, note, vkey, policy, parse(entry, f"{where}, entry {index}")["at"])
    return entry.decode(), index, size, root

# 4. Entries: entry.schema.json, each in its one spelling; and the story that they tell.
SCHEMA = json.loads(pathlib.Path(__file__).with_name("entry.schema.json").read_bytes())
KINDS = {kind["properties"]["op"]["const"]: {name: SCHEMA["$defs"].get(rule.get("$ref", "")[8:], rule)
                                             for name, rule in kind["properties"].items()} for kind in SCHEMA["oneOf"]}
seconds = functools.lru_cache(4096)(lambda time: int(datetime.datetime.strptime(time + "+0000", "%Y-%m-%dT%H:%M:%SZ%z").timestamp()))
def parse(raw, where):  # Keys and values of an entry, times in unix seconds.
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        entry = json.loads(raw)
        kind = KINDS[entry["op"]]
        good = entry.keys() == kind.keys() and json.dumps(entry, sort_keys=True, separators=(",", ":")).encode() == raw
        for name, rule in kind.items():
            value = entry[name]
            good &= rule["minimum"] <= value <= rule["maximum"] if type(value) is int else \
                bool(re.fullmatch(rule["pattern"], value)) if "pattern" in rule else value in (rule.get("enum") or [rule["const"]])
        entry |= {name: seconds(entry[name]) for name in ("at", "until") if name in entry}
        if good and 0 <= entry["at"] < entry.get("until", 1 << 60): return entry  # No token ends before it is taken in.
    raise Bad("entry", where, f"is no entry of the schema, in its one spelling: {raw[:300]!r}")
class Story:
    def __init__(self):
        self.now = self.before = self.held = 0  # This window, the one before. In which order things happened inside one, a log does not say.
        self.window, self.ref, self.gone, self.gone_before, self.closed, self.excused = None, "", None, None, False, 0
        self.starts, self.until, self.purged, self.jobs, self.counts = set(), {}, set(), {}, collections.Counter()
    def late(self, due):  # Whether what was due is late; "excused" if no window was written from then to a start just before now.
        return self.now > due + GRACE and ("excused" if any(before < due and self.now <= end for before, end in self.starts) else "late")
    def end_window(self):  # When epoch e begins, the keys of e - 2 go, and those of e - 3 must be gone. After any start they have an epoch more.
        return self.gone_before is not None and self.now > max((self.gone_before + 4) * EPOCH + GRACE, self.held)
    def tell(self, entry):  # Takes the next entry; returns the rule that it breaks, if it breaks one.
        op, at, ref, job = entry["op"], entry["at"], entry.get("ref", ""), entry.get("job")
        if self.closed: return "after_closed"
        if at < self.now: return "time"
        if at > self.now:
            if self.end_window(): return "ratchet_late"
            # Windows begin at multiples of the length in force, or of that of the start they begin with; but the first, of lives carried over.
            lengths = filter(None, (self.window, entry.get("resolution")))
            if all(at % length for length in lengths) and (self.counts or op == "broker.started"): return "time"
            self.before, self.now, self.gone_before, self.ref = self.now, at, self.gone, ""
        if not self.window and op not in ("broker.started", "token.sealed", "token.opened"): return "entry"
        self.counts[op], self.closed = self.counts[op] + 1, op == "ledger.closed"
        self.gone = max(at // EPOCH, 2) - 2 if self.gone is None else self.gone
        if op == "broker.started":
            window = self.window = entry["resolution"]
            end, self.held = ((at // window - -span // window) * window for span in (GRACE, GRACE + EPOCH))
            self.starts = {(before, min(old, end)) for before, old in self.starts if old >= at} | {(self.before, end)}  # None outlasts this one.
        elif op == "keys.ratcheted":
            if (entry["epoch"] + 1) * EPOCH >= at - at % self.window + self.window: return "ratchet_early"
            self.gone = max(self.gone, entry["epoch"])
        elif op == "token.sealed":
            if ref in self.until: return "sealed_twice"
            self.until[ref] = entry["until"]
        elif op in ("push.delivered", "push.failed"):
            if self.jobs.get(job, "") is None: return "outcome_twice"
            if self.jobs.get(job) != ref: return "job_unknown"
            self.jobs[job] = None
        elif ref and ref not in self.until: return "never_sealed"
        elif op == "token.opened":
            if ref in self.purged: return "after_purge"
            if at >= self.until[ref]: return "opened_late"
            if job in self.jobs: return "job_twice"
            self.jobs[job] = ref
        elif op == "token.purged":
            if ref in self.purged: return "purged_twice"
            if (late := self.late(self.until[ref])) == "late": return "purged_late"
            self.excused += late == "excused"
            self.purged.add(ref)
        if ref and ref < self.ref: return "entry"  # Sorted, so that neighbours say nothing; anew after what has no ref.
        self.ref = ref
def verify(log, vkey, since=(), policy=None):
    """The whole log. `since`: (where, size, root) of checkpoints that it must continue. Returns its figures; raises Bad."""
    size, root = checkpoint(f"{log}/checkpoint", note := fetch(f"{log}/checkpoint"), vkey, policy)
    story, policies, row = Story(), set(), (leaves := [])
    for first in range(0, size, 256):
        _, hashes, _ = fetch_tile(log, 0, first, size)
        place, data, longer = fetch_tile(log, "entries", first, size)
        ends = [0]
        for index in range(first, min(first + 256, size)):
            where, at, end = f"{place}, entry {index}", ends[-1] + 2, ends[-1] + 2 + int.from_bytes(data[ends[-1]:][:2], "big")
            leaves.append(leaf_hash(data[at:end]))
            if len(data) < end: raise Bad("damaged", where, "ends before this entry does")
            if leaves[-1] != hashes[32 * (index - first):][:32]: raise Bad("tree", where, "is not the entry of the hash tile")
            if broken := story.tell(entry := parse(data[at:end], where)): raise Bad(broken, where, data[at:end].decode())
            policies |= {entry["policy"]} if "policy" in entry else set()
            ends.append(end)
        if ends[-1] < len(data) and not longer: raise Bad("damaged", place, "goes on after its last entry")
        check_older(place, data, ends[1:])
    for level in range(1, 8):
        row = [root_of(row[at:at + 256]) for at in range(0, len(row) - 255, 256)]
        for first in range(0, len(row), 256):
            place, data, _ = fetch_tile(log, level, first, len(row))
            if not data.startswith(b"".join(row[first:first + 256])): raise Bad("tree", place, "holds other hashes than the entries give")
    if root_of(leaves) != root: raise Bad("tree", f"{log}/checkpoint", "signs another root than that of the entries")
    for where, older, old_root in since:
        if older > size or root_of(leaves[:older]) != old_root: raise Bad("rewritten", where, f"signs {older} entries that are not the first of these {size}")
    checkpoint(f"{log}/checkpoint", note, vkey, policy, story.now)
    if story.end_window(): raise Bad("ratchet_late", log, "the keys of its last window are late")
    live = story.until.keys() - story.purged
    for ref in (ref for ref in live if story.late(story.until[ref]) == "late"):
        raise Bad("never_purged", log, f"ref {ref}, sealed until {story.until[ref]} (unix time)")
    for digest in sorted(policies):
        place = f"{log}/policies/{digest}.json"
        if hashlib.sha256(fetch(place)).hexdigest() != digest: raise Bad("damaged", place, "is not the policy of its name")
    return dict(story.counts, entries=size, live=len(live), excused=story.excused) | ({AGE: int(time.time()) - story.now} if size else {})
def main():
    (parser := argparse.ArgumentParser(usage=__doc__)).add_argument("log", nargs="?")
    parser.add_argument("--since", action="append", default=[])
    for flag in ("--key", "--policy", "--proof", "--ref", "--max-age"): parser.add_argument(flag, required=flag == "--key", type=int if flag == "--max-age" else str)
    asked = parser.parse_args()
    try:
        if os.path.isfile(asked.key): asked.key = fetch(asked.key).decode().split("\n")[0]
        public_key(asked.key, 1)
        if not asked.log and not asked.proof: raise ValueError("a log or a proof is wanted")
        policy = fetch(asked.policy).decode(errors="surrogateescape") if asked.policy else None
        if policy is not None: quorum(policy, asked.key, b"", [], 0)  # Whether it is a policy at all.
        since = [(where, *checkpoint(where, fetch(where), asked.key)) for where in asked.since]
        if asked.proof:
            entry, index, size, root = prove(asked.proof, fetch(asked.proof), asked.key, policy)
            since.append((asked.proof, size, root))
            if asked.ref not in (None, (told := json.loads(entry)).get("ref")): raise Bad("entry", asked.proof, f"is not about {asked.ref}: {entry}")
            print(f"good: {asked.proof}: entry {index} of {size}: {entry}", "" if told["op"] == "token.purged" else " (this proves no purge)", sep="")
        if asked.log:
            age = (figures := verify(asked.log.rstrip("/"), asked.key, since, policy)).get(AGE, 1 << 62)
            if asked.max_age is not None and abs(age) > asked.max_age: raise Bad("stale", asked.log, f"{age} {AGE}, not {asked.max_age} at most")
            told = ", ".join(f"{count} {name}" for name, count in sorted(figures.items()))
            print(f"good: {asked.key.split('+')[0]}: {told}; {len(since)} older checkpoints hold", *["the witnesses too"] if policy else [], sep="; ")
    except ValueError as error: parser.error(str(error))
    except Bad as bad: sys.exit("".join(c if c.isprintable() else "?" for c in "bad: " + ": ".join(map(str, bad.args))))
if __name__ == "__main__": main()
