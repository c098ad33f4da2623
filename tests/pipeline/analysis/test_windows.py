"""The windows of a query, and which records are late for them."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

import millrace as mr
from millrace.pipeline.analysis.windows import EventTimeWindow, event_time_windows, late_before

S = 1_000_000
TEN = "10 seconds"


def in_sql(*queries: str) -> mr.Pipeline:
    made = mr.Pipeline("windows")
    made.source("events", mr.kafka("t", schema="id string, at timestamp"), watermark=("at", "5 seconds"))
    for number, query in enumerate(queries, 1):
        made.sql(f"t{number}", query)
    return made


def tumbling(events: Any) -> Any:
    return events.groupBy(F.window("at", "1 minute")).count()


def named(events: Any) -> Any:
    return events.groupBy(F.window("at", "1 minute", startTime="5 seconds")).count()


def elsewhere(events: Any) -> Any:
    return events.groupBy(F.window("at", TEN)).count()


def hidden(events: Any) -> Any:
    return tumbling(events)


@pytest.mark.parametrize(
    ("query", "windows"),
    [
        ("SELECT count(*) FROM events GROUP BY window(at, '10 seconds')", [EventTimeWindow(10 * S, 10 * S)]),
        (
            "SELECT count(*) FROM events GROUP BY window(at, '1 minute', '10 seconds', '3 seconds')",
            [EventTimeWindow(60 * S, 10 * S, 3 * S)],
        ),
        ("SELECT id, count(*) FROM events GROUP BY 1, session_window(at, '5 seconds')", [EventTimeWindow(5 * S)]),
        ("SELECT at, count(*) FROM events GROUP BY 1", []),
        ("SELECT id, count(*) FROM events GROUP BY 1, session_window(at, id)", None),
        ("SELECT FROM WHERE", None),
    ],
)
def test_windows_in_sql(query: str, windows: list[EventTimeWindow] | None) -> None:
    found = event_time_windows(in_sql(query).model(), "t1")
    assert found == (None if windows is None else tuple(windows))


def test_windows_of_windows() -> None:
    made = in_sql(
        "SELECT window(at, '1 minute') AS w, count(*) AS n FROM events GROUP BY 1",
        "SELECT window(w, '1 hour') AS h, max(n) AS n FROM t1 GROUP BY 1",
    )
    found = event_time_windows(made.model(), "t2")
    assert found == (EventTimeWindow(60 * S, 60 * S), EventTimeWindow(3600 * S, 3600 * S))
    assert event_time_windows(made.model(), "events") == ()


@pytest.mark.parametrize(
    ("table", "windows"),
    [(tumbling, (EventTimeWindow(60 * S, 60 * S),)), (named, None), (elsewhere, None), (hidden, None)],
)
def test_windows_in_python(table: Any, windows: tuple[EventTimeWindow, ...] | None) -> None:
    made = in_sql()
    made.table(table)
    assert event_time_windows(made.model(), table.__name__) == windows


@pytest.mark.parametrize(
    ("window", "watermark", "before"),
    [
        (EventTimeWindow(60 * S, 60 * S), 119, 60),
        (EventTimeWindow(60 * S, 60 * S), 120, 120),
        (EventTimeWindow(60 * S, 10 * S), 119, 110),  # the first of its six windows is over
        (EventTimeWindow(60 * S, 60 * S, 5 * S), 120, 65),
    ],
)
def test_a_record_is_late_when_a_window_of_its_is_over(window: EventTimeWindow, watermark: int, before: int) -> None:
    assert window.late_before(watermark * S) == before * S


def test_a_session_is_over_after_its_gap_and_what_is_in_no_window_at_the_watermark() -> None:
    assert late_before([EventTimeWindow(5 * S)], 20 * S) == 15 * S + 1
    assert late_before([], 20 * S) == 20 * S + 1
    assert late_before([EventTimeWindow(60 * S, 60 * S), EventTimeWindow(5 * S)], 70 * S) == 65 * S + 1
