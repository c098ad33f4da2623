"""Topics, tails, dead letters and SQL: looking, holding, copying, taking away."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from millrace.dashboard.run_interface import LetterGroup
from web.conftest import Tabs
from web.site import BROKEN, Site

if TYPE_CHECKING:
    from playwright.sync_api import Page

Show = Callable[..., "Page"]


def test_a_tail_that_is_held_keeps_its_rows_and_counts(show: Show, site: Site, tmp_path: Path) -> None:
    page = show("#/topics/posts")
    tail = page.locator(".tail")
    expect(tail).to_contain_text("river")
    tail.get_by_role("button", name="Hold").click()

    site.tail("second", "third")

    expect(tail.get_by_role("button", name="Go on, 2 waiting")).to_be_visible()
    expect(tail.locator(".record")).to_have_count(2)
    tail.get_by_role("button", name="Go on").click()
    expect(tail.locator(".record .value").first).to_have_text("third")
    tail.get_by_role("searchbox").fill("second")
    expect(tail.locator(".record")).to_have_count(1)
    with page.expect_download() as downloading:
        tail.get_by_role("button", name="Export").click()
    saved = tmp_path / "tail.jsonl"
    downloading.value.save_as(saved)
    assert [json.loads(line)["value"] for line in saved.read_text().splitlines()] == ["second"]


def test_a_record_is_shown_whole_and_copied(show: Show) -> None:
    page = show("#/topics/posts", permissions=["clipboard-read", "clipboard-write"])

    page.locator(".record", has_text="river").click()
    drawer = page.get_by_role("complementary")
    expect(drawer.locator("pre").first).to_have_text('{\n  "word": "river"\n}')
    drawer.get_by_role("button", name="Copy value").click()

    expect(page.locator(".toast")).to_contain_text("copied value")
    assert page.evaluate("navigator.clipboard.readText()") == '{"word": "river"}'


def test_dead_letters_are_looked_at_as_bytes_and_exported(show: Show, site: Site, tmp_path: Path) -> None:
    site.bytes = b'{"at": \xff\x00}'
    page = show("#/dead")

    page.locator(".row").first.click()
    page.get_by_role("radio", name="hex").click()
    expect(page.locator(".letter pre")).to_contain_text("7b 22 61 74 22 3a 20 ff  00 7d")
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Export these").click()

    saved = tmp_path / "dead.jsonl"
    downloading.value.save_as(saved)
    assert json.loads(saved.read_text())["offset"] == 7


def test_dead_letters_are_sent_again(show: Show, site: Site, tabs: Tabs) -> None:
    page = show("#/dead")
    page.locator(".row").first.click()

    page.get_by_role("button", name="Redrive posts[0]@7").click()
    dialog = page.get_by_role("dialog", name="Redrive")
    expect(dialog).to_contain_text("Send posts[0]@7 again?")
    dialog.get_by_role("button", name="Cancel").click()
    assert site.redriven == []
    page.get_by_role("button", name="Redrive posts[0]@7").click()
    dialog.get_by_role("button", name="Send again").click()
    expect(dialog).to_contain_text("1 letter could not be sent, and stay")
    expect(dialog).to_contain_text("ValueError: <b>no</b>")
    dialog.get_by_role("button", name="Close").click()

    page.get_by_role("button", name="Redrive 3").click()
    expect(dialog).to_contain_text("Send 3 dead letters again?")
    dialog.get_by_role("button", name="Send again").click()
    expect(page.locator(".toast").last).to_contain_text("3 dead letters sent again")
    expect(dialog).to_have_count(0)
    assert site.redriven == [
        LetterGroup("posts", "posts.dead", letter="posts.dead[0]@3"),
        LetterGroup("posts", "posts.dead", BROKEN),
    ]
    expect(page.locator(".letter")).to_contain_text("sent again")
    site.dead(count=0, redriven=3)
    expect(page.get_by_role("button", name="Redrive 0")).to_be_disabled()

    site.stop()
    site.start(read_only=True)
    page = tabs.open(site.address + "#/dead")
    page.locator(".row").first.click()
    expect(page.get_by_role("button", name="Redrive 0")).to_be_disabled()


def test_sql_answers_and_refuses(show: Show, site: Site, tabs: Tabs) -> None:
    tabs.expected = ("400 (Bad Request)",)
    page = show("#/results")
    box = page.get_by_label("SQL to run")
    box.press("Control+Enter")
    expect(page.locator(".sql .row").first).to_contain_text("<b>river</b>")
    assert site.asked == ["SELECT * FROM popular LIMIT 100"]

    box.fill("DROP TABLE popular")
    page.get_by_role("button", name="Run").click()

    expect(page.locator(".sql [role=alert]")).to_contain_text("only SELECT can be asked here")
    expect(page.locator(".sql [role=alert]")).to_contain_text("write SELECT")


def test_a_page_that_may_only_read_says_so(site: Site, tabs: Tabs) -> None:
    site.stop()
    site.start(read_only=True)

    page = tabs.open(site.address + "#/results")

    expect(page.locator(".sql")).to_contain_text("SQL is switched off, because the run was started with --read-only")
    expect(page.get_by_role("button", name="Run")).to_be_disabled()


def test_what_cannot_be_had_is_explained(show: Show, site: Site) -> None:
    site.channels.set_problem("tail:posts", "the broker does not answer")
    site.channels.set_problem("dead", "there is no Kafka")

    page = show("#/topics/posts")
    expect(page.locator(".tail")).to_contain_text("N/A, because the broker does not answer")
    page.goto(site.address + "#/dead")
    expect(page.locator("main")).to_contain_text("N/A, because there is no Kafka")
    site.channels.set_problem("dead", None)
    expect(page.locator("main")).not_to_contain_text("there is no Kafka")
