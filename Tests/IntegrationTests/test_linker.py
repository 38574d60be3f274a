"""audit/linker.py: the aims of the log's format with fixed seeds, and its attack on small logs whose truth is known."""

import json
import re
import subprocess
import sys
from datetime import datetime, timezone

import pytest

from processes import REPOSITORY

pytestmark = pytest.mark.campaign

AUDIT = REPOSITORY / "audit"
MIDNIGHT = 1_795_046_400  # 2026-11-19 00:00 UTC
LIVES = "3600:0.5,86400:0.5"


def linker(*arguments, code=0):
    done = subprocess.run([sys.executable, AUDIT / "linker.py", *map(str, arguments)], capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def tables(text):
    """Each table as {first cell: [numbers of the others]}; a dash is None."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.strip().split("\n")[2:]]
        found.append({row[0]: [None if cell == "–" else float(cell.replace(",", "")) for cell in row[1:]] for row in rows})
    return found


@pytest.fixture(scope="module")
def measured():
    return tables(linker("--rooms", 100, 1_000, "--runs", 1, "--phones", 400))


# Promise: ledger-pairs-no-seals
def test_the_log_alone_pairs_few_seals(measured):
    for row in measured[0].values():
        seals, at_night, limit = row[:3]
        assert seals <= 5 and at_night <= 6 and seals <= limit + 1e-9


def test_no_attack_passes_its_limit(measured):
    for row in measured[0].values():
        assert row[0] <= row[2] and row[5] <= row[7] and row[8] <= row[10]


def test_the_attacker_pairs_seals_published_alone(measured):
    """Both of a room."""
    one_by_one = measured[0]["1,000"][3]
    assert one_by_one >= 13 and measured[0]["100"][3] > one_by_one


def test_the_attacker_pairs_seals_of_slow_joiners():
    table = tables(linker("--rooms", 1_000, "--runs", 1, "--batch", 1, "--accept", "600:1"))[0]
    assert table["1,000"][0] >= 13


# Promise: ledger-adds-little-to-apple
def test_the_log_adds_little_to_apples_records(measured):
    for row in measured[1].values():
        sealed, with_log, better, _, purged, with_log_too, better_too = row[:7]
        assert sealed > 20 and purged > 20, "the attacker learns hardly anything from Apple's records"
        assert better <= 2 and better_too <= 2


def test_daily_batches_stop_a_flooder():
    """A flood of one's own rooms helps the attacker against hourly batches."""
    flooded = tables(linker("--rooms", 100, "--runs", 1, "--phones", 1, "--flooder"))[0]["100"]
    daily = tables(linker("--rooms", 100, "--runs", 1, "--phones", 1, "--flooder", "--hour", 86_400))[0]["100"]
    assert flooded[0] > 10 and daily[0] <= 5


def test_the_same_seed_gives_the_same_table():
    arguments = "--rooms", 10, "--runs", 2
    assert linker(*arguments) == linker(*arguments)


def test_the_page_shows_the_programs_output():
    page = (AUDIT / "what-it-gives-away.md").read_text()
    printed = [line for line in linker("--rooms", 10).splitlines() if line.startswith("|")]
    assert len(printed) == 6
    for line in printed:
        assert line in page.splitlines(), line


# Small logs.


class SmallLog:
    """A folder with entries, as far as the linker reads it. Nothing is signed."""

    def __init__(self, folder):
        self.folder, self.entries = folder, []
        (folder / "policies").mkdir(parents=True)
        (folder / "policies" / f"{'0' * 64}.json").write_text('{"ledger": {"hourSeconds": 3600, "daySeconds": 86400, "batchSeals": 1}}')
        self.add(0, "broker.started", binary="1" * 64, node="a", policy="0" * 64, resolution=60, version="1")

    def add(self, after, op, **more):
        text = {name: time_text(value) if name == "until" else value for name, value in more.items()}
        self.entries.append({"at": time_text(after), "op": op} | text)

    def write(self):
        lines = [json.dumps(entry, sort_keys=True, separators=(",", ":")).encode() for entry in self.entries]
        tile = self.folder / f"tile/entries/000.p/{len(lines)}"
        tile.parent.mkdir(parents=True)
        tile.write_bytes(b"".join(len(line).to_bytes(2, "big") + line for line in lines))
        (self.folder / "checkpoint").write_text(f"origin\n{len(lines)}\nroot\n")
        return self.folder


def time_text(after):
    return datetime.fromtimestamp(MIDNIGHT + after, timezone.utc).isoformat().replace("+00:00", "Z")


def name(number):
    return f"{number:032x}"


@pytest.fixture
def quiet(tmp_path):
    """Two rooms of an hour, hours apart: 1 and 2, 3 and 4. Their purges are 11 to 14. Then 40 seals that look alike."""
    log, day = SmallLog(tmp_path / "log"), 86_400
    for moment, seals, purges in ((3_600, (1, 2), ()), (7_200, (), (11, 12)), (36_000, (3, 4), ()), (39_600, (), (13, 14)),
                                  (50_400, range(100, 140), ())):
        for number in seals:
            log.add(moment, "token.sealed", id=name(number), until=day)
        for number in purges:
            log.add(moment, "token.purged", cause="expired", id=name(number), until=day)
    return log.write()


def test_it_pairs_seals_published_alone(quiet):
    header, *lines = linker("--ledger", quiet, "--lives", "3600:1").splitlines()
    assert header.split() == ["sealed", "as", "same", "room", "as", "chance", "purged", "as", "chance"]
    said = {cells[0]: cells[1:] for cells in map(str.split, lines)}
    assert len(said) == 44
    for one, other in ((1, 2), (3, 4)):
        assert said[name(one)][0] == name(other) and said[name(other)][0] == name(one)
    assert all(said[name(number)][2] in (name(11), name(12)) for number in (1, 2))
    assert all(said[name(number)][2] in (name(13), name(14)) for number in (3, 4))


def test_it_reports_low_chances_for_guesses(quiet):
    said = {cells[0]: cells[1:] for cells in map(str.split, linker("--ledger", quiet, "--lives", "3600:1").splitlines()[1:])}
    assert float(said[name(1)][1].rstrip("%")) > 40
    assert all(float(said[name(number)][1].rstrip("%")) < 100 / 39 for number in range(100, 140))


def test_it_dates_the_seal_of_a_pushed_phone(quiet, tmp_path):
    records = tmp_path / "pushes.json"
    records.write_text(json.dumps([{"token": "ab" * 32, "headers": {"apns-collapse-id": "handle"}, "at": time_text(34_200)}]))
    _, times = linker("--ledger", quiet, "--pushes", records, "--lives", LIVES).split("\n\n")
    phone, handle, sealed, chance, alone, *_ = times.splitlines()[1].split()
    assert (phone, handle) == ("abababab…", "handle")
    assert time_text(30_600) <= sealed <= time_text(34_200), "an hour that holds the half before the push"
    assert float(chance.rstrip("%")) > float(alone.rstrip("%"))


def test_it_reads_the_sample():
    """A line for each seal, then one for each pushed phone and handle."""
    seals, times = linker("--ledger", AUDIT / "sample", "--pushes", AUDIT / "sample/pushes.json", "--lives", LIVES).split("\n\n")
    pushes = json.loads((AUDIT / "sample/pushes.json").read_text())
    assert len(times.splitlines()) == 1 + len({(push["token"], push["headers"]["apns-collapse-id"]) for push in pushes})
    assert all(re.fullmatch(r"[0-9a-f]{32}", line.split()[0]) for line in seals.splitlines()[1:])


def test_it_needs_a_log_with_pushes():
    assert "needs --ledger" in linker("--pushes", "x", code=2)


def test_it_reports_an_empty_log(tmp_path):
    assert "no sealed token" in linker("--ledger", SmallLog(tmp_path / "log").write(), code=1)
