"""What makes a run quicker can be turned off, and its results are the same without."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import millrace as mr
from conftest import committed
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.dead_letters.store import letters_in_topics
from millrace.engine.checkpoints.query_history import position
from millrace.engine.session.spark_conf import ROCKSDB, ROCKSDB_OPTIONS, state_store_choices
from millrace.pipeline.plan import make_plan

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from conftest import RunPipeline
    from millrace.clients.kafka.cluster import Cluster

VIEWS = "SELECT id, timestamp_millis(at) AS at FROM events WHERE kind = 'view'"
COUNTS = """
    SELECT window(at, '10 seconds').start AS w, count(*) AS n, sum(id) AS ids
    FROM views GROUP BY window(at, '10 seconds')
"""
SCHEMA = "id bigint NOT NULL, kind string, at bigint, spare array<int>"
BAD = (b"{", b'{"kind": "view"}', b'{"id": 1, "spare": "none"}')


def fill(cluster: Cluster, topic: str) -> None:
    """Events of five windows, and among them some that are none."""
    good = [{"id": n, "kind": "click" if n % 3 else "view", "at": n * 100, "spare": [n]} for n in range(500)]
    records = [json.dumps(one).encode() for one in good]
    producer = Producer(cluster, topic)
    producer.send([Record(value, partition=n % 3) for n, value in enumerate((*records[:250], *BAD, *records[250:]))])
    producer.close()


def expected() -> dict[int, tuple[int, int]]:
    """The count and the sum of each window."""
    views = [[n for n in range(500) if n % 3 == 0 and n // 100 == window] for window in range(5)]
    return {number: (len(ids), sum(ids)) for number, ids in enumerate(views)}


def found(cluster: Cluster, topic: str) -> dict[int, tuple[int, int]]:
    """The last word on each window."""
    told: list[dict[str, Any]] = [json.loads(one.value() or b"") for one in committed(cluster, f"{topic}-out")]
    last: dict[int, tuple[int, int]] = {}
    for one in told:
        second = int(one["w"][17:19])
        last[second // 10] = max(last.get(second // 10, (0, 0)), (one["n"], one["ids"]))
    return last


def buried(cluster: Cluster, topic: str) -> list[bytes | None]:
    return sorted((one.letter.value for one in letters_in_topics(cluster, [f"{topic}.dead"])), key=str)


@pytest.mark.parametrize("decoder", ["arrow", "spark"])
@pytest.mark.parametrize("bulk", ["on", "off"])
def test_without_decoding_in_columns_and_without_reading_in_bulk(
    cluster: Cluster, topic: str, run_pipeline: RunPipeline, monkeypatch: pytest.MonkeyPatch, decoder: str, bulk: str
) -> None:
    monkeypatch.setenv("MILLRACE_BULK_READER", bulk)
    fill(cluster, topic)
    pipeline = mr.Pipeline("same")
    pipeline.source("events", mr.kafka(topic, schema=SCHEMA, decoder=decoder))
    pipeline.sql("views", VIEWS)
    pipeline.sql("counts", COUNTS)
    pipeline.sink("counts", mr.kafka(f"{topic}-out"), mode="update")
    run_pipeline(pipeline)
    assert found(cluster, topic) == expected()
    assert buried(cluster, topic) == sorted(BAD, key=str)


@pytest.mark.long
@pytest.mark.parametrize("keys", [1, 100_000_000])
def test_with_state_in_memory_and_in_rocksdb(
    cluster: Cluster, topic: str, run_pipeline: RunPipeline, spark: SparkSession, tmp_path: Path, keys: int
) -> None:
    chosen = (state_store_choices(keys), *ROCKSDB_OPTIONS)
    assert chosen[0].value.endswith("RocksDBStateStoreProvider") == (keys > 1)
    fill(cluster, topic)
    pipeline = mr.Pipeline("kept")
    pipeline.source("events", mr.kafka(topic, schema=SCHEMA, max_per_batch=100))
    pipeline.sql("views", VIEWS)
    pipeline.sql("counts", COUNTS)
    pipeline.sink("counts", mr.kafka(f"{topic}-out"), mode="update")
    before = {one.key: spark.conf.get(one.key, None) for one in chosen}
    for one in chosen:
        spark.conf.set(one.key, one.value)
    try:
        run_pipeline(pipeline, state=tmp_path / "state")
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
    at = position(tmp_path / "state", make_plan(pipeline.model()).queries[0].name)
    assert at
    assert at.settings[ROCKSDB.key] == chosen[0].value
    assert found(cluster, topic) == expected()
