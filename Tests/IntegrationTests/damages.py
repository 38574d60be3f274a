"""Damage to the files of a log, at random."""

import base64
import os
from pathlib import Path

import logs


class Base:
    """A log, the files that its checkpoint covers, and the way to damage them for a moment."""

    def __init__(self, folder, count, seed, **more):
        self.log = logs.make(folder, logs.story(count, seed, **more), partials=False)
        self.folder, self.vkey = Path(folder), self.log.vkey
        self.paths = sorted(str(path.relative_to(folder)) for path in self.folder.rglob("*") if path.is_file())

    def __str__(self):
        return f"{len(self.log.entries)} entries"

    def content(self, path):
        return (self.folder / path).read_bytes()

    def other(self, chance, path):
        """Another file of the log, if possible one of the same kind."""
        kind = path.split("/")[:2]
        alike = [other for other in self.paths if other.split("/")[:2] == kind and other != path]
        return chance.choice(alike or [other for other in self.paths if other != path])


class Damage:
    """`changes`: {path: its new bytes, None for a missing file, or `folder`, `loop`, `pipe` or `zeros` for an endless file}."""

    def __init__(self, base, what, changes):
        self.base, self.what, self.changes, self.kept = base, what, changes, {}

    def __str__(self):
        return f"{self.what} of {', '.join(self.changes)} in a log of {self.base}"

    def __enter__(self):
        for path, new in self.changes.items():
            file = self.base.folder / path
            self.kept[file] = file.read_bytes()
            if isinstance(new, bytes):
                file.write_bytes(new)
                continue
            file.unlink()
            if new == "folder":
                file.mkdir()
            elif new == "loop":
                file.symlink_to(file.name)
            elif new == "pipe":
                os.mkfifo(file)
            elif new == "zeros":
                file.symlink_to("/dev/zero")

    def __exit__(self, *_):
        for file, content in self.kept.items():
            if file.is_dir():
                file.rmdir()
            else:
                file.unlink(missing_ok=True)
            file.write_bytes(content)


def flipped(chance, content):
    place = chance.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1:]


def one_file(chance, base):
    """A bit, a byte, a run, the end, or all of one file."""
    path = chance.choice(base.paths)
    old, kind = base.content(path), chance.randrange(12)
    if kind < 4:
        return Damage(base, "a bit", {path: flipped(chance, old)})
    place = chance.randrange(len(old))
    if kind == 4:
        length = chance.randint(1, 64)
        new = old[:place] + chance.randbytes(length) + old[place + length:]
        return Damage(base, f"a run of {length} bytes", {path: new if new != old else b""})
    if kind == 5:
        return Damage(base, f"the end from {place}", {path: old[:place]})
    if kind == 6:
        more = chance.choice((b"\n", b"\0", b"\0\0", old, chance.randbytes(chance.randint(1, 300))))
        return Damage(base, f"{len(more)} bytes at the end", {path: old + more})
    if kind == 7:
        length = chance.randint(1, 40)
        return Damage(base, f"{length} bytes out of the middle", {path: old[:place] + old[place + length:]})
    if kind == 8:
        other = base.other(chance, path)
        return Damage(base, f"{other} in place", {path: base.content(other)})
    if kind == 9:
        return Damage(base, "nothing but zeros", {path: bytes(len(old))})
    return Damage(base, "no file", {path: chance.choice((None, None, "folder", "loop", "pipe", b"", chance.randbytes(len(old))))})


def swapped(chance, base):
    path = chance.choice([path for path in base.paths if path.startswith("tile/")])
    other = base.other(chance, path)
    return Damage(base, "a swap", {path: base.content(other), other: base.content(path)})


def in_a_tile(chance, base):
    """Hashes of one tile exchanged, repeated or moved."""
    path = chance.choice([path for path in base.paths if path.startswith("tile/") and "entries" not in path])
    old = base.content(path)
    hashes = [old[at:at + 32] for at in range(0, len(old), 32)]
    new = list(hashes)
    one, two = chance.randrange(len(new)), chance.randrange(len(new))
    if chance.random() < 0.5:
        new[one], new[two] = new[two], new[one]
    else:
        new.insert(two, new.pop(one))
    if new == hashes:
        new[one] = chance.randbytes(32)
    return Damage(base, "hashes", {path: b"".join(new)})


