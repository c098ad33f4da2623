"""Real queries that fail and are started again: nothing is lost, nothing is there twice, others go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.base.api import RunContext
from millrace.connectors.memory import MEMORY
from millrace.engine.run import RunSettings, run
from millrace.engine.supervision.restart_policy import Policy
from millrace.errors import MillraceError
from millrace.pipeline.plan import make_plan
from millrace.telemetry.query_status import Phase, RunStatus

SOON = Policy(first_delay_s=0.01)


def send(cluster: Cluster, topic: str, *values: bytes) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(value, b"k", partition=0) for value in values])
    producer.close()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a condition, giving up after some minutes."""
    pause = threading.Event()
    for _ in range(15000):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it never came")


class Sink:
    """A function of batches that keeps rows, and raises on some of its calls."""

    def __init__(self, *raises: Exception | None) -> None:
        self.calls: list[int] = []
        self.kept: list[str] = []
        self._raises = list(raises)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        found = sorted(row.value for row in rows.collect())
        self.calls.append(batch)
        raised = self._raises.pop(0) if self._raises else None
        if raised:
            raise raised
        self.kept += found


def piped(topic: str, *sinks: Any) -> mr.Pipeline:
    """Lines of a topic to sinks."""
    pipeline = mr.Pipeline("restarted")
    pipeline.source("lines", mr.kafka(topic, format="text"))
    pipeline.sql("copied", "SELECT value FROM lines")
    for sink in sinks:
        pipeline.sink("copied", sink)
    return pipeline


@pytest.fixture
def settings(tmp_path: Path, cluster: Cluster, spark: SparkSession) -> Callable[..., RunSettings]:
    def made(notify: Callable[[str], None] = lambda _: None, **more: Any) -> RunSettings:
        context = RunContext(tmp_path / "state", lambda: cluster, session=spark, notify=notify)
        return RunSettings(context, **{"restart_policy": SOON} | more)

    return made


def test_a_sink_that_raises_twice_and_then_works(
    cluster: Cluster, topic: str, settings: Callable[..., RunSettings]
) -> None:
    send(cluster, topic, b"one", b"two")
    sink = Sink(RuntimeError("not now"), ConnectionRefusedError(111, "Connection refused"))
    run_status = RunStatus()
    plan = make_plan(piped(topic, mr.memory(), mr.foreach(sink, batch=True)).model(), once=True)
    run(plan, settings(), run_status, threading.Event())
    assert (sink.calls, sink.kept) == ([0, 0, 0], ["one", "two"])
    assert sorted(row["value"] for row in MEMORY.tables()["copied"].to_pylist()) == ["one", "two"], "each of them once"
    standing = run_status.query("copied")
    assert (standing.restarts, standing.rows, standing.phase) == (2, 2, Phase.STOPPED)


def test_one_of_two_queries_is_poisoned(cluster: Cluster, topic: str, settings: Callable[..., RunSettings]) -> None:
    send(cluster, topic, b"first")
    run_status, calls = RunStatus(), []

    def poisoned(rows: DataFrame, batch: int) -> None:
        calls.append(batch)
        # The other one goes on; it may not have been started yet.
        wait_until(lambda: any(each.query == "sound" and each.rows >= len(calls) for each in run_status.queries()))
        send(cluster, topic, b"more")
        raise RuntimeError("I take nothing")

    pipeline = piped(topic, mr.foreach(poisoned, batch=True))
    pipeline.sql("sound", "SELECT value FROM lines")
    pipeline.sink("sound", mr.memory())
    with pytest.raises(MillraceError) as raised:
        run(make_plan(pipeline.model()), settings(), run_status, threading.Event())
    error = raised.value
    assert (error.condition, error.exit_code, len(set(calls)), len(calls)) == ("sink.failed", 1, 1, 3)
    assert "RuntimeError: I take nothing" in error.message
    assert f"(3 times at the same batch, batch 0: topic {topic} partition 0 offsets up to 0)" in error.message
    assert (run_status.query("copied").phase, run_status.query("sound").phase) == (Phase.FAILED, Phase.STOPPED)
    assert {row["value"] for row in MEMORY.tables()["sound"].to_pylist()} == {"first", "more"}


def test_a_batch_that_takes_longer_than_the_patience(
    cluster: Cluster, topic: str, settings: Callable[..., RunSettings]
) -> None:
    send(cluster, topic, b"one")
    stop, said = threading.Event(), []

    def slow(rows: DataFrame, batch: int) -> None:
        rows.collect()
        stop.set()
        time.sleep(1)  # longer than it will be waited for

    plan = make_plan(piped(topic, mr.foreach(slow, batch=True)).model())
    run(plan, settings(stop_timeout_s=0.1, notify=said.append), RunStatus(), stop)
    assert any("stopped in the middle of a batch" in line for line in said)
    sink = Sink()
    again = make_plan(piped(topic, mr.foreach(sink, batch=True)).model(), once=True)
    run(again, settings(), RunStatus(), threading.Event())
    assert sink.kept in (["one"], []), "it was cut off, unless it ended in that very moment"
