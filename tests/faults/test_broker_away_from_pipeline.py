"""The only broker goes away while a pipeline runs, and comes back: the result is as if nothing had happened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millrace as mr
from millrace.clients import topics
from millrace.clients.cluster import Cluster
from millrace.clients.producer import Producer
from millrace.clients.records import Record
from millrace.engine.run import Settings, run
from millrace.engine.supervision import Policy
from millrace.pipeline.plan import make_plan
from millrace.services.kafka import Kafka, Options
from millrace.telemetry.board import Board, Phase
from millrace.telemetry.health import health
from millrace.telemetry.outline import outline_of
from millrace.telemetry.samples import Samples

RECORDS = 2_000
IMPATIENT = {"default.api.timeout.ms": "2000", "request.timeout.ms": "1500", "reconnect.backoff.max.ms": "200"}
"""So that a query fails soon, instead of waiting for a minute as Kafka's clients do."""


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Kafka]:
    """A broker that may be killed."""
    service = Kafka(tmp_path / "kafka", Options(heap="320m"))
    topics.create(service.start(), "numbers", 2)
    yield service
    service.stop()


def send(cluster: Cluster, numbers: range) -> None:
    producer = Producer(cluster, "numbers")
    producer.send([Record(b"%d" % number, b"%d" % number) for number in numbers])
    producer.close()
    assert producer.delivered == len(numbers)


def wait_until(holds: Callable[[], bool], running: threading.Thread, what: str) -> None:
    """Wait for a condition while a run goes on."""
    for _ in range(600):
        if holds():
            return
        assert running.is_alive(), f"the run has ended before {what}"
        running.join(0.1)
    raise AssertionError(f"never happened: {what}")


def test_the_result_is_exact(tmp_path: Path, own_broker: Kafka, spark: SparkSession) -> None:
    cluster = own_broker.cluster()
    pipeline = mr.Pipeline("steadfast")
    pipeline.source("numbers", mr.kafka("numbers", format="text", max_per_batch=300, config=IMPATIENT))
    pipeline.sql("copied", "SELECT value FROM numbers")
    pipeline.sink("copied", mr.files(str(tmp_path / "out"), format="text"))
    plan, board, stop = make_plan(pipeline.model()), Board(), threading.Event()
    policy = Policy(restarts=100, first=0.5, longest=1.0)
    settings = Settings(tmp_path / "state", lambda: cluster, session=spark, supervision=policy)
    running = threading.Thread(target=run, args=(plan, settings, board, stop))
    send(cluster, range(RECORDS // 2))
    running.start()
    try:
        wait_until(lambda: any(one.batches for one in board.queries()), running, "a batch is done")
        own_broker.kill(1)
        wait_until(lambda: board.query("copied").phase is Phase.RESTARTING, running, "the failure is seen")
        ill = health(board, Samples(), outline_of(plan))
        assert not ill.healthy
        assert "Kafka does not answer" in ill.reasons[0]
        own_broker.restart(1)
        send(cluster, range(RECORDS // 2, RECORDS))
        wait_until(lambda: board.query("copied").rows == RECORDS, running, "everything is read")
        assert health(board, Samples(), outline_of(plan)).healthy
    finally:
        stop.set()
        running.join(60)
    assert board.query("copied").phase is Phase.STOPPED
    found = sorted(int(row.value) for row in spark.read.text(str(tmp_path / "out")).collect())
    assert found == list(range(RECORDS))
