"""Every page, in the dark and in the light."""

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


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_every_page_shows_what_it_is_told_in_both_themes(show: Show, site: Site, scheme: str) -> None:
    page = show(color_scheme=scheme)

    for where, expected in WORDS.items():
        page.goto(site.address + where)
        for words in expected:
            expect(page.locator("main")).to_contain_text(words)
    expect(page.locator("html")).to_have_attribute("data-theme", scheme)
    expect(page).to_have_title("river · Millrace")
    lightness = page.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((a, b) => +a + +b)"
    )
    assert (lightness < 200) == (scheme == "dark")


def test_the_theme_contrast_and_zone_that_are_chosen_stay(show: Show) -> None:
    page = show("", color_scheme="dark")

    page.get_by_role("button", name=re.compile("^Display")).click()
    page.get_by_role("radio", name="light").click()
    page.get_by_role("radio", name="high").click()
    page.get_by_label("Times in").select_option("Asia/Tokyo")
    page.reload()

    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    expect(page.locator("html")).to_have_attribute("data-contrast", "high")
    expect(page.locator(".events time").first).to_have_attribute("title", re.compile(r"GMT\+9|JST"))


def test_charts_share_their_crosshair(show: Show) -> None:
    page = show("#/query/popular")
    charts = page.locator(".chart")
    expect(charts).to_have_count(6)
    expect(charts.nth(1).locator("dd").first).to_have_text("30 ms")
    newest = charts.nth(0).locator("dd").first.inner_text()

    box = charts.nth(1).locator(".plot").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] / 2)

    expect(charts.nth(0).locator("dd").first).not_to_have_text(newest)
    expect(page.locator(".toolbar")).to_contain_text("ago")


def test_no_output_and_a_failure_are_explained(show: Show, site: Site) -> None:
    silence = "Append mode writes a window when the watermark has passed its end."
    failure = {"message": "query popular failed", "why": "divide by zero", "hint": "mend the SQL", "where": "a.py:3"}
    site.state(query={"phase": "failed", "silence": silence, "error": failure})

    page = show("#/query/popular")

    for words in (silence, *failure.values()):
        expect(page.locator("main")).to_contain_text(words)


def test_a_restart_is_told_in_one_sentence(show: Show, site: Site) -> None:
    sentence = "restarting in 4 s (2 of 5): Kafka does not answer"
    again = {"phase": "restarting", "restart": sentence, "silence": f"The query has failed; {sentence}."}
    site.state(query=again, phase="restarting", reasons=[f"query popular: {sentence}"])

    page = show()

    expect(page.locator(".banner.brass")).to_have_text(f"query popular: {sentence}")
    expect(page.locator(".badge.restarting").first).to_be_visible()
    expect(page.locator(".node.restarting").first).to_contain_text("restarting")


def test_a_figure_that_is_not_known_says_why(show: Show, site: Site) -> None:
    site.state({"lag_seconds": float("nan"), "watermark_gap_ms": None})

    page = show()

    expect(page.locator(".figure", has_text="Behind")).to_contain_text("N/A")
    expect(page.locator(".figure", has_text="Watermark gap")).to_contain_text("because no watermark is declared")
    expect(page.locator("main")).not_to_contain_text("NaN")


def test_a_node_of_the_graph_opens_its_drawer(show: Show) -> None:
    page = show()

    page.get_by_role("button", name=re.compile("^table popular")).click()

    drawer = page.get_by_role("complementary")
    expect(drawer).to_contain_text("pipeline.py:3")
    expect(drawer).to_contain_text("SELECT 1")
    drawer.get_by_role("link", name="query popular").click()
    expect(page.get_by_role("heading", name="popular", exact=True)).to_be_visible()


def test_an_unknown_page_says_so(show: Show) -> None:
    expect(show("#/nowhere").locator("main")).to_contain_text("There is no page called “nowhere”")
