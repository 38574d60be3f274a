"""The thief's tools find what is there. Otherwise a search without finds would prove nothing."""

import json
import sqlite3

import pytest

import carving
import opening
import table
from processes import REPOSITORY

pytestmark = pytest.mark.campaign

KINDS = {"alert": 1, "voip": 2, "liveactivity": 3}
ENVIRONMENTS = {"production": 1, "sandbox": 2}


class Vector:
    """A published seal, as a row of the database, and its content."""

    def __init__(self, case):
        self.name, self.sealed = case["op"].removeprefix("seal_"), bytes.fromhex(case["output"])
        self.row = {name: case.get(name) for name in ("generation", "deadline", "slot", "template")}
        self.row |= {name: bytes.fromhex(case[name]) for name in ("ref", "purge", "job", "room", "code", "member", "token", "note") if name in case}
        self.row |= {name: case[name].encode() for name in ("joinid", "client", "audience") if name in case}
        self.row |= {"kind": KINDS.get(case.get("kind")), "expires": case.get("expiry")}
        self.destination = opening.app_id(case.get("app", "")), ENVIRONMENTS.get(case.get("environment"))
        self.row["purge_id"] = self.row.get("purge")
        self.label, self.fields = case.get("label"), [bytes.fromhex(field) for field in case.get("fields", [])]
        self.time = case.get("until") or case.get("deadline") or case["expiry"]

    def opened(self, keys):
        """What the thief's functions open, and what they should open."""
        row, name = self.row, self.name
        if name in ("token", "audience_token", "job"):
            data = opening.job_data(row) if name == "job" else opening.token_data(row)
            fields = {"token": lambda: (bytes([row["slot"]]), row["room"]), "audience_token": lambda: (row["audience"],),
                      "job": lambda: (row["job"],)}[name]()
            wanted = row["token"]
        elif name in ("ref", "audience_ref"):
            data, wanted = opening.ref_data(row | {"slot": row["slot"] or 0}), row["ref"]
            fields = bytes([row["slot"] or 0]), row["room" if name == "ref" else "audience"]
        elif name == "note":
            data = opening.note_data(row["generation"], self.time, self.label, self.fields)
            fields, wanted = self.fields, row["note"]
        else:
            purpose, wanted = {"pending": (b"MFP1", ("room",)), "creator": (b"MFC1", ("member",)), "retry": (b"MFR1", ("room", "member"))}[name]
            data = opening.code_data(purpose, row["generation"], self.time, row["code"])
            fields = (row["joinid"], row["client"]) if name != "pending" else (row["joinid"],)
            wanted = b"".join(row[part] for part in wanted)
        key = opening.derive(keys.epoch_key(row["generation"], self.time), self.label or {"audience_ref": "ref"}.get(name, name.removesuffix("_token")), *fields)
        plaintext = opening.unseal(self.sealed, data, key)
        if name in ("token", "audience_token", "job"):
            if name != "job":
                assert opening.ref_of(plaintext) == row["ref"]
            assert opening.destination_of(plaintext) == self.destination
            plaintext = opening.token_of(plaintext)
        elif name == "note":
            plaintext = opening.note_of(plaintext)
        return plaintext, wanted


def test_the_thief_opens_the_published_vectors():
    """One of each kind of row."""
    vectors = json.loads((REPOSITORY / "Tests/Vectors/sealing.json").read_text())
    keys, opened = opening.Keys(bytes.fromhex(vectors["file"])), set()
    for case in vectors["cases"]:
        if case["op"].startswith("seal_"):
            vector = Vector(case)
            found, wanted = vector.opened(keys)
            assert found == wanted, f"{case['op']} does not open"
            opened.add(vector.name)
    assert opened == {"token", "audience_token", "ref", "audience_ref", "job", "note", "pending", "creator", "retry"}
    table.record(
        table.AUDIENCES, "the published vectors",
        "each audience's token", "every audience's token until it expires: the broker alone can open these")


def test_the_thief_derives_the_logs_ids():
    vectors = json.loads((REPOSITORY / "Tests/Vectors/sealing.json").read_text())
    cases = [case for case in vectors["cases"] if case["op"] == "ledger_ids"]
    for case in cases:
        ref, until = bytes.fromhex(case["ref"]), case["until"] // 1000
        made = [opening.ledger_id(ref, "sealed", until), opening.ledger_id(ref, "opened", bytes.fromhex(case["job"])),
                opening.ledger_id(ref, "purged", until)]
        assert [name.hex() for name in made] == case["output"]
    assert cases


def test_carving_finds_deleted_rows(tmp_path):
    """Without secure_delete: of two rows one is deleted. SQL shows one, carving finds both."""
    database = sqlite3.connect(tmp_path / "mayfly.sqlite", isolation_level=None)
    database.executescript("PRAGMA secure_delete = OFF; PRAGMA journal_mode = WAL;")
    columns = ", ".join(carving.TABLES["token"])
    database.execute(f"CREATE TABLE token ({columns}, PRIMARY KEY (expires, purge_id)) WITHOUT ROWID")
    for number in (1, 2):
        row = (1_795_349_000_000 + number, bytes([number]) * 16, bytes(56), 0, bytes(32), 1, 1, 1, bytes([number]) * 200)
        database.execute(f"INSERT INTO token ({columns}) VALUES (?,?,?,?,?,?,?,?,?)", row)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.execute("DELETE FROM token WHERE purge_id = ?", (bytes([1]) * 16,))
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    found = carving.carve((tmp_path / "mayfly.sqlite").read_bytes())["token"]
    assert sorted(row["sealed"][0] for row in found) == [1, 2]
