"""A steady 1,000 records/s (job M of the comparison, with its options), and then the demo: how fresh, at what cost.

python bench/at_rest.py [--quick] [--peers NAME,…] [--rounds N] [--into DIR] [--add]
python bench/at_rest.py --demo    only the demo
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import compare
import httpx
from measure import MILLRACE
from peers.process import Watched

WARM_S, MEASURED_S = 60.0, 60.0
_PATIENCE_S = 120.0


def main() -> None:
    """Job M, then the demo."""
    if sys.argv[1:] != ["--demo"]:
        compare.main(__doc__, "M1,M2")
    demo()


def demo() -> None:
    """Six queries at 200 records/s of each topic: until the charts move, how far behind each is, what all cost."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        port = free_port()
        command: list[str | Path] = [MILLRACE, "demo", "--no-open", "--port", str(port), "--for", "600s"]
        program = Watched(command, {"MILLRACE_KAFKA_DATA": f"{folder}/kafka"}, Path(folder, "log"))
        try:
            api = f"http://127.0.0.1:{port}/api"
            names = charts(program, api)
            moved = Moved(api, names, program.started)
            moved.wait(_PATIENCE_S)
            program.wait(WARM_S)
            before_cpu, before = program.cpu(time.monotonic()), history(api)
            program.wait(MEASURED_S)
            used = (program.cpu(time.monotonic()) - before_cpu) / MEASURED_S
            after = history(api)
        finally:
            program.end()
    behind = {name: sorted(lags_between(after[name], before[name])) for name in after}
    every = sorted(second for lags in behind.values() for second in lags)
    seconds = sorted(moved.seconds.values())
    print(f"demo: the first chart moves after {seconds[0]:.1f} s, all {len(seconds)} after {seconds[-1]:.1f} s")
    print(
        f"demo: behind p50 {part(every, 50):.2f} s, p95 {part(every, 95):.2f} s; CPU {used:.0%} with broker and feeds"
    )
    for name, lags in behind.items():
        took = statistics.median(row["ms"] for row in after[name]["history"] if row.get("ms"))
        print(f"  {name}: behind p50 {part(lags, 50):.2f} s, p95 {part(lags, 95):.2f} s; a batch {took:.0f} ms")


class Moved:
    """When each chart had rows for the first time."""

    def __init__(self, api: str, names: Iterable[str], started: float) -> None:
        self.seconds: dict[str, float] = {}
        self._api, self._names, self._started = api, list(names), started
        self._all = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Wait until all have moved."""
        if not self._all.wait(seconds):
            raise SystemExit(f"only {sorted(self.seconds)} of {self._names} have moved after {seconds:.0f} s")

    def _follow(self) -> None:
        channels = ",".join(f"panel:{name}" for name in self._names)
        with httpx.stream("GET", f"{self._api}/events", params={"channels": channels}, timeout=_PATIENCE_S) as answer:
            for line in answer.iter_lines():
                if not line.startswith("data:"):
                    continue
                for channel, update in json.loads(line[5:]).get("channels", {}).items():
                    if (update.get("data") or {}).get("rows"):
                        self.seconds.setdefault(channel.partition(":")[2], time.monotonic() - self._started)
                if len(self.seconds) == len(self._names):
                    self._all.set()
                    return


def charts(program: Watched, api: str) -> list[str]:
    """The names of the charts, when the page answers."""
    limit = time.monotonic() + _PATIENCE_S
    while time.monotonic() < limit and program.ended() is None:
        try:
            return [panel["id"] for panel in httpx.get(f"{api}/pipeline").json()["panels"]]
        except (httpx.TransportError, KeyError):
            program.wait(0.05)
    raise SystemExit(f"the page does not answer: {program.last_words()}")


def history(api: str) -> dict[str, dict[str, list[dict[str, float]]]]:
    """The batches and lags of each query that writes, by its name."""
    names = [query["name"] for query in httpx.get(f"{api}/state").json()["queries"]]
    return {name: httpx.get(f"{api}/queries/{name}").json() for name in names}


def lags_between(after: dict[str, list[dict[str, float]]], before: dict[str, list[dict[str, float]]]) -> list[float]:
    """Seconds behind of each look since the one before."""
    since = max((row["time"] for row in before["lags"]), default=0.0)
    return [row["seconds"] or 0.0 for row in after["lags"] if row["time"] > since]


def part(values: list[float], percent: int) -> float:
    """The value that so many percent are not above."""
    return values[min(len(values) - 1, len(values) * percent // 100)] if values else float("nan")


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


if __name__ == "__main__":
    main()
