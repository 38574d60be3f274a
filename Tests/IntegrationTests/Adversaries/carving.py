"""Recovers rows from a SQLite file, its write-ahead log, journals and backups, by SQL and by carving.

Carving knows the schema and SQLite's record format, not its pages: a record's header is found wherever it stands, in live pages, free
ones, gaps between cells, or frames of the log. A freed cell loses its first four bytes to SQLite; those are the record's length, its
header's, and the first column's type, so the search begins at the second column's.
"""

import re
import sqlite3
import tempfile
from pathlib import Path


def _blob(size):
    return [_varint(12 + 2 * size)]


def _varint(number):
    return bytes([number]) if number < 128 else bytes([0x80 | number >> 7, number & 0x7F])


_TIME, _NULL, _ZERO, _SMALL = [b"\x05"], [b"\x00"], [b"\x08"], [b"\x08", b"\x09", b"\x01", b"\x02", b"\x03"]
_NUMBER = _SMALL + [b"\x04", b"\x05"]
_TEXT = [_varint(13 + 2 * length) for length in range(1, 120)]
_HASH, _REF, _ANY = _blob(32), _blob(16), [_varint(12 + 2 * length) for length in (*range(33, 260), 648)]
_SEALED = {56: _blob(56), 72: _blob(72), 104: _blob(104)}
# Notes, in blocks.
_NOTE = {block: [kind for count in range(1, 6) for kind in _blob(40 + block * count)] for block in (64, 128, 256, 320)}

# Columns in the order in which they are stored: of a table without rowid the primary key's first.
TABLES = {
    "room": {
        "expires": _TIME, "room": _HASH, "creator_generation": _SMALL, "creator_client": _HASH, "creator_member": _HASH,
        "creator_proven": _SMALL, "creator_token": _NULL + _REF, "creator_knocked": _ZERO + _TIME,
        "joiner_generation": _NULL + _SMALL, "joiner_client": _NULL + _HASH, "joiner_member": _NULL + _HASH,
        "joiner_proven": _NULL + _SMALL, "joiner_token": _NULL + _REF, "joiner_knocked": _NULL + _ZERO + _TIME,
        "due": _NULL + _TIME, "code": _NULL + _HASH, "code_expires": _NULL + _TIME, "code_generation": _NULL + _SMALL,
        "short": _NULL + _SMALL, "pending": _NULL + _SEALED[72], "creator": _NULL + _SEALED[72], "retry": _NULL + _SEALED[104],
        "retry_until": _NULL + _TIME},
    "code": {"code": _HASH, "expires": _TIME, "room": _HASH},
    "token": {
        "expires": _TIME, "purge_id": _REF, "ref": _SEALED[56], "is_long": _SMALL, "room": _HASH, "slot": _SMALL, "kind": _SMALL,
        "generation": _SMALL, "sealed": _ANY},
    "job": {
        "deadline": _TIME, "job": _REF, "not_before": _ZERO + _TIME, "purge_id": _REF, "room": _HASH + _blob(0), "slot": _SMALL,
        "kind": _SMALL, "template": _TEXT, "generation": _SMALL, "expires": _TIME, "sealed": _ANY,
        "fields": _NULL + _NOTE[64], "is_last": _SMALL},
    "registration": {
        "expires": _TIME, "purge_id": _REF, "ref": _SEALED[56], "is_long": _SMALL, "id": _REF, "audience": _HASH, "owner": _HASH,
        "device": _HASH, "session": _NULL + _HASH, "kind": _SMALL, "generation": _SMALL, "sealed": _ANY, "preferences": _NUMBER,
        "details": _NOTE[64] + _NOTE[320], "opens": _ZERO + _TIME, "stamp": _NUMBER, "waiting": _NULL + _NOTE[256]},
    "session": {
        "session": _HASH, "generation": _SMALL, "started": _TIME, "version": _SMALL, "client": _NULL + _HASH,
        "registration": _NULL + _REF, "reached": _SMALL},
    "timer": {
        "expires": _TIME, "id": _REF, "due": _TIME, "generation": _SMALL, "answer": _SMALL, "sealed": _NOTE[128],
        "user_name": _NULL + _HASH, "creator_name": _NULL + _HASH},
}


