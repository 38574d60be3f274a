"""The auditor's page in a real browser: it verifies good logs and turns red on others."""

import json
import os
import shutil

import pytest

import logs
from processes import REPOSITORY, eventually, mayfly
from page_fixtures import PAGE, Checked, browser, change, flipped, hosts, look_up, rewritten, site, unfold, visit, whole_story  # noqa: F401


# A broker's own page


# Promise: auditors-page
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
        assert checked.verdict == "consistent", checked
        assert "from the server" in checked.basis and "first visit" in checked.basis
        assert page.value("location.pathname") == "/audit/"
        assert checked.steps["memory"] == "none" and "first visit" in checked.said["memory"]
        # Enters a ref by the keyboard. The server sees only that the log is read again.
        for ref, words in ((purged, ("taken in and sealed", "destroyed: ended")), (live, ("No purge",)),
                           ("0" * 32, ("No entry",)), ("zz", ("32 hexadecimal digits",))):
            page.requests.clear()
            page.value("document.getElementById('ref').select()")
            page.value("document.getElementById('ref').focus()")
            page.type(ref)
            page.press("Enter")
            for part in words:
                page.wait(f"document.getElementById('life').innerText.includes({json.dumps(part)})")
            assert all(url.startswith(f"{world.broker.url}/audit/") and ref not in url for url in page.requests), page.requests
        assert page.value("location.href") == f"{world.broker.url}/audit/"
        # The log grows; the next visit proves that it only grew.
        before = (world.state / "ledger/checkpoint").read_bytes()
        client.room()
        eventually(lambda: (world.state / "ledger/checkpoint").read_bytes() != before, what="another checkpoint")
        page.requests.clear()
        page.go(f"{world.broker.url}/audit/index.html")
        again = Checked(page)
        assert again.steps["memory"] == again.verdict == "good" and "are the first of these" in again.said["memory"], again
        assert "What this browser saw first, at 20" in again.reason, again
        assert f"{world.broker.url}/audit/checkpoint" in page.requests
        assert hosts(page) == {f"127.0.0.1:{world.broker.port}"}
        assert page.complaints == []


def test_the_broker_serves_the_page_with_strict_headers(client):
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


def lost(publications, what):
    """The publications without the first entry that holds these bytes; a window without entries goes too."""
    place = next(place for place, window in enumerate(publications) if any(what in entry for entry in window))
    window = publications[place]
    index = next(index for index, entry in enumerate(window) if what in entry)
    return [window for window in publications[:place] + [window[:index] + window[index + 1:]] + publications[place + 1:] if window]


# Bytes, by log-format.md.
LONGEST_FILE = 16_777_472
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
    "a long tile": (lambda place: os.truncate(place / "tile/0/000", 1 << 20), "damaged", "entries"),
    "a long bundle": (lambda place: os.truncate(place / "tile/entries/000", LONGEST_FILE), "damaged", "entries"),
}


MEANINGS = {"tree": "don't match what was signed", "signature": "not signed by this key", "missing": "A file of the log is missing",
            "damaged": "A file of the log is damaged"}


def test_damage_turns_the_page_red(site, browser):
    site.make("damaged", 600)
    page, checked = visit(browser, site.url("damaged"))
    with page:
        assert checked.verdict == "consistent", checked
        for what, (damage, code, step) in DAMAGES.items():
            site.make("damaged", 600)
            damage(site.folder / "damaged")
            page.go(site.url("damaged"))
            checked = Checked(page)
            assert checked.verdict == "bad" and checked.bad_steps == [step], f"{what}: {checked}"
            assert MEANINGS[code] in checked.reason and code in checked.findings, f"{what}: {checked}"
        # A browser prints each missing file to the console. Nothing else may be printed.
        assert all("404" in line for line in page.complaints) and hosts(page) == {site.server.url.split("/")[2]}


@pytest.mark.campaign
@pytest.mark.parametrize("what, code, step", [
    (b'"cause":"expired"', "unbalanced", "balance"), (b"keys.ratcheted", "ratchet_late", "time"), (b"token.opened", "job_unknown", "pushes")])
def test_lost_entries_turn_the_page_red(site, browser, what, code, step):
    site.make("lost", lost(lost(logs.story(900, seed=1, outages=0), what), what))
    page, checked = visit(browser, site.url("lost"))
    with page:
        assert checked.verdict == "bad" and checked.bad_steps == [step], checked
        assert ", at entry" in checked.reason and code in checked.findings, checked


