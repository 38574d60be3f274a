"""The auditor's page on a phone, in the dark, by keyboard alone, for a screen reader."""

import time

import pytest

import logs
from processes import eventually
from page_fixtures import Checked, browser, change, look_up, site, unfold, visit, whole_story  # noqa: F401


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


@pytest.mark.campaign
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_fits_a_phone(site, browser, dark):
    simulation = logs.simulate(700, seed=1)
    log = site.make("phone", logs.cut(simulation, 700))
    token, story = whole_story(simulation, log.entries)
    change(site.folder / "phone", f"policies/{logs.POLICY_NAME}.json", lambda old: old if dark else old + b" ")
    page, checked = visit(browser, site.url("phone"), width=360, height=740, dark=dark, still=True)
    with page:
        assert checked.verdict == ("good" if dark else "bad"), checked
        unfold(page)
        assert "taken in" in look_up(page, token.ref)
        page.value("document.querySelector('#life details').open = true")
        assert page.value("document.documentElement.scrollWidth") <= 360
        assert page.value("[...document.querySelectorAll('main *')].filter((node) => node.getBoundingClientRect().right > 360"
                          " && !node.closest('pre')).map((node) => node.outerHTML.slice(0, 80))") == []
        colours = page.value(PALE)
        background = luminance(page.value("getComputedStyle(document.body).backgroundColor"))
        assert (background < 0.05) == dark and len(colours) > 40
        for text, front, back in colours:
            lights = sorted((luminance(front), luminance(back)))
            assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5, f"{text!r} is {front} on {back}"


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
        assert 1 <= len(told) <= 5 and told[-1].startswith("Verified"), told
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
