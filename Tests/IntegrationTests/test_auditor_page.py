"""The auditor's page in a real browser: it verifies what is right, turns red on what is not, and says so to everyone."""

import json
import os
import random
import shutil
import time
from pathlib import Path

import pytest

import logs
from browser import Browser
from log_server import LogServer
from processes import REPOSITORY, eventually, mayfly
from file_server import FileServer, roomy_folder

PAGE = REPOSITORY / "Sources/AuditPage"
STEPS = ("signature", "edge", "memory", "entries", "lives", "retention", "policies")
WORDS = {"good": "Verified", "bad": "This log is wrong", "unsure": "Not verified"}


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


class Site:
    """A server of logs, each with the page beside it."""

    def __init__(self, folder):
        self.folder, self.server = folder, LogServer(folder)

    def url(self, name):
        return f"{self.server.url}/{name}/"

    def add_page(self, name, vkey):
        place = self.folder / name
        place.mkdir(exist_ok=True)
        shutil.copy(PAGE / "index.html", place)
        shutil.copytree(PAGE / "page", place / "page", dirs_exist_ok=True)
        (place / "ledger.vkey").write_text(f"{vkey}\n")

    def make(self, name, entries, **more):
        """A log of these publications or this many entries; whatever stood there before has gone."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        publications = logs.story(entries, seed=1, **more) if isinstance(entries, int) else entries
        log = logs.make(self.folder / name, publications)
        self.add_page(name, log.vkey)
        return log


@pytest.fixture(scope="module")
def site():
    folder = roomy_folder("mayfly-page-")
    site = Site(folder)
    yield site
    site.server.close()
    shutil.rmtree(folder, ignore_errors=True)


class Checked:
    """A page after its check has ended."""

    def __init__(self, page, seconds=30):
        page.wait("document.documentElement.dataset.verdict !== 'checking' && !document.getElementById('again').hidden", seconds)
        self.verdict = page.value("document.documentElement.dataset.verdict")
        self.word, self.reason, self.findings = page.text("#word"), page.text("#reason"), page.text("#findings")
        self.steps = {step: page.value(f"document.querySelector('#step-{step} .state').className.split(' ')[1]") for step in STEPS}
        self.said = {step: page.value(f"document.querySelector('#step-{step} .quiet').innerText") for step in STEPS}
        assert self.word == WORDS[self.verdict]
        # Green is said of nothing less than everything.
        assert (self.verdict == "good") == all(
            state == "good" or (step, state) == ("memory", "none") for step, state in self.steps.items()), self

    def __repr__(self):
        return f"{self.verdict}: {self.reason} {self.steps}"

    @property
    def bad_steps(self):
        return [step for step in STEPS if self.steps[step] == "bad"]


def visit(browser, url, **more):
    page = browser.open(url, **more)
    return page, Checked(page)


def hosts(page):
    return {url.split("/")[2] for url in page.requests if not url.startswith(("data:", "blob:"))}


# A broker's own page


def test_the_page_of_a_broker(world, browser):
    client = world.client()
    rooms = [client.room() for _ in range(3)]
    client.presence(rooms[0].roomid, rooms[0].joiner.client).expect(202)
    client.delete(rooms[1].roomid).expect(200)
    eventually(lambda: len(world.simulator.pushes()) == 1, what="the push")
    purged, live = rooms[1].creator.ref, rooms[0].joiner.ref
    shown = ("audit", "show", f"{world.broker.url}/audit/", "--key", world.state.vkey)
    eventually(lambda: mayfly(*shown).stdout.count('"token.purged"') == 2, what="the purges in the log")
    page, checked = visit(browser, f"{world.broker.url}/audit")
    with page:
        assert checked.verdict == "good", checked
        assert "from the server" in checked.reason
        assert page.value("location.pathname") == "/audit/"
        assert checked.steps["memory"] == "none" and "first visit" in checked.said["memory"]
        # Any reference's life, by the keyboard; nothing of it leaves the page.
        page.requests.clear()
        for ref, words in ((purged, ("taken in and sealed", "destroyed: room_closed")), (live, ("not been destroyed",)),
                           ("0" * 32, ("no entry",)), ("zz", ("32 hexadecimal digits",))):
            page.value("document.getElementById('ref').select()")
            page.value("document.getElementById('ref').focus()")
            page.type(ref)
            page.press("Enter")
            for part in words:
                page.wait(f"document.getElementById('life').innerText.includes({json.dumps(part)})")
        assert page.requests == [] and page.value("location.href") == f"{world.broker.url}/audit/"
        # The log grows; the next visit proves that it only grew.
        before = (world.state / "ledger/checkpoint").read_bytes()
        client.room()
        eventually(lambda: (world.state / "ledger/checkpoint").read_bytes() != before, what="another checkpoint")
        page.requests.clear()
        page.go(f"{world.broker.url}/audit/index.html")
        again = Checked(page)
        assert again.steps["memory"] == again.verdict == "good" and "of your last visit are the first of these" in again.said["memory"], again
        assert f"{world.broker.url}/audit/checkpoint" in page.requests
        assert hosts(page) == {f"127.0.0.1:{world.broker.port}"}
        assert page.complaints == []


def test_what_the_broker_says_of_the_page(client):
    answer = client.send("GET", "/audit").expect(308)
    assert answer.headers["location"] == "audit/"
    page = client.send("GET", "/audit/").expect(200)
    assert page.body == (PAGE / "index.html").read_bytes() == client.send("GET", "/audit/index.html").expect(200).body
    for path, kind in (("", "text/html"), ("page/start.js", "text/javascript"), ("page/style.css", "text/css"),
                       ("ledger.vkey", "text/plain")):
        answer = client.send("GET", f"/audit/{path}").expect(200)
        assert answer.headers["content-type"].split(";")[0] == kind
        assert answer.headers["cache-control"] == "no-cache" and answer.headers["x-content-type-options"] == "nosniff"
        head = client.send("HEAD", f"/audit/{path}", checked=False).expect(200)
        assert head.body == b"" and head.headers["content-length"] == str(len(answer.body))
        if path != "ledger.vkey":
            policy = answer.headers["content-security-policy"].split("; ")
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
            assert not any("unsafe" in part or "*" in part or "http" in part for part in policy), policy
            assert answer.headers["referrer-policy"] == "no-referrer"
    eventually(lambda: client.send("GET", "/audit/checkpoint").status == 200, what="a checkpoint")
    assert client.send("GET", "/audit/checkpoint").headers["cache-control"] == "no-cache"
    for path in ("page", "page/", "page/none.js", "page/../checkpoint", "style.css", "page/start.js/", "/index.html"):
        client.send("GET", f"/audit/{path}").expect(404, "not_found")
    client.send("POST", "/audit/", b"").expect(405)


# Logs that are wrong


def flipped(content, place, bit=0):
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1:]


def change(place, path, how):
    file = place / path
    file.write_bytes(how(file.read_bytes()))


def late_purge(publications):
    """The last purge of a token whose time was up comes seven minutes later, and the log's end with it."""
    ref, end = "f" * 32, logs.START + 7
    while end % 300 or end < logs.START + 3000:
        end += 1
    window = lambda text: text.encode()
    entries = [entry for publication in publications for entry in publication]
    until = next(json.loads(entry)["at"] for entry in entries if json.loads(entry)["at"] >= logs.moment(end))
    last = json.loads(entries[-1])["at"]
    first = json.loads(entries[0])["at"]
    sealed = window(f'{{"at":"{first}","kind":"alert","op":"token.sealed","ref":"{ref}","until":"{until}"}}')
    purged = window(f'{{"at":"{last}","cause":"expired","op":"token.purged","ref":"{ref}"}}')
    return [[entries[0], sealed, *entries[1:], purged]]


