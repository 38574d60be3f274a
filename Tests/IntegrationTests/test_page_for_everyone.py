"""The auditor's page on a phone, in the dark, by keyboard alone, for a screen reader."""

import time

import pytest

import logs
from processes import eventually
from page_fixtures import Checked, browser, change, examine, look_up, site, unfold, visit, whole_story  # noqa: F401


@pytest.mark.parametrize("verdict", ["consistent", "bad"])
def test_everybody_can_use_the_page(site, browser, verdict):
    """By axe's rules, in both colour schemes, down to 320 pixels: folded, and with a token's story."""
    simulation = logs.simulate(700, seed=1)
    log = site.make(verdict, logs.cut(simulation, 700))
    token, _ = whole_story(simulation, log.entries)
    if verdict == "bad":
        change(site.folder / verdict, f"policies/{logs.POLICY_NAME}.json", lambda old: old + b" ")
    page, checked = visit(browser, site.url(verdict))
    with page:
        assert checked.verdict == verdict, checked
        size = {"width": 1000, "height": 800}
        examine(page, size)
        unfold(page)
        look_up(page, token.ref)
        examine(page, size)


def test_the_page_works_by_keyboard_alone(site, browser):
    simulation = logs.simulate(700, seed=1)
    log = site.make("keys", logs.cut(simulation, 700))
    token, _ = whole_story(simulation, log.entries)
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
                page.type(token.ref)
                page.press("Enter")
                page.wait("document.getElementById('life').innerText.includes('taken in')")
            if page.value("document.activeElement.tagName === 'SUMMARY'"):
                page.press("Enter")
                assert page.value("document.activeElement.parentElement.open")
        order = [seen.index(name) for name in ("again", "ref", "vkey", "other", "witnesses", "allow-gaps", "forget")]
        assert order == sorted(order), seen
        # Everything that can be used was reached.
        usable = page.value("[...document.querySelectorAll('button, input, textarea, summary')].filter((node) => "
                            "node.getBoundingClientRect().height > 0).length")
        assert len(seen) >= usable, (seen, usable)


@pytest.mark.campaign
def test_the_page_works_with_a_screen_reader(site, browser):
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
        assert 1 <= len(told) <= 5 and told[-1].startswith("Consistent, but not compared"), told
        unfold(page)
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


@pytest.mark.campaign
def test_a_visitor_may_stop_a_check(site, browser):
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
