"""What each adversary tried, what came of it and what the design allows: collected by the tests, printed at the end of a run."""

import textwrap

COLUMNS = (("adversary", 30), ("tried", 40), ("recovered", 44), ("the design allows", 44))
_rows = {}


def record(adversary, tried, recovered, allowed):
    """One row; of the same adversary and the same attempt the last one stands. Rows are printed in the order in which they first came."""
    _rows[adversary, tried] = (recovered, allowed)


def rows():
    """What was recorded, as `record` takes it."""
    return [(adversary, tried, recovered, allowed) for (adversary, tried), (recovered, allowed) in _rows.items()]


def lines():
    """The table as text, or nothing if nobody tried anything."""
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
    """An adversary's rows stand together, where its first one came."""
    adversaries = list(dict.fromkeys(adversary for adversary, _ in _rows))
    return adversaries.index(row[0][0])
