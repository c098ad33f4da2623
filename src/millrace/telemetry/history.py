"""The batches of a query as rows for charts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millrace.telemetry.plain import milliseconds
from millrace.telemetry.progress import Progress

KEPT = 600
COLUMNS = (
    "time",
    "batch",
    "input_rows",
    "input_rate",
    "rate",
    "ms",
    "waited_ms",
    "delay_ms",
    "watermark_gap_ms",
    "state_rows",
    "state_bytes",
    "late",
    "lag",
    "sink_rows",
)
_WHOLE = "triggerExecution"


def row(batch: Progress) -> dict[str, Any]:
    """One batch; `time` is its end, and each of Spark's steps has a column `phase:NAME` of milliseconds."""
    ended = milliseconds(batch.at) + batch.milliseconds
    told = {
        "time": ended,
        "batch": batch.batch,
        "input_rows": batch.input_rows,
        "input_rate": batch.input_rate,
        "rate": batch.rate,
        "ms": batch.milliseconds,
        "waited_ms": batch.waited,
        "delay_ms": batch.delay,
        "watermark_gap_ms": ended - milliseconds(batch.watermark) if batch.watermark else None,
        "state_rows": batch.state_rows,
        "state_bytes": batch.state_bytes,
        "late": batch.late_rows,
        "lag": batch.lag,
        "sink_rows": batch.sink_rows,
    }
    return told | {f"phase:{name}": spent for name, spent in batch.durations.items() if name != _WHOLE}


def newer(history: Iterable[Progress], than: Progress | None) -> list[Progress]:
    """What came after a word of Spark's; all of it when that word is forgotten already."""
    known = list(history)
    for place in range(len(known) - 1, -1, -1):
        if known[place] is than:
            return known[place + 1 :]
    return known
