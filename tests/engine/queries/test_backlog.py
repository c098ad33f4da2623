"""A backlog that is read in many batches gives the results of one batch: no record is late."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import millrace as mr
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Delivery, Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.memory import MEMORY
from millrace.telemetry.query_status import RunStatus

Run = Callable[..., RunStatus]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
USERS, COUNT = 200, 12_000
WINDOWS = "SELECT window(at, '10 seconds') AS window, count(*) AS count FROM events GROUP BY 1"
SESSIONS = "SELECT session_window(at, '3 seconds') AS session, user, count(*) AS count FROM events GROUP BY 1, 2"


def events() -> list[tuple[int, dict[str, Any]]]:
    """Events in the order of their arrival, up to 1.5 s late, with their partitions, which are busy in turns."""
    chance = random.Random(5)
    found = []
    for number in range(COUNT):
        hot = number * 12 // COUNT % 3
        partition = hot if chance.random() < 0.97 else chance.randrange(3)
        at = BEGIN + timedelta(seconds=number / 20 - chance.random() * 1.5)
        found.append((partition, {"user": f"u{chance.randrange(USERS)}", "at": at.isoformat()}))
    return found


@pytest.fixture(scope="module")
def arrived() -> list[tuple[int, dict[str, Any]]]:
    return events()


@pytest.fixture(scope="module")
def backlog(cluster: Cluster, arrived: list[tuple[int, dict[str, Any]]]) -> str:
    topics.create(cluster, name := f"backlog-{random.randrange(10**9)}", 3)
    producer = Producer(cluster, name, Delivery(idempotence=False))
    producer.send([Record(json.dumps(event).encode(), partition=partition) for partition, event in arrived])
    producer.close()
    return name


def windows_of(arrived: list[tuple[int, dict[str, Any]]]) -> Counter[datetime]:
    """What a batch query counts, without the last window, which stays open."""
    starts = ((datetime.fromisoformat(event["at"]) - BEGIN) // timedelta(seconds=10) for _, event in arrived)
    return Counter(BEGIN + number * timedelta(seconds=10) for number in starts)


def pipeline(topic: str, query: str, **options: Any) -> mr.Pipeline:
    made = mr.Pipeline("backlog")
    kafka = mr.kafka(topic, schema="user string, at timestamp", **options)
    made.source("events", kafka, watermark=("at", "4 seconds"))
    made.sql("result", query)
    made.sink("result", mr.memory())
    return made


@pytest.mark.parametrize("most", [1000, 5000, None])
@pytest.mark.usefixtures("either_source")
def test_windows_of_partitions_that_are_busy_at_different_times(
    backlog: str, arrived: list[tuple[int, dict[str, Any]]], run_pipeline: Run, most: int | None
) -> None:
    run_status = run_pipeline(pipeline(backlog, WINDOWS, max_per_batch=most))
    counted = {row["window"]["start"]: row["count"] for row in MEMORY.tables()["result"].to_pylist()}
    expected = windows_of(arrived)
    last = max(expected)
    assert {start: count for start, count in expected.items() if start < last} == counted
    assert run_status.query("result").late_rows == 0
