"""Why there is no output, in one sentence made from progress, watermark, state and lag."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from millrace.telemetry.progress import BatchProgress, batch_end
from millrace.telemetry.query_status import Phase, QueryStatus
from millrace.telemetry.topology import ExpectedQuery
from millrace.units import format_count, format_duration

_MOST = 0.95
"""The share of a batch that counts as nearly all of it."""
QUIET_S = 10.0
"""Seconds without a batch after which a query that has had output counts as silent."""


@dataclass(frozen=True, slots=True)
class IdleFacts:
    """What the sentence is made from."""

    status: QueryStatus
    expected: ExpectedQuery
    batch: BatchProgress | None
    """The newest batch that did something."""
    lag: int | None
    dead: int
    """Dead letters of the sources that it reads."""
    now: datetime

    def ago(self, moment: datetime) -> str:
        """Return how long ago a moment was, in words."""
        return format_duration(max(1, round((self.now - moment).total_seconds())))


def idle_reason(facts: IdleFacts) -> str | None:
    """Return the sentence; None when there is output, or none is due."""
    reasons = (rule(facts) for rule in _RULES)
    return next((reason for reason in reasons if reason is not None), None) or None


def _ended(facts: IdleFacts) -> str | None:
    if facts.status.phase is Phase.FAILED:
        error = facts.status.error
        return f"The query has failed{f': {error.message}' if error else ''}."
    if facts.status.restart:
        return f"The query has failed; {facts.status.restart.sentence(facts.now)}."
    return "The query has stopped." if facts.status.phase is Phase.STOPPED else None


def _no_batch_yet(facts: IdleFacts) -> str | None:
    if facts.batch is not None:
        return None
    waited = facts.ago(facts.status.since)
    if not facts.expected.batches:
        return ""  # it writes at once and reports seldom: nothing is known to be wrong
    if facts.lag:
        return f"The first batch is still at work: it began {waited} ago, and {facts.lag:,} records wait."
    if facts.status.phase is Phase.WAITING:
        sources = ", ".join(facts.expected.sources) or "its source"
        return f"Nothing has arrived yet: {sources} had no record to read since the start {waited} ago."
    return f"The query is starting: no batch has ended in {waited}."


def _all_dead(facts: IdleFacts) -> str | None:
    rows = facts.status.rows
    if rows and facts.dead >= rows:
        return f"Every record so far ({facts.dead:,}) was unreadable and went to the dead letters."
    return None


def _all_late(facts: IdleFacts) -> str | None:
    batch = facts.batch
    if not batch or batch.sink_rows or not batch.input_rows or batch.late_estimate < _MOST * batch.input_rows:
        return None
    late = f"{batch.late_rows:,}" if batch.late_counted else f"about {batch.late_estimate:,}"
    which = "All" if batch.late_estimate >= batch.input_rows else f"Nearly all ({late})"
    rows = f"{which} of the {batch.input_rows:,} rows of the newest batch"
    return f"{rows} came after the watermark and were dropped as late."


def _waits_for_watermark(facts: IdleFacts) -> str | None:
    batch = facts.batch
    if not batch or batch.sink_rows != 0 or not (held := _held_back(facts)):
        return None
    rows = f"{format_count(held, 'row')} of state"
    if batch.watermark is None:
        return f"Append mode writes what the watermark has passed, and there is no watermark yet; it holds {rows}."
    gap = format_duration(max(0, round((facts.now - batch.watermark).total_seconds())))
    position = f"it is at {batch.watermark:%Y-%m-%d %H:%M:%S} UTC, {gap} ago, and moves only with newer events"
    return f"Append mode writes a window when the watermark has passed its end: {position}; the query holds {rows}."


def _quiet(facts: IdleFacts) -> str | None:
    batch = facts.batch
    if batch is None or facts.status.phase is not Phase.WAITING:
        return None
    since = batch_end(batch)
    if (facts.now - since).total_seconds() < QUIET_S or facts.lag:
        return None
    waiting = _held_back(facts)
    held = f"; a later watermark lets go of {format_count(waiting, 'row')} of state" if waiting else ""
    return f"Nothing new has arrived for {facts.ago(since)}: all records have been read{held}."


def _nothing_passed(facts: IdleFacts) -> str | None:
    batch = facts.batch
    if batch and batch.sink_rows == 0 and batch.input_rows:
        rows = format_count(batch.input_rows, "row")
        return f"The newest batch read {rows}, and none of them came through the filters, joins and windows."
    return None


def _long_batch(facts: IdleFacts) -> str | None:
    batch = facts.batch
    if batch is None or facts.status.phase is not Phase.RUNNING or not facts.expected.batches:
        return None
    since = batch_end(batch)
    if (facts.now - since).total_seconds() < max(QUIET_S, 3 * batch.milliseconds / 1000):
        return None
    behind = f"; {facts.lag:,} records wait" if facts.lag else ""
    return f"A batch has been at work for {facts.ago(since)}{behind}."


def _held_back(facts: IdleFacts) -> int:
    """Return the rows of state that append mode writes when the watermark has passed them."""
    expected, batch = facts.expected, facts.batch
    if not batch or expected.mode != "append" or not expected.watermarked:
        return 0
    return batch.state_rows or 0


_RULES: tuple[Callable[[IdleFacts], str | None], ...] = (
    _ended,
    _no_batch_yet,
    _all_dead,
    _long_batch,
    _all_late,
    _waits_for_watermark,
    _quiet,
    _nothing_passed,
)
