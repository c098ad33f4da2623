"""A broker that goes away for 20 seconds under a direct stream: it waits, and nothing is lost or read twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dstreams.records import pour
from millrace.clients.kafka import topics
from millrace.dstreams import KafkaUtils
from millrace.services.kafka import KafkaCluster, KafkaClusterOptions

if TYPE_CHECKING:
    from pyspark.streaming import StreamingContext

AWAY = 20.0


@pytest.mark.chaos
def test_a_stream_waits_for_its_broker(
    ssc: StreamingContext, tmp_path: Path, running: Callable[[Callable[[], object]], None]
) -> None:
    service = KafkaCluster(tmp_path / "kafka", KafkaClusterOptions(heap="256m"))
    cluster = service.start()
    try:
        topics.create(cluster, "numbers", 1)
        pour(cluster, "numbers", ["before"] * 10)
        got: list[str] = []
        params = {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "smallest"}
        stream = KafkaUtils.createDirectStream(ssc, ["numbers"], params)
        stream.foreachRDD(lambda rdd: got.extend(rdd.values().collect()))
        running(lambda: len(got) >= 10)
        service.kill(1)
        back = time.monotonic() + AWAY
        while time.monotonic() < back:
            ssc.awaitTerminationOrTimeout(0.5)
        service.restart(1)
        pour(cluster, "numbers", ["after"] * 10)
        deadline = time.monotonic() + 60
        while len(got) < 20 and time.monotonic() < deadline:
            ssc.awaitTerminationOrTimeout(0.1)
        assert got == ["before"] * 10 + ["after"] * 10
    finally:
        service.stop()
