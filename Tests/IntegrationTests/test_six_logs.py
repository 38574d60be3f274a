"""Six logs before a reader who knows nothing of them: what the page and the other verifiers say of each. AUDITOR_PAGE_SHOTS=folder saves pictures."""

import functools
import json
import os
import shutil
import time
from pathlib import Path

import pytest

import logs
from log_fixtures import go  # noqa: F401
from page_fixtures import PAGE, Checked, browser, fits_a_finger, look_up, rewritten, site, unfold, visit  # noqa: F401
from page_opinion import PageOpinion
from processes import eventually, mayfly
from test_log_age import story_of_age
from test_sample import SAMPLE, TWIN
from verifiers import run_python

DAY = 86_400
SIZES = {"phone": {"width": 320, "height": 640}, "desk": {"width": 1280, "height": 800}}
WITNESS = logs.Key("witness.test/w1", bytes(range(1, 33)), 4)


@functools.cache
def recent(count=700):
    """Publications of a running broker: the last entry is some minutes old at most. All callers get the same ones, however the clock goes on."""
    now = int(time.time())
    story = logs.story(count, seed=12, start=now // 300 * 300 - 16_200, seconds=21_000, outages=1)
    return [window for window in story if json.loads(window[0])["at"] <= logs.moment(now)]


def entries_of(publications):
    return [entry for window in publications for entry in window]


def show(site, name, entries, key=None):
    """Replaces what stands at this address. Returns the log."""
    shutil.rmtree(site.folder / name, ignore_errors=True)
    log = logs.make(site.folder / name, [entries], key=key)
    site.add_page(name, log.vkey)
    return log


def old():
    return entries_of(story_of_age(4 * DAY))


# A name: what the reader saw at an earlier visit, what is there now and by whose key, and the words that say what it is.
OTHER = logs.Key(seed=bytes(32))
SIX = {
    "good": (lambda: entries_of(recent())[:300], lambda: entries_of(recent()), None, "good", ["Verified", "What this browser saw first"]),
    "stale": (old, old, None, "good", ["Verified, but stale: 4 d", "the broker has stopped, or you are shown an old copy", "Ask the operator"]),
    "forged": (lambda: entries_of(recent())[:300], lambda: rewritten(entries_of(recent())), None, "bad",
               ["This log was rewritten", "Entries of an earlier checkpoint were changed", "show it to others who watch this log", "Publish this"]),
    "uncompared": (None, lambda: rewritten(entries_of(recent())), None, "consistent",
                   ["Consistent, but not compared", "a log that was rewritten before now looks the same", "Ask somebody who looked at this log before you"]),
    "cut": (lambda: entries_of(recent()), lambda: entries_of(recent())[:300], None, "bad",
            ["This log is shorter than before", "missing at the end", "from another network too", "look again, at the address that its operator names"]),
    "other key": (lambda: entries_of(recent())[:300], lambda: entries_of(recent()), OTHER, "bad",
                  ["Not signed with this key", "The server now names another key", "one of them is wrong, or this is another log"]),
}
COLOUR = "getComputedStyle(document.querySelector('#verdict')).backgroundColor"


def shoot(page, name):
    if "AUDITOR_PAGE_SHOTS" in os.environ:
        page.screenshot(Path(os.environ["AUDITOR_PAGE_SHOTS"]) / f"{name}.png")


def in_view(page, selector):
    return page.value(f"(({{top, bottom}}) => top >= 0 && bottom <= innerHeight)(document.querySelector('{selector}').getBoundingClientRect())")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", SIX)
def test_the_page_says_what_each_log_is(site, browser, kind, size):
    before, now, key, verdict, words = SIX[kind]
    name = f"six-{kind.replace(' ', '-')}"
    if before:
        show(site, name, before())
    else:
        show(site, name, now())
    page, checked = visit(browser, site.url(name), **SIZES[size])
    with page:
        if before:
            assert checked.verdict == "consistent", checked
            show(site, name, now(), key)
            page.go(site.url(name))
            checked = Checked(page)
        shoot(page, f"{kind.replace(' ', '-')}-{size}")
        # What the reader sees first, without a click.
        top = page.text("#verdict")
        assert checked.verdict == verdict and checked.word.startswith(words[0]), checked
        assert all(part in top for part in words), top
        assert in_view(page, "#word") and page.value("document.title").startswith(words[0])
        green = page.value("document.documentElement.dataset.verdict = 'good'; document.documentElement.dataset.but = 'no'; " + COLOUR)
        page.value(f"document.documentElement.dataset.verdict = '{verdict}'; document.documentElement.dataset.but = '{'yes' if kind == 'stale' else 'no'}'")
        assert (page.value(COLOUR) == green) == (kind == "good"), "only the good one is green"
        assert ("not made" in checked.count) == (kind == "uncompared"), checked.count
        unfold(page)
        fits_a_finger(page)


def test_each_headline_is_different():
    heads = [words[0] for *_, words in SIX.values()]
    assert len(set(heads)) == len(SIX)


def test_the_tampered_twin_is_not_verified(site, browser):
    """The sample's forged twin in this repository. Its purge was dated back, and only `kept/2` shows it."""
    for place in ("twin", "report"):
        shutil.rmtree(site.folder / place, ignore_errors=True)
    shutil.copytree(TWIN, site.folder / "twin")
    site.add_page("twin", (SAMPLE / "ledger.vkey").read_text().strip())
    report = site.folder / "report.html"
    assert mayfly("audit", "report", TWIN, "--html", report, "--key", SAMPLE / "ledger.vkey").returncode == 0
    for url in (site.url("twin"), f"file://{report}"):
        page, checked = visit(browser, url)
        with page:
            assert checked.verdict == "consistent" and checked.word.startswith("Consistent, but not compared, and stale: "), checked
            assert checked.count == "7 of 8 passed, 1 not made" and checked.steps["memory"] == "none"
            assert "not made" in page.value("document.querySelector('#step-memory .state').textContent")
            page.value("[...document.querySelectorAll('#advice button')][0].click()")
            assert page.value("document.activeElement.id") == "other" and in_view(page, "#other")


@pytest.mark.parametrize("size", SIZES)
def test_the_verdict_of_a_comparison_comes_into_view(site, browser, size):
    log = show(site, "compare", entries_of(recent()))
    lie = logs.checkpoint(logs.Tree(rewritten(log.entries)), log.key).decode()
    page, checked = visit(browser, site.url("compare"), **SIZES[size])
    with page:
        unfold(page)
        page.value(f"document.getElementById('other').value = {json.dumps(lie)}; document.querySelector('#other-form button').scrollIntoView()")
        if size == "phone":
            assert not in_view(page, "#word")
        page.value("document.documentElement.dataset.verdict = 'checking'; document.querySelector('#other-form button').click()")
        checked = Checked(page)
        assert in_view(page, "#word") and checked.word == "This log was rewritten", checked
        shoot(page, f"compared-{size}")


def test_a_proven_contradiction_is_kept_until_the_reader_removes_it(site, browser):
    log = show(site, "proven", entries_of(recent()))
    now = log.checkpoints[-1].decode()
    lie = logs.checkpoint(logs.Tree(rewritten(log.entries)), log.key).decode()
    page, checked = visit(browser, site.url("proven"))
    with page:
        page.value(f"document.documentElement.dataset.verdict = 'checking'; document.getElementById('other').value = {json.dumps(lie)}")
        page.value("document.querySelector('#other-form button').click()")
        assert Checked(page).verdict == "bad"

        def evidence():
            return page.value("document.getElementById('proof')?.value ?? ''")
        for _ in range(2):
            page.go(site.url("proven"))
            checked = Checked(page)
            assert checked.word == "This log was rewritten" and "At 20" in checked.reason, checked
            assert lie in evidence() and now in evidence() and log.vkey in evidence()
        # Nor does it go when the log can't be read.
        site.server.answers["/proven/tile/entries/000"] = (500, b"")
        page.go(site.url("proven"))
        checked = Checked(page)
        assert checked.word == "This log was rewritten" and lie in evidence(), checked
        del site.server.answers["/proven/tile/entries/000"]
        # In another tab, too.
        with browser.open(site.url("proven"), storage=page.context) as tab:
            assert Checked(tab).word == "This log was rewritten"
        page.value("document.documentElement.dataset.verdict = 'checking'; [...document.querySelectorAll('#evidence button')].at(-1).click()")
        checked = Checked(page)
        assert checked.verdict == "good" and evidence() == "" and page.value("document.activeElement.id") == "verdict-title", checked
        page.go(site.url("proven"))
        assert Checked(page).verdict == "good" and evidence() == ""


def saved(page, folder, selector):
    """The file that a click on Download saves: name and content."""
    page.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder), browserContextId=page.context, eventsEnabled=True)
    page.value(f"[...document.querySelectorAll('{selector} button')].find((button) => button.innerText.startsWith('Download')).click()")
    [path] = eventually(lambda: [path for path in folder.iterdir() if not path.name.endswith(".crdownload")], 15, what="the file")
    content = eventually(path.read_bytes, what="its content")
    path.unlink()
    return path.name, content