DAMAGES = {
    "an entry": (lambda place: change(place, "tile/entries/001", lambda old: flipped(old, 9000)), "tree", "entries"),
    "a hash": (lambda place: change(place, "tile/0/001", lambda old: flipped(old, 4000)), "tree", "entries"),
    "a tile above": (lambda place: change(place, "tile/1/000.p/2", lambda old: flipped(old, 40)), "tree", "edge"),
    "the signature": (lambda place: change(place, "checkpoint", lambda old: old[:-9] + b"A" + old[-8:]), "signature", "signature"),
    "the head": (lambda place: change(place, "checkpoint", lambda old: old.replace(b"\n600\n", b"\n599\n")), "signature", "signature"),
    "no tile": (lambda place: (place / "tile/0/001").unlink(), "missing", "entries"),
    "no entries": (lambda place: (place / "tile/entries/002.p/88").unlink(), "missing", "entries"),
    "a short bundle": (lambda place: change(place, "tile/entries/000", lambda old: old[:-1]), "damaged", "entries"),
    "another policy": (lambda place: change(place, f"policies/{logs.POLICY_NAME}.json", lambda old: old + b" "), "damaged", "policies"),
    "a gibibyte": (lambda place: os.truncate(place / "tile/0/000", 1 << 30), "damaged", "entries"),
    "a gibibyte of entries": (lambda place: os.truncate(place / "tile/entries/000", 1 << 30), "damaged", "entries"),
}


