"""The auditor's page as one file, on any server of files, and with a log of a million entries."""

import json
import os
import random
import time

import pytest

import logs
from processes import REPOSITORY, mayfly
from file_server import FileServer
from page_fixtures import Checked, browser, change, flipped, look_up, rewritten, site, visit, whole_story  # noqa: F401

# One file


def test_a_report_is_one_file(site, browser, tmp_path):
    simulation = logs.simulate(1200, seed=1)
    log = site.make("report", logs.cut(simulation, 1200))
    token, story = whole_story(simulation, log.entries)
    place, file = site.folder / "report", tmp_path / "report.html"
    done = mayfly("audit", "report", place, "--html", file, "--key", log.vkey)
    assert done.returncode == 0 and str(file) in done.stdout, done.stderr
    page, checked = visit(browser, f"file://{file}")
    with page:
        assert checked.verdict == "consistent" and "with this file" in checked.basis, checked
        assert "was read at" in page.text("#about")
        assert all(url.startswith(("file://", "data:", "blob:")) for url in page.requests) and page.complaints == []
        assert page.value("isSecureContext") is True
        assert look_up(page, token.ref).count("opened for one push") == len(story) - 2
        # An older file is no rewritten log.
        older, begun = tmp_path / "older.html", log.entries[:900]
        logs.make(tmp_path / "older", [begun])
        assert mayfly("audit", "report", tmp_path / "older", "--html", older, "--key", log.vkey).returncode == 0
        page.go(f"file://{older}")
        checked = Checked(page)
        assert checked.verdict == "consistent" and "this file is older" in checked.said["memory"], checked
        logs.make(tmp_path / "other", [rewritten(log.entries) + log.entries[-1:]])
        assert mayfly("audit", "report", tmp_path / "other", "--html", older, "--key", log.vkey).returncode == 0
        page.go(f"file://{older}")
        checked = Checked(page)
        assert checked.verdict == "bad" and "rewritten" in checked.findings, checked
    # The same over HTTP, with the served key. A bad log is put into a file unchanged.
    change(place, "tile/entries/002", lambda old: flipped(old, 5000))
    done = mayfly("audit", "report", site.url("report"), "--html", file)
    assert done.returncode == 0, done.stderr
    page, checked = visit(browser, f"file://{file}")
    with page:
        assert checked.verdict == "bad" and checked.bad_steps == ["entries"] and "tree" in checked.findings, checked
        assert page.complaints == []
    # Without a key it asks for one.
    (place / "ledger.vkey").unlink()
    done = mayfly("audit", "report", place, "--html", file)
    assert done.returncode == 0 and "ask for the key" in done.stdout
    page, checked = visit(browser, f"file://{file}")
    page.close()
    assert checked.verdict == "unsure"


@pytest.mark.campaign
def test_impossible_reports_are_refused(site, tmp_path):
    log = site.make("large", 300)
    place, file = site.folder / "large", tmp_path / "report.html"
    (place / "checkpoint").write_bytes(logs.note(logs.head(4_000_000, bytes(32)), log.key))
    done = mayfly("audit", "report", place, "--html", file)
    assert done.returncode == 1 and "64 MiB" in done.stderr and "audit page" in done.stderr and not file.exists(), done.stderr
    (place / "checkpoint").write_bytes(logs.note(logs.head(1_500_000, bytes(32)), log.key))
    for number in range(5):
        (place / logs.tile_path("entries", number)).write_bytes(bytes(15_000_000))
    done = mayfly("audit", "report", place, "--html", file)
    assert done.returncode == 1 and "64 MiB" in done.stderr and not file.exists(), done.stderr
    (place / "checkpoint").write_bytes(b"hello")
    done = mayfly("audit", "report", place, "--html", file)
    assert done.returncode == 1 and "no readable checkpoint" in done.stderr
    for words in (("report", place), ("report", "--html", file), ("page",), ("page", place, "--html", file),
                  ("report", place, "--html", file, "--key", "nonsense")):
        assert mayfly("audit", *words).returncode == 2, words


# Any server of files, and a log of any length


