"""What the page shows of a real run is what Spark's own progress and Kafka's own tools say at the same moment."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

import millrace as mr
from cli.test_kafkas_own_tools import tool
from engine.supervision.test_offset_commits import described
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.base.api import RunContext
from millrace.dashboard.run_page import page_of_pipeline
from millrace.dashboard.server import ServerOptions
from millrace.engine.run import RunSettings, run
from millrace.engine.supervision.offset_commits import group_of
from millrace.pipeline.plan import make_plan
from millrace.telemetry.query_status import RunStatus
from web.conftest import Tabs

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from pyspark.sql import SparkSession

    from millrace.clients.kafka.cluster import Cluster
    from millrace.dashboard.run_page import RunPage

QUERY = "counts-complete"
FIRST, LATER = 700, 300


def produce(cluster: Cluster, topic: str, count: int) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(f"word{number % 50}".encode(), partition=number % 3) for number in range(count)])
    producer.close()


@contextmanager
def running(spark: SparkSession, cluster: Cluster, topic: str, folder: Path) -> Iterator[RunPage]:
    """A run with one batch, and the next one an hour later."""
    pipeline = mr.Pipeline(f"truth-{topic}", trigger="1h")
    pipeline.source("words", mr.kafka(topic, format="text"))
    pipeline.sql("counts", "SELECT value, count(*) AS count FROM words GROUP BY value")
    pipeline.sink("counts", mr.memory(), mode="complete")
    plan, run_status, stop = make_plan(pipeline.model(), panels=True), RunStatus(), threading.Event()
    with (
        page_of_pipeline(plan, run_status, ServerOptions(port=0), state=folder) as watching,
        watching.kafka(lambda: cluster),
    ):
        settings = RunSettings(
            RunContext(folder, lambda: cluster, session=spark),
            channels=watching.channels,
            on_session_open=watching.spark_is,
        )
        thread = threading.Thread(target=run, args=(plan, settings, run_status, stop), daemon=True)
        thread.start()
        try:
            yield watching
        finally:
            stop.set()
            thread.join(60)


def progress(spark: SparkSession) -> dict[str, Any]:
    """What Spark itself tells of the query's batch, as soon as there was one."""
    for _ in range(1200):
        for query in spark.streams.active:
            if query.name == QUERY and query.lastProgress and query.lastProgress["numInputRows"]:
                told: dict[str, Any] = json.loads(query.lastProgress.json)
                return told
        threading.Event().wait(0.05)
    raise AssertionError("there was no batch")


def figure(page: Page, name: str) -> Any:
    return page.locator(".query .figure", has_text=re.compile(f"^{name}"))


def duration(ms: int) -> str:
    """As the page writes it, the unit in an element of its own."""
    return f"{ms}ms" if ms < 1000 else f"{ms / 1000:.{1 if ms < 10_000 else 0}f}".removesuffix(".0") + "s"


def test_the_page_says_what_spark_and_kafka_say(
    tabs: Tabs, spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    produce(cluster, topic, FIRST)
    with running(spark, cluster, topic, tmp_path) as watching:
        theirs = progress(spark)
        produce(cluster, topic, LATER)
        shell = tool("GetOffsetShell", "--bootstrap-server", cluster.bootstrap, "--topic", topic)
        ends = {int(part): int(end) for part, end in re.findall(rf"{topic}:(\d+):(\d+)", shell)}
        read = {int(part): end for part, end in theirs["sources"][0]["endOffset"][topic].items()}
        assert sum(ends.values()) == FIRST + LATER

        page = tabs.open(f"{watching.address}#/query/{QUERY}")

        behind = sum(ends.values()) - sum(read.values())
        expect(figure(page, "Behind")).to_contain_text(f"{behind} records")
        assert sum(lag for _, lag in described(cluster, group_of(f"truth-{topic}", QUERY)).values()) == behind
        expect(figure(page, "Rows in")).to_contain_text(f"{theirs['numInputRows']} in all")
        expect(figure(page, "Batch")).to_contain_text(duration(theirs["durationMs"]["triggerExecution"]))
        expect(figure(page, "State")).to_contain_text(f"{theirs['stateOperators'][0]['numRowsTotal']}rows")
        page.goto(f"{watching.address}#/topics/{topic}")
        rows = page.get_by_role("grid", name="partitions").get_by_role("row")
        for part, end in ends.items():  # below the row of headings
            expect(rows.nth(part + 1)).to_contain_text(f"{end}")
        tabs.close()  # before its server
