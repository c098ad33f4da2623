"""Pictures of every page of the dashboard, dark and light, over made-up data: `make screenshots`.

python scripts/screenshots.py [--into DIR] [--after SECONDS]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from browser import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SAMPLE = Path(__file__).parent / "dashboard_sample.py"
SIZE = {"width": 1440, "height": 900}
PAGES = {
    "overview": "",
    "query": "#/query/popular-update",
    "results": "#/results",
    "topics": "#/topics/posts",
    "dead": "#/dead",
    "about": "#/about",
}


def main() -> None:
    """Take the pictures."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--into", type=Path, default=Path("screenshots"))
    given.add_argument("--after", type=float, default=75.0, help="seconds of made-up data before the first picture")
    options = given.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    with sample() as address, browser() as started:
        pages = {scheme: opened(started, address, scheme) for scheme in ("dark", "light")}
        time.sleep(options.after)  # the charts want something to show
        for scheme, page in pages.items():
            for name, where in PAGES.items():
                take(page, where, name, options.into / f"{name}-{scheme}.png")


@contextmanager
def sample() -> Iterator[str]:
    """The address of a server over made-up data."""
    command = [sys.executable, str(SAMPLE), "--port", "0", "--fail", "0", "--start", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout  # noqa: S101
        try:
            yield started.stdout.readline().strip()
        finally:
            started.terminate()


def opened(started: Browser, address: str, scheme: str) -> Page:
    """A tab in one of the themes, left open so that its trends have a past."""
    context = started.new_context(viewport=SIZE, color_scheme=scheme, device_scale_factor=2)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    return page


def take(page: Page, where: str, name: str, path: Path) -> None:
    """One picture, once the page has its data."""
    page.evaluate("where => { location.hash = where }", where)  # not loaded anew: trends stay
    page.locator("main .card, main .chart").first.wait_for()
    if name == "dead":
        page.locator(".row").first.click()
        page.locator(".letter").first.wait_for()
    page.wait_for_timeout(2_500)
    page.screenshot(path=path)
    print(path)


if __name__ == "__main__":
    main()