@pytest.mark.campaign
def test_gaps_may_be_accepted(site, browser):
    """More than an hour without a broker in one day is a failure unless the visitor allows gaps."""
    site.make("gaps", logs.story(600, seed=3, outages=0))
    simulation = logs.simulate(300, seed=3, outages=0)
    simulation.plan(simulation.now + 100, "down", True, 4000)
    site.make("gaps", logs.cut(simulation.run(600), 600))
    page, checked = visit(browser, site.url("gaps"))
    with page:
        assert checked.verdict == "bad" and checked.bad_steps == ["time"] and "gaps" in checked.findings, checked
        page.value("document.documentElement.dataset.verdict = 'checking'; document.getElementById('allow-gaps').click()")
        checked = Checked(page)
        unfold(page)
        assert checked.verdict == "good" and "1 h" in page.text("#gaps"), checked


# A token's owner


def test_an_owner_sees_the_whole_story_of_a_token(site, browser):
    simulation = logs.simulate(900, seed=1, outages=0)
    log = site.make("owner", logs.cut(simulation, 900))
    token, story = whole_story(simulation, log.entries)
    page, checked = visit(browser, site.url("owner"))
    with page:
        assert checked.verdict == "consistent", checked
        asked = []
        for ref in (token.ref, "0" * 32):
            page.requests.clear()
            text = look_up(page, ref)
            asked.append(sorted(page.requests))
            if ref != token.ref:
                assert "No entry of this reference" in text
                continue
            rows = page.value("[...document.querySelectorAll('#life tbody tr')].map((row) => row.innerText)")
            assert len(rows) == len(story) and "taken in and sealed" in text and f"destroyed: {story[-1]['cause']}" in rows[-1], rows
            for entry, row in zip(story, rows):
                assert entry["at"].replace("T", " ").replace("Z", " UTC") in row
                assert entry["op"] != "token.opened" or f"opened for one push by the template {entry['template']}" in row
            # The proof is the one that any other program makes. It doesn't hold the reference.
            proof = page.value("document.getElementById('life-proof').value")
            assert token.ref not in proof
            index = next(index for index, entry in enumerate(log.entries) if json.loads(entry) == story[-1])
            assert proof.encode() == log.proof(index)
        # Whatever is looked for, the same files are read.
        assert asked[0] == asked[1] and len(asked[0]) > 4
        assert page.complaints == []


@pytest.mark.campaign
def test_an_owner_can_notice_a_missing_push(site, browser):
    """The log without a push is consistent. The owner, whose phone rang, counts one too few."""
    simulation = logs.simulate(900, seed=1, outages=0)
    publications = logs.cut(simulation, 900)
    token, story = whole_story(simulation, [entry for window in publications for entry in window])
    job = next(f'"job":"{entry["job"]}"' for entry in story if "job" in entry).encode()
    site.make("hidden", publications)
    page, checked = visit(browser, site.url("hidden"))
    with page:
        before = look_up(page, token.ref).count("opened for one push")
        site.make("hidden", lost(lost(publications, job), job))
        page.value("document.getElementById('forget').click()")
        page.go(site.url("hidden"))
        assert Checked(page).verdict == "consistent"
        text = look_up(page, token.ref)
        assert before == len(story) - 2 and text.count("opened for one push") == before - 1
        assert "sent without a record" in text


# The browser's storage


@pytest.mark.campaign
@pytest.mark.parametrize("what", ["rewritten", "cut back", "forked"])
def test_a_visit_compares_the_log_with_the_last_one(site, browser, what):
    log = site.make("kept", 700)
    url, entries = site.url("kept"), log.entries
    page, checked = visit(browser, url)
    with page:
        assert checked.verdict == "consistent", checked
        first = log.checkpoints[-1].decode()
        assert first in page.value("document.querySelector('#kept textarea').value")
        # The next log is signed by the same key and consistent: another visitor sees nothing wrong.
        other = {"rewritten": rewritten(entries) + logs.story(40, seed=9)[-1][-1:], "cut back": entries[:500],
                 "forked": rewritten(entries)}[what]
        second = site.make("kept", [other]).checkpoints[-1].decode()
        stranger, seen = visit(browser, url)
        stranger.close()
        if what != "rewritten":
            assert seen.verdict == "consistent", seen
        for _ in range(2):  # A contradicting log doesn't replace the kept checkpoint.
            page.go(url)
            checked = Checked(page)
            assert checked.verdict == "bad" and "memory" in checked.bad_steps, checked
            assert "rewritten" in checked.findings
            assert ("cut back" in checked.said["memory"]) == (what == "cut back"), checked
            evidence = page.value("document.getElementById('proof').value")
            assert first in evidence and second in evidence and log.vkey in evidence
        # The old log again. A shorter copy only lagged. But whoever signed two histories stays convicted.
        site.make("kept", [entries])
        page.go(url)
        checked = Checked(page)
        assert checked.verdict == ("good" if what == "cut back" else "bad"), checked
        assert first in page.value("document.getElementById('proof').value"), "the evidence is still there"
        # The visitor may also forget.
        site.make("kept", [other])
        page.value("document.getElementById('forget').click()")
        page.go(url)
        assert Checked(page).verdict == seen.verdict
        assert page.complaints == []


