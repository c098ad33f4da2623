"""A pipeline that goes on beside a test, while something happens to what it needs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import millrace as mr
from conftest import committed
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.base.api import RunContext
from millrace.engine.run import RunSettings, run
from millrace.engine.supervision.restart_policy import Policy
from millrace.errors import MillraceError
from millrace.pipeline.plan import make_plan
from millrace.telemetry.query_status import RunStatus

PATIENT = Policy(restarts=100, first_delay_s=0.5, max_delay_s=1.0)


class Going:
    """A run in a thread; left by a block, it is stopped and has raised nothing."""

    def __init__(self, pipeline: mr.Pipeline, state: Path, cluster: Cluster, spark: SparkSession, **more: Any) -> None:
        self.run_status = RunStatus()
        self.plan = make_plan(pipeline.model())
        self._settings = RunSettings(RunContext(state, lambda: cluster, session=spark, **more), restart_policy=PATIENT)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._raised: list[MillraceError] = []

    def __enter__(self) -> Going:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join(120)
        if kind is None:
            assert not self._raised, self._raised
            assert not self._thread.is_alive()

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = 60) -> None:
        """Wait for a condition while the run goes on."""
        for _ in range(round(seconds * 10)):
            if holds():
                return
            assert self._thread.is_alive(), f"the run has ended before {what}: {self._raised}"
            self._thread.join(0.1)
        raise AssertionError(f"never happened: {what}; {[(one.phase, one.error) for one in self.run_status.queries()]}")

    def rows(self, query: str) -> int:
        """How many rows a query has read, in batches that are done."""
        return sum(one.rows for one in self.run_status.queries() if one.query == query)

    def _run(self) -> None:
        try:
            run(self.plan, self._settings, self.run_status, self._stop)
        except MillraceError as error:
            self._raised.append(error)


def send(cluster: Cluster, topic: str, numbers: range) -> None:
    """Each number as a record with itself as the key; all must arrive."""
    producer = Producer(cluster, topic)
    producer.send([Record(b"%d" % number, b"%d" % number) for number in numbers])
    producer.close()
    assert producer.delivered == len(numbers)


def numbers_in(cluster: Cluster, topic: str) -> Counter[int]:
    """How often each number is in a topic, for readers of committed records."""
    return Counter(int(one.value() or b"-1") for one in committed(cluster, topic))
