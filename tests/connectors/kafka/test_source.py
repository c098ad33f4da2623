"""What Spark's own Kafka source is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millrace.clients.kafka.consumer import FETCH_MAX_WAIT_MS
from millrace.connectors.base.api import RunContext
from millrace.connectors.kafka.source import KafkaSource

if TYPE_CHECKING:
    from millrace.clients.kafka.cluster import Cluster


@pytest.mark.parametrize(
    ("batches", "config", "wait"),
    [(True, None, str(FETCH_MAX_WAIT_MS)), (True, {"fetch.max.wait.ms": 700}, "700"), (False, None, None)],
)
def test_a_batch_does_not_wait_for_records_that_are_not_there(
    cluster: Cluster, topic: str, tmp_path: Path, batches: bool, config: dict[str, Any] | None, wait: str | None
) -> None:
    own = RunContext(tmp_path, lambda: cluster, pipeline="p", name="s", query="q", batches=batches)
    options = KafkaSource(topic=(topic,), config=config, more={})._options(own)
    assert options.get("kafka.fetch.max.wait.ms") == wait
