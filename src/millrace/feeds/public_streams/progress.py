"""How far the sink has safely come in an origin, so that the next run goes on from there."""

from __future__ import annotations

import json
import threading
from collections import deque
from dataclasses import dataclass

from millrace.clients.records import Done
from millrace.errors import FileUnusable, MillraceError, RecordRefused
from millrace.feeds.base import Run


@dataclass
class _Step:
    position: str | None
    safe: bool = False


class Progress:
    """Saves positions in the order in which they were read, and never past a record that is not safe yet.

    Batches may be confirmed in any order and from any thread. A position stands for everything before it, so
    it is saved only when all the earlier batches are safe too; after one that failed nothing more is saved.
    """

    def __init__(self, run: Run, origin: str) -> None:
        self._run = run
        self._origin = origin
        self._steps: deque[_Step] = deque()
        self._lock = threading.Lock()
        self._unsaved: OSError | None = None
        self._failed: MillraceError | None = None

    def load(self) -> str | None:
        """The position of an earlier run, if it was one in this origin: that of another means nothing here."""
        text = self._run.cursor.load()
        if text is None:
            return None
        try:
            saved = json.loads(text)
            origin, position = str(saved["origin"]), str(saved["position"])
        except (ValueError, KeyError, TypeError):
            raise FileUnusable(
                "the saved position of this feed cannot be read",
                why=f"it holds {text[:80]!r}",
                hint="remove it to start from now",
            ) from None
        if origin != self._origin:
            self._run.say(f"the saved position is one in {origin}: starting from now in {self._origin}")
            return None
        return position

    def track(self, position: str | None) -> Done:
        """What to call when a batch that reaches up to this position is safe, or is not."""
        self._check()
        step = _Step(position)
        with self._lock:
            self._steps.append(step)

        def done(error: MillraceError | None) -> None:
            if isinstance(error, RecordRefused):
                # It will never be taken, so waiting for it would stop the feed for good: told, and passed over.
                self._run.say(f"an event was left out: {error.why or error.message}")
                error = None
            if error is None:
                self._settle(step)
            else:
                self._failed = self._failed or error
                self._run.stop.set()

        return done

    def _settle(self, step: _Step) -> None:
        with self._lock:
            step.safe = True
            reached = None
            while self._steps and self._steps[0].safe:
                reached = self._steps.popleft().position or reached
            if reached is not None:
                self._save(reached)

    def _save(self, position: str) -> None:
        try:
            self._run.cursor.save(json.dumps({"origin": self._origin, "position": position}))
        except OSError as error:
            # This is the sink's thread, which cannot do anything about it: the feed's raises it.
            self._unsaved = error

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._unsaved is not None:
            raise FileUnusable("the position of this feed cannot be saved", why=str(self._unsaved))
