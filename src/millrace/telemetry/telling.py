"""The board as channels: `state`, `history:*` and `events`, renewed a few times a second without any call to Spark."""

from __future__ import annotations

import threading

from millrace.telemetry import history
from millrace.telemetry.board import Board
from millrace.telemetry.channels import Channels
from millrace.telemetry.diary import Diary
from millrace.telemetry.figures import batches_of, state
from millrace.telemetry.outline import Outline
from millrace.telemetry.progress import Progress
from millrace.telemetry.samples import Samples

EVERY = 0.2


class Telling:
    """Fills channels from a board; `look` is called by a sampler."""

    def __init__(self, board: Board, samples: Samples, outline: Outline, channels: Channels) -> None:
        self._board = board
        self._samples = samples
        self._outline = outline
        self._channels = channels
        self._last: dict[str, Progress | None] = {}
        self._looking = threading.Lock()
        self.diary = Diary(channels)

    def look(self) -> None:
        """Bring every channel up to date; of two who look at once, one waits, or both would tell the same rows."""
        with self._looking:
            self.diary.look(self._board)
            for standing in self._board.queries():
                self._tell_batches(standing.query, standing.last)
            self._channels.slot("state").set(state(self._board, self._samples, self._outline))

    def _tell_batches(self, query: str, last: Progress | None) -> None:
        ring = self._channels.ring(f"history:{query}", history.KEPT, history.COLUMNS)
        if last is None or last is self._last.get(query):
            return
        fresh = history.newer(self._board.history(query), self._last.get(query))
        ring.extend(map(history.row, batches_of(fresh)))
        self._last[query] = fresh[-1] if fresh else last
