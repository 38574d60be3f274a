"""Reads the memory of a process, or a core, and finds pieces of known secrets in every form."""

import ctypes
import functools
import os
import signal
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from canary import base64_forms
from preload import library

PT_LOAD, PT_NOTE = 1, 4

# The shortest pieces that don't occur by chance, by form.
LEAST = {"raw": 10, "text": 14, "hex": 16, "HEX": 16, "base64": 14, "huffman": 10, "masked": 12}


@functools.cache
def scanner():
    """The functions of memory_scan.c."""
    scanner = ctypes.CDLL(str(library("Adversaries/memory_scan.c")))
    scanner.search_make.restype = ctypes.c_void_p
    scanner.search_make.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]
    scanner.search_run.restype = ctypes.c_uint32
    scanner.search_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32]
    scanner.search_free.argtypes = [ctypes.c_void_p]
    scanner.fold.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p]
    return scanner


def huffman_forms(text):
    """HPACK's code (RFC 7541 appendix B) at each place in a byte where it may begin, without the bits that neighbours share."""
    bits = length = 0
    for byte in text:
        bits = bits << REQUEST_CODES_LENGTH[byte] | REQUEST_CODES[byte]
        length += REQUEST_CODES_LENGTH[byte]
    for skipped in range(8):
        whole = (length - skipped) // 8
        yield (bits >> (length - skipped - whole * 8) & (1 << whole * 8) - 1).to_bytes(whole, "big")


def forms(secret):
    """(name, bytes) of each form of a secret: of its bytes, if it has any, and of the text it travels as."""
    yield "text", secret.text
    if secret.value is not None:
        yield "raw", secret.value
    for value in filter(None, (secret.value, secret.text)):
        for name, form in (("hex", value.hex().encode()), ("HEX", value.hex().upper().encode())):
            if form != secret.text:
                yield name, form
        yield from (("base64", form) for form in base64_forms(value) if form not in secret.text)
    yield from (("huffman", form) for form in huffman_forms(secret.text))


@dataclass(frozen=True)
class Secret:
    """`value`: its bytes, or None for text. `text`: as it is transmitted. `turn`: the story of the load that it belongs to."""

    kind: str
    value: bytes | None
    text: bytes
    turn: object = None


@dataclass(frozen=True)
class Mapping:
    start: int
    end: int
    kind: str
    readable: bool = True


@dataclass(frozen=True)
class Find:
    """A piece of a secret. `around`: its neighbouring bytes, with anything that could be a secret replaced."""

    secret: Secret
    form: str
    mapping: Mapping
    address: int
    length: int
    around: str = ""

    def within(self, other):
        return other.address <= self.address and self.address + self.length <= other.address + other.length

    def __str__(self):
        return f"{self.secret.kind} as {self.form}, {self.length} bytes in the {self.mapping.kind} at {self.address:#x}: {self.around}"


class Search:
    """Secrets to look for."""

    def __init__(self, secrets):
        self.secrets, self.forms, pieces = list(secrets), [], []
        for secret in self.secrets:
            for name, form in forms(secret):
                if len(form) >= LEAST[name]:
                    self.forms.append((secret, name))
                    pieces.append((form, LEAST[name]))
        self.plain = _Table(pieces)
        # A WebSocket's mask, four bytes over and over, falls out where each byte meets the one four places on.
        self.masked = _Table([(xor4(secret.text), LEAST["masked"]) for secret in self.secrets])

    def in_block(self, data, mapping, base):
        """Finds in one block; `base` is the address of its first byte."""
        def find(secret, form, start, length):
            return Find(secret, form, mapping, base + start, length, neighbours(data, start, length))
        found = [find(*self.forms[form], start, length) for start, form, length in self.plain.run(data)]
        found += [find(self.secrets[form], "masked", start, length + 4) for start, form, length in self.masked.run(xor4(data))]
        # The same bytes may be a piece of several forms. The longest counts.
        kept = []
        for one in sorted(found, key=lambda one: (-one.length, one.form == "masked")):
            if not any(one.secret is other.secret and one.within(other) for other in kept):
                kept.append(one)
        return kept

    def in_image(self, image):
        """Searches an image of `memory_of` or `core_of`."""
        return [find for mapping, start, data in image for find in self.in_block(data, mapping, start)]


