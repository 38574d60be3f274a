"""A good but old log: every verifier prints the age of its last entry, and fails it if it is older than the auditor allows."""

import json
import re
import shutil
import time
from datetime import datetime

import pytest

import ledger
import logs
from log_fixtures import SEED, folder, signed  # noqa: F401
from page_fixtures import Checked, browser, site, visit  # noqa: F401
from processes import eventually, mayfly
from verifiers import run_python

DAY = 86_400


def last_at(publications):
    return datetime.fromisoformat(json.loads(publications[-1][-1])["at"].replace("Z", "+00:00")).timestamp()


def of_age(seconds, story):
    """An honest story whose last entry is so old, by up to an hour more: by whole days of its policy."""
    return story(logs.START + int((time.time() - seconds - last_at(story(logs.START))) // 3600) * 3600)


def story_of_age(seconds):
    return of_age(seconds, lambda start: logs.story(40, SEED, start=start))


def closed_story(start):
    simulation = logs.simulate(40, SEED, start=start)
    simulation.plan(simulation.now, "rotate", logs.ORIGIN, "log.test/next")
    while not simulation.ended:
        simulation.run(simulation.size + 1)
    return simulation.ended[0]


@pytest.fixture
def old(folder):
    """(folder, key, age in seconds) of a log that is three days old."""
    place, story = folder / "old", story_of_age(3 * DAY)
    shutil.rmtree(place, ignore_errors=True)
    return place, logs.make(place, story).vkey, time.time() - last_at(story)


def swift(place, vkey, *more):
    return mayfly("audit", "verify", place, "--key", vkey, *more)


def python(place, vkey, *more):
    return run_python(place, "--key", vkey, *more)


def test_the_age_is_printed_beside_the_verdict(old):
    place, vkey, age = old
    done = swift(place, vkey)
    assert done.returncode == 0 and re.search(r"; last entry 3 d( \d+ (h|min|s))? old$", done.stdout.strip()), done
    told = json.loads(swift(place, vkey, "--json").stdout)
    assert told["good"] and abs(told["age"] - age) < 10
    done = python(place, vkey)
    [seconds] = re.findall(r", (\d+) seconds since the last entry[,;]", done.stdout)
    assert done.returncode == 0 and abs(int(seconds) - age) < 10


@pytest.mark.parametrize("verify", [swift, python])
def test_a_log_older_than_allowed_fails(old, verify):
    place, vkey, age = old
    assert verify(place, vkey, "--max-age", int(age) + 60).returncode == 0
    for limit in (1, 900, int(age) - 60):
        done = verify(place, vkey, "--max-age", limit)
        assert done.returncode == 1 and "good" not in done.stdout, done
        assert done.stderr.startswith("bad: ") and ("last entry 3 d" in done.stderr or "seconds since the last entry" in done.stderr), done
    if verify is swift:
        told = json.loads(verify(place, vkey, "--max-age", 900, "--json").stdout)
        assert (told["good"], told["code"]) == (False, "stale") and "3 d" in told["detail"] and "15 min" in told["detail"]
    else:
        assert done.stderr.startswith("bad: stale: ")


@pytest.mark.parametrize("verify", [swift, python])
def test_damage_is_reported_before_age(old, verify):
    """A stale log that is damaged, too, is damaged."""
    place, vkey, _ = old
    tile = next(path for path in place.rglob("tile/0/*.p/*"))
    tile.write_bytes(bytes(32) + tile.read_bytes()[32:])
    done = verify(place, vkey, "--max-age", 900)
    assert done.returncode == 1 and "stale" not in done.stderr and "last entry" not in done.stderr, done


@pytest.mark.parametrize("verify", [swift, python])
def test_future_dates_do_not_count_as_fresh(folder, verify):
    place = folder / "future"
    shutil.rmtree(place, ignore_errors=True)
    vkey = logs.make(place, story_of_age(-DAY)).vkey
    done = verify(place, vkey)
    assert done.returncode == 0 and ("ahead of this clock" in done.stdout or ", -" in done.stdout), done
    assert verify(place, vkey, "--max-age", 900).returncode == 1
    assert verify(place, vkey, "--max-age", 2 * DAY).returncode == 0


def test_an_empty_log(folder):
    place, vkey = signed(folder, [])
    done = swift(place, vkey)
    assert done.returncode == 0 and done.stdout.strip().endswith("; no entry yet"), done
    assert json.loads(swift(place, vkey, "--json").stdout)["age"] is None
    assert "since the last entry" not in python(place, vkey).stdout
    for verify in (swift, python):
        assert verify(place, vkey, "--max-age", 900).returncode == 1


def test_bad_use(old):
    place, vkey, _ = old
    for value in ("0", "-1", "15m", "", "1.5", 1 << 64):
        assert swift(place, vkey, "--max-age", value).returncode == 2, value
    assert python(place, vkey, "--max-age", "15m").returncode == 2
    for words in (["show", place], ["prove", place, "0"], ["verify", "--proof", place / "checkpoint"]):
        done = mayfly("audit", *words, "--key", vkey, "--max-age", "900")
        assert done.returncode == 2 and "--max-age" in done.stderr, done


def test_a_running_broker_is_fresh(world, browser):
    client = world.client()
    client.room()
    eventually(lambda: ledger.read(world.state).counts()["token.sealed"] == 2, what="the seals in the log")
    for verify in (swift, python):
        done = verify(world.state / "ledger", world.state.vkey, "--max-age", 60)
        assert done.returncode == 0, done
    page, checked = visit(browser, f"{world.broker.url}/audit")
    with page:
        assert checked.word == "Consistent, but not compared" and re.search(r"UTC \(\d+ s ago\)", checked.reason), checked
        assert "the broker has stopped" not in checked.reason


@pytest.mark.campaign
def test_the_page_warns_of_an_old_log(site, browser):
    site.make("old", story_of_age(3 * DAY))
    page, checked = visit(browser, site.url("old"))
    with page:
        assert re.fullmatch(r"Consistent, but not compared, and stale: 3 d( \d+ (h|min|s))? old", checked.word), checked
        assert re.search(r"UTC \(3 d.* ago\)", checked.reason) and "the broker has stopped, or you are shown an old copy" in checked.reason
        assert "stale: 3 d" in page.value("document.title") and "Ask the operator" in checked.advice
        page.go(site.url("old"))
        checked = Checked(page)
        assert re.fullmatch(r"Verified, but stale: 3 d( \d+ (h|min|s))? old", checked.word), checked
        assert page.value("document.documentElement.dataset.but") == "yes", "not all green"


@pytest.mark.campaign
def test_the_page_warns_of_a_log_from_the_future(site, browser):
    site.make("future", story_of_age(-DAY))
    page, checked = visit(browser, site.url("future"))
    with page:
        assert re.search(r"UTC \(.* ahead of this machine's clock\)", checked.reason), checked
        assert "dated 23 h" in checked.word or "dated 1 d" in checked.word, checked


@pytest.mark.campaign
def test_the_page_ignores_the_age_of_a_closed_log(site, browser):
    """No broker writes it any more."""
    site.make("closed", of_age(3 * DAY, closed_story))
    page, checked = visit(browser, site.url("closed"))
    with page:
        assert checked.word == "Consistent, but not compared" and "log.test/next continues it" in checked.reason, checked