@pytest.mark.campaign
def test_the_sample_and_its_twin(site, browser):
    """A real log, and the same log with a purge dated back and everything signed anew (audit/README.md)."""
    def show(name):
        shutil.rmtree(site.folder / "sample", ignore_errors=True)
        shutil.copytree(REPOSITORY / "audit" / name, site.folder / "sample")
        site.add_page("sample", (REPOSITORY / "audit/sample/ledger.vkey").read_text().strip())

    show("sample-tampered")
    page, checked = visit(browser, site.url("sample"))
    with page:
        assert checked.verdict == "consistent", "a rewritten log is right in itself"
        kept = (REPOSITORY / "audit/sample/kept/2").read_text()
        page.value(f"document.getElementById('other').value = {json.dumps(kept)}; document.querySelector('#other-form button').click()")
        checked = Checked(page)
        assert checked.verdict == "bad" and "rewritten" in checked.findings, checked
    show("sample")
    page, checked = visit(browser, site.url("sample"))
    with page:
        assert checked.verdict == "consistent", checked
        show("sample-tampered")
        page.go(site.url("sample"))
        checked = Checked(page)
        assert checked.verdict == "bad" and checked.bad_steps == ["memory"] and "rewritten" in checked.findings, checked


@pytest.mark.campaign
def test_a_server_with_another_key_is_reported(site, browser):
    log = site.make("key", 100)
    page, checked = visit(browser, site.url("key"))
    with page:
        assert checked.verdict == "consistent", checked
        other = logs.Key(seed=bytes(32))
        shutil.rmtree(site.folder / "key")
        logs.make(site.folder / "key", [log.entries], key=other)
        site.add_page("key", other.vkey)
        page.go(site.url("key"))
        checked = Checked(page)
        assert checked.verdict == "bad" and "signature" in checked.findings and "names another key" in checked.reason, checked
        assert page.value("document.getElementById('trust-part').open") and other.vkey in page.text("#key-from")
        page.value("document.getElementById('server-key').click()")
        page.wait("document.documentElement.dataset.verdict === 'consistent'")


@pytest.mark.campaign
def test_a_visitors_own_keys_and_heads_are_used(site, browser):
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
        unfold(page)
        page.value("document.querySelector('#vkey').value = 'nonsense'; document.querySelector('#key-form button').click()")
        page.wait("document.getElementById('key-trouble').innerText.includes('not a key')")
        checked = give("key-form", log.vkey)
        assert checked.verdict == "consistent" and "You gave the key" in checked.basis and "from the server" not in checked.basis, checked
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
        assert give("other-form", "").verdict == "bad", "without the paste, too: two signed histories stay two"
        page.value("document.documentElement.dataset.verdict = 'checking'; [...document.querySelectorAll('#evidence button')].at(-1).click()")
        assert Checked(page).verdict == "good"
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


def test_a_file_longer_than_any_of_a_log_is_no_verdict(site, browser):
    """log-format.md: no verifier reads it to the end."""
    for path in ("tile/0/000", "tile/entries/000"):
        site.make("gibibyte", 600)
        os.truncate(site.folder / "gibibyte" / path, 1 << 30)
        page, checked = visit(browser, site.url("gibibyte"))
        with page:
            assert checked.verdict == "unsure" and "no verdict" in checked.reason and f"{path} is larger" in checked.reason, checked


@pytest.mark.campaign
def test_a_network_error_is_no_verdict(site, browser):
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


@pytest.mark.campaign
def test_a_short_network_error_is_retried(site, browser):
    site.make("moment", 300)
    left = [2]

    def sometimes(handler):
        left[0] -= 1
        return (503, b"") if left[0] >= 0 else None
    site.server.answers["/moment/tile/entries/000"] = sometimes
    page, checked = visit(browser, site.url("moment"))
    page.close()
    assert checked.verdict == "consistent" and left[0] < 0, checked


