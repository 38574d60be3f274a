"""A table of each adversary's attempts, what they recovered and what the design allows. Printed at the end of a run."""

import textwrap
from contextlib import contextmanager

# As docs/threat-model.md has them.
DATABASE = "database, WAL and backups"
ACCEPTED = "the same and the key file, room accepted"
WAITING = "the same and the key file, code still valid"
AUDIENCES = "the same and the key file, audiences"
MEMBER_WITH_DISK = "one member with database and key file"
AFTER_EXPIRY = "anything taken 10 minutes after a token's expiry"
EARLIER_KEYS = "an earlier copy of the key file, with database"
PROCESS = "the running process"
APPLE = "Apple"
LEDGER = "the ledger"
LEDGER_AND_APPLE = "the ledger together with Apple's records"
STRANGER = "a stranger"
MEMBER = "one member"
OPERATOR = "the operator who edits the ledger"
OUTPUT = "logs, metrics, errors, temporary files, swap"
ADVERSARIES = (
    DATABASE, ACCEPTED, WAITING, AUDIENCES, MEMBER_WITH_DISK, AFTER_EXPIRY, EARLIER_KEYS, PROCESS, APPLE, LEDGER, LEDGER_AND_APPLE, STRANGER,
    MEMBER, OPERATOR, OUTPUT)

COLUMNS = (("adversary", 30), ("tried", 40), ("recovered", 44), ("the design allows", 44))
_rows = {}


def record(adversary, tried, recovered, allowed):
    """Adds a row, or replaces that of the same adversary and attempt."""
    _rows[adversary, tried] = (recovered, allowed)


def rows():
    """The rows, as arguments of `record`."""
    return [(adversary, tried, recovered, allowed) for (adversary, tried), (recovered, allowed) in _rows.items()]


@contextmanager
def aside():
    """Drops the rows recorded inside, for tests with a protection switched off."""
    before = dict(_rows)
    try:
        yield
    finally:
        _rows.clear()
        _rows.update(before)


def lines():
    """The table as lines of text; none if it has no rows."""
    if not _rows:
        return
    yield "  ".join(name.ljust(width) for name, width in COLUMNS).rstrip()
    yield "  ".join("-" * width for _, width in COLUMNS)
    before = None
    for (adversary, tried), (recovered, allowed) in sorted(_rows.items(), key=_place):
        cells = ("" if adversary == before else adversary, tried, recovered, allowed)
        before = adversary
        wrapped = [textwrap.wrap(cell, width) or [""] for cell, (_, width) in zip(cells, COLUMNS)]
        for number in range(max(map(len, wrapped))):
            row = (cell[number] if number < len(cell) else "" for cell in wrapped)
            yield "  ".join(text.ljust(width) for text, (_, width) in zip(row, COLUMNS)).rstrip()


def _place(row):
    """Groups rows by adversary."""
    adversaries = [*ADVERSARIES, *dict.fromkeys(adversary for adversary, _ in _rows if adversary not in ADVERSARIES)]
    return adversaries.index(row[0][0])