def in_a_bundle(chance, base):
    """Entries of one bundle exchanged, repeated, left out or changed, so that it is still a bundle."""
    bundles = [path for path in base.paths if "entries" in path]
    path = chance.choice(bundles)
    first = int(path.removeprefix("tile/entries/").split(".")[0]) * logs.WIDTH
    entries = base.log.entries[first:first + logs.WIDTH]
    new, kind = list(entries), chance.randrange(4)
    one, two = chance.randrange(len(new)), chance.randrange(len(new))
    if kind == 0:
        new[one], new[two] = new[two], new[one]
    elif kind == 1:
        new.insert(one, new[two])
    elif kind == 2:
        del new[one]
    if kind == 3 or new == entries:
        new = list(entries)
        new[one] = flipped(chance, new[one])
    return Damage(base, ("exchanged", "repeated", "left out", "changed")[kind] + " entries", {path: logs.bundle(new)})


def with_its_tile(chance, base):
    """Changed entries and their tile of hashes. Only the levels above show it."""
    number = chance.randrange(len(base.log.entries))
    first = number - number % logs.WIDTH
    entries = base.log.entries[first:first + logs.WIDTH]
    other = chance.choice([entry for entry in base.log.entries if entry != entries[number - first]])
    entries[number - first] = chance.choice((flipped(chance, entries[number - first]), other))
    width = len(entries)
    return Damage(base, f"entry {number} and its hash", {
        logs.tile_path("entries", first // logs.WIDTH, width): logs.bundle(entries),
        logs.tile_path(0, first // logs.WIDTH, width): b"".join(map(logs.leaf_hash, entries))})


def in_the_checkpoint(chance, base):
    """A changed checkpoint, or the same one written in another way."""
    note = base.content("checkpoint")
    text, lines = note.split(b"\n\n")
    text += b"\n"
    origin, size, root = text.decode().splitlines()
    other, key = logs.Key(seed=chance.randbytes(32)), base.log.key
    size, signature = int(size), base64.b64decode(lines.split(b" ")[2])
    spare = base64.b64encode(signature)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    last = letters[letters.index(chr(spare[-2])) + 1]
    heads = {
        "another size": f"{origin}\n{chance.choice((size - 1, size + 1, 0, size + 256, 10 * size))}\n{root}\n".encode(),
        "another root": logs.head(size, chance.randbytes(32), origin),
        "another origin": logs.head(size, base64.b64decode(root), origin + "x"),
        "a fourth line": text + b"more\n",
        "a leading zero": f"{origin}\n0{size}\n{root}\n".encode(),
        "a plus": f"{origin}\n+{size}\n{root}\n".encode(),
        "a space": f"{origin}\n {size}\n{root}\n".encode(),
        "no root": f"{origin}\n{size}\n\n".encode(),
        "a short root": logs.head(size, base64.b64decode(root)[:31], origin),
        "an empty line": f"{origin}\n{size}\n{root}\n\n".encode(),
        "a carriage return": text.replace(b"\n", b"\r\n"),
    }
    whole = {
        "by another key": logs.note(text, other),
        "without a signature": text + b"\n",
        "without a blank line": text + lines,
        "with a hyphen": note.replace("—".encode(), b"-"),
        "with two spaces": note.replace(b" ", b"  "),
        "with a control character": note[:-1] + b"\x07\n",
        "with a line of other text": note + b"hello\n",
        "with a broken signature besides": note + f"— {key.name} {base64.b64encode(key.id + bytes(64)).decode()}\n".encode(),
        "with a short signature": text + b"\n" + f"— {key.name} {base64.b64encode(signature[:-1]).decode()}\n".encode(),
        "with a long signature": text + b"\n" + f"— {key.name} {base64.b64encode(signature + b'x').decode()}\n".encode(),
        "with an ID alone": text + b"\n" + f"— {key.name} {base64.b64encode(signature[:4]).decode()}\n".encode(),
        "with another ID": text + b"\n" + f"— {key.name} {base64.b64encode(bytes(4) + signature[4:]).decode()}\n".encode(),
        "with another name": text + b"\n" + lines.replace(key.name.encode(), b"other.test/log"),
        "with base64 in another spelling": text + b"\n" + lines.replace(spare, spare[:-2] + last.encode() + b"="),
        "without padding": text + b"\n" + lines.replace(b"=", b""),
        "a gibberish": chance.randbytes(len(note)),
        "a kilobyte of newlines": b"\n" * 1024,
    }
    what = chance.choice([*heads, *whole])
    return Damage(base, f"a checkpoint, {what},", {"checkpoint": whole.get(what) or logs.note(
        heads[what], chance.choice((other, base.log.key)) if what not in ("another size", "another root") else other)})


DAMAGES = [one_file] * 6 + [swapped, in_a_tile, in_a_bundle, with_its_tile, in_the_checkpoint, in_the_checkpoint]