@pytest.mark.parametrize("where", ["server", "file"])
def test_proofs_and_checkpoints_can_be_saved(site, browser, tmp_path, where):
    """The sample's purge: what the page saves is what `audit prove` writes."""
    shutil.rmtree(site.folder / "saved", ignore_errors=True)
    shutil.copytree(SAMPLE, site.folder / "saved")
    site.add_page("saved", (SAMPLE / "ledger.vkey").read_text().strip())
    report, files = tmp_path / "report.html", tmp_path / "files"
    files.mkdir()
    assert mayfly("audit", "report", SAMPLE, "--html", report).returncode == 0
    page, _ = visit(browser, site.url("saved") if where == "server" else f"file://{report}")
    with page:
        page.browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"], browserContextId=page.context)
        assert saved(page, files, "#advice") == ("checkpoint-84", (SAMPLE / "checkpoint").read_bytes())
        look_up(page, (SAMPLE / "purge.ref").read_text().strip())
        unfold(page)
        name, proof = saved(page, files, "#life")
        assert name == f"{index_of(proof, tmp_path / 'proof')}.tlog-proof"
        page.value("[...document.querySelectorAll('#life button')].find((button) => button.innerText === 'Copy').click()")
        page.wait("/copied/.test(document.getElementById('life').innerText)")
        if where == "server":
            assert page.value("navigator.clipboard.readText()").encode() == proof
        assert saved(page, files, "#kept") == ("checkpoint-84", (SAMPLE / "checkpoint").read_bytes())
        kept = (SAMPLE / "kept/3").read_text()
        page.value(f"document.documentElement.dataset.verdict = 'checking'; document.getElementById('other').value = {json.dumps(kept)}")
        page.value("document.querySelector('#other-form button').click()")
        assert Checked(page).verdict == "good"
        assert page.complaints == []


