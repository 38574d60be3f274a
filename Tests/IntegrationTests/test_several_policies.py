"""Several policies in force: refused starts, the entries in the log, and their display by verifiers and the auditor's page."""

import hashlib
import json

import pytest

import ledger
import logs
from mayfly import new_token
from page_fixtures import browser, site, visit  # noqa: F401
from processes import BINARY, REPOSITORY, Broker, audit_verify, eventually, mayfly
from test_apns_tools import apns
from test_hostile_logs import agreed, entry, start, tick
from test_startup_errors import start_fails
from world import World

ROOMS, COMPANION = ((REPOSITORY / f"policies/{name}.json").read_bytes() for name in ("rooms", "companion"))
DIGESTS = [hashlib.sha256(content).hexdigest() for content in (ROOMS, COMPANION)]


def changed(tmp_path, name, change):
    """A policy file beside the built-in ones, changed by `change`."""
    content = json.loads((REPOSITORY / f"policies/{name}.json").read_text())
    change(content)
    path = tmp_path / f"{content['name']}.json"
    path.write_text(json.dumps(content))
    return path


@pytest.fixture(scope="module")
def both():
    # In any order; that for rooms is built in.
    with World(policy="companion", start=False) as world:
        world.broker.cwd = None  # without a file that goes before it
        world.broker.start()
        yield world


# Promise: started-names-the-program
def test_the_log_records_each_policy(both):
    eventually(lambda: "policy.loaded" in ledger.read(both.state).counts(), 10, what="the start in the log")
    log = ledger.read(both.state).check()
    [begun] = (entry for entry in log.entries if entry["op"] == "broker.started")
    assert begun["policy"] == DIGESTS[0], "not that for rooms"
    assert begun["binary"] == hashlib.sha256(BINARY.read_bytes()).hexdigest()
    loaded = [(entry["name"], entry["policy"]) for entry in log.entries if entry["op"] == "policy.loaded"]
    assert loaded == list(zip(("rooms", "companion"), DIGESTS))
    for digest, content in zip(DIGESTS, (ROOMS, COMPANION)):
        assert (both.state / f"ledger/policies/{digest}.json").read_bytes() == content
    assert audit_verify(both.state).returncode == 0
    both.client().room()


def test_apns_send_pushes_templates_of_each_policy(both):
    token = new_token()
    for words in (["activity_approval", "--field", "elapsedSeconds=10"], ["clear_session"], ["peer_waiting"]):
        ran = apns(both, "send", *words, given=token, MAYFLY_POLICY="rooms,companion")
        assert ran.returncode == 0, ran
    activity, silent, alert = both.simulator.pushes(token)
    assert activity["headers"]["apns-topic"].endswith(".push-type.liveactivity") and activity["headers"]["apns-priority"] == "10"
    state = activity["payload"]["aps"]["content-state"]
    assert state["status"] == "awaitingApproval" and state["elapsedSeconds"] == 10 and len(state["approvalRequest"]["requestId"]) == 22
    assert silent["payload"]["type"] == "clear_session" and silent["headers"]["apns-priority"] == "5"
    assert "roomId" in alert["payload"]
    ran = apns(both, "send", "clear_session", given=token)
    assert ran.returncode == 2 and "no policy in force (rooms)" in ran.stderr, ran


def test_policy_show_prints_all():
    done = mayfly("policy", "show", "--policy", "companion")
    assert done.returncode == 0 and "policy rooms\n" in done.stdout and "policy companion\n" in done.stdout, done
    assert all(digest in done.stdout for digest in DIGESTS)
    done = mayfly("policy", "show", "monitor,calls")
    assert "policy monitor\n" in done.stdout and "policy calls\n" in done.stdout and "policy rooms\n" not in done.stdout, done
    done = mayfly("policy", "show", "monitor,")
    assert done.returncode == 2 and "policy show needs policy files and names, separated by single commas" in done.stderr, done
    done = mayfly("policy", "show", "companion")
    assert "policy companion\n" in done.stdout and "policy rooms\n" not in done.stdout, done


@pytest.mark.parametrize("kind, session, events, cause", [
    ("companion", "a session", "events and registrations of one user", "event"), ("monitor", "a print", "events of one printer", "event"),
    ("calls", "a call", "registrations of one user", "event"), ("rooms", None, None, "knock")])