def test_damage_turns_the_page_red(site, browser):
    site.make("damaged", 600)
    page, checked = visit(browser, site.url("damaged"))
    with page:
        assert checked.verdict == "good", checked
        for what, (damage, code, step) in DAMAGES.items():
            site.make("damaged", 600)
            damage(site.folder / "damaged")
            page.go(site.url("damaged"))
            checked = Checked(page)
            assert checked.verdict == "bad" and checked.bad_steps == [step], f"{what}: {checked}"
            assert checked.reason.startswith(code) and code in checked.findings, f"{what}: {checked}"
        # A browser tells the console of each file that is not there, and that is all it may tell.
        assert all("404" in line for line in page.complaints) and hosts(page) == {site.server.url.split("/")[2]}


def test_a_late_purge_turns_the_page_red(site, browser):
    log = site.make("late", late_purge(logs.story(300, seed=1, outages=0)))
    page, checked = visit(browser, site.url("late"))
    with page:
        assert checked.verdict == "bad" and checked.bad_steps == ["retention"], checked
        assert "purged_late" in checked.findings and "f" * 32 in checked.findings
        assert f"entry {len(log.entries) - 1}" in checked.findings.replace("\u202f", "")
        # From the finding to the token's whole life is one key.
        page.value("document.querySelector('#findings button').focus()")
        page.press("Enter")
        page.wait("document.getElementById('life').innerText.includes('after its end')")
        assert "too late" in page.text("#slowest")


# What the browser kept


def rewritten(entries):
    """One kind of token instead of another, long ago."""
    place = next(place for place, entry in enumerate(entries) if b'"kind":"alert"' in entry)
    return entries[:place] + [entries[place].replace(b'"alert"', b'"voip"')] + entries[place + 1:]


@pytest.mark.parametrize("what", ["rewritten", "cut back", "forked"])
def test_a_visitor_is_a_witness(site, browser, what):
    log = site.make("kept", 700)
    url, entries = site.url("kept"), log.entries
    page, checked = visit(browser, url)
    with page:
        assert checked.verdict == "good", checked
        first = log.checkpoints[-1].decode()
        assert first in page.value("document.querySelector('#kept pre').textContent")
        # What is shown next is signed by the same key and right in itself: another visitor sees nothing wrong.
        other = {"rewritten": rewritten(entries) + logs.story(40, seed=9)[-1][-1:], "cut back": entries[:500],
                 "forked": rewritten(entries)}[what]
        second = site.make("kept", [other]).checkpoints[-1].decode()
        stranger, seen = visit(browser, url)
        stranger.close()
        if what != "rewritten":
            assert seen.verdict == "good", seen
        for _ in range(2):  # It does not forget because it was told something else.
            page.go(url)
            checked = Checked(page)
            assert checked.verdict == "bad" and "memory" in checked.bad_steps, checked
            assert "rewritten" in checked.findings
            assert ("cut back" in checked.said["memory"]) == (what == "cut back"), checked
            evidence = page.value("document.getElementById('proof').value")
            assert first in evidence and second in evidence and log.vkey in evidence
        # The old log again: all is well, and the visitor may also forget.
        site.make("kept", [entries])
        page.go(url)
        assert Checked(page).verdict == "good"
        site.make("kept", [other])
        page.value("document.getElementById('forget').click()")
        page.go(url)
        assert Checked(page).verdict == seen.verdict
        assert page.complaints == []


