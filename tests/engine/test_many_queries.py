"""Many queries at once, on a machine that has no time for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import millrace as mr
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Delivery, Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.memory import MEMORY
from millrace.telemetry.query_status import RunStatus

Run = Callable[..., RunStatus]
QUERIES = 12
SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


@pytest.fixture
def busy() -> Iterator[None]:
    """Others take the CPU: four processes for each core, each in a session of its own."""
    spinning = [
        subprocess.Popen([sys.executable, "-c", SPIN], start_new_session=True) for _ in range(4 * (os.cpu_count() or 1))
    ]
    yield
    for process in spinning:
        process.kill()
        process.wait()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_slow_start_is_no_failure(
    cluster: Cluster, topic: str, run_pipeline: Run, monkeypatch: pytest.MonkeyPatch, busy: None
) -> None:
    """Each query has a source of its own, with a process of its own."""
    monkeypatch.setenv("MILLRACE_BULK_READER", "on")
    producer = Producer(cluster, topic, Delivery(idempotence=False))
    producer.send([Record(b"%d" % number) for number in range(30)])
    producer.close()
    pipeline = mr.Pipeline("many")
    pipeline.source("lines", mr.kafka(topic, format="text", include=()))
    for number in range(QUERIES):
        pipeline.sql(f"t{number}", f"SELECT value, {number} AS n FROM lines")  # noqa: S608
        pipeline.sink(f"t{number}", mr.memory())
    run_status = run_pipeline(pipeline)
    assert [query.restarts for query in run_status.queries()] == [0] * QUERIES
    assert {name: table.num_rows for name, table in MEMORY.tables().items()} == {
        f"t{number}": 30 for number in range(QUERIES)
    }
