"""The connection: servers that die and come back, tabs that stall, silence, and a page that is paused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from web.conftest import Tabs
from web.site import Site, now

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route, WebSocketRoute

Show = Callable[..., "Page"]

LOST = ("WebSocket connection", "ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET")


def events(page: Page) -> list[str]:
    """The events on the page, oldest first."""
    return page.locator(".events .text").all_inner_texts()[::-1]


def test_a_server_that_comes_back_leaves_no_gap(show: Show, site: Site, tabs: Tabs) -> None:
    tabs.expected = LOST
    page = show()
    for number in range(20):
        site.event(f"event {number}")
    expect(page.locator(".events")).to_contain_text("event 19")

    site.stop()
    expect(page.locator(".banner")).to_contain_text("no connection to the pipeline")
    for number in range(20, 40):
        site.event(f"event {number}")
    site.start()

    expect(page.locator(".freshness")).to_have_class(re.compile("live"))
    expect(page.locator(".events")).to_contain_text("event 39")
    expect(page.locator(".banner")).to_have_count(0)
    assert events(page)[1:] == [f"event {number}" for number in range(40)]


def test_a_server_that_was_killed_and_started_anew_is_believed(show: Show, site: Site, tabs: Tabs) -> None:
    tabs.expected = LOST
    page = show()
    site.event("before")
    expect(page.locator(".events")).to_contain_text("before")

    site.restart()
    site.state({"in_rate": 4242})
    site.event("after")

    expect(page.locator(".events")).to_contain_text("after")
    expect(page.locator(".figures")).to_contain_text("4,242")
    assert events(page) == ["after"]


STALL = """setTimeout(() => {
    const request = new XMLHttpRequest();
    request.open("GET", "/stall", false);
    request.send();
})"""


def test_a_tab_that_stalls_delays_nobody_and_catches_up(show: Show, site: Site) -> None:
    stalled, other = show(), show()
    held: list[Route] = []
    stalled.route("**/stall", lambda route: held.append(route))  # noqa: PLW0108 (Playwright marks what it is given)
    stalled.evaluate(STALL)  # it waits for an answer, and nothing else happens in it
    while not held:
        other.wait_for_timeout(20)

    for number in range(10):
        site.state({"in_rate": 9000 + number})
        expect(other.locator(".figures")).to_contain_text(f"{9000 + number:,}")
    held[0].fulfill(body="go on")

    expect(stalled.locator(".figures")).to_contain_text("9,009")


def test_pause_freezes_the_page_and_says_how_much_waits(show: Show, site: Site) -> None:
    page = show()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".banner")).to_contain_text("0 updates waiting")

    site.state({"in_rate": 5555})
    site.event("while it was paused")

    expect(page.locator(".banner")).to_contain_text("2 updates waiting")
    expect(page.locator(".figures")).to_contain_text("1,234")
    expect(page.locator(".freshness")).to_contain_text("paused")
    page.get_by_role("link", name="Topics").click()
    expect(page.locator("main")).to_contain_text("of this pipeline")  # what was not shown yet is shown all the same
    page.get_by_role("link", name="Overview", exact=True).click()
    page.locator(".banner").get_by_role("button", name="Go on").click()
    expect(page.locator(".figures")).to_contain_text("5,555")
    expect(page.locator(".events")).to_contain_text("while it was paused")
    expect(page.locator(".banner")).to_have_count(0)


def test_silence_is_told_after_three_heartbeats(site: Site, tabs: Tabs) -> None:
    tabs.expected = LOST
    page = tabs.open("about:blank")

    def greet(socket: WebSocketRoute) -> None:
        hello = {"type": "hello", "epoch": "e", "time": now(), "tick": 100, "heartbeat": 600}
        socket.send(json.dumps(hello))

    page.route_web_socket(re.compile("/ws$"), greet)
    page.goto(site.address)

    expect(page.locator(".banner")).to_contain_text("stale: the server has been silent for three heartbeats")


def test_a_frame_that_leaves_a_gap_is_asked_for_again(site: Site, tabs: Tabs) -> None:
    page = tabs.open("about:blank")
    asked: list[dict[str, object]] = []

    def answer(socket: WebSocketRoute) -> None:
        def rows(kind: str, version: int, *texts: str) -> str:
            columns = {
                "time": [now() for _ in texts],
                "level": ["info" for _ in texts],
                "query": [None for _ in texts],
                "text": texts,
            }
            channels = {"events": {"kind": kind, "version": version, "data": {"columns": columns}}}
            frame = {"type": "frame", "seq": version, "time": now(), "channels": channels, "coalesced": 3, "dropped": 2}
            return json.dumps(frame)

        def listen(text: str | bytes) -> None:
            message = json.loads(text)
            if message["type"] != "subscribe" or "events" not in message["channels"]:
                return
            asked.append(message["have"]["versions"])
            if len(asked) == 1:
                socket.send(rows("snapshot", 1, "one"))
                socket.send(rows("append", 4, "four"))  # two and three are missing
            else:
                socket.send(rows("snapshot", 4, "one", "two", "three", "four"))

        socket.on_message(listen)
        socket.send(json.dumps({"type": "hello", "epoch": "e", "time": now(), "tick": 100, "heartbeat": 60_000}))

    page.route_web_socket(re.compile("/ws$"), answer)
    page.goto(site.address)

    expect(page.locator(".events li")).to_have_count(4)
    assert events(page) == ["one", "two", "three", "four"]
    assert "events" not in asked[1]
    expect(page.locator(".freshness")).to_contain_text(re.compile(r"\d+ merged · \d+ dropped"))