def test_the_sample_and_its_twin(site, browser):
    """A real log, and the same after its operator dated a purge back and signed everything anew (audit/README.md)."""
    def show(name):
        shutil.rmtree(site.folder / "sample", ignore_errors=True)
        shutil.copytree(REPOSITORY / "audit" / name, site.folder / "sample")
        site.add_page("sample", (REPOSITORY / "audit/sample/ledger.vkey").read_text().strip())

    show("sample-tampered")
    page, checked = visit(browser, site.url("sample"))
    with page:
        assert checked.verdict == "good", "a rewritten log is right in itself"
        kept = (REPOSITORY / "audit/sample/kept/2").read_text()
        page.value(f"document.getElementById('other').value = {json.dumps(kept)}; document.querySelector('#other-form button').click()")
        checked = Checked(page)
        assert checked.verdict == "bad" and "rewritten" in checked.findings, checked
    show("sample")
    page, checked = visit(browser, site.url("sample"))
    with page:
        assert checked.verdict == "good", checked
        show("sample-tampered")
        page.go(site.url("sample"))
        checked = Checked(page)
        assert checked.verdict == "bad" and checked.bad_steps == ["memory"] and "rewritten" in checked.findings, checked


def test_a_server_that_names_another_key(site, browser):
    log = site.make("key", 100)
    page, checked = visit(browser, site.url("key"))
    with page:
        assert checked.verdict == "good", checked
        other = logs.Key(seed=bytes(32))
        shutil.rmtree(site.folder / "key")
        logs.make(site.folder / "key", [log.entries], key=other)
        site.add_page("key", other.vkey)
        page.go(site.url("key"))
        checked = Checked(page)
        assert checked.verdict == "bad" and "signature" in checked.findings and "names another key" in checked.reason, checked
        assert other.vkey in page.text("#key-from")
        page.value("document.getElementById('server-key').click()")
        page.wait("document.documentElement.dataset.verdict === 'good'")


def test_keys_and_heads_that_the_visitor_brings(site, browser):
    witness, stranger = logs.Key("witness.test/w1", bytes(range(1, 33)), 4), logs.Key("witness.test/w2", bytes(range(2, 34)), 4)
    shutil.rmtree(site.folder / "brought", ignore_errors=True)
    log = logs.make(site.folder / "brought", logs.story(300, seed=3), witnesses=(witness, stranger))
    head, end = logs.head(300, log.tree.root()), logs.START + 7200 * 3
    (site.folder / "brought/checkpoint").write_bytes(logs.note(head, log.key, witness, stranger, time=end))
    site.add_page("brought", log.vkey)
    (site.folder / "brought/ledger.vkey").unlink()

    def give(form, text):
        page.value("document.documentElement.dataset.verdict = 'checking'")  # It was another check's.
        page.value(f"document.querySelector('#{form} textarea').value = {json.dumps(text)}")
        page.value(f"document.querySelector('#{form} button').click()")
        return Checked(page)

    page, checked = visit(browser, site.url("brought"))
    with page:
        assert checked.verdict == "unsure" and "Paste" in checked.reason, checked
        page.value("document.querySelector('#vkey').value = 'nonsense'; document.querySelector('#key-form button').click()")
        page.wait("document.getElementById('key-trouble').innerText.includes('no key')")
        checked = give("key-form", log.vkey)
        assert checked.verdict == "good" and "from the server" not in checked.reason, checked
        assert page.text("#cosignatures").count("not checked") == 2
        checked = give("witness-form", f"{witness.vkey}\n")
        text = page.text("#cosignatures")
        assert checked.verdict == "good" and text.count("holds") == 1 and text.count("not checked") == 1, text
        assert logs.moment(end).replace("T", " ").replace("Z", " UTC") in text
        # A date before the last entry: one of the two clocks lied.
        (site.folder / "brought/checkpoint").write_bytes(logs.note(head, log.key, witness, stranger, time=logs.START))
        page.value("document.getElementById('again').click()")
        assert Checked(page).verdict == "good" and "date does not fit" in page.text("#cosignatures")
        # An older head of this log, a head of another history, and no head at all.
        assert give("other-form", log.checkpoints[1].decode()).verdict == "good"
        lie = logs.checkpoint(logs.Tree(rewritten(log.entries)), log.key).decode()
        checked = give("other-form", lie)
        assert checked.verdict == "bad" and "rewritten" in checked.findings, checked
        assert lie in page.value("document.getElementById('proof').value")
        assert give("other-form", "hello").verdict == "unsure"
        assert give("other-form", "").verdict == "good"
        # A witness whose signature does not hold.
        key, first, second = logs.note(head, log.key, witness, stranger, time=end).split(b"\n\n")[1].splitlines(keepends=True)
        broken = logs.note(logs.head(299, bytes(32)), witness, time=end).splitlines(keepends=True)[-1]
        assert broken != first
        (site.folder / "brought/checkpoint").write_bytes(head + b"\n" + key + broken + second)
        page.value("document.getElementById('again').click()")
        checked = Checked(page)
        assert checked.verdict == "bad" and "signature" in checked.findings and "witness.test/w1" in checked.findings, checked


