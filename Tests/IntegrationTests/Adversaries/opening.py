"""docs/sealing.md once more, to be read by a thief: key files, derivations, and how each kind of row opens. On hashlib and PyNaCl alone."""

import hashlib
import hmac
import struct

from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as _open_box
from nacl.exceptions import CryptoError

EPOCH_MS, DAY_MS = 300_000, 86_400_000
KEY_0 = bytes(32)
WEB_PUSH = 2  # the service of an address
LIFE = 8640 + 2 + 288  # epochs that have keys: a month, and room for clocks that disagree
DAYS = (1, 60, 86_400)  # how long a day of the log is in these tests' policies, in seconds


def derive(key, label, *fields):
    """D of the page."""
    message = b"mayfly/v1 " + label.encode() + b"\0" + b"".join(struct.pack(">I", len(field)) + field for field in fields)
    return hashlib.blake2b(message, digest_size=32, key=key).digest()


def room_index(roomid):
    return bytes(2) + roomid[:6] + derive(KEY_0, "room", roomid)[:24]


def handle(roomid, slot):
    return hmac.new(roomid, b"mayfly/v1 handle" + b"room" + bytes([slot]), "sha256").digest()[:16]


def apns_id(epoch_key, job):
    raw = bytearray(derive(epoch_key, "apns-id", job)[:16])
    raw[6], raw[8] = raw[6] & 0x0F | 0x80, raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class Keys:
    """The keys that one key file yields: every epoch key and day key from its base on. Raises ValueError for other bytes."""

    def __init__(self, file):
        if len(file) < 96 or file[:8] != b"mayflyrk" or file[-32:] != derive(KEY_0, "ratchet-file", file[:-32]):
            raise ValueError("no key file")
        _, version, count, self.steps, self.base = struct.unpack(">8sIIQQ", file[:32])
        if version != 1 or len(file) != 96 + 44 * count:
            raise ValueError("no key file of this version")
        self.first_day = (self.base + 1) // 288 - 2
        self._days = [file[32:64]]
        self._chains = {}
        for start in range(64, len(file) - 32, 44):
            generation, _, chain = struct.unpack(">IQ32s", file[start:start + 44])
            self._chains[generation] = [chain]

    @property
    def generations(self):
        return sorted(self._chains)

    def epoch_key(self, generation, ms):
        """None where there is no key: of the past, of another generation, or too far off to be real."""
        chains, steps = self._chains.get(generation), ms // EPOCH_MS - self.base
        if chains is None or not 0 <= steps < LIFE:
            return None
        while len(chains) <= steps:
            chains.append(derive(chains[-1], "chain"))
        return derive(chains[steps], "epoch")

    def day_key(self, day):
        steps = day - self.first_day
        if not 0 <= steps < 40:
            return None
        while len(self._days) <= steps:
            self._days.append(derive(self._days[-1], "chain"))
        return derive(self._days[steps], "day")


def app_id(bundle_id):
    return derive(KEY_0, "app", bundle_id.encode())[:16]


def _counted(text):
    return struct.pack(">H", len(text.encode())) + text.encode()


def token_data(row):
    return struct.pack(">4sIBBQ", b"MFT2", row["generation"], row["kind"], row["slot"], row["expires"]) + row["purge_id"]


def ref_data(row):
    return struct.pack(">4sIBQ", b"MFI1", row["generation"], row["slot"], row["expires"]) + row["purge_id"]


def job_data(row):
    head = struct.pack(">4sIBBQQ", b"MFJ2", row["generation"], row["kind"], row["slot"], row["deadline"], row["expires"])
    return head + row["job"] + row["purge_id"] + _counted(row["template"])


def code_data(purpose, generation, ms, code_index):
    return struct.pack(">4sIQ", purpose, generation, ms) + code_index


def note_data(generation, expires, label, fields):
    return struct.pack(">4sIQ", b"MFN1", generation, expires) + b"".join(
        struct.pack(">H", len(text)) + text for text in (label.encode(), *fields))


def audience_index(epoch_key, expires, label, *fields):
    return struct.pack(">Q", expires) + derive(epoch_key, label, *fields)[:24]


def unseal(sealed, data, key):
    """The plaintext, or None."""
    try:
        return _open_box(sealed[24:], data, sealed[:24], key)
    except (CryptoError, ValueError, TypeError):
        return None


def destination_of(plaintext):
    """The app and the environment (1: production, 2: sandbox) in a token's or a job's plaintext."""
    return None if plaintext is None else (plaintext[29:45], plaintext[25])


def token_of(plaintext):
    """The token in a token's or a job's plaintext, behind its app; of Web Push both keys and the endpoint. Without padding too, should someone have
    left it out."""
    if plaintext is None:
        return None
    return plaintext[29 if plaintext[24] == WEB_PUSH else 45:29 + int.from_bytes(plaintext[27:29], "big")]


def ref_of(plaintext):
    """The ref in a token's plaintext."""
    return None if plaintext is None else plaintext[8:24]


def ledger_id(ref, label, field):
    """A token's id in the log. `field`: a job, or the end of the expiry's day in seconds."""
    field = field if isinstance(field, bytes) else field.to_bytes(8, "big")
    return derive(ref, f"ledger/{label}", field)[:16]


def untils(expires):
    """The ends of the expiry's day, as the days of these tests go."""
    return [(expires // (1000 * day) + 1) * day for day in DAYS]


def is_row_of(ref, row):
    """Whether a row of `token` or `registration` belongs to a ref (bytes)."""
    return row["purge_id"] in [ledger_id(ref, "purged", until) for until in untils(row["expires"])]


def note_of(plaintext):
    return None if plaintext is None else plaintext[2:2 + int.from_bytes(plaintext[:2], "big")]
