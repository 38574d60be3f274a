"""Figures with their spread, and the page they are printed on."""

import textwrap
from dataclasses import dataclass, field
from statistics import median


def number(value):
    """Three digits that mean something."""
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
        """The ratio within each round, so that a drift of the machine falls out."""
        return Series(mine / theirs for mine, theirs in zip(self.values, other.values, strict=True))

    def __str__(self):
        if len(self.values) == 1:
            return number(self.values[0])
        return f"{number(self.median)} ({number(min(self.values))}-{number(max(self.values))})"


@dataclass
class Aim:
    """An aim and what came of it. `at_most`: whether less is better; `unit`: what the aim is told in."""

    figure: str
    aim: float
    measured: Series
    at_most: bool = False
    unit: str = ""

    def row(self):
        middle = self.measured.median
        reached = middle <= self.aim if self.at_most else middle >= self.aim
        far = middle / self.aim
        unit = f" {self.unit}" if self.unit else ""
        aim = f"{'≤' if self.at_most else '≥'} {number(self.aim)}{unit}"
        return [self.figure, aim, f"{self.measured}{unit}", "reached" if reached else f"**missed**: {far:.3f} of the aim"]


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


@dataclass
class Section:
    title: str
    parts: list = field(default_factory=list)
    aims: list = field(default_factory=list)

    def text(self, words):
        """A paragraph or a list, filled to the width of the other documents."""
        lines = [line.strip() for line in words.strip().splitlines()]
        blocks = [[]]
        for line in lines:
            if not line or line.startswith("- "):
                blocks.append([])
            if line or not blocks[-1]:
                blocks[-1].append(line)
        filled = (textwrap.fill(" ".join(block).strip(), 168, break_long_words=False, break_on_hyphens=False) for block in blocks if block)
        self.parts.append("\n".join(filled).strip())

    def disturbance(self, shares):
        """How quiet the machine was; `shares`: of each measured run, what others took of the two cores."""
        middle, most = median(shares), max(shares)
        told = f"Other programs took {middle:.0%} of the two cores in the median run, {most:.0%} in the worst."
        if middle > 0.05:
            told += " **The machine was not quiet: rates, and ratios of rates, say little; CPU times say more.**"
        self.text(told)

    def table(self, head, rows):
        self.parts.append(table(head, rows))


HEAD = """
# Benchmarks
Printed by `make bench`, text and all: change `Benchmarks/`, not this page. Nothing here is a test, and no test depends on a time.

Each figure is the median of {rounds} rounds of {seconds} seconds, with the lowest and the highest in brackets. What is compared runs on the same machine in
the same minutes, in turn (A B A B ...), and ratios are taken within a round, so that a drift of the machine falls out of them. Absolute
figures say as much about the machine as about the program.
"""

PROFILE = """
## Where the time goes
`perf record -g --pid PID -- sleep 5`, then `perf report --no-children`, on whichever process the load is on; a release build keeps its function names. The
servers of a run can be started by hand: `mayfly-bench engine --help`, `Benchmarks/processes.py`.
"""


def page(sections, facts, rounds, seconds, thrown_out):
    parts = [HEAD.format(rounds=rounds, seconds=seconds)]
    if thrown_out:
        parts.append(f"Thrown out and made again: {len(thrown_out)}. " + " ".join(f"{reason}." for reason in sorted(set(thrown_out))))
    parts.append("## The machine\n" + table(["", ""], facts))
    aims = [aim.row() for section in sections for aim in section.aims]
    parts.append("## Against the aims\n" + table(["figure", "aim", "measured", ""], aims))
    for section in sections:
        first, *rest = section.parts
        parts += [f"## {section.title}\n{first}", *rest]
    parts.append(PROFILE)
    return "\n\n".join(part.strip() for part in parts) + "\n"