def index_of(proof, path):
    """What `audit verify --proof` says of these bytes."""
    path.write_bytes(proof)
    done = mayfly("audit", "verify", "--proof", path, "--key", SAMPLE / "ledger.vkey", "--ref", (SAMPLE / "purge.ref").read_text().strip(), "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)["index"]


WORDS = """import('/words/page/vocabulary.js').then(({ outcomeWords, reasons }) =>
    Object.fromEntries(reasons.map((reason) => [reason, [0, 400].map((status) => outcomeWords(reason, status))])))"""


def test_a_push_that_never_left_is_not_called_refused(site, browser):
    show(site, "words", entries_of(recent()))
    page, _ = visit(browser, site.url("words"))
    with page:
        words = page.value(WORDS)
        assert words["unsent"][0].startswith("never sent") and words["BadDeviceToken"][1] == "the push service refused it: BadDeviceToken (400)"
        for reason, (silent, answered) in words.items():
            assert "no answer" not in silent and "refused" not in silent and "fail" not in silent, silent
            assert "never sent" not in answered and "(400)" in answered or reason == "unreachable", answered
        unfold(page)
        outcomes = page.text("#outcomes")
        assert "never sent" in outcomes and "no answer)" not in outcomes, outcomes


def test_long_tables_scroll_in_a_box(site, browser):
    """A timeline of a day: no list is longer than some screens of a phone, and each is reached by the keyboard."""
    show(site, "long-tables", entries_of(logs.story(4_000, seed=2, seconds=80_000, outages=3)))
    page, checked = visit(browser, site.url("long-tables"), **SIZES["phone"])
    with page:
        unfold(page)
        tables = page.value("[...document.querySelectorAll('.wide')].map((box) => [box.querySelectorAll('tbody tr').length, box.getBoundingClientRect().height, box.tabIndex])")
        assert max(rows for rows, *_ in tables) > 60, tables
        assert all(height < 1600 for _, height, _ in tables) and all(tab == 0 for rows, _, tab in tables if rows > 8), tables
        assert page.value("document.documentElement.scrollHeight") < 12_000
        fits_a_finger(page)


# All verifiers say the same of a log that nothing earlier was compared with.


@pytest.fixture(scope="module")
def compared(site):
    """A log with heads to compare with: its folder, itself, and paths of heads."""
    place = site.folder / "compared"
    shutil.rmtree(place, ignore_errors=True)
    log = logs.make(place, recent(), witnesses=(WITNESS,), time=int(time.time()))
    site.add_page("compared", log.vkey)
    empty = logs.checkpoint(logs.Tree(), log.key)
    heads = {}
    for name, note in (("kept", log.checkpoints[2]), ("empty", empty), ("present", log.checkpoints[-1])):
        heads[name] = site.folder / f"{name}.head"
        heads[name].write_bytes(note)
    for name, text in (("witness", f"witness w {WITNESS.vkey}\nquorum w\n"), ("nobody", f"witness w {WITNESS.vkey}\nquorum none\n")):
        heads[name] = site.folder / f"{name}.policy"
        heads[name].write_text(text)
    return place, log, heads


CASES = {"nothing": ([], "consistent"), "kept": (["kept"], "good"), "empty": (["empty"], "consistent"), "both": (["empty", "kept"], "good"),
         "present": (["present"], "good")}


@pytest.mark.parametrize("case", CASES)
def test_all_verifiers_say_whether_a_log_was_compared(compared, go, case):  # noqa: F811
    place, log, heads = compared
    names, wanted = CASES[case]
    since = [heads[name] for name in names]
    words = [part for path in since for part in ("--since", path)]
    for done in (mayfly("audit", "verify", place, "--key", log.vkey, *words), run_python(place, "--key", log.vkey, *words)):
        assert done.returncode == 0 and done.stdout.startswith({"good": "good: ", "consistent": "consistent, not compared: "}[wanted]), done
        # Who reads only the exit status still hears of it.
        assert ("not compared with anything earlier" in done.stderr) == (wanted == "consistent") and len(done.stdout.splitlines()) == 1, done
    told = json.loads(mayfly("audit", "verify", place, "--key", log.vkey, "--json", *words).stdout)
    assert (told["verdict"], told["good"]) == (wanted, True), told
    go("verify", place, log.vkey, *since)
    assert go.word == wanted


@pytest.mark.parametrize("policy, wanted", [("witness", "good"), ("nobody", "consistent")])
def test_witnesses_count_as_a_comparison(compared, policy, wanted):
    place, log, heads = compared
    for done in (mayfly("audit", "verify", place, "--key", log.vkey, "--policy", heads[policy]),
                 run_python(place, "--key", log.vkey, "--policy", heads[policy])):
        assert done.returncode == 0 and done.stdout.startswith(wanted), done


def test_the_page_counts_the_same_comparisons(compared, site, browser):
    place, log, heads = compared
    shutil.copy(PAGE / "index.html", site.folder)
    shutil.copytree(PAGE / "page", site.folder / "page", dirs_exist_ok=True)
    with browser.open(f"{site.server.url}/index.html", listens=False) as page:
        opinion = PageOpinion(page, site.server.url)
        for kept, witnesses, wanted in ((None, (), False), (heads["kept"].read_text(), (), True), (heads["empty"].read_text(), (), False),
                                        (None, (WITNESS.vkey,), True)):
            code, said = opinion("compared", log.vkey, kept, witnesses=witnesses)
            found = said["compared"]
            assert code is None and (found["kept"] or found["witnesses"] > 0) == wanted, (kept, said)


def test_watch_says_that_its_first_run_compares_nothing(compared, tmp_path):
    place, log, heads = compared
    for number, (more, words) in enumerate([((), ["consistent, not compared: ", "good: "]), (("--mirror", place), ["good: "]),
                                            (("--policy", heads["witness"]), ["good: "])]):
        for word in words:
            done = mayfly("audit", "watch", place, "--key", log.vkey, "--state", tmp_path / str(number), "--max-age", DAY, *more)
            assert done.returncode == 0 and done.stdout.startswith(word) and done.stderr == "", done
