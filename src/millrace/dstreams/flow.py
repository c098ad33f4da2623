"""A stream from outside while its program runs: its connections, its notes, and how far it is told that it is done."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from millrace.dstreams.attention import Told
from millrace.dstreams.folder import Folder
from millrace.dstreams.notes import Note, Notes
from millrace.dstreams.pace import Pace

if TYPE_CHECKING:
    from millrace.dstreams.inflow import Inflow


class Flow:
    """One inflow in this process.

    That batches are done is told in a thread of its own: whoever makes the next one does not wait for an answer.
    """

    def __init__(self, inflow: Inflow, checkpoint: Folder | None, pace: Pace | None) -> None:
        self.inflow = inflow
        self.pace = pace
        self.notes = Notes(checkpoint, inflow.stream)
        self.opened = inflow.open()
        self._settled = -1
        self._telling: threading.Thread | None = None
        self._failure: Exception | None = None

    def learn(self, told: Told) -> None:
        """Take the time that a batch took into account."""
        note = self.notes.at(told.time)
        if self.pace and note is not None:
            self.pace.learn(told, self.inflow.count(note))

    def settle(self, line: int) -> None:
        """Say that everything up to a time is done; raises what has become of that when it was said before."""
        if self._failure:
            raise self._failure
        note = self.notes.before(line + 1)
        if note is None or line <= self._settled or (self._telling and self._telling.is_alive()):
            return  # what is not told now is told with a later batch, or at the end
        self._telling = threading.Thread(target=self._tell, args=(line, note), name="millrace-settling", daemon=True)
        self._telling.start()

    def close(self, line: int) -> None:
        """Say it for the last time, and let go of what is open."""
        try:
            if self._telling:
                self._telling.join()
            note = self.notes.before(line + 1)
            if note is not None and line > self._settled and not self._failure:
                self._tell(line, note)
            if self._failure:
                raise self._failure
        finally:
            self.inflow.close(self.opened)

    def _tell(self, line: int, note: Note) -> None:
        try:
            if self.inflow.settle(note, self.opened):
                self._settled = line
        except Exception as error:  # raised to whoever settles next
            self._failure = error
