"""How often records are read that a query uses twice: what the documentation says, by both readers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import millrace as mr
from conftest import committed
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.pipeline.analysis.scans import source_scans
from millrace.telemetry.query_status import RunStatus

RECORDS = 30
UNION = "SELECT n FROM {0} WHERE n % 2 = 0 UNION ALL SELECT n FROM {0} WHERE n % 3 = 0"
RANDOM = "WITH random AS (SELECT *, rand() AS r FROM numbers) "
INLINED = """
SELECT inline(filter(array(IF(n % 2 = 0, named_struct('n', n), NULL), IF(n % 3 = 0, named_struct('n', n), NULL)),
  x -> x IS NOT NULL)) FROM numbers
"""


@pytest.mark.usefixtures("either_source")
def test_one_use_of_a_source_is_one_read(
    tmp_path: Path, cluster: Cluster, topic: str, lane: str, run_pipeline: Callable[..., RunStatus]
) -> None:
    send(cluster, topic, range(RECORDS))
    pipeline = mr.Pipeline("shared")
    pipeline.source("numbers", mr.kafka(topic, schema="n int, at timestamp"), watermark=("at", "10 seconds"))
    tables = {
        "twice": UNION.format("numbers"),
        "inlined": INLINED,
        "random": RANDOM + UNION.format("random"),
    }
    for name, sql in tables.items():
        pipeline.sql(name, sql)
        pipeline.sink(name, mr.kafka(f"{lane}.{name}"))
    run_status = run_pipeline(pipeline, state=tmp_path / "state")
    read = {query.query: query.rows for query in run_status.queries()}
    scans = {name: source_scans(pipeline.model(), name)["numbers"] for name in tables}
    assert scans == {"twice": 2, "inlined": 1, "random": 2}
    assert read == {name: RECORDS * times for name, times in scans.items()}
    sources = {name: offsets(tmp_path / "state", name) for name in tables}
    assert sources == {"twice": 2, "inlined": 1, "random": 1}
    assert sources == {name: source_scans(pipeline.model(), name, offsets=True)["numbers"] for name in tables}

    def written(name: str) -> list[Any]:
        return sorted(json.loads(message.value() or b"")["n"] for message in committed(cluster, f"{lane}.{name}"))

    expected = sorted([*range(0, RECORDS, 2), *range(0, RECORDS, 3)])
    assert written("twice") == written("inlined") == written("random") == expected
    send(cluster, topic, range(RECORDS, RECORDS + 4))
    run_status = run_pipeline(pipeline, state=tmp_path / "state")
    assert {query.query: query.rows for query in run_status.queries()} == {name: 4 * scans[name] for name in tables}
    expected = sorted([*range(0, RECORDS + 4, 2), *range(0, RECORDS + 4, 3)])
    assert written("twice") == written("inlined") == written("random") == expected


def send(cluster: Cluster, topic: str, numbers: range) -> None:
    """Put a record a second into a topic."""
    producer = Producer(cluster, topic)
    rows = [{"n": n, "at": f"2026-05-04T12:00:{n:02}Z"} for n in numbers]
    producer.send([Record(json.dumps(row).encode()) for row in rows])
    producer.close()


def offsets(state: Path, query: str) -> int:
    """The sources of a query, as its checkpoint has them."""
    newest = max((state / "checkpoints" / query / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return len(newest.read_text().split("\n")) - 2
