"""Fixtures: a browser, a server of logs with the page beside each, and the page's verdict."""

import importlib.resources
import json
import re
import shutil

import pytest

import logs
from browser import Browser
from log_server import LogServer
from processes import REPOSITORY
from file_server import roomy_folder

PAGE = REPOSITORY / "Sources/Edges/AuditPage"
STEPS = ("signature", "edge", "memory", "entries", "balance", "pushes", "time", "policies")
WORDS = {"good": ["Verified"], "consistent": ["Consistent, but not compared"], "unsure": ["Not verified"],
         "bad": ["This log is wrong", "This log was rewritten", "This log is shorter than before", "Not signed with this key"]}


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
        self.basis = page.text("#basis")
        self.steps = {step: page.value(f"document.querySelector('#step-{step} .state').className.split(' ')[1]") for step in STEPS}
        self.said = {step: page.value(f"document.querySelector('#step-{step} .quiet').textContent") for step in STEPS}
        self.count, self.advice = page.text("#steps-count"), page.text("#advice")
        # A verdict may continue with the age of the last entry.
        assert re.split(", (?:but|and) (?:stale|dated)", self.word)[0] in WORDS[self.verdict], self
        # Green needs every step to pass. A comparison that was not made is not green, and not passed.
        passed = [state for state in self.steps.values()].count("good")
        assert (self.verdict == "good") == (passed == len(STEPS)), self
        assert (self.verdict == "consistent") == (passed == len(STEPS) - 1 and self.steps["memory"] == "none"), self
        assert self.count.startswith(f"{passed} of {len(STEPS)} passed") and ("not made" in self.count) == ("none" in self.steps.values()), self.count

    def __repr__(self):
        return f"{self.verdict}: {self.word}: {self.reason} {self.steps}"

    @property
    def bad_steps(self):
        return [step for step in STEPS if self.steps[step] == "bad"]


def visit(browser, url, **more):
    page = browser.open(url, **more)
    return page, Checked(page)


def unfold(page):
    """Opens everything that is folded."""
    page.value("document.querySelectorAll('details').forEach((part) => { part.open = true })")


def hosts(page):
    return {url.split("/")[2] for url in page.requests if not url.startswith(("data:", "blob:"))}


def change(place, path, how):
    file = place / path
    file.write_bytes(how(file.read_bytes()))


def flipped(content, place, bit=0):
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1:]


def rewritten(entries):
    """One answer of Apple's instead of another, long ago."""
    place = next(place for place, entry in enumerate(entries) if b'"status":200' in entry)
    return entries[:place] + [entries[place].replace(b'"status":200', b'"status":201')] + entries[place + 1:]


def look_up(page, ref):
    """Enters a reference; returns the text of its story."""
    page.value(f"document.getElementById('ref').value = '{ref}'; document.querySelector('#search button').click()")
    page.wait("!document.getElementById('life').innerText.includes('Reading the log once more')", 180)
    return page.text("#life")


def whole_story(simulation, entries):
    """A token of the simulation that the log seals, opens and purges; all of its entries in the log's order, the purge last."""
    entries = [json.loads(entry) for entry in entries]
    for token in simulation.tokens:
        ids = {logs.token_id(token.ref, label, token.until) for label in ("sealed", "purged")}
        ids |= {entry["id"] for entry in entries if entry["op"] == "token.opened" and entry["id"] == logs.token_id(token.ref, "opened", entry["job"])}
        own = [entry for entry in entries if entry.get("id") in ids]
        if len(own) == len(ids) > 2:
            return token, own
    raise AssertionError("no such token")


# A finger needs 44 pixels. A link within a sentence is as high as its line (WCAG 2.5.8).
SMALL_TARGETS = """[...document.querySelectorAll('button, summary, a, input, textarea, select')].map((node) => node.type === 'checkbox' ? node.closest('label') : node)
    .map((node) => [node.outerHTML.slice(0, 80), node.getBoundingClientRect()]).filter(([, { width, height }]) => height > 0 && (width < 44 || height < 44))
    .map(([text, { width, height }]) => `${text}: ${width} x ${height}`)"""
# Nobody scrolls through a table of forty screens.
TALL_PARTS = """[...document.querySelectorAll('.wide, ul, ol, pre')].filter((node) => node.getBoundingClientRect().height > 1600)
    .map((node) => `${node.outerHTML.slice(0, 80)}: ${node.getBoundingClientRect().height}`)"""

AXE = (importlib.resources.files("axe_core_python") / "axe.min.js").read_text()


def fits_a_finger(page):
    """Fails if a target is smaller than a finger, or a list longer than some screens, or the page wider than its window."""
    small, tall, width = page.value(SMALL_TARGETS), page.value(TALL_PARTS), page.value("document.documentElement.scrollWidth - innerWidth")
    assert small == [] and tall == [] and width <= 0, (small, tall, width)


def examine(page, size):
    """Fails unless everybody can use the page as it is now: axe's rules in both colour schemes, and no scrolling sideways at 320 pixels."""
    unfold(page)
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}])
        page.value(AXE + "; typeof axe")
        found = page.value("axe.run().then(({violations, passes}) => ({passes: passes.length, violations: violations.map(({id, nodes}) => "
                           "id + ': ' + nodes.map(({html, failureSummary}) => html.slice(0, 120) + ' ' + failureSummary).join('; '))}))")
        assert found["violations"] == [] and found["passes"] > 10, found
    assert page.value("document.getAnimations().length") == 0
    fits_a_finger(page)
    page.call("Emulation.setDeviceMetricsOverride", width=320, height=800, deviceScaleFactor=1, mobile=True)
    fits_a_finger(page)
    page.call("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=1, mobile=False)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    page.value("document.querySelectorAll('details').forEach((part) => { part.open = false })")
