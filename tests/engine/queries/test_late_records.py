"""Late records are counted as records, where Spark counts rows that are grouped by their keys."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Delivery, Producer
from millrace.clients.kafka.record import Record
from millrace.engine.queries.bad_records import BadRecordPolicy, DeadLetterFilter
from millrace.engine.queries.decoding import Decoding, DecodingWithErrors
from millrace.engine.queries.late_records import (
    EventTimeCounter,
    EventTimeCountParam,
    LateRecords,
    TaskSpans,
    add_spans,
    count_before,
    spans_in,
    spans_of,
    spans_text,
)
from millrace.formats.json import Json
from millrace.pipeline.analysis.windows import EventTimeWindow
from millrace.pipeline.schema_ddl import parse_ddl
from millrace.telemetry.progress import BatchProgress
from millrace.telemetry.query_status import RunStatus

S = 1_000_000
MINUTE = EventTimeWindow(60 * S, 60 * S)
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def times(*seconds: float) -> np.ndarray:
    return np.array([round(second * S) for second in seconds], np.int64)


class Accumulator:
    """What Spark's does, in one process."""

    def __init__(self) -> None:
        self.value: TaskSpans = {}

    def add(self, other: TaskSpans) -> None:
        self.value = EventTimeCountParam().addInPlace(self.value, other)


@given(st.lists(st.integers(-(10**15), 10**15)), st.integers(-(10**15), 10**15))
def test_counts_have_every_record_and_say_how_sure_they_are(found: list[int], end: int) -> None:
    spans = spans_of(np.array(found, np.int64))
    assert sum(spans.values()) == len(found)
    least, most = count_before(spans, end)
    assert least <= sum(time < end for time in found) <= most


def test_counts_of_whole_seconds_are_exact() -> None:
    spans = spans_of(times(59.999, 0, 60, -0.5, 7200))
    assert count_before(spans, 60 * S) == (3, 3)
    assert count_before(spans, 59 * S) == (2, 2)
    assert count_before(spans, 60 * S + 1) == (3, 4)


def test_many_seconds_are_counted_in_longer_spans() -> None:
    spans = spans_of(times(*range(5000)))
    assert len(spans) <= 200
    assert count_before(spans, 3600 * S) == (3600, 3600)


def test_spans_as_text() -> None:
    spans = spans_of(times(1, 1.5, 9))
    assert spans_in(spans_text(spans)) == spans
    total = dict(spans)
    add_spans(total, spans)
    assert total == {(1, 1): 4, (9, 1): 2}


def late(dropped: int, batch: int = 3, rows: int = 2000, operator: str = "stateStoreSave") -> BatchProgress:
    """The progress of a batch of which Spark says how many rows were late."""
    return BatchProgress.of(
        {
            "batchId": batch,
            "timestamp": "2026-05-04T12:00:00.000Z",
            "numInputRows": rows,
            "stateOperators": [{"operatorName": operator, "numRowsDroppedByWatermark": dropped}],
        },
        "result",
    )


def late_records(folder: Path, *counted: np.ndarray, sources: int = 1, watermark_s: float = 600.0) -> LateRecords:
    """Batch 3 of a query, of which each task has counted these event times; batch 2 had this watermark."""
    (folder / "offsets").mkdir(exist_ok=True)
    metadata = {"batchWatermarkMs": round(watermark_s * 1000), "batchTimestampMs": 0, "conf": {}}
    (folder / "offsets" / "2").write_text(f"v1\n{json.dumps(metadata)}\n{{}}", "utf-8")
    found = LateRecords(folder, (MINUTE,), sources, accumulators=[Accumulator()])
    for task, event_times in enumerate(counted):
        found.accumulators[0].add({3: {task: (task, spans_of(event_times))}})
    return found


def test_records_whose_window_is_over_are_late(tmp_path: Path) -> None:
    found = late_records(tmp_path, np.repeat(times(-6600), 1990), times(599, 599.5, 600, 630), watermark_s=610)
    progress = found.counted(late(4))
    assert (progress.late_rows, progress.late_counted) == (1992, True), "the window of 10:00 is not over at 10:10"
    assert found.accumulators[0].value == {}, "the counts are not kept"


def test_a_task_that_runs_again_counts_once(tmp_path: Path) -> None:
    found = late_records(tmp_path, times(0, 1))
    found.accumulators[0].add({3: {0: (7, spans_of(times(0, 1)))}})
    assert found.counted(late(1)).late_rows == 2


def test_a_task_that_reads_several_partitions_counts_all_of_them(tmp_path: Path) -> None:
    found = late_records(tmp_path, times(0, 1))
    found.accumulators[0].add({3: {0: (0, spans_of(times(0, 1, 2)))}})
    assert found.counted(late(1)).late_rows == 5


def test_counts_that_nobody_asks_for_are_not_kept() -> None:
    found = Accumulator()
    for batch in range(500):
        found.add({batch: {0: (0, {(0, 1): 1})}})
    assert max(found.value) == 499
    assert len(found.value) == 100


