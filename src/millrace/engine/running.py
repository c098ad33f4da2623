"""The queries of a run from start to end; one that writes ends all when it fails, one that only draws does not."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millrace.clients.cluster import Cluster
from millrace.engine.failures import explain
from millrace.engine.stopping import PATIENCE, interrupted, stop_all
from millrace.engine.structured import Workshop
from millrace.errors import MillraceError
from millrace.pipeline.plan import Query

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK = 0.1


@dataclass
class Running:
    """Queries that were started."""

    workshop: Workshop
    writing: list[StreamingQuery] = field(default_factory=list)
    drawing: list[tuple[StreamingQuery, Query]] = field(default_factory=list)
    """Queries that only panels need: what goes wrong with one is told on its panels."""
    stopping: bool = False
    """Whether they have been asked to end."""

    def start(self, query: Query) -> StreamingQuery | None:
        """Start one more; None when it could not be, and only panels miss it."""
        if query.sinks or self.workshop.gallery is None:
            self.writing.append(self.workshop.start(query))
            return self.writing[-1]
        try:
            self.drawing.append((self.workshop.start(query), query))
        except MillraceError as error:
            self.workshop.gallery.fail(query.panels, error)
            return None
        return self.drawing[-1][0]

    def stay(self, seconds: float | None, stop: threading.Event) -> None:
        """Wait until nothing is written any more, the time is over or `stop` is set; raises when a query has failed."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not stop.wait(_LOOK):
            active = any(running.isActive for running in self.writing)
            self.require_sound()
            self._tell_of_drawing()
            if not active or (deadline is not None and time.monotonic() >= deadline):
                return

    def stop(self, *, between_batches: bool) -> None:
        """Stop all of them."""
        self.stopping = True
        drawing = [running for running, _ in self.drawing]
        stop_all(self.writing, PATIENCE if between_batches else 0.0, at_once=drawing)

    def require_sound(self) -> None:
        """Raise when one that writes has failed."""
        for running in self.writing:
            failure = None if running.isActive else running.exception()
            if failure is not None and not (self.stopping and interrupted(failure)):
                raise self._failure(failure, running.name) from failure

    def _tell_of_drawing(self) -> None:
        for running, query in [one for one in self.drawing if not one[0].isActive]:
            self.drawing.remove((running, query))
            failure = running.exception()
            if failure is not None and self.workshop.gallery:
                self.workshop.gallery.fail(query.panels, self._failure(failure, running.name))

    def _failure(self, failure: Exception, name: str) -> MillraceError:
        error = explain(failure, cluster=self._cluster())
        error.message = f"query {name!r} failed: {error.message}"
        return error

    def _cluster(self) -> Cluster | None:
        try:
            return self.workshop.ground.cluster()
        except MillraceError:
            return None
