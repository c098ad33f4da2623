"""When each batch of a sink was written first: the timestamp that its rows carry, however often it is written."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.drafts import write_whole
from millrace.errors import StateMismatch

_KEPT = 200
"""So many batches are remembered; Spark itself keeps 100 to go back to."""
_ROOM = 10**9
"""Timestamps for a batch of which nobody knows how many it needs."""


@dataclass(frozen=True)
class Times:
    """A small file of the state folder: batch numbers of one query and their timestamps in microseconds.

    A batch gets the time of its first attempt, and more than any batch before it got; a batch that is repeated gets
    what it got before. So what a repeated batch writes never wins over a later one, and what is written now wins over
    what anybody wrote before. `width` is how many timestamps a batch used: one for each row of its longest task.
    """

    path: Path
    query: str
    """Tells batch 0 of a query that began anew from a repeated batch 0."""

    def of(self, batch: int) -> int:
        """The timestamp of a batch, noted before anything is written with it."""
        known = self._known()
        times: dict[str, list[int]] = known["batches"] if known["query"] == self.query else {}
        if str(batch) in times:
            return times[str(batch)][0]
        later = [(int(number), begin) for number, (begin, _) in times.items() if int(number) > batch]
        if later:  # it is older than what is remembered: whatever it gets must be less than that
            number, begin = min(later)
            return begin - (number - batch) * _ROOM
        ended = max((begin + width for begin, width in known["batches"].values()), default=0)
        begin = max(time.time_ns() // 1000, ended + 1)
        self._save({**times, str(batch): [begin, 0]})
        return begin

    def used(self, batch: int, width: int) -> None:
        """Note how many timestamps a batch has used."""
        known = self._known()
        batches = known["batches"] if known["query"] == self.query else {}
        if str(batch) in batches and width > batches[str(batch)][1]:
            self._save({**batches, str(batch): [batches[str(batch)][0], width]})

    def _known(self) -> dict[str, Any]:
        if not self.path.exists():
            return {"query": self.query, "batches": {}}
        try:
            known: dict[str, Any] = json.loads(self.path.read_text("utf-8"))
            return {"query": known["query"], "batches": dict(known["batches"])}
        except (ValueError, KeyError, TypeError):
            raise StateMismatch(
                f"{self.path} is damaged", hint="remove it: rows are then written with the time of now"
            ) from None

    def _save(self, batches: dict[str, list[int]]) -> None:
        newest = sorted(batches.items(), key=lambda one: int(one[0]))[-_KEPT:]
        write_whole(self.path, json.dumps({"query": self.query, "batches": dict(newest)}))