def test_the_counts_of_the_next_batch_stay(tmp_path: Path) -> None:
    found = late_records(tmp_path, times(0))
    found.accumulators[0].add({4: {0: (0, {(0, 1): 1})}})
    found.counted(late(0, batch=4, rows=0))  # Spark says that there is nothing to do yet
    assert list(found.accumulators[0].value) == [3, 4]
    found.counted(late(1))
    assert list(found.accumulators[0].value) == [4]


@pytest.mark.parametrize("why", ["no window is known", "another source is not counted", "in the watermark's second"])
def test_what_is_not_known_is_not_said(why: str, tmp_path: Path) -> None:
    sources = 2 if why.startswith("another") else 1
    found = late_records(tmp_path, np.repeat(times(0), 1000), times(600.2), sources=sources, watermark_s=600.5)
    if not why.startswith("another"):
        found.windows = None if why.startswith("no") else ()
    progress = found.counted(late(4))
    assert not progress.late_counted
    assert progress.late_rows == (4 if why.startswith("no") else 1000)
    assert progress.late_estimate == (1000 if why.startswith("another") else 1001)


def test_operators_that_get_rows_as_they_are_count_them(tmp_path: Path) -> None:
    progress = late_records(tmp_path, times(0, 1)).counted(late(1, operator="dedupe"))
    assert (progress.late_rows, progress.late_counted) == (1, True)


@pytest.mark.parametrize("operator", ["stateStoreSave", "dedupe"])
def test_the_age_of_late_records_where_some_have_no_event_time(operator: str, tmp_path: Path) -> None:
    found = late_records(tmp_path, times(-6600, -6600.5, 630), times(599), watermark_s=610)
    assert found.counted(late(3, operator=operator)).late_by_ms == 7_211_000
    known = late_records(tmp_path, times(-6600.5), watermark_s=610)
    assert known.counted(replace(late(1, operator=operator), late_by_ms=7_210_500)).late_by_ms == 7_210_500
    partly = late_records(tmp_path, times(0), sources=2)
    assert partly.counted(late(1, operator=operator)).late_by_ms == 0


def test_counts_pass_beside_dead_letters_through_a_source_that_reads_in_bulk() -> None:
    columns = parse_ddl("at timestamp")
    policy, counts = BadRecordPolicy("drop", None, "p", "s"), EventTimeCounter("at", Accumulator())
    decoding = DecodingWithErrors(Decoding(Json(), columns, (), columns, policy, counts), ("value",))
    values = [b"{", b'{"at": "2026-05-04T12:00:00Z"}', b'{"at": null}', b'{"at": "2026-05-04T12:00:00.5Z"}']
    (block,) = decoding(iter([pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})]))
    letters = block.column(block.num_columns - 1)
    assert spans_in(letters[0].as_py()) == {(round(NOON.timestamp()), 1): 2}
    (kept,) = DeadLetterFilter(policy, counts)(iter([letters]))
    assert kept.to_pylist() == [True, True, True, False]


def send(cluster: Cluster, topic: str, *seconds: float | None) -> None:
    """Send records of two keys, so many seconds from noon; or without event time."""
    events = [
        {"user": f"u{number % 2}", "at": None if second is None else str(NOON + timedelta(seconds=second))}
        for number, second in enumerate(seconds)
    ]
    producer = Producer(cluster, topic, Delivery(idempotence=False))
    producer.send([Record(json.dumps(event).encode()) for event in events])
    producer.close()


@pytest.mark.usefixtures("either_source")
def test_records_of_two_keys_that_are_two_hours_late(
    cluster: Cluster, topic: str, tmp_path: Path, run_pipeline: Callable[..., RunStatus]
) -> None:
    pipeline = mr.Pipeline("late")
    schema = "user string, at timestamp"
    pipeline.source("events", mr.kafka(topic, schema=schema), watermark=("at", "10 seconds"))
    pipeline.sql("result", "SELECT user, window(at, '1 minute') AS w, count(*) AS n FROM events GROUP BY 1, 2")
    pipeline.sink("result", mr.files(str(tmp_path / "out"), format="json"))
    chance = random.Random(2)
    send(cluster, topic, *(chance.uniform(0, 40) for _ in range(9)), 40)
    first = run_pipeline(pipeline, tmp_path / "state")
    assert (first.query("result").rows, first.query("result").late_rows, first.warnings()) == (10, 0, [])
    # Five are older than the watermark (12:00:30), and their window is still open.
    send(cluster, topic, *(chance.uniform(-7260, -7200) for _ in range(2000)), *[5] * 5, *[41] * 5, None)
    query = (run_status := run_pipeline(pipeline, tmp_path / "state")).query("result")
    assert (query.rows, query.late_rows, query.late_counted) == (2011, 2000, True)
    assert timedelta(hours=2) < timedelta(milliseconds=query.late_by_ms) < timedelta(hours=2, minutes=3)
    assert len(run_status.warnings()) == 1
