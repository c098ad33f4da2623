"""A real Chromium before a real server; every request is noted, and every error of the page fails its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from browser import browser
from playwright.sync_api import expect

from web.site import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

# Playwright's loop runs in the thread of the tests for as long as the browser does: no longer than this folder's tests.
PATIENCE = 15_000


class Tabs:
    """Opens tabs, and notes what they ask for and what goes wrong in them."""

    def __init__(self, chromium: Browser) -> None:
        self._chromium = chromium
        self._contexts: list[BrowserContext] = []
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.expected: tuple[str, ...] = ()
        """Parts of errors that a test brings about itself."""

    def open(self, address: str, **options: Any) -> Page:
        """A tab of its own, with nothing remembered, at an address."""
        context = self._chromium.new_context(viewport={"width": 1280, "height": 800}, **options)
        context.set_default_timeout(PATIENCE)
        self._contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", lambda socket: self.requests.append(socket.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        page.goto(address)
        return page

    def close(self) -> None:
        """Close every tab."""
        for context in self._contexts:
            context.close()

    def unexpected(self) -> list[str]:
        """Errors that the test did not bring about."""
        return [one for one in self.errors if not any(part in one for part in self.expected)]

    def outside(self) -> list[str]:
        """Requests that left the machine, or tried to."""
        return [url for url in self.requests if urlsplit(url).hostname not in ("127.0.0.1", None)]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser. While Playwright is open, this thread has a running event loop, which tests of other files may not."""
    expect.set_options(timeout=PATIENCE)
    with browser() as started:
        yield started


@pytest.fixture
def tabs(chromium: Browser) -> Iterator[Tabs]:
    """`tabs.open(ADDRESS)` opens a tab."""
    made = Tabs(chromium)
    yield made
    made.close()
    assert made.unexpected() == []
    assert made.outside() == []


@pytest.fixture
def site() -> Iterator[Site]:
    """A server with something on every page."""
    made = Site()
    made.everything()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def show(site: Site, tabs: Tabs) -> Callable[..., Page]:
    """`show("#/topics")` opens a tab at a page of the site, and waits until it is live."""

    def open_(where: str = "", **options: Any) -> Page:
        page = tabs.open(site.address + where, **options)
        page.locator(".freshness.live").wait_for()
        return page

    return open_
