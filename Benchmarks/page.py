"""Figures with their spread, and the page they are printed on."""

import re
import textwrap
from dataclasses import dataclass, field
from statistics import median


def percentile(times, share):
    """The smallest time that this share of all times is below; the largest for a share of 1."""
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * share))]


def number(value):
    """The number with three significant digits, or ∞."""
    if value == float("inf"):
        return "∞"
    if value >= 1000:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


class Series:
    """The same figure from each round: median, lowest and highest."""

    def __init__(self, values=()):
        self.values = list(values)

    def add(self, value):
        self.values.append(value)

    @property
    def median(self):
        return median(self.values)

    def over(self, other):
        """The ratio within each round, which cancels a drift of the machine."""
        return Series(mine / theirs for mine, theirs in zip(self.values, other.values, strict=True))

    def __str__(self):
        if len(self.values) == 1:
            return number(self.values[0])
        return f"{number(self.median)} ({number(min(self.values))}-{number(max(self.values))})"


@dataclass
class Aim:
    """An aim and its measurement. `at_most`: whether less is better. `unit`: that of both."""

    figure: str
    aim: float
    measured: Series
    at_most: bool = False
    unit: str = ""

    def row(self):
        middle = self.measured.median
        reached = middle <= self.aim if self.at_most else middle >= self.aim
        unit = f" {self.unit}" if self.unit else ""
        # Rounded, a miss may look like the aim.
        shown = f"{middle:.4g}" if not reached and number(middle) == number(self.aim) else self.measured
        aim = f"{'≤' if self.at_most else '≥'} {number(self.aim)}{unit}"
        return [self.figure, aim, f"{shown}{unit}", "yes" if reached else "**no**"]


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("|" + "|".join(map(str, line)) + "|" for line in lines)


@dataclass
class Section:
    title: str
    parts: list = field(default_factory=list)
    aims: list = field(default_factory=list)
    busy: float = 0

    def stamp(self, taken):
        """When and where it was measured, if that is not said above, and whether the machine was quiet."""
        when = f"Taken {taken}." if taken else ""
        noise = f"**Not quiet:** others took {self.busy:.0%} of both cores. CPU times say more than rates." if self.busy > 0.05 else ""
        return f"{when} {noise}".strip()

    def text(self, words):
        """A paragraph or a list, filled to the width of the other documents."""
        lines = [line.strip() for line in words.strip().splitlines()]
        blocks = [[]]
        for line in lines:
            if not line or line.startswith("- "):
                blocks.append([])
            if line or not blocks[-1]:
                blocks[-1].append(line)
        filled = (textwrap.fill(" ".join(block).strip(), 160, break_long_words=False, break_on_hyphens=False) for block in blocks if block)
        self.parts.append("\n".join(filled).strip())

    def disturbance(self, shares):
        """`shares`: the part of the two cores that other programs used in each run."""
        self.busy = max(self.busy, median(shares))

    def table(self, head, rows):
        self.parts.append(table(head, rows))


HEAD = """
# Benchmarks
`make bench` measured all but the sections on ten million tokens and on Web Push in {minutes:.0f} minutes, and wrote this page. Change `Benchmarks/`, not
the page.

It takes these variables:

- `ONLY=pairs` prints one part: `engine`, `pairs`, `nodes`, `ledger`, `courier`, `companion`, `monitor`, `calls`, `sweep`, `shares` or `idle`.
- `ONLY=large` measures ten million tokens and replaces their section. It needs 20 GB of disk.
- `ONLY=webpush` measures Web Push and replaces its section.
- `AGAINST=folder`, with `ONLY=pairs`, `ONLY=sweep` or `ONLY=webpush`, also measures the `mayfly` and `mayfly-bench` in that folder.
- `ROUNDS=1 SECONDS=1` only shows that each part works.

`Benchmarks/instructions.py` counts the instructions of single operations. A difference of 3 % from `Benchmarks/instructions.json` fails `make check`.

A figure is the median of {rounds} rounds of {seconds} seconds, with the lowest and the highest in brackets. Compared programs run in turn, and ratios (÷)
are taken within a round. CPU is the server's, user and kernel, and memory its RSS. Rates depend on the machine: compare ratios.

Taken {taken}.
"""

PROFILE = """
## Where the time goes
Profiled on 2026-11-27. `main` takes 56 % of a pair's CPU: 23 % of that in the kernel (`send` alone 13 %), 18 % in libsodium, 14 % in `malloc` with the wiping
of what is freed. `store-writer` takes most of the rest, half of it in the kernel: `pwrite` and `fdatasync` are 12.5 % of a pair.

```sh
perf record -g --pid PID -- sleep 5 && perf report --no-children
```
"""


def page(sections, facts, taken, asked, thrown_out, spent):
    """`spent`: the seconds that it took."""
    parts = [HEAD.format(rounds=asked.rounds, seconds=asked.seconds, minutes=spent / 60, taken=taken)]
    if thrown_out:
        parts.append(f"Thrown out and made again: {len(thrown_out)}. " + " ".join(f"{reason}." for reason in sorted(set(thrown_out))))
    parts.append("## The machine\n" + table(["", ""], facts))
    aims = [aim.row() for section in sections for aim in section.aims]
    parts.append("## Against the aims\n" + table(["figure", "aim", "measured", "reached"], aims))
    for section in sections:
        # A part that is measured alone may become a section of an older page.
        parts += [f"## {section.title}\n{section.stamp(taken if asked.only else '')}", *section.parts]
    parts.append(PROFILE)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def of_section(text, title):
    """The page's section of this title, or '' if it has none."""
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", text, re.M | re.S)
    return found[0].strip() if found else ""


def replacing(text, section):
    """The page with this section in the place of its own of the same title, or before the last one."""
    if not section:
        return text
    old = of_section(text, section.splitlines()[0].removeprefix("## "))
    if old:
        return text.replace(old, section)
    start, mark, end = text.rpartition("\n## ")
    return f"{start}\n{section}\n{mark}{end}"
