"""Rows a second over the last seconds, from the batches of a query.

Spark's own input rate divides by the time since the last trigger. A query that waits for data triggers twice within
milliseconds when some come, so twenty rows a second would be shown as a thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from millrace.telemetry.progress import Progress

WINDOW = 10.0
"""Seconds that are looked back, or more where batches are longer or further apart."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows a second that came in, and that came out (None where the sink does not count)."""

    read: float
    written: float | None


def rates(batches: Sequence[Progress], now: datetime, every: float | None = None) -> Rates | None:
    """The rates of late; None before the first batch. `every` is the trigger's interval, if it has one."""
    if not batches:
        return None
    window = timedelta(seconds=max(WINDOW, 2 * batches[-1].milliseconds / 1000, 2 * (every or 0)))
    recent: list[Progress] = []
    begin = None
    for batch in reversed(batches):
        if now - ended(batch) > window:
            begin = ended(batch)
            break
        recent.append(batch)
    if not recent:
        return Rates(0.0, 0.0)
    if begin is None:
        begin = recent.pop().at if len(recent) == 1 else ended(recent.pop())
        recent = recent or [batches[-1]]
    span = max((now - max(begin, now - window)).total_seconds(), 0.001)
    written = [batch.sink_rows for batch in recent if batch.sink_rows is not None]
    counted = sum(written) / span if len(written) == len(recent) else None
    return Rates(sum(batch.input_rows for batch in recent) / span, counted)


def ended(batch: Progress) -> datetime:
    """When a batch was done."""
    return batch.at + timedelta(milliseconds=batch.milliseconds)