class _Table:
    def __init__(self, pieces):
        self.bytes = b"".join(form for form, _ in pieces) or b"\0"
        table, start = bytearray(), 0
        for form, least in pieces:
            table += struct.pack("=QII", start, len(form), least)
            start += len(form)
        self.table = bytes(table)
        self.handle = scanner().search_make(self.bytes, self.table, len(pieces))

    def __del__(self):
        scanner().search_free(self.handle)

    def run(self, data):
        room = 10_000
        hits = ctypes.create_string_buffer(24 * room)
        buffer = data if isinstance(data, bytes) else bytes(data)
        count = scanner().search_run(self.handle, buffer, len(buffer), hits, room)
        for number in range(min(count, room)):
            start, form, _, length, _ = struct.unpack_from("=QIIII", hits, 24 * number)
            yield start, form, length


def xor4(data):
    """Each byte with the one four places on."""
    folded = ctypes.create_string_buffer(max(0, len(data) - 4))
    scanner().fold(data, len(data), folded)
    return folded.raw


def neighbours(data, start, length, reach=48):
    """The bytes before and after a piece, as text. Long runs of a secret's characters become dots."""
    def shown(part):
        text, run = "", ""
        for byte in [*part, None]:
            character = chr(byte) if byte is not None else ""
            if byte is not None and byte < 128 and (character.isalnum() or character in "-_+/"):
                run += character
                continue
            text += run if len(run) <= 14 else f"<{len(run)}>"
            run = ""
            if byte is not None:
                text += character if 32 <= byte < 127 else "."
        return text
    return f"{shown(data[max(0, start - reach):start])}[{length}]{shown(data[start + length:start + length + reach])}"


def memory_of(pid):
    """All that a process has mapped and may read, as one moment has it: (mapping, address, bytes)."""
    assert os.geteuid() == 0, "NOT TESTED: reading a broker's memory needs root, since the broker forbids it to its own user"
    os.kill(pid, signal.SIGSTOP)
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            return [(mapping, start, data) for mapping in mappings(pid) if mapping.readable for start, data in _blocks(memory, mapping)]
    finally:
        os.kill(pid, signal.SIGCONT)


def _blocks(memory, mapping):
    start = mapping.start
    while start < mapping.end:
        try:
            memory.seek(start)
            data = memory.read(mapping.end - start)
        except OSError:
            # Behind the end of a mapped file, or a page of the kernel's own.
            return
        if not data:
            return
        yield start, data
        start += len(data)


def core_of(path, maps=()):
    """A core file in the same form. `registers` are its notes. Mappings get their names from `maps`."""
    core, image = Path(path).read_bytes(), []
    for kind, offset, address, size in segments(core):
        data = core[offset:offset + size]
        # Most of it is memory that was reserved and never touched.
        if kind == PT_LOAD and data != bytes(size):
            home = next((m for m in maps if m.start <= address < m.end), Mapping(address, address + size, "core"))
            image.append((home, address, data))
        elif kind == PT_NOTE:
            image.append((Mapping(0, size, "registers"), 0, data))
    return image


def size_of(image):
    return sum(len(data) for _, _, data in image)


def mappings(pid):
    """A process's mappings by kind: arena (locked and kept out of cores), heap, stack, anonymous, or a file's name."""
    found, current = [], None
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            start, end = (int(part, 16) for part in words[0].split("-"))
            current = (start, end, words[1], words[5] if len(words) > 5 else "")
        elif words[0] == "VmFlags:":
            start, end, rights, name = current
            if {"lo", "dd"} <= set(words[1:]):
                kind = "arena"
            elif name.startswith("["):
                kind = name.strip("[]")
            else:
                kind = Path(name).name if name else "anonymous"
            found.append(Mapping(start, end, kind, "r" in rights and kind not in ("vvar", "vsyscall")))
    return found


def segments(core):
    """(type, offset, address, size) of an ELF file's program headers."""
    offset, = struct.unpack_from("<Q", core, 32)
    size, count = struct.unpack_from("<HH", core, 54)
    for number in range(count):
        kind, _, start, address, _, length = struct.unpack_from("<IIQQQQ", core, offset + number * size)
        yield kind, start, address, length


def summary(found):
    """A line for each kind of find, with how many."""
    counts = Counter((find.secret.kind, find.form, find.mapping.kind) for find in found)
    return [f"{count} x {secret} as {form} in the {place}" for (secret, form, place), count in sorted(counts.items())]


def told(found, shown=20):
    """Finds for a failed test's message: the counts by kind, and the places of the first."""
    return "\n".join([f"{len(found)} copies", *summary(found), *map(str, found[:shown])])
