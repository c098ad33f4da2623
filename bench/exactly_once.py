"""Exactly once into Kafka against Spark's own sink, on one job in one run: throughput, and what a batch costs more.

python bench/exactly_once.py [throughput] [batch]
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from measure import broker, median
from pipelines import fill, line

import millrace as mr
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.base.api import RunContext
from millrace.engine.run import RunSettings, run
from millrace.engine.session.session import close_session, open_session
from millrace.pipeline.plan import make_plan
from millrace.telemetry.query_status import RunStatus

ROUNDS = int(os.environ.get("ROUNDS", "5"))
GUARANTEES = ("exactly-once", "at-least-once")
PARTITIONS = 4


def copy(topic: str, out: str, guarantee: str, **source: object) -> mr.Pipeline:
    """From topic to topic."""
    pipeline = mr.Pipeline("copy")
    pipeline.source("lines", mr.kafka(topic, format="raw", **source))
    pipeline.sink("lines", mr.kafka(out, format="raw", value="value", guarantee=guarantee))
    return pipeline


def measured(pipeline: mr.Pipeline, settings: Callable[[Path], RunSettings]) -> list[tuple[int, int]]:
    """Rows and milliseconds of each batch."""
    run_status = RunStatus()
    with tempfile.TemporaryDirectory() as folder:
        run(make_plan(pipeline.model(), once=True), settings(Path(folder)), run_status, threading.Event())
    return [(one.input_rows, one.milliseconds) for one in run_status.history("lines") if one.input_rows]


def throughput(cluster: Cluster, settings: Callable[[Path], RunSettings]) -> None:
    """Warm, in batches of 250,000."""
    fill(cluster, "full", line)
    rates: dict[str, list[float]] = {one: [] for one in GUARANTEES}
    for number in range(ROUNDS + 1):
        for one in GUARANTEES if number % 2 else GUARANTEES[::-1]:
            out = f"out-{one}-{number}"
            topics.create(cluster, out, PARTITIONS)
            done = measured(copy("full", out, one, max_per_batch=250_000, min_tasks=PARTITIONS), settings)
            if number:  # the first round warms up
                rates[one].append(sum(rows for rows, _ in done) / sum(ms for _, ms in done) * 1000)
            topics.delete(cluster, [out])
    ours, theirs = (median(rates[one]) for one in GUARANTEES)
    ratio = ours / theirs
    print(f"to Kafka, records/s: exactly once {ours:,.0f}, Spark's own {theirs:,.0f}, ratio {ratio:.2f} (goal: 0.6)")


def batch(cluster: Cluster, settings: Callable[[Path], RunSettings]) -> None:
    """Forty small batches from four partitions."""
    topics.create(cluster, "small", PARTITIONS)
    producer = Producer(cluster, "small")
    producer.send([Record(b"x", partition=number % PARTITIONS) for number in range(40 * PARTITIONS)])
    producer.close()
    spent: dict[str, list[float]] = {one: [] for one in GUARANTEES}
    for number in range(ROUNDS):
        for one in GUARANTEES if number % 2 else GUARANTEES[::-1]:
            out = f"small-{one}-{number}"
            topics.create(cluster, out, PARTITIONS)
            spent[one] += [ms for _, ms in measured(copy("small", out, one, max_per_batch=PARTITIONS), settings)[10:]]
    ours, theirs = (median(spent[one]) for one in GUARANTEES)
    print(
        f"a batch of {PARTITIONS} tasks, milliseconds: exactly once {ours:.0f}, Spark's own {theirs:.0f}, "
        f"more {ours - theirs:.0f} (goal: 150)"
    )


def main() -> None:
    """Both, or the one that is named."""
    chosen = sys.argv[1:] or ["throughput", "batch"]
    with broker() as cluster, tempfile.TemporaryDirectory() as folder:
        spark = open_session("bench", master=None, settings={}, log=Path(folder) / "spark.log")
        try:

            def settings(state: Path) -> RunSettings:
                return RunSettings(RunContext(state, lambda: cluster, session=spark))

            for one in (throughput, batch):
                if one.__name__ in chosen:
                    one(cluster, settings)
        finally:
            close_session(spark)


if __name__ == "__main__":
    main()
