"""Nothing leaves the machine, and what is loaded is small."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import expect

from web.conftest import Tabs
from web.site import Site

if TYPE_CHECKING:
    from playwright.sync_api import Page

Show = Callable[..., "Page"]

MOST = 200_000
"""Bytes of the first load, gzipped, that are promised."""


def test_every_request_goes_to_the_run_itself(show: Show, site: Site, tabs: Tabs) -> None:
    page = show()
    for name in ("Results", "Topics", "Dead letters", "About", "Overview"):
        page.get_by_role("link", name=name, exact=True).or_(page.get_by_role("link", name=name)).first.click()
        expect(page.locator("main .card").first).to_be_visible()

    asked = {urlsplit(url).netloc for url in tabs.requests}
    assert asked == {f"127.0.0.1:{site.port}"}
    assert any(urlsplit(url).scheme == "ws" for url in tabs.requests)


def test_the_policy_forbids_what_the_page_does_not_need(show: Show, site: Site, tabs: Tabs) -> None:
    tabs.expected = ("Content Security Policy",)
    page = show()

    refused = page.evaluate("fetch('http://127.0.0.2:9/').then(() => 'sent', () => 'refused')")
    inline = page.evaluate(
        "() => { const made = document.createElement('script'); made.textContent = 'window.hacked = 1';"
        " document.body.append(made); return 'hacked' in window }"
    )

    assert refused == "refused"
    assert not inline
    tabs.requests = [url for url in tabs.requests if "127.0.0.2" not in url]


def test_the_first_load_is_small(show: Show, tabs: Tabs) -> None:
    show()
    loaded = [url for url in tabs.requests if "/assets/" in url or url.endswith("/")]

    size = sum(len(gzip.compress(httpx.get(url).content)) for url in loaded if url.startswith("http"))

    assert 10_000 < size < MOST
