"""The only broker goes away while a pipeline runs, and comes back: the result is as if nothing had happened."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millrace as mr
from faults.going import Going, numbers_in, send
from millrace.clients.kafka import topics
from millrace.connectors.base.registry import topics_read
from millrace.services.kafka import KafkaCluster, KafkaClusterOptions
from millrace.telemetry.measurements import Measurements
from millrace.telemetry.metrics import health
from millrace.telemetry.query_status import Phase
from millrace.telemetry.topology import topology_of

RECORDS = 2_000
IMPATIENT = {"default.api.timeout.ms": "2000", "request.timeout.ms": "1500", "reconnect.backoff.max.ms": "200"}
"""So that a query fails soon, instead of waiting for a minute as Kafka's clients do."""
AWAY = 20.0


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[KafkaCluster]:
    """A broker that may be killed."""
    service = KafkaCluster(tmp_path / "kafka", KafkaClusterOptions(heap="320m"))
    topics.create(service.start(), "numbers", 2)
    yield service
    service.stop()


def copy(folder: Path, config: dict[str, str] | None = None, *, topic: bool = True) -> mr.Pipeline:
    """Numbers into files, and into a topic exactly once."""
    pipeline = mr.Pipeline("steadfast")
    pipeline.source("numbers", mr.kafka("numbers", format="text", max_per_batch=300, config=config))
    pipeline.sql("copied", "SELECT value FROM numbers")
    pipeline.sink("copied", mr.files(str(folder), format="text"))
    if topic:
        pipeline.sink("copied", mr.kafka("copied", format="text"))
    return pipeline


@pytest.mark.long
@pytest.mark.parametrize("topic", [False, pytest.param(True, marks=pytest.mark.chaos)], ids=["files", "and a topic"])
def test_the_result_is_exact(tmp_path: Path, own_broker: KafkaCluster, spark: SparkSession, *, topic: bool) -> None:
    cluster = own_broker.cluster()
    send(cluster, "numbers", range(RECORDS // 2))
    with Going(copy(tmp_path / "out", IMPATIENT, topic=topic), tmp_path / "state", cluster, spark) as going:
        run_status, topology = going.run_status, topology_of(going.plan, topics_read(going.plan.pipeline))
        going.wait_until(lambda: going.rows("copied") == RECORDS // 2, "the first half is read")
        own_broker.kill(1)
        going.wait_until(lambda: run_status.query("copied").phase is Phase.RESTARTING, "the failure is seen")
        ill = health(run_status, Measurements(), topology)
        assert not ill.healthy
        assert "Kafka does not answer" in ill.reasons[0]
        own_broker.restart(1)
        send(cluster, "numbers", range(RECORDS // 2, RECORDS))
        going.wait_until(lambda: going.rows("copied") == RECORDS, "everything is read")
        assert health(run_status, Measurements(), topology).healthy
    assert run_status.query("copied").phase is Phase.STOPPED
    is_exact(own_broker, tmp_path, spark, RECORDS, topic=topic)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_it_is_away_for_twenty_seconds_in_the_middle_of_batches(
    tmp_path: Path, own_broker: KafkaCluster, spark: SparkSession
) -> None:
    cluster, records, pause = own_broker.cluster(), 12_000, threading.Event()
    send(cluster, "numbers", range(records))
    with Going(copy(tmp_path / "out"), tmp_path / "state", cluster, spark) as going:
        for part in (1, 2):
            going.wait_until(lambda part=part: going.rows("copied") > records // 4 * part, "some are read", 240)
            own_broker.kill(1)
            pause.wait(AWAY)
            own_broker.restart(1)
        going.wait_until(lambda: going.rows("copied") >= records, "everything is read", 300)
    is_exact(own_broker, tmp_path, spark, records)


def is_exact(broker: KafkaCluster, folder: Path, spark: SparkSession, records: int, *, topic: bool = True) -> None:
    """Each number is in the files once, and in the topic once."""
    if topic:
        assert numbers_in(broker.cluster(), "copied") == Counter(range(records))
    found = sorted(int(row.value) for row in spark.read.text(str(folder / "out")).collect())
    assert found == list(range(records))
