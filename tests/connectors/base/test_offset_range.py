"""Where a source of Kafka begins when a span is given, without Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from millrace.connectors.base.api import RunContext
from millrace.connectors.base.offset_range import ReplayRange
from millrace.connectors.kafka.source import KafkaSource

SPAN = ReplayRange({"orders": {"0": 5}})


def beginning(reader: KafkaSource) -> dict[str, str]:
    existing = {name: SimpleNamespace(partitions={0: None, 1: None}) for name in ("orders", "alarms")}
    cluster: Any = SimpleNamespace(connect=lambda: SimpleNamespace(topics=existing))
    spark: Any = None
    return reader._beginning(
        RunContext(Path(), lambda: cluster, pipeline="shop", name="source", session=spark, offset_range=SPAN), cluster
    )


def test_a_span_says_where_its_topics_begin() -> None:
    found = json.loads(beginning(KafkaSource(topic=("orders",), start="latest"))["startingOffsets"])
    assert found == {"orders": {"0": 5, "1": -2}}  # the second partition came later


def test_a_topic_that_a_span_does_not_know_begins_as_the_source_says() -> None:
    assert beginning(KafkaSource(topic=("alarms",), start="1700000000000")) == {
        "startingTimestamp": "1700000000000",
        "startingOffsetsByTimestampStrategy": "latest",
    }
    assert beginning(KafkaSource(topic=("alarms",), start="earliest")) == {"startingOffsets": "earliest"}
