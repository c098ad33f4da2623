"""The page beside a real run: from a record to its being seen, and what the page costs a pipeline that catches up.

python bench/dashboard.py [pixel] [cost]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from measure import MILLRACE, Took, broker, median, run
from pipelines import JOBS, RECORDS, event, fill

from millrace.clients.kafka import topics
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from browser import browser

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from millrace.clients.kafka.cluster import Cluster

SEEN = 40
"""Records that are followed to the page."""
ROUNDS = int(os.environ.get("ROUNDS", "5"))
PIPELINE = """
name: pixel
sources: {marks: {kafka: marks, schema: "mark bigint"}}
tables: {newest: "SELECT max(mark) AS mark FROM marks"}
sinks: [{from: newest, memory: , mode: complete}]
panels: [{from: newest, number: {value: mark}}]
"""


def pixel(cluster: Cluster) -> None:
    """One record after the other, each when the one before is on the page."""
    topics.create(cluster, "marks", 1)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pixel.yaml").write_text(PIPELINE)
        command = [MILLRACE, "run", "pixel.yaml", "--kafka", cluster.bootstrap]
        with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as running, browser() as started:
            assert running.stderr
            address = next(line.split()[-1] for line in running.stderr if line.startswith("the dashboard is at"))
            page = started.new_page()
            page.goto(f"{address}#/results")
            producer = Producer(cluster, "marks")
            took = [followed(producer, page, mark) for mark in range(1, SEEN + 1)][SEEN // 4 :]
            producer.close()
            history = httpx.get(f"{address}api/queries/newest-complete").json()["history"]
            running.terminate()
    batch = median([float(one["ms"]) for one in history if one["ms"]][SEEN // 4 :])
    late = median(took) * 1000
    print(f"record to page: p50 {late:.0f} ms, a batch {batch:.0f} ms, beyond it {late - batch:.0f} ms (goal: 300)")


def followed(producer: Producer, page: Page, mark: int) -> float:
    """Seconds from the sending of a record to its number in the page."""
    began = time.monotonic()
    producer.send([Record(b'{"mark": %d}' % mark)])
    page.wait_for_function(
        "mark => document.querySelector('.big strong')?.title === mark", arg=f"{mark:,}", polling="raf", timeout=90_000
    )
    return time.monotonic() - began


def cost(cluster: Cluster) -> None:
    """The windowed count with its page and without, in turn."""
    os.environ |= {"TOPIC": "windows", "MILLRACE_KAFKA": cluster.bootstrap}
    fill(cluster, "windows", event)
    took: dict[bool, list[Took]] = {True: [], False: []}
    for number in range(ROUNDS):
        for shown in (True, False) if number % 2 else (False, True):
            with tempfile.TemporaryDirectory() as folder:
                flags = ["--port", "0"] if shown else ["--no-dashboard"]
                script = JOBS / "windows_ours.py"
                took[shown].append(run(MILLRACE, "run", script, "--until-caught-up", "--state", folder, *flags))
    for measure in ("wall", "cpu"):
        on, off = (median([getattr(one, measure) for one in took[shown]]) for shown in (True, False))
        print(
            f"catch-up of {RECORDS:,} records, {measure} seconds: page {on:.1f}, none {off:.1f}, ratio {on / off:.2f}"
        )


def main() -> None:
    """Both, or the one that is named."""
    chosen = sys.argv[1:] or ["pixel", "cost"]
    with broker() as cluster:
        if "pixel" in chosen:
            pixel(cluster)
        if "cost" in chosen:
            cost(cluster)


if __name__ == "__main__":
    main()
