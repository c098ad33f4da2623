"""What dead letters cost: the windowed count over a clean topic, and over one with 1% broken records, interleaved."""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from measure import broker, median
from pipelines import RECORDS, ROUNDS, event, fill
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.api import RunContext
from millrace.engine.run import RunSettings, run
from millrace.engine.session.session import close_session, open_session
from millrace.feeds.simulation.malformed_records import WAYS, MalformedShape, WellFormed
from millrace.pipeline.plan import make_plan
from millrace.telemetry.query_status import RunStatus

SCHEMA = "id string, user string, page string, kind string, ip string, at timestamp NOT NULL"
SHAPE = MalformedShape.of("id string, user string, page string, kind string, ip string, at timestamp", "at")


def mixed(number: int) -> bytes:
    """One event in a hundred is broken, in one of the ways."""
    if number % 100 != 50:
        return event(number)
    return WAYS[number // 100 % len(WAYS)](WellFormed(event(number), SHAPE, random.Random(number))) or b""


def seconds(spark: SparkSession, cluster: Cluster, topic: str, on_bad: str) -> float:
    """Catch up with a topic; the time that it takes on a warm Spark."""
    pipeline = mr.Pipeline(f"{topic}-{on_bad}-{time.monotonic_ns()}")
    pipeline.source("events", mr.kafka(topic, schema=SCHEMA, on_bad=on_bad), watermark=("at", "10 seconds"))

    @pipeline.table
    def counts(events):  # type: ignore[no-untyped-def]
        return events.groupBy(F.window("at", "10 seconds"), "kind").count()

    pipeline.sink("counts", mr.spark("noop"), mode="update")
    with tempfile.TemporaryDirectory() as folder:
        settings = RunSettings(RunContext(Path(folder), lambda: cluster, session=spark))
        started = time.monotonic()
        run(make_plan(pipeline.model(), once=True), settings, RunStatus(), threading.Event())
        return time.monotonic() - started


def main() -> None:
    """A round to warm up, then the rounds that count."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    makers: dict[str, Callable[[int], bytes]] = {"clean": event, "mixed": mixed}
    cases = [("clean", "dead"), ("mixed", "drop"), ("mixed", "dead")]
    with broker() as cluster, tempfile.TemporaryDirectory() as folder:
        for topic, make in makers.items():
            fill(cluster, topic, make)
        spark = open_session("dead letters", master=None, settings={}, log=Path(folder) / "log")
        took: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
        for number in range(ROUNDS + 1):
            for case in cases:
                spent = seconds(spark, cluster, *case)
                took[case] += [spent] if number else []
        close_session(spark)
    base = median(took["clean", "dead"])
    for topic, on_bad in cases:
        spent = median(took[topic, on_bad])
        print(f"{topic}, on_bad {on_bad}, {RECORDS:,} records: {spent:.1f} s, {spent / base:.2f} times the clean topic")


if __name__ == "__main__":
    main()
