"""Records full of markup, control characters, a megabyte, no number, ten thousand keys: shown as what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from web.site import Site, now

if TYPE_CHECKING:
    from playwright.sync_api import Page

Show = Callable[..., "Page"]

MARKUP = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script><b>&amp;\''


def clean(page: Page) -> bool:
    """Whether nothing of a record has become part of the page."""
    return bool(page.evaluate("!('hacked' in window) && !document.querySelector('main img, main script, main b > b')"))


def test_markup_stays_text_on_every_page(show: Show, site: Site) -> None:
    failure = {"message": MARKUP, "why": MARKUP, "hint": MARKUP, "where": MARKUP}
    site.state(query={"name": MARKUP, "phase": "failed", "silence": MARKUP, "error": failure, "doing": MARKUP})
    site.event(MARKUP, "error", MARKUP)
    site.batches(3, MARKUP)
    site.panel("top", ["label", "value"], [[MARKUP, 9]], note=MARKUP)
    site.panel("series", ["time", "key", "value"], [[now() - n, MARKUP, n] for n in range(3)])
    site.panel("heat", ["x", "y", "value"], [[MARKUP, MARKUP, 1]])
    site.panel("table", [MARKUP, "count"], [[MARKUP, {"a": MARKUP}]])
    site.panel("number", ["value"], [[1]], options={"unit": MARKUP})
    site.tail(MARKUP, '{"a": "' + MARKUP.replace('"', "'") + '"}')
    site.dead(MARKUP)
    site.bytes = MARKUP.encode()

    page = show()
    expect(page.locator(".events")).to_contain_text(MARKUP)
    expect(page.locator(".toast")).to_have_count(0)  # what happened before the page was opened is no news
    page.locator("nav a", has_text=MARKUP).click()
    expect(page.locator(".failure h3")).to_have_text(MARKUP)
    expect(page.locator(".silence")).to_contain_text(MARKUP)
    page.goto(site.address + "#/results")
    for kind in ("top", "series", "table"):
        expect(page.locator(f"#panel-popular-{kind}")).to_contain_text(MARKUP[:20])
    page.locator("#panel-popular-table .row").first.click()
    expect(page.get_by_role("complementary")).to_contain_text(MARKUP)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".sql")).to_contain_text("<b>river</b>")
    page.goto(site.address + "#/topics/posts")
    expect(page.locator(".tail")).to_contain_text(MARKUP)
    page.get_by_role("radio", name="pretty").click()
    expect(page.locator(".tail")).to_contain_text(MARKUP)
    page.goto(site.address + "#/dead")
    page.locator(".row").first.click()
    expect(page.locator(".letter pre")).to_have_text(MARKUP)
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_contain_text(MARKUP)
    assert clean(page)


def test_control_characters_are_seen(show: Show, site: Site) -> None:
    site.tail("bell \x07 nothing \x00 escape \x1b[31m backwards \u202eabc wide\u200bless")

    page = show("#/topics/posts")

    expect(page.locator(".record").first).to_contain_text("bell ␇ nothing ␀ escape ␛[31m backwards ⟨U+202E⟩abc")
    expect(page.locator(".record").first).to_contain_text("⟨U+200B⟩")


def test_a_megabyte_is_cut_by_the_server_and_by_the_page(show: Show, site: Site) -> None:
    long = "x" * 1_000_000
    site.panel("table", ["word", "count"], [[long, 1]])
    page = show("#/results")
    expect(page.locator("#panel-popular-table .row")).to_contain_text("KB)")

    page.route("**/api/sql", lambda route: route.fulfill(json={"columns": ["word"], "rows": [[long]]}))
    page.get_by_role("button", name="Run").click()

    row = page.locator(".sql .row")
    expect(row).to_contain_text("977 KB")
    assert page.evaluate("document.body.textContent.length") < 30_000
    row.click()
    expect(page.get_by_role("complementary")).to_contain_text("the first 19.5 KB of 977 KB")


def test_what_is_no_number_is_not_shown_as_one(show: Show, site: Site) -> None:
    nothing = float("nan")
    site.panel("number", ["value"], [[None]])
    site.panel("top", ["label", "value"], [["kafka", nothing], [None, 3]])
    site.panel("series", ["time", "key", "value"], [[now(), "a", nothing], [None, "a", 1], [now(), None, float("inf")]])
    site.panel("heat", ["x", "y", "value"], [["a", "b", None]])
    site.panel("table", ["word", "count"], [[None, nothing]])

    page = show("#/results")

    expect(page.locator("#panel-popular-number")).to_contain_text("N/A, because the value is null")
    expect(page.locator("#panel-popular-top")).to_contain_text("N/A")
    expect(page.locator("#panel-popular-table .row")).to_contain_text("null")
    for word in ("NaN", "Infinity", "undefined"):
        expect(page.locator("main")).not_to_contain_text(word)


def test_ten_thousand_keys_leave_the_page_quick(show: Show, site: Site) -> None:
    keys = [f"key {n}" for n in range(10_000)]
    site.panel("table", ["word", "count"], [[key, n] for n, key in enumerate(keys)])
    site.panel("top", ["label", "value"], [[key, n] for n, key in enumerate(keys)])
    site.panel("series", ["time", "key", "value"], [[now() - n, key, n] for n, key in enumerate(keys)])
    site.panel("heat", ["x", "y", "value"], [[key, key, n] for n, key in enumerate(keys)])

    page = show("#/results")

    expect(page.locator("#panel-popular-series")).to_contain_text("9,988 more keys not drawn")
    expect(page.locator("#panel-popular-heat")).to_contain_text("not drawn")
    assert page.evaluate("document.querySelectorAll('*').length") < 3_000
    table = page.locator("#panel-popular-table")
    table.get_by_role("searchbox").fill("9999")
    expect(table).to_contain_text("1 of 10,000")
    expect(table.locator(".row")).to_have_count(1)
    table.get_by_role("searchbox").fill("")
    table.locator(".body").evaluate("body => body.scrollTo(0, body.scrollHeight)")
    expect(table).to_contain_text("key 9999")


def test_a_column_that_vanished_is_named_and_the_rows_are_shown(show: Show, site: Site) -> None:
    page = show("#/results")
    expect(page.locator("#panel-popular-top")).to_contain_text("kafka")

    site.panel("top", ["name", "value"], [["river", 9]])

    panel = page.locator("#panel-popular-top")
    expect(panel).to_contain_text("N/A, because the table has no column label")
    expect(panel).to_contain_text("it has name, value")
    expect(panel.locator(".row")).to_contain_text("river")
    site.panel("top", ["label", "value"], [["back", 9]])
    expect(panel).to_contain_text("back")
    expect(panel).not_to_contain_text("N/A")


def test_an_error_of_a_panel_is_shown_in_its_place(show: Show, site: Site) -> None:
    error = {"message": "the panel cannot be computed", "why": "no column tag", "hint": "name another", "where": None}
    site.panel("top", [], [], error=error)

    page = show("#/results")

    expect(page.locator("#panel-popular-top")).to_contain_text("the panel cannot be computed")
    expect(page.locator("#panel-popular-table")).to_contain_text("river")


def test_a_clock_that_is_set_back_leaves_charts_right(show: Show, site: Site) -> None:
    row = {"time": now() - 3_600_000, "batch": 61, "input_rate": 3.0, "phase:addBatch": 1}
    site.channels.row_buffer("history:popular", 600).append(row)

    page = show("#/query/popular")

    expect(page.locator(".chart dd").first).to_have_text("3/s")
    expect(page.locator("main")).not_to_contain_text("NaN")