# No verdict


def test_trouble_is_no_verdict(site, browser):
    site.make("trouble", 600)
    path = "/trouble/tile/entries/001"

    def cut(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\nhalf")
        return False

    for answer in ((500, b""), cut):
        site.server.answers[path] = answer
        page, checked = visit(browser, site.url("trouble"))
        with page:
            assert checked.verdict == "unsure" and "no verdict" in checked.reason and path[9:] in checked.reason, checked
            if answer == (500, b""):
                # One key later all is well.
                del site.server.answers[path]
                page.value("document.getElementById('again').focus()")
                page.press("Enter")
                page.wait("document.documentElement.dataset.verdict === 'good'")
    del site.server.answers[path]


def test_trouble_for_a_moment_is_passed_over(site, browser):
    site.make("moment", 300)
    left = [2]

    def sometimes(handler):
        left[0] -= 1
        return (503, b"") if left[0] >= 0 else None
    site.server.answers["/moment/tile/entries/000"] = sometimes
    page, checked = visit(browser, site.url("moment"))
    page.close()
    assert checked.verdict == "good" and left[0] < 0, checked


def test_browsers_that_cannot(site, browser):
    site.make("cannot", 50)
    page, checked = visit(browser, site.url("cannot").replace("127.0.0.1", "far.test"))
    with page:
        assert checked.verdict == "unsure" and "https" in checked.reason, checked
    # A name that no browser knows stands for one that this browser doesn't.
    change(site.folder / "cannot", "page/note.js", lambda old: old.replace(b"name: 'Ed25519'", b"name: 'Ed2551x'"))
    page, checked = visit(browser, site.url("cannot"))
    with page:
        assert checked.verdict == "unsure" and "Ed25519" in checked.reason, checked


@pytest.mark.parametrize("size, words", [(2 * 256 ** 3, "at most"), (2 ** 60, "count")])
def test_a_log_that_is_too_long(site, browser, size, words):
    """Quick answers are given all the same; green is not."""
    log = site.make("long", 30)
    halves = [bytes([1]) * 32, bytes([2]) * 32]
    (site.folder / "long/tile/3").mkdir()
    (site.folder / "long/tile/3/000.p").mkdir()
    (site.folder / "long/tile/3/000.p/2").write_bytes(b"".join(halves))
    (site.folder / "long/checkpoint").write_bytes(logs.note(logs.head(size, logs.node_hash(*halves)), log.key))
    page, checked = visit(browser, site.url("long"))
    page.close()
    assert checked.verdict == "unsure" and words in checked.reason, checked
    assert checked.steps["edge"] == ("good" if words == "at most" else "unable")


def test_a_log_that_grows_while_it_is_read(site, browser):
    """The files of an old head go, first for full ones, then for those of a newer head."""
    log = site.make("grows", 700)
    place, older = site.folder / "grows", len(log.entries) // 2 // 256 * 256 + 44
    shorter = logs.make(site.folder / "shorter", [log.entries[:older]])
    (place / "checkpoint").write_bytes(shorter.checkpoints[-1])
    for path in place.rglob("*.p/44"):
        path.unlink()
    page, checked = visit(browser, site.url("grows"))
    with page:
        assert checked.verdict == "good" and checked.reason.startswith("300 entries"), checked
    # This head is shown once; its own partial files have gone already.
    heads = [logs.checkpoint(log.tree, log.key, size=690), log.checkpoints[-1]]
    for path in place.rglob("*.p/178"):
        path.unlink()
    site.server.answers["/grows/checkpoint"] = lambda handler: heads.pop(0) if len(heads) > 1 else heads[0]
    page, checked = visit(browser, site.url("grows"))
    page.close()
    assert checked.verdict == "good" and checked.reason.startswith("700 entries") and heads == log.checkpoints[-1:], checked


def test_words_of_a_log_stay_words(site, browser):
    evil = "<img/src=x/onerror=alert(1)>"
    policy = b'{"name":"</pre><script>alert(1)</script>"}'
    name = logs.hashlib.sha256(policy).hexdigest()
    at, ref, job = logs.moment(logs.START), "a" * 32, "b" * 32
    entries = [
        f'{{"at":"{at}","node":"{evil}","op":"broker.started","policy":"{name}","resolution":60,"version":"__proto__"}}',
        f'{{"at":"{at}","name":"{evil}","op":"policy.loaded","policy":"{name}"}}',
        f'{{"at":"{at}","kind":"alert","op":"token.sealed","ref":"{ref}","until":"{logs.moment(logs.START + 300)}"}}',
        f'{{"at":"{at}","job":"{job}","op":"token.opened","ref":"{ref}","template":"__proto__"}}',
        f'{{"at":"{at}","next":"{evil}","op":"ledger.closed"}}']
    key = logs.Key(evil)
    log = logs.make(site.folder / "evil", [[entry.encode() for entry in entries]], key=key, policies=(policy,))
    site.add_page("evil", log.vkey)
    page, checked = visit(browser, site.url("evil"))
    with page:
        assert checked.verdict == "good" and f"goes on as {evil}" in checked.reason, checked
        assert page.text("#origin") == evil and page.value("document.images.length") == 0
        page.value("document.querySelectorAll('details').forEach((part) => { part.open = true })")
        assert policy.decode() in page.text("#policies")
        page.value(f"document.getElementById('ref').value = '{ref}'; document.querySelector('#search button').click()")
        page.wait("document.getElementById('life').innerText.includes('template __proto__')")
        assert page.complaints == [] and page.value("document.scripts.length") == 1


# Everyone


def luminance(colour):
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1:-1].split(",")[:3]]
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