def plain_story(count):
    """Publications of `count` entries in all: tokens that are sealed, opened once and purged within an hour of the policy."""
    chance, start, left, hour, day = random.Random(5), logs.START, count, 600, 3600
    policy, waiting, sealed = logs.POLICY_NAME, [], {}
    while left > 0:
        at = logs.moment(start)
        entries = [f'{{"at":"{at}","binary":"{"b1" * 32}","node":"node-1","op":"broker.started","policy":"{policy}","resolution":60,"version":"0.2.0"}}',
                   f'{{"at":"{at}","name":"rooms","op":"policy.loaded","policy":"{policy}"}}'] if left == count else []
        if start % 300 == 0 and start > logs.START:
            entries.append(f'{{"at":"{at}","epoch":{start // 300 - 2},"op":"keys.ratcheted","swept":{start // 300}}}')
        due, waiting = (waiting, []) if start % hour == 0 else ([], waiting)
        until = start - start % day + day
        new = [chance.randbytes(16) for _ in range(2000)]
        waiting += [(ref, until) for ref in new]
        jobs = {logs.token_id(ref.hex(), "opened", ref[::-1].hex()): ref[::-1].hex() for ref in new}
        entries += [f'{{"at":"{at}","id":"{opened}","job":"{jobs[opened]}","op":"token.opened","template":"peer_waiting"}}' for opened in sorted(jobs)]
        entries += [f'{{"at":"{at}","job":"{job}","op":"push.delivered","status":200}}' for job in sorted(jobs.values())]
        entries += [f'{{"at":"{at}","id":"{name}","op":"token.sealed","until":"{logs.moment(end)}"}}'
                    for name, end in sorted((logs.token_id(ref.hex(), "sealed", end), end) for ref, end in due)]
        entries += [f'{{"at":"{at}","cause":"ended","id":"{name}","op":"token.purged"}}'
                    for name in sorted(logs.token_id(ref.hex(), "purged", end) for ref, end in due)]
        for _, end in due:
            sealed[end] = sealed.get(end, 0) + 1
        if start % day == 0 and start > logs.START:
            number = sealed.pop(start)
            entries.append(f'{{"at":"{at}","ended":{number},"expired":0,"op":"bucket.closed","sealed":{number},"until":"{at}"}}')
        yield [entry.encode() for entry in entries[:left]]
        left -= len(entries)
        start += 60


@pytest.fixture(scope="module")
def million():
    """A million entries on nginx, with the page that the command line wrote."""
    with FileServer() as server:
        log = logs.make(server.files / "audit", plain_story(1_000_000), partials=False)
        done = mayfly("audit", "page", server.files / "audit", "--key", log.vkey)
        assert done.returncode == 0, done.stderr
        yield server, log


@pytest.mark.campaign
def test_the_page_checks_a_million_entries(million, browser):
    server, log = million
    page = browser.open(f"{server.url}/audit/", listens=False)
    with page:
        start = time.monotonic()
        # Quick answers come first.
        page.wait("document.querySelector('#step-memory .state.none') !== null", 10)
        assert page.value("document.documentElement.dataset.verdict") == "checking"
        checked = Checked(page, 200)
        took = time.monotonic() - start
        assert checked.verdict == "consistent" and checked.reason.startswith("1\u202f000\u202f000 entries"), checked
        print(f"a million entries in {took:.1f} s")
        start = time.monotonic()
        assert "It was destroyed" in look_up(page, random.Random(5).randbytes(16).hex())
        print(f"found in {time.monotonic() - start:.1f} s")
        assert page.value("document.querySelectorAll('#life tbody tr').length") == 3
        assert page.complaints == []


@pytest.mark.campaign
def test_the_page_finds_one_bit_among_a_million_entries(million, browser):
    server, log = million
    index = random.randrange(250_000, 500_000)
    path = server.files / "audit" / logs.tile_path("entries", index // 256)
    old = path.read_bytes()
    path.write_bytes(flipped(old, random.randrange(len(old)), random.randrange(8)))
    try:
        page = browser.open(f"{server.url}/audit/", listens=False)
        with page:
            checked = Checked(page, 200)
        assert checked.verdict == "bad" and checked.bad_steps == ["entries"], checked
        assert ("tree" in checked.findings or "damaged" in checked.findings) and path.name in checked.findings, checked
    finally:
        path.write_bytes(old)


@pytest.mark.campaign
def test_the_picture_in_the_documents(site, browser):
    """AUDITOR_PAGE_PICTURE=docs/auditors-page.png renews it. It shows a second visit to a log that has grown."""
    now = int(time.time())
    publications = [window for window in logs.story(9_000, seed=12, start=now // 300 * 300 - 16_200, seconds=21_000, outages=2)
                    if json.loads(window[0])["at"] <= logs.moment(now)]
    site.make("picture", publications[:len(publications) // 2])
    page, checked = visit(browser, site.url("picture"), height=1040)
    with page:
        assert checked.verdict == "consistent", checked
        site.make("picture", publications)
        page.go(site.url("picture"))
        checked = Checked(page)
        assert checked.verdict == "good" and "of your last visit" in checked.said["memory"] and "old" not in checked.reason, checked
        if "AUDITOR_PAGE_PICTURE" in os.environ:
            page.screenshot(REPOSITORY / os.environ["AUDITOR_PAGE_PICTURE"])
    assert (REPOSITORY / "docs/auditors-page.png").stat().st_size < 200_000
