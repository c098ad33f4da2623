"""Bad records of topics that are read in bulk: told where they are decoded, buried a step later."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import millrace as mr
from conftest import committed
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.dead_letters.store import letters_in_topics
from millrace.errors import BadRecord

if TYPE_CHECKING:
    from conftest import RunPipeline
    from millrace.clients.kafka.cluster import Cluster

SCHEMA = "n int, by struct<id: int NOT NULL, names: array<string>>"


@pytest.fixture(autouse=True)
def _in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_BULK_READER", "on")


def fill(cluster: Cluster, topic: str) -> None:
    """Thirty records in three partitions, one of them bad: it has a key and headers."""
    good = [b'{"n": %d, "by": {"id": %d}}' % (number, number) for number in range(30)]
    records = [Record(value, partition=number % 3) for number, value in enumerate(good)]
    records.insert(20, Record(b'{"n": 7, "by": {}}', b"\xff", None, (("a", b"\xfe"), ("b", None)), 1))
    producer = Producer(cluster, topic)
    producer.send(records)
    producer.close()


def copied(cluster: Cluster, topic: str) -> Counter[int]:
    return Counter(json.loads(one.value() or b"")["n"] for one in committed(cluster, f"{topic}-out"))


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_letter_has_all_that_came_with_its_record(
    cluster: Cluster, topic: str, run_pipeline: RunPipeline, guarantee: str
) -> None:
    """Fields of structs are required."""
    fill(cluster, topic)
    pipeline = mr.Pipeline("told")
    pipeline.source("events", mr.kafka(topic, schema=SCHEMA, include=("key", "timestamp", "headers")))
    pipeline.sql("some", "SELECT n, by.id AS id, key FROM events WHERE n >= 0")
    pipeline.sink("some", mr.kafka(f"{topic}-out", guarantee=guarantee))
    run_status = run_pipeline(pipeline)
    assert copied(cluster, topic) == Counter(range(30))
    (found,) = letters_in_topics(cluster, [f"{topic}.dead"])
    letter = found.letter
    assert (letter.value, letter.key, letter.headers) == (b'{"n": 7, "by": {}}', b"\xff", (("a", b"\xfe"), ("b", None)))
    assert (letter.topic, letter.partition, letter.offset) == (topic, 1, 7)
    assert run_status.dead() == {"events": 1}


def test_a_table_that_is_used_twice(cluster: Cluster, topic: str, run_pipeline: RunPipeline) -> None:
    """Spark does not write such a WITH out twice, and deals its rows out by turns: not to a sink that writes once."""
    fill(cluster, topic)
    pipeline = mr.Pipeline("twice")
    pipeline.source("events", mr.kafka(topic, schema=SCHEMA, max_per_batch=7))
    pipeline.sql("both", "WITH v AS (SELECT n FROM events) SELECT n FROM v UNION ALL SELECT n + 100 AS n FROM v")
    pipeline.sink("both", mr.kafka(f"{topic}-out"))
    run_status = run_pipeline(pipeline)
    assert copied(cluster, topic) == Counter([*range(30), *range(100, 130)])
    assert run_status.dead() == {"events": 1}


def copying(topic: str, on_bad: str) -> mr.Pipeline:
    pipeline = mr.Pipeline("copying")
    pipeline.source("events", mr.kafka(topic, schema=SCHEMA, on_bad=on_bad))
    pipeline.sink("events", mr.kafka(f"{topic}-out"))
    return pipeline


def test_what_is_dropped_counts(cluster: Cluster, topic: str, run_pipeline: RunPipeline) -> None:
    fill(cluster, topic)
    run_status = run_pipeline(copying(topic, "drop"))
    assert copied(cluster, topic) == Counter(range(30))
    assert run_status.dead() == {"events": 1}


def test_a_bad_record_may_be_the_end(cluster: Cluster, topic: str, run_pipeline: RunPipeline) -> None:
    fill(cluster, topic)
    with pytest.raises(BadRecord) as failure:
        run_pipeline(copying(topic, "fail"))
    assert f"{topic}[1]@7" in str(failure.value.why)
