"""What decodes makes no difference: rows, and dead letters also for columns that nobody uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import millrace as mr
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.memory import MEMORY
from millrace.dead_letters.store import letters_in_topics

if TYPE_CHECKING:
    from conftest import RunPipeline
    from millrace.clients.kafka.cluster import Cluster


@pytest.mark.parametrize("decoder", ["arrow", "spark"])
def test_both_decoders_give_the_same_rows_and_letters(
    run_pipeline: RunPipeline, cluster: Cluster, lane: str, decoder: str
) -> None:
    values = (
        b'{"id": 1, "kind": "view", "spare": 1}',
        b'{"id": 2, "kind": "click", "spare": 1}',
        b'{"id": 3, "kind": "view", "spare": "no number"}',
        b'{"id": 4, "kind": "view"}',
    )
    producer = Producer(cluster, lane)
    producer.send([Record(value, b"k") for value in values])
    producer.close()
    pipeline = mr.Pipeline("decoded")
    schema = "id bigint, kind string, spare int"
    pipeline.source("events", mr.kafka(lane, schema=schema, include=("offset", "key"), decoder=decoder))
    pipeline.sql("views", "SELECT id, `offset` FROM events WHERE kind = 'view'")
    pipeline.sink("views", mr.memory())
    run_pipeline(pipeline)
    assert MEMORY.tables()["views"].to_pylist() == [{"id": 1, "offset": 0}, {"id": 4, "offset": 3}]
    assert [found.letter.value for found in letters_in_topics(cluster, [f"{lane}.dead"])] == [values[2]]