def _pattern(columns):
    kinds = list(columns.values())[1:]
    return re.compile(b"".join(b"(" + b"|".join(map(re.escape, kind)) + b")" for kind in kinds), re.DOTALL)


_PATTERNS = {name: _pattern(columns) for name, columns in TABLES.items()}


def _value(kind, data, at):
    serial = kind[0] if len(kind) == 1 else (kind[0] & 0x7F) << 7 | kind[1]
    if serial in (0, 8, 9):
        return {0: None, 8: 0, 9: 1}[serial], at
    if serial < 8:
        size = (0, 1, 2, 3, 4, 6, 8)[serial]
        return int.from_bytes(data[at:at + size], "big", signed=True), at + size
    size = (serial - 12) // 2
    content = data[at:at + size]
    if len(content) < size:
        raise ValueError
    return (content.decode() if serial % 2 else bytes(content)), at + size


def carve(data):
    """{table: rows} of everything in `data` that looks like a record of Mayfly's schema."""
    found = {name: [] for name in TABLES}
    for name, columns in TABLES.items():
        first, *rest = columns
        for match in _PATTERNS[name].finditer(data):
            try:
                # The first column's type is known without its header: a time, or an index.
                value, at = _value(columns[first][0], data, match.end())
                row = {first: value}
                for column, kind in zip(rest, match.groups()):
                    row[column], at = _value(kind, data, at)
            except ValueError:
                continue
            # A half-overwritten record may still look like one.
            if all(not isinstance(value, int) or 0 <= value < 1 << 44 for value in row.values()) and _begins(row, first):
                found[name].append(row)
    return found


def _begins(row, first):
    """Whether its key is a time of these years, or an index, which begins with one. A code's row has a room's key."""
    if first == "code":
        return row["room"][:8] == row["expires"].to_bytes(8, "big") and row["expires"] >> 40 == 1
    value = row[first]
    return (int.from_bytes(value[:8], "big") if isinstance(value, bytes) else value) >> 40 == 1


def select(files, queries=None):
    """{table: rows} as SQL shows them; `files`: {name: bytes} of a database and its log. Or the answers to other queries."""
    queries = queries or {name: f"SELECT * FROM {name}" for name in TABLES}
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        connection = sqlite3.connect(Path(folder) / "mayfly.sqlite")
        connection.row_factory = sqlite3.Row
        try:
            return {name: [dict(row) for row in connection.execute(query)] for name, query in queries.items()}
        finally:
            connection.close()


def everything(files):
    """{table: rows} of all that these files hold, each row once: live and carved."""
    sources = [carve(content) for content in files.values()]
    if files:
        sources.append(select(files))
    rows = {name: {} for name in TABLES}
    for source in sources:
        for name, found in source.items():
            for row in found:
                rows[name].setdefault(tuple(row[column] for column in TABLES[name]), row)
    return {name: list(found.values()) for name, found in rows.items()}


# A shorter run of bytes can be there by chance.
PIECE = 16


def cells(rows):
    """The blobs in {table: rows} but purge ids, which wait for the log when the row is gone."""
    return {value for found in rows.values() for row in found for name, value in row.items()
            if isinstance(value, bytes) and name not in ("purge_id", "creator_token", "joiner_token")}


def pieces(values):
    return {value[at:at + PIECE] for value in values for at in range(0, len(value) - PIECE + 1, PIECE)}


def remnants(database, earlier):
    """Pieces in this database's files of cells that earlier ones showed and that no row holds now."""
    gone = pieces(set().union(*(cells(select(files)) for files in earlier))) - pieces(cells(select(database)))
    return {(name, piece) for name, content in database.items() if not name.endswith("-shm") for piece in gone if piece in content}
