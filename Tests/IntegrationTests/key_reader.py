"""Reads key files by docs/sealing.md, with the reader that recomputes the vectors. Shares no code with the broker."""

import contextlib
import importlib.util
import os
import sqlite3
import struct
from pathlib import Path

from nacl.exceptions import CryptoError

from mayfly import base64url_bytes
from processes import REPOSITORY

_spec = importlib.util.spec_from_file_location("check_sealing", REPOSITORY / "Tests/Vectors/check_sealing.py")
sealing = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sealing)


def keys(file):
    """The contents of a key file, or None if it isn't one."""
    try:
        return sealing.Keys(file)
    except (AssertionError, struct.error):
        return None


def unwrapped(file, wrapping):
    """The key file of version 1 inside one of version 2."""
    magic, version, count, name, nonce = struct.unpack(">8sII16s24s", file[:56])
    assert magic == b"mayflyrk" and version == 2 and len(file) == count + 72
    assert name == sealing.derive(wrapping, "wrapping-id")[:16]
    return sealing.aead_open(file[56:], file[:32], nonce, sealing.derive(wrapping, "wrapping"))


def destroyed(earlier, base):
    """Every chain and epoch key that follows from a key file and is older than the base epoch."""
    found = []
    for _, chain in keys(earlier).generations.values():
        for _ in range(keys(earlier).base, base):
            found += [chain, sealing.derive(chain, "epoch")]
            chain = sealing.derive(chain, "chain")
    return found


def held(process, folder):
    """Everything a thief could read now: each file below the folder, and open files without a name."""
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            # A log's partial tiles go when the whole one is there.
            with contextlib.suppress(FileNotFoundError):
                if Path(parent, name).is_file():
                    found[f"{parent}/{name}"] = Path(parent, name).read_bytes()
    for link in Path(f"/proc/{process.pid}/fd").iterdir() if process and process.poll() is None else ():
        try:
            target = os.readlink(link)
            if target.endswith(" (deleted)") and not target.startswith(("/memfd:", "socket:", "anon_inode:")):
                found[f"descriptor {target}"] = link.read_bytes()
        except FileNotFoundError:
            pass
    return found


class TokenRows(dict):
    """The sealed tokens by ref, which only their owners know: `rows[ref]`, `ref in rows`."""

    def __missing__(self, ref):
        for row in self.values():
            # A day of the log is this many seconds long in the tests' policies.
            for day in (1, 60, 86_400):
                until = (row["expires"] // (1000 * day) + 1) * day
                if sealing.derive(bytes.fromhex(ref), "ledger/purged", struct.pack(">Q", until))[:16] == row["purge_id"]:
                    return row
        raise KeyError(ref)

    def __contains__(self, ref):
        try:
            return bool(self[ref])
        except KeyError:
            return False


def token_rows(state):
    with state.database() as database:
        database.row_factory = sqlite3.Row
        return TokenRows((row["purge_id"], dict(row)) for row in database.execute("SELECT * FROM token"))


def opens(file, row, roomid):
    """The token in a row, in hexadecimal, by a key file and the room id; None if they do not open it."""
    found = keys(file)
    if found is None or row["generation"] not in found.generations or row["expires"] // 300_000 < found.base:
        return None
    key = found.epoch_key(row["generation"], row["expires"])
    key = sealing.derive(key, "token", bytes([row["slot"]]), base64url_bytes(roomid))
    data = struct.pack(">4sIBBQ", b"MFT2", row["generation"], row["kind"], row["slot"], row["expires"]) + row["purge_id"]
    try:
        plaintext = sealing.aead_open(row["sealed"][24:], data, row["sealed"][:24], key)
    except CryptoError:
        return None
    # Behind the head and the app.
    return plaintext[45:29 + int.from_bytes(plaintext[27:29], "big")].hex()
