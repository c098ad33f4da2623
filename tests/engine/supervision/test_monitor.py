"""Queries are seen from their start to their end, whoever started them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from confluent_kafka import Producer

from millrace.clients.kafka.cluster import Cluster
from millrace.engine.supervision.monitor import QueryMonitor
from millrace.telemetry.progress import BatchProgress
from millrace.telemetry.query_status import Phase, QueryStatus, RunStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def until(run_status: RunStatus, holds: Callable[[QueryStatus], bool], query: str) -> QueryStatus:
    """The standing of a query once something holds."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = [one for one in run_status.queries() if one.query == query and holds(one)]
        if found:
            return found[0]
        time.sleep(0.05)
    raise AssertionError(run_status.queries())


def test_a_query_from_its_start_to_its_stop(spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path) -> None:
    producer = Producer(cluster.config())
    for number in range(30):
        producer.produce(topic, str(number))
    producer.flush()
    wanted = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**wanted).option("maxOffsetsPerTrigger", "10").load()
    writer = rows.groupBy("value").count().writeStream.format("noop").outputMode("update")
    run_status = RunStatus()
    with QueryMonitor(spark, run_status, poll_interval_s=0.05) as watch:
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).queryName("counted").start()
        until(run_status, lambda _: True, "counted")
        watch.track(query, "the rest is not counted")  # which comes too late to be the first to see it
        waiting = until(run_status, lambda one: one.rows == 30 and one.phase is Phase.WAITING, "counted")
        query.stop()
        stopped = until(run_status, lambda one: one.phase is Phase.STOPPED, "counted")
    assert stopped.doing == "the rest is not counted"
    assert waiting.last
    assert (waiting.last.lag, waiting.last.state_rows) == (0, 30)
    executed = [one for one in run_status.history("counted") if one.executed]
    assert [one.batch for one in executed] == list(range(waiting.batches))
    assert executed[0].lag == 30 - executed[0].input_rows


def test_a_query_that_fails_is_explained(spark: SparkSession, tmp_path: Path) -> None:
    run_status = RunStatus()
    rows = spark.readStream.format("rate").load().selectExpr("cast(concat('x', value) AS int)")
    with QueryMonitor(spark, run_status, poll_interval_s=0.05):
        rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).queryName("wrong").start()
        failed = until(run_status, lambda one: one.phase is Phase.FAILED, "wrong")
    assert failed.error
    assert failed.error.condition == "query.failed"


def test_queries_without_a_name_and_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    class Count:
        value = 4

    dead: dict[str, Any] = {}
    run_status = RunStatus()
    with QueryMonitor(spark, run_status, dead_letter_counts=dead, poll_interval_s=0.05):
        dead["posts"] = Count()
        rows = spark.readStream.format("rate").load()
        query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
        until(run_status, lambda one: one.last is not None, "query 1")
        query.stop()
    assert run_status.dead() == {"posts": 4}
    assert run_status.queries()[0].phase is Phase.STOPPED


def test_a_look_at_a_stopped_spark_ends_quietly(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped:
        @property
        def streams(self) -> None:
            raise ConnectionRefusedError("gone")

        class sparkContext:  # noqa: N801
            _jsc = None

    with QueryMonitor(Stopped(), RunStatus(), poll_interval_s=0.01) as watch:  # type: ignore[arg-type]
        watch._thread.join(30)
        assert watch.has_ended


class CountedAs:
    """Says by whom the late records of a batch were counted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: list[int] = []

    def counted(self, progress: BatchProgress) -> BatchProgress:
        self.batches.append(progress.batch)
        return progress


def test_late_records_are_those_that_the_same_start_of_a_query_has_counted() -> None:
    class Query:
        name, runId, isActive = "q", "r", True  # noqa: N815 - Spark's names
        status: ClassVar[dict[str, Any]] = {"message": "", "isTriggerActive": True}
        _jsq = SimpleNamespace(lastProgress=lambda: None)

    first, second = CountedAs("first"), CountedAs("second")
    late_records: dict[str, Any] = {"q": first}
    nothing = SimpleNamespace(streams=SimpleNamespace(active=[]))
    watch = QueryMonitor(nothing, RunStatus(), late_records=late_records)  # type: ignore[arg-type]
    watch.track(Query())  # type: ignore[arg-type]
    late_records["q"] = second
    told = SimpleNamespace(
        batchId=lambda: 7,
        timestamp=lambda: "2026-01-01T10:00:00.000Z",
        json=lambda: '{"batchId": 7, "timestamp": "2026-01-01T10:00:00.000Z", "durationMs": {"addBatch": 1}}',
    )
    Query._jsq = SimpleNamespace(lastProgress=lambda: told, recentProgress=lambda: [told])
    watch.poll()
    assert (first.batches, second.batches) == ([7], [])


def test_a_clock_that_is_set_back_hides_no_batch() -> None:
    class Told:
        def __init__(self, batch: int, at: str) -> None:
            self._batch, self._at = batch, at

        def batchId(self) -> int:  # noqa: N802 - Spark's name
            return self._batch

        def timestamp(self) -> str:
            return self._at

        def json(self) -> str:
            rows = {"numInputRows": 5, "durationMs": {"addBatch": 1}}
            return json.dumps({"batchId": self._batch, "timestamp": self._at, **rows})

    told = [Told(0, "2026-01-01T10:00:00.000Z")]

    class Query:
        name, runId, isActive = "q", "r", True  # noqa: N815 - Spark's names
        status: ClassVar[dict[str, Any]] = {"message": "", "isTriggerActive": True}
        _jsq = SimpleNamespace(lastProgress=lambda: told[-1], recentProgress=lambda: told)

    run_status = RunStatus()
    watch = QueryMonitor(SimpleNamespace(streams=SimpleNamespace(active=[Query()])), run_status)  # type: ignore[arg-type]
    watch.poll()
    told.append(Told(1, "2026-01-01T09:00:00.000Z"))
    watch.poll()
    watch.poll()
    told += [Told(2, "2026-01-01T09:00:01.000Z"), Told(3, "2026-01-01T09:00:02.000Z")]
    watch.poll()
    assert (run_status.query("q").batches, run_status.query("q").rows) == (4, 20)
