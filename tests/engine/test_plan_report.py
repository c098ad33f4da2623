"""What a plan says of the batches of a backlog."""

from __future__ import annotations

from typing import Any

import pytest

import millrace as mr
from millrace.engine.plan_report import _reading_report
from millrace.pipeline.plan import make_plan


def alignment(**options: Any) -> str:
    """Return by what the plan says that batches of a topic are cut."""
    pipeline = mr.Pipeline("p")
    kafka = mr.kafka("events", schema="at timestamp", max_per_batch=1000, **options)
    pipeline.source("events", kafka, watermark=("at", "4 seconds"))
    pipeline.sql("kept", "SELECT at FROM events")
    pipeline.sink("kept", mr.memory())
    model = pipeline.model()
    (query,) = make_plan(model).queries
    return str(_reading_report(model, model.sources[0], query)["alignment"])


def test_by_what_the_batches_of_a_backlog_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cut by at, across all partitions" in alignment()
    assert "cut by when records arrived (alignment: arrival)" in alignment(alignment="arrival")
    assert "each partition gives its share" in alignment(alignment="off")
    one_batch = "a backlog is one batch, as Spark's own source cannot cut it by event time"
    assert one_batch in alignment(min_tasks=4)
    assert one_batch in alignment(config={"fetch.min.bytes": 1})
    assert "each partition gives its share" in alignment(min_tasks=4, alignment="off")
    monkeypatch.setenv("MILLRACE_BULK_READER", "off")
    assert one_batch in alignment()
