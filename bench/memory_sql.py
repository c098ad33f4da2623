"""Heavy questions beside a running pipeline: how long its batches take while 50 of them are asked at once, and without.

python bench/memory_sql.py [SECONDS]
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

SECONDS = 30.0
ROUNDS = 2
ASKERS = 50
PIPELINE = """\
name: counting
sources:
  ticks: {rate: 20000}
tables:
  counts: SELECT value % 1000 AS key, count(*) AS n, max(value) AS newest FROM ticks GROUP BY 1
sinks:
  - {from: counts, memory: counts, mode: complete, trigger: 1s}
"""
HEAVY = (
    "SELECT count(*) FROM range(1000000000000)",
    "SELECT length(repeat('x', 1500000000))",
    "SELECT list(i) FROM range(1000000000) t(i)",
    "SELECT count(*) FROM counts a, counts b, counts c, counts d",
    "SELECT len(range(500000000))",
)


def main() -> None:
    """Measure in turns, quiet and asked, in one run."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    batches: dict[str, list[float]] = {"quiet": [], "asked": []}
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as page:
        time.sleep(seconds)  # until Java has compiled what is hot
        for _ in range(ROUNDS):
            batches["quiet"] += batches_of(page, seconds)
            with asked(page) as answers:
                batches["asked"] += batches_of(page, seconds)
            print(f"answers to {ASKERS} askers in {seconds:g} s, by status: {dict(answers)}")
    for name, times in batches.items():
        print(f"{name}: {len(times)} batches, median {statistics.median(times):.0f} ms, most {max(times):.0f} ms")
    ratio = statistics.median(batches["asked"]) / statistics.median(batches["quiet"])
    print(f"batches take {ratio:.2f} times as long (goal: at most 2)")


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """A pipeline with its dashboard; yields the address."""
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE, "utf-8")
    command = [
        str(Path(sys.executable).with_name("millrace")),
        "run",
        str(file),
        "--state",
        str(folder / "state"),
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as run:
        assert run.stderr
        page = next(line.split()[-1] for line in run.stderr if "http://" in line)
        threading.Thread(target=run.stderr.read, daemon=True).start()
        try:
            while httpx.get(f"{page}readyz").status_code != 200:
                time.sleep(0.1)
            yield page
        finally:
            run.send_signal(signal.SIGINT)


def batches_of(page: str, seconds: float) -> list[float]:
    """How long the batches of this time took, in ms."""
    began = time.time() * 1000
    time.sleep(seconds)
    name = httpx.get(f"{page}api/state").json()["queries"][0]["name"]
    history: list[dict[str, Any]] = httpx.get(f"{page}api/queries/{name}").json()["history"]
    return [row["ms"] for row in history if row["time"] > began]


@contextmanager
def asked(page: str) -> Iterator[Counter[int]]:
    """A time in which fifty ask again as soon as they have an answer."""
    answers: Counter[int] = Counter()
    over = threading.Event()

    def ask(number: int) -> None:
        with httpx.Client(base_url=page, timeout=120) as client:
            while not over.is_set():
                sql = HEAVY[number % len(HEAVY)]
                answers[client.post("api/sql", json={"sql": sql}).status_code] += 1
                over.wait(1.0)  # as the answer says: in a moment

    threads = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(ASKERS)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
