"""Without a mouse: everything can be reached, is seen to be reached, and can be used."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from web.site import WORDS, Site

if TYPE_CHECKING:
    from playwright.sync_api import Page

Show = Callable[..., "Page"]

REACHABLE = """() => [...document.querySelectorAll('a[href], button, input, select, textarea, [tabindex="0"]')]
    .filter(one => !one.disabled && one.tabIndex >= 0 && one.checkVisibility())
    .map((one, at) => one.dataset.stop ??= `${at} ${one.tagName} ${one.ariaLabel ?? one.textContent.slice(0, 30)}`)"""
FOCUSED = """() => {
    const one = document.activeElement, style = getComputedStyle(one);
    const seen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
    return [one.dataset.stop ?? null, seen, one.tagName];
}"""


@pytest.mark.parametrize("where", WORDS, ids=lambda where: where.strip("#/") or "overview")
def test_the_tab_key_reaches_everything_and_it_is_seen(show: Show, site: Site, where: str) -> None:
    page = show(where)
    for words in WORDS[where]:
        expect(page.locator("main")).to_contain_text(words)
    page.keyboard.press("p")  # so that nothing comes and goes while it is counted
    expect(page.locator(".banner")).to_contain_text("paused")
    stops = set(page.evaluate(REACHABLE))
    reached: set[str] = set()
    for _ in range(len(stops) + 5):
        page.keyboard.press("Tab")
        stop, seen, tag = page.evaluate(FOCUSED)
        if tag == "BODY":
            continue
        assert seen, f"nobody sees that {stop} has the focus"
        reached.add(stop)

    assert stops <= reached


def jump(page: Page, *keys: str) -> None:
    """Open the palette, type, and press Enter."""
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.type(keys[0])
    for key in (*keys[1:], "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_palette_goes_anywhere(show: Show) -> None:
    page = show(color_scheme="dark")
    jump(page, "dead")
    expect(page).to_have_url(re.compile("#/dead$"))
    jump(page, "popular query")
    expect(page).to_have_url(re.compile("#/query/popular$"))
    jump(page, "light theme", "ArrowDown", "ArrowUp")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")

    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_letters_go_to_pages_and_pause(show: Show) -> None:
    page = show()
    for letter, name in (("t", "topics"), ("r", "results"), ("a", "about")):
        page.keyboard.press("g")
        page.keyboard.press(letter)
        expect(page).to_have_url(re.compile(f"#/{name}$"))
    page.keyboard.press("p")
    expect(page.locator(".banner")).to_contain_text("paused")
    page.keyboard.press("p")
    expect(page.locator(".banner")).to_have_count(0)


def test_arrows_walk_through_the_graph_and_escape_gives_the_focus_back(show: Show) -> None:
    page = show()
    node = page.get_by_role("button", name=re.compile("^source posts"))
    node.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("button", name=re.compile("^table popular"))).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary")).to_have_count(0)
    expect(page.get_by_role("button", name=re.compile("^table popular"))).to_be_focused()


def test_tables_are_sorted_filtered_and_walked(show: Show, site: Site) -> None:
    site.panel("table", ["word", "count"], [[f"w{n}", n] for n in range(100)])
    page = show("#/results")
    table = page.locator("#panel-popular-table")
    table.get_by_role("button", name="count").press("Enter")
    table.get_by_role("button", name="count").press("Enter")
    expect(table.locator(".row").first).to_contain_text("w99")

    page.keyboard.press("/")
    page.keyboard.type("w9 -w91")
    expect(table).to_contain_text("10 of 100")
    table.locator(".row").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")

    expect(page.get_by_role("complementary")).to_contain_text("w98")


def test_little_motion_for_those_who_want_little(show: Show) -> None:
    page = show(reduced_motion="reduce")

    expect(page.locator(".node").first).to_be_visible()
    assert page.evaluate("getComputedStyle(document.querySelector('.meter')).transitionDuration") == "0s"
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    drawn = page.evaluate(
        """() => { const paper = document.querySelector('.graph canvas');
        return paper.getContext('2d').getImageData(0, 0, paper.width, paper.height).data.some(one => one > 0) }"""
    )
    assert not drawn