@pytest.mark.campaign
def test_a_browser_without_the_needed_cryptography_is_unsure(site, browser):
    site.make("cannot", 50)
    page, checked = visit(browser, site.url("cannot").replace("127.0.0.1", "far.test"))
    with page:
        assert checked.verdict == "unsure" and "https" in checked.reason, checked
    # An algorithm unknown to all browsers stands in for one unknown to this browser.
    change(site.folder / "cannot", "page/note.js", lambda old: old.replace(b"name: 'Ed25519'", b"name: 'Ed2551x'"))
    page, checked = visit(browser, site.url("cannot"))
    with page:
        assert checked.verdict == "unsure" and "Ed25519" in checked.reason, checked


@pytest.mark.campaign
@pytest.mark.parametrize("size, words", [(2 * 256 ** 3, "at most"), (2 ** 60, "count")])
def test_a_log_that_is_too_long_never_turns_green(site, browser, size, words):
    """Quick answers are shown all the same."""
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


@pytest.mark.campaign
def test_a_log_may_grow_while_it_is_read(site, browser):
    """Partial tiles of the old head disappear, first for full ones, then for those of a newer head."""
    log = site.make("grows", 700)
    place, older = site.folder / "grows", len(log.entries) // 2 // 256 * 256 + 44
    shorter = logs.make(site.folder / "shorter", [log.entries[:older]])
    (place / "checkpoint").write_bytes(shorter.checkpoints[-1])
    for path in place.rglob("*.p/44"):
        path.unlink()
    page, checked = visit(browser, site.url("grows"))
    with page:
        assert checked.verdict == "consistent" and checked.reason.startswith("300 entries"), checked
    # This head is shown once; its own partial files have gone already.
    heads = [logs.checkpoint(log.tree, log.key, size=690), log.checkpoints[-1]]
    for path in place.rglob("*.p/178"):
        path.unlink()
    site.server.answers["/grows/checkpoint"] = lambda handler: heads.pop(0) if len(heads) > 1 else heads[0]
    page, checked = visit(browser, site.url("grows"))
    page.close()
    assert checked.verdict == "consistent" and checked.reason.startswith("700 entries") and heads == log.checkpoints[-1:], checked


@pytest.mark.campaign
def test_markup_in_a_log_is_shown_as_text(site, browser):
    evil = "<img/src=x/onerror=alert(1)>"
    policy = b'{"name":"</pre><script>alert(1)</script>","limits":{"deviceLifeSeconds":600},"ledger":{"hourSeconds":3600,"daySeconds":86400,"batchSeals":1},"templates":{"__proto__":{}}}'
    name = logs.hashlib.sha256(policy).hexdigest()
    at, ref, job, until = logs.moment(logs.START), "a" * 32, "b" * 32, logs.START + 86400
    opened, sealed, end = logs.token_id(ref, "opened", job), logs.token_id(ref, "sealed", until), logs.moment(until)
    entries = [
        f'{{"at":"{at}","binary":"{name}","node":"{evil}","op":"broker.started","policy":"{name}","resolution":60,"version":"__proto__"}}',
        f'{{"at":"{at}","name":"{evil}","op":"policy.loaded","policy":"{name}"}}',
        f'{{"at":"{at}","id":"{opened}","job":"{job}","op":"token.opened","template":"__proto__"}}',
        f'{{"at":"{at}","id":"{sealed}","op":"token.sealed","until":"{end}"}}',
        f'{{"at":"{at}","ended":0,"expired":0,"op":"bucket.closed","sealed":1,"until":"{end}"}}',
        f'{{"at":"{at}","next":"{evil}","op":"ledger.closed"}}']
    key = logs.Key(evil)
    log = logs.make(site.folder / "evil", [[entry.encode() for entry in entries]], key=key, policies=(policy,))
    site.add_page("evil", log.vkey)
    page, checked = visit(browser, site.url("evil"))
    with page:
        assert checked.verdict == "consistent" and f"{evil} continues it" in checked.reason, checked
        assert page.text("#origin") == evil and page.value("document.images.length") == 0
        unfold(page)
        assert policy.decode() in page.text("#policies")
        assert "template __proto__" in look_up(page, ref)
        assert page.complaints == [] and page.value("document.scripts.length") == 1
