"""How far behind the consumers inside Spark are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import millrace as mr
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.engine.supervision.consumer_lag import consumer_lag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_in_real_time_mode_they_tell_before_spark_does(
    cluster: Cluster, topic: str, run_pipeline: Any, spark: SparkSession
) -> None:
    topic = f"{topic}-one"  # each partition holds a slot, and there are no more than cores
    topics.create(cluster, topic, 1)
    producer = Producer(cluster, topic)
    producer.send([Record(b'{"n": 1}')] * 3)
    producer.close()
    pipeline = mr.Pipeline("quick", trigger="realtime 5m")  # no word of Spark's in the time of this test
    pipeline.source("source", mr.kafka(topic, schema="n int", on_bad="drop"))
    pipeline.sink("source", mr.kafka(f"{topic}-out"), mode="update")
    seen: dict[tuple[str, int], int] = {}

    def told() -> bool:
        seen.update({place: lag for place, lag in consumer_lag(spark).items() if place[0] == topic})
        return seen == {(topic, 0): 0}

    run_pipeline(pipeline, until=told)
    assert seen == {(topic, 0): 0}
