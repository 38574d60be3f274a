"""Reads the runs of waiting entries in a SQLite file. Shares nothing with the broker."""

from collections import defaultdict
from dataclasses import dataclass

PAGE, ENTRY = 4032, 21
SEALED, PURGED = 3, 4
NEWEST = (1 << 20) - 1024


@dataclass(frozen=True, order=True)
class Run:
    batch: int
    rank: int
    number: int

    @property
    def is_newest(self):
        return self.number >= NEWEST


def _hash(start, *words):
    for word in words:
        start = (start ^ word) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        start ^= start >> 29
    return start


def _checksum(place, pages, entries):
    hashes = (_hash(0, *(int.from_bytes(part, "big") for part in (entry[:8], entry[8:16], entry[16:]))) for entry in entries)
    total = _hash(sum(hashes) & 0xFFFFFFFFFFFFFFFF, place, pages << 32 | len(entries))
    return total - (1 << 64) if total >> 63 else total


def runs(database):
    """{Run: its entries' ids in hexadecimal, in order}, without empty ones. Fails if a page is damaged, or missing in a batch that is not in the log."""
    found = defaultdict(list)
    rows = database.execute("SELECT place, count, pages, checksum, bytes FROM waiting ORDER BY place").fetchall()
    positions = defaultdict(list)
    for place, count, pages, checksum, content in rows:
        run, page = Run(place >> 35, SEALED + (place >> 34 & 1), place >> 14 & (1 << 20) - 1), place & (1 << 14) - 1
        entries = [content[start:start + ENTRY] for start in range(0, count * ENTRY, ENTRY)]
        assert len(content) == PAGE and not any(content[count * ENTRY:]), f"page {page} of {run}"
        assert _checksum(place, pages, entries) == checksum, f"page {page} of {run}"
        positions[run].append((page, pages))
        found[run] += [entry[:16].hex() for entry in entries]
    for run, ids in found.items():
        assert ids == sorted(ids) and len(set(ids)) == len(ids), run
        first, pages = positions[run][0]
        if not run.is_newest:
            assert positions[run] == [(page, pages) for page in range(first, pages)], run
    for number, ranks in database.execute("SELECT number, ranks FROM batch WHERE rank IS NULL"):
        for rank in (SEALED, PURGED):
            parts = {run: pages for run, pages in positions.items() if (run.batch, run.rank) == (number, rank)}
            newest = [pages[0][1] for run, pages in parts.items() if run.is_newest]
            assert newest == ([sum(map(len, parts.values()))] if ranks >> (rank - SEALED) & 1 else []), (number, rank)
    return {run: ids for run, ids in found.items() if ids}
