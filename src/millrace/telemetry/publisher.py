"""What happened, as lines that people read: queries that start, stop and fail, first dead letters, late rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

from millrace.telemetry.answers import Missing, change
from millrace.telemetry.board import Board, Phase, Standing
from millrace.telemetry.channels import Channels
from millrace.units import so_many

KEPT = 500
COLUMNS = ("time", "level", "query", "text")


class Diary:
    """Writes into the channel `events`; `look` finds by itself what is new on a board."""

    def __init__(self, channels: Channels) -> None:
        self._ring = channels.ring("events", KEPT, COLUMNS)
        self._known: dict[str, Standing] = {}
        self._dead: dict[str, int] = {}
        self._missing: Missing | None = None

    def note(self, text: str, level: str = "info", query: str | None = None) -> None:
        """One line."""
        self._ring.append({"time": round(time.time() * 1000), "level": level, "query": query, "text": text})

    def look(self, board: Board) -> None:
        """Note what has happened since the last look."""
        for one in board.queries():
            for level, text in _news(one, self._known.get(one.query)):
                self.note(text, level, one.query)
            self._known[one.query] = one
        for source, count in board.dead().items():
            if count and not self._dead.get(source):
                self.note(f"source {source}: the first dead letters ({count:,})", "warning")
            self._dead[source] = count
        missing = board.kafka.missing()
        if line := change(self._missing, missing):
            self.note(line, "warning" if missing else "info")
        self._missing = missing


def _news(one: Standing, before: Standing | None) -> Iterator[tuple[str, str]]:
    anew = before is None or before.since != one.since
    if one.restart and (before is None or before.restarts != one.restarts):
        yield "warning", f"failed: {one.error.message if one.error else one.restart.why}"
        yield "warning", one.restart.sentence(datetime.now(UTC))
    if anew:
        yield "info", "started again" if one.restarts else "started"
    if before and before.restart and not one.restart and not one.phase.ended:
        yield "info", f"works again (restart {before.restart.number} of {before.restart.most})"
    if before is not None and not before.batches and one.batches:
        yield "info", "the first batch is done"
    if one.error and not one.phase.idle and not (before and one.error is before.error):
        yield "error", f"a batch failed, the next ones go on: {one.error.message}"
    if one.late_rows and not (before and before.late_rows):
        yield "warning", f"the first late rows were dropped ({one.late_rows:,})"
    if one.phase.ended and (anew or not (before and before.phase.ended)):
        yield _ending(one)


def _ending(one: Standing) -> tuple[str, str]:
    if one.phase is Phase.STOPPED:
        return "info", f"stopped after {so_many(one.rows, 'row')} in {so_many(one.batches, 'batch')}"
    told = ["failed"] if one.error is None else [f"failed: {one.error.message}", one.error.why or ""]
    return "error", "; ".join(part for part in told if part)
