"""The page under load: 500 updates a second to two tabs; how late they are seen, and what that costs the browser.

python bench/page.py [SECONDS]
"""

from __future__ import annotations

import gzip
import math
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.dashboard.app import STATIC

# The browser and the site made by hand are those of the tests.
sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("scripts", "tests")]

from browser import browser  # noqa: E402

from web.site import Site, now  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

SECONDS = 30.0
RATE = 500
QUERY = "popular"
# Both write the moment at which they were made into the page; the clocks are the same.
SEEN = """([place, attribute]) => {
  window.lags = [];
  const element = document.querySelector(place);
  const look = () => {
    const digits = (attribute ? element.getAttribute(attribute) : element.textContent).replace(/\\D/g, "");
    window.lags.push(Date.now() - Number(digits));
  };
  new MutationObserver(look).observe(element, {attributes: true, characterData: true, childList: true, subtree: true});
}"""


def main() -> None:
    """Measure and tell."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    first = sum(len(gzip.compress(path.read_bytes())) for path in STATIC.rglob("*") if path.is_file())
    print(f"first load: {first / 1000:.0f} KB gzipped (goal: under 200)")
    site = Site()
    site.everything()
    site.start()
    with browser() as started:
        tabs = {
            "results": (started.new_context().new_page(), "#/results", ["#panel-popular-number strong", "title"]),
            "query": (started.new_context().new_page(), f"#/query/{QUERY}", [".heading .note", None]),
        }
        for page, where, seen in tabs.values():
            page.goto(site.address + where)
            page.locator(str(seen[0])).first.wait_for()
            page.evaluate(SEEN, seen)
        watched = {name: Thread(page) for name, (page, _, _) in tabs.items()}
        sent, seconds = pour(site, seconds, lambda: tabs["query"][0].wait_for_timeout(100))
        print(f"{sent / seconds:,.0f} updates/s for {seconds:.0f} s to {len(tabs)} tabs (goal: {RATE})")
        for name, (page, _, _) in tabs.items():
            tell(name, page.evaluate("window.lags"), watched[name].share())
    site.stop()


class Thread:
    """The main thread of a tab since it was looked at first."""

    def __init__(self, page: Page) -> None:
        self._session: CDPSession = page.context.new_cdp_session(page)
        self._session.send("Performance.enable")
        self._began = self._metrics()

    def share(self) -> tuple[float, float]:
        """The part of the time in which it had work, and in which it had a processor for that as well."""
        ended = self._metrics()
        spent = {name: ended[name] - self._began[name] for name in ("Timestamp", "TaskDuration", "ThreadTime")}
        return spent["TaskDuration"] / spent["Timestamp"], spent["ThreadTime"] / spent["Timestamp"]

    def _metrics(self) -> dict[str, float]:
        return {one["name"]: one["value"] for one in self._session.send("Performance.getMetrics")["metrics"]}


def pour(site: Site, seconds: float, wait: Callable[[], None]) -> tuple[int, float]:
    """Update channel after channel, so many times a second, from a thread, while the browser is waited for."""
    stop, sent, began = threading.Event(), 0, time.monotonic()
    kinds = updates(site)

    def work() -> None:
        nonlocal sent
        while not stop.is_set():
            while sent < (time.monotonic() - began) * RATE:
                kinds[sent % len(kinds)](sent)
                sent += 1
            time.sleep(0.002)

    thread = threading.Thread(target=work)
    thread.start()
    while time.monotonic() < began + seconds:
        wait()
    stop.set()
    thread.join()
    return sent, time.monotonic() - began


def updates(site: Site) -> list[Callable[[int], Any]]:
    """One for each channel that the two tabs look at."""
    history, lag = site.channels.row_buffer(f"history:{QUERY}", 600), site.channels.row_buffer(f"lag:{QUERY}", 600)
    keys = "abcde"

    def wave(number: int) -> float:
        return 500 + 300 * math.sin(number / 90)

    def series(number: int) -> None:
        start = now() - 120_000
        rows = [[start + at * 1000, key, wave(number + at)] for at in range(120) for key in keys]
        site.panel("series", ["time", "key", "value"], rows)

    return [
        lambda n: site.state({"in_rate": wave(n)}, {"doing": f"at {now()}"}),
        lambda _: site.panel("number", ["value"], [[now()]]),
        lambda n: site.panel("top", ["label", "value"], [[f"tag {at}", wave(n + at * 40)] for at in range(10)]),
        series,
        lambda n: site.panel("table", ["word", "count"], [[f"word {at}", n + at] for at in range(50)]),
        lambda n: history.append(
            {"time": now(), "batch": n, "input_rate": wave(n), "rate": 900, "phase:addBatch": wave(n), "state_rows": n}
        ),
        lambda n: lag.append({"time": now(), "lag": n % 90, "seconds": 1.5, "p:posts/0": n % 40, "p:posts/1": n % 50}),
        lambda n: site.event(f"event {n}"),
    ]


def tell(name: str, lags: list[float], share: tuple[float, float]) -> None:
    """The figures of a tab."""
    p95 = statistics.quantiles(lags, n=20)[-1]
    print(
        f"{name}: seen {len(lags):,} times, p50 {statistics.median(lags):.0f} ms, p95 {p95:.0f} ms after the update "
        f"(goal: p95 under 300), main thread busy {share[0]:.0%} of the time "
        f"(goal: under 60%), {share[1]:.0%} on a processor"
    )


if __name__ == "__main__":
    main()