PALE = """(() => {
    const pale = [];
    for (const node of document.querySelectorAll('h1,h2,h3,p,label,dt,dd,td,th,caption,button,summary,.state,pre,a,li')) {
        if (!node.innerText?.trim() || node.getBoundingClientRect().height === 0) continue;
        let behind = node;
        while (getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)' && behind.parentElement) behind = behind.parentElement;
        pale.push([node.innerText.slice(0, 30), getComputedStyle(node).color, getComputedStyle(behind).backgroundColor]);
    }
    return pale;
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_on_a_phone(site, browser, dark):
    site.make("phone", 700)
    change(site.folder / "phone", f"policies/{logs.POLICY_NAME}.json", lambda old: old if dark else old + b" ")
    page, checked = visit(browser, site.url("phone"), width=360, height=740, dark=dark, still=True)
    with page:
        assert checked.verdict == ("good" if dark else "bad"), checked
        page.value("document.querySelectorAll('details').forEach((part) => { part.open = true })")
        page.value("document.querySelector('#live button').click()")
        page.wait("document.getElementById('life').innerText.includes('taken in')")
        assert page.value("document.documentElement.scrollWidth") <= 360
        assert page.value("[...document.querySelectorAll('main *')].filter((node) => node.getBoundingClientRect().right > 360"
                          " && !node.closest('pre')).map((node) => node.outerHTML.slice(0, 80))") == []
        colours = page.value(PALE)
        background = luminance(page.value("getComputedStyle(document.body).backgroundColor"))
        assert (background < 0.05) == dark and len(colours) > 40
        for text, front, back in colours:
            lights = sorted((luminance(front), luminance(back)))
            assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5, f"{text!r} is {front} on {back}"


def test_by_keyboard_alone(site, browser):
    log = site.make("keys", 700)
    ref = next(json.loads(entry)["ref"] for entry in log.entries if b"token.sealed" in entry)
    page, checked = visit(browser, site.url("keys"))
    with page:
        focus = "(document.activeElement.id || document.activeElement.innerText || document.activeElement.tagName).slice(0, 40)"
        seen = []
        for _ in range(120):
            page.press("Tab")
            where = page.value(focus)
            if page.value("document.activeElement === document.body"):
                break
            ring = page.value("getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth")
            assert ring == "solid3px", f"the focus on {where} can't be seen: {ring}"
            seen.append(where)
            if where == "ref":
                page.type(ref)
                page.press("Enter")
                page.wait("document.getElementById('life').innerText.includes('taken in')")
            if page.value("document.activeElement.tagName === 'SUMMARY'"):
                page.press("Enter")
                assert page.value("document.activeElement.parentElement.open")
        order = [seen.index(name) for name in ("again", "ref", "vkey", "other", "witnesses", "forget")]
        assert order == sorted(order), seen
        # Everything that can be used was reached.
        usable = page.value("[...document.querySelectorAll('button, input, textarea, summary')].filter((node) => "
                            "node.getBoundingClientRect().height > 0).length")
        assert len(seen) >= usable, (seen, usable)


def test_for_a_screen_reader(site, browser):
    site.make("reader", 3000)
    page = browser.open("about:blank")
    with page:
        page.call("Page.addScriptToEvaluateOnNewDocument", source="""addEventListener('DOMContentLoaded', () => {
            globalThis.told = [];
            for (const box of document.querySelectorAll('output, [role=status], [role=alert], [role=log], [aria-live]')) {
                new MutationObserver(() => told.push(box.innerText)).observe(box, { childList: true, characterData: true, subtree: true });
            }
        })""")
        page.go(site.url("reader"))
        Checked(page)
        told = page.value("told")
        assert 1 <= len(told) <= 5 and told[-1].startswith("Verified"), told
        page.call("Accessibility.enable")
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        parts = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"] and "role" in node]
        for role, name in parts:
            if role in ("button", "textbox", "progressbar", "image", "form", "DisclosureTriangle", "heading"):
                assert name, f"a {role} without a name: {[part for part in parts if part[0] == role]}"
        roles = [role for role, _ in parts]
        for role in ("main", "banner", "contentinfo", "status", "progressbar", "region", "table", "columnheader"):
            assert role in roles, role
        images = [name for role, name in parts if role == "image"]
        assert any("sealed" in name and "purged" in name for name in images), images


def test_a_visitor_may_stop(site, browser):
    site.make("stop", 700)
    held = []
    site.server.answers["/stop/tile/entries/001"] = lambda handler: held.append(1) or time.sleep(0.8) or None
    page = browser.open(site.url("stop"))
    with page:
        eventually(lambda: held, what="the request for a bundle")
        page.value("document.getElementById('stop').focus()")
        page.press("Enter")
        checked = Checked(page)
        assert checked.verdict == "unsure" and "Stopped" in checked.reason, checked
        assert page.value("document.activeElement.id") == "again"


# One file


def test_a_report_is_one_file(site, browser, tmp_path):
    log = site.make("report", 1200)
    place, file = site.folder / "report", tmp_path / "report.html"
    done = mayfly("audit", "report", place, "--html", file, "--key", log.vkey)
    assert done.returncode == 0 and str(file) in done.stdout, done.stderr
    page, checked = visit(browser, f"file://{file}")
    with page:
        assert checked.verdict == "good" and "with this file" in checked.reason, checked
        assert "was read at" in page.text("#about")
        assert all(url.startswith(("file://", "data:", "blob:")) for url in page.requests) and page.complaints == []
        assert page.value("isSecureContext") is True
        # An older file is no rewritten log.
        older, begun = tmp_path / "older.html", log.entries[:900]
        logs.make(tmp_path / "older", [begun])
        assert mayfly("audit", "report", tmp_path / "older", "--html", older, "--key", log.vkey).returncode == 0
        page.go(f"file://{older}")
        checked = Checked(page)
        assert checked.verdict == "good" and "this file is older" in checked.said["memory"], checked
        logs.make(tmp_path / "other", [rewritten(log.entries) + log.entries[-1:]])
        assert mayfly("audit", "report", tmp_path / "other", "--html", older, "--key", log.vkey).returncode == 0
        page.go(f"file://{older}")
        checked = Checked(page)
        assert checked.verdict == "bad" and "rewritten" in checked.findings, checked
    # The same over HTTP, with the key that lies there; and a log that is wrong is put into a file as it is.
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


def test_reports_that_cannot_be(site, tmp_path):
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
    assert done.returncode == 1 and "no checkpoint" in done.stderr
    for words in (("report", place), ("report", "--html", file), ("page",), ("page", place, "--html", file),
                  ("report", place, "--html", file, "--key", "nonsense")):
        assert mayfly("audit", *words).returncode == 2, words


# Any server of files, and a log of any length


def plain_story(count):
    """Publications of `count` entries in all: rooms that open, knock once and close within a minute."""
    chance, start, left = random.Random(5), logs.START, count
    policy = logs.POLICY_NAME
    while left > 0:
        at = logs.moment(start)
        entries = [f'{{"at":"{at}","node":"node-1","op":"broker.started","policy":"{policy}","resolution":60,"version":"0.1.0"}}',
                   f'{{"at":"{at}","name":"rooms","op":"policy.loaded","policy":"{policy}"}}'] if left == count else []
        if start % 300 == 0 and start > logs.START:
            entries.append(f'{{"at":"{at}","epoch":{start // 300 - 2},"op":"keys.ratcheted"}}')
        until = logs.moment(start - start % 300 + 600)
        for ref in sorted(chance.randbytes(16).hex() for _ in range(2000)):
            job = ref[::-1]
            entries += (
                f'{{"at":"{at}","kind":"alert","op":"token.sealed","ref":"{ref}","until":"{until}"}}',
                f'{{"at":"{at}","job":"{job}","op":"token.opened","ref":"{ref}","template":"peer_waiting"}}',
                f'{{"at":"{at}","job":"{job}","op":"push.delivered","ref":"{ref}","status":200}}',
                f'{{"at":"{at}","cause":"room_closed","op":"token.purged","ref":"{ref}"}}')
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


def test_a_million_entries(million, browser):
    server, log = million
    page = browser.open(f"{server.url}/audit/", listens=False)
    with page:
        start = time.monotonic()
        # Quick answers come first.
        page.wait("document.querySelector('#step-memory .state.none') !== null", 10)
        assert page.value("document.documentElement.dataset.verdict") == "checking"
        checked = Checked(page, 200)
        took = time.monotonic() - start
        assert checked.verdict == "good" and checked.reason.startswith("1\u202f000\u202f000 entries"), checked
        print(f"a million entries in {took:.1f} s")
        ref = json.loads(log.entries[777_778])["ref"]
        page.value(f"document.getElementById('ref').value = '{ref}'; document.querySelector('#search button').click()")
        page.wait("document.querySelectorAll('#life tbody tr').length === 4")
        assert page.complaints == []


def test_one_bit_among_a_million_entries(million, browser):
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


def test_the_picture_in_the_documents(site, browser):
    """AUDITOR_PAGE_PICTURE=docs/auditors-page.png renews it: a second visit, to a log that has grown."""
    now = int(time.time())
    publications = [window for window in logs.story(9_000, seed=12, start=now // 300 * 300 - 16_200, seconds=21_000, outages=2)
                    if json.loads(window[0])["at"] <= logs.moment(now)]
    site.make("picture", publications[:len(publications) // 2])
    page, checked = visit(browser, site.url("picture"), height=1900)
    with page:
        assert checked.verdict == "good", checked
        site.make("picture", publications)
        page.go(site.url("picture"))
        checked = Checked(page)
        assert checked.verdict == "good" and "of your last visit" in checked.said["memory"] and "old" not in checked.reason, checked
        if "AUDITOR_PAGE_PICTURE" in os.environ:
            page.screenshot(REPOSITORY / os.environ["AUDITOR_PAGE_PICTURE"])
    assert (REPOSITORY / "docs/auditors-page.png").stat().st_size < 400_000