def test_policy_show_describes_each_by_its_kind(kind, session, events, cause):
    shown = mayfly("policy", "show", kind).stdout
    assert f"when the {cause} came\n" in shown and ("knock" in shown) == (kind == "rooms"), shown
    assert session is None or f"\n  {session} is known for " in shown and f"\n  {events}" in shown, shown


def test_all_missing_fields_are_reported_at_once(both):
    ran = apns(both, "send", "activity_progress", "--policy", "companion", given="ab" * 32)
    assert ran.returncode == 2 and "for completed (number 0 to 999 in steps of 1), and for elapsedSeconds (" in ran.stderr, ran
    assert ", and for total (number" in ran.stderr
    assert "policy show" in mayfly("apns", "send", "--help").stdout


def rename(content):
    content["name"] = "mine"


def clash(content):
    content["name"] = "mine"
    content["templates"]["clear_session"] = content["templates"]["peer_waiting"]


def lacks(content):
    content["name"] = "mine"
    del content["templates"]["activity_end"]


REFUSALS = {
    "two of a kind": ("companion", rename, "companion,{}", 2, ("companion", "mine", "both of kind companion")),
    "two for rooms": ("rooms", rename, "rooms,{}", 2, ("rooms", "mine", "both of kind rooms")),
    "a template in both": ("rooms", clash, "{},companion", 1, ("mine", "companion", "clear_session")),
    "a push is missing": ("companion", lacks, "{}", 1, ("mine", "activity_end", "built-in policy companion")),
    "an empty name": ("rooms", rename, "{},,companion", 2, ("single commas",)),
    "nothing behind the comma": ("rooms", rename, "{},", 2, ("single commas",)),
    "a name unheard of": ("rooms", rename, "{},pager", 2, ("pager is neither a policy file nor a built-in policy",)),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_policies_are_refused(state, processes, tmp_path, name):
    base, change, policies, status, words = REFUSALS[name]
    broker = Broker(state, policy=policies.format(changed(tmp_path, base, change)))
    processes.append(broker)
    start_fails(broker, *words, status=status)
    assert not (state / "mayfly.sqlite").exists()


# Logs with several.


def loaded(at, name, content):
    return entry(at, "policy.loaded", name=name, policy=hashlib.sha256(content).hexdigest())


OTHER = b'{"name":"other"}'


@pytest.mark.parametrize("kept", [(ROOMS, COMPANION, OTHER), (ROOMS, COMPANION), (ROOMS, OTHER), (COMPANION, OTHER)])
def test_verifiers_need_each_policy(tmp_path, kept):
    entries = [
        start(0), loaded(0, "rooms", ROOMS), loaded(0, "companion", COMPANION), tick(60),
        start(120), loaded(120, "rooms", ROOMS), loaded(120, "companion", OTHER), tick(180)]
    log = logs.make(tmp_path / "log", [entries], policies=kept)
    for content in {ROOMS, COMPANION, OTHER} - set(kept):
        (log.folder / f"policies/{hashlib.sha256(content).hexdigest()}.json").unlink(missing_ok=True)
    agreed(len(kept) == 3, log.folder, "--key", log.vkey)
    if len(kept) == 3:
        (log.folder / f"policies/{hashlib.sha256(OTHER).hexdigest()}.json").write_bytes(OTHER + b" ")
        agreed(False, log.folder, "--key", log.vkey)


def test_the_page_shows_how_long_each_was_in_force(site, browser):
    stories = [
        start(0), loaded(0, "rooms", ROOMS), loaded(0, "companion", COMPANION), tick(60),
        # A pause, which names none; then the same again, with another in the companion's place; then one alone.
        start(180), tick(180), start(240), loaded(240, "rooms", ROOMS), loaded(240, "companion", OTHER), tick(240),
        start(300), loaded(300, "rooms", ROOMS), tick(360)]
    log = logs.make(site.folder / "several", [stories], policies=(ROOMS, COMPANION, OTHER))
    site.add_page("several", log.vkey)
    page, checked = visit(browser, site.url("several"))
    with page:
        assert checked.verdict == "consistent", checked
        said = page.value("[...document.querySelectorAll('#policies summary')].map((line) => line.textContent)")
    assert [line.split(",")[0] for line in said] == ["rooms", "companion", "companion"]
    assert "to the last entry" in said[0], said
    spans = [line.split(" from ")[1].split(" to ") for line in said[1:]]
    assert all(len(span) == 2 for span in spans) and spans[0][1] == spans[1][0], said
