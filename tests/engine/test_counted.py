"""Rows that come out of a query are counted, whatever its sinks do."""

from __future__ import annotations

from typing import Any

import millrace as mr
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.telemetry.channels import Channels


def test_two_sinks_that_do_not_count(cluster: Cluster, topic: str, run_pipeline: Any) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(b'{"n": %d}' % number) for number in range(10)])
    producer.close()
    pipeline = mr.Pipeline("counted")
    pipeline.source("numbers", mr.kafka(topic, schema="n int"))
    pipeline.sql("even", "SELECT n FROM numbers WHERE n % 2 = 0")
    pipeline.sink("even", mr.memory("a"))
    pipeline.sink("even", mr.memory("b"))
    pipeline.sink("numbers", mr.memory("c"))
    pipeline.panel("numbers", mr.number(value="n"))
    run_status = run_pipeline(pipeline, channels=Channels())
    written = {
        one.query: sum(batch.sink_rows or 0 for batch in run_status.history(one.query)) for one in run_status.queries()
    }
    assert written == {"even": 5, "numbers": 10}
