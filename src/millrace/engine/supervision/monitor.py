"""Watches the queries of a session, by asking Spark every so often, and tells a run status."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from millrace.engine.failures.explain import explain
from millrace.engine.supervision.stopping import is_interruption
from millrace.telemetry.panel_registry import PanelRegistry
from millrace.telemetry.progress import BatchProgress
from millrace.telemetry.query_status import Phase, RunStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EVERY = 0.5
"""Seconds between two looks."""
DRAWING = 0.05
"""Seconds between two questions for a finished batch, where panels wait for what they show."""
_FIRST = 0.1


_log = logging.getLogger(__name__)


@dataclass
class _Seen:
    """A query and how much of it has been told."""

    query: StreamingQuery
    name: str
    batch: int = -1
    key: tuple[int, str] | None = None
    """The newest word that was told."""
    left: str = ""
    """What is to be added when it has ended."""


class QueryMonitor:
    """A thread that looks at the queries of a session, also of one that somebody else made.

    `dead` counts the dead letters of each source, by accumulators of Spark. `gallery` has the panels that look at what
    the queries do. `told` hears of every batch. Where the queries are supervised, what becomes of one that has failed
    is told by who does that.
    """

    def __init__(
        self,
        spark: SparkSession,
        run_status: RunStatus,
        *,
        dead: Mapping[str, Any] | None = None,
        gallery: PanelRegistry | None = None,
        told: Callable[[BatchProgress], None] = lambda _: None,
        every: float = EVERY,
        supervised: bool = False,
    ) -> None:
        self._spark = spark
        self._run_status = run_status
        self._gallery = gallery
        self._told = told
        self._supervised = supervised
        self._dead = {} if dead is None else dead
        self._every = every
        self._seen: dict[str, _Seen] = {}
        self._known: set[str] = set()
        """The runs of queries that were added, ever: Spark still lists one for a moment after its end."""
        self._adding = threading.Lock()
        self._unnamed = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> QueryMonitor:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> QueryMonitor:
        """Begin to look."""
        return self.__enter__()

    def close(self) -> None:
        """Look once more, so that nothing that has happened is missed, and end."""
        self._stop.set()
        self._thread.join()

    @property
    def over(self) -> bool:
        """Whether Spark is gone, so that there is nothing to look at."""
        return not self._thread.is_alive()

    def track(self, query: StreamingQuery, left: str = "") -> None:
        """Look at a query even if it ends before the next look; `left` is then said of what its figures leave out."""
        self._add(query, left)

    def await_batch(self, query: StreamingQuery, seconds: float, stop: threading.Event) -> None:
        """Wait until a query has done its first batch, but not longer than so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and query.isActive and not query._jsq.lastProgress():
            if stop.wait(_FIRST):
                return

    def poll(self) -> None:
        """Tell the run status what is new."""
        for query in self._spark.streams.active:
            self._add(query)
        for run, seen in list(self._seen.items()):
            self._tell(seen)
            if not seen.query.isActive:
                self._tell_progress(seen)  # the last batch may have ended since
                del self._seen[run]
                self._tell_end(seen)
        for source, count in list(self._dead.items()):
            self._run_status.set_dead_letters(source, int(count.value))
        if self._gallery:
            self._gallery.look()
        self._run_status.seen()

    def _tell_end(self, seen: _Seen) -> None:
        failure = seen.query.exception()
        again = any(one.name == seen.name for one in list(self._seen.values()))  # it was started anew meanwhile
        if not again and (failure is None or not self._supervised):
            error = explain(failure) if failure and not is_interruption(failure) else None
            self._run_status.ended(seen.name, error, seen.left)

    def _carefully(self, look: Callable[[], None]) -> None:
        """What cannot be understood this time is looked at again, unless Spark is gone."""
        try:
            look()
        except (KeyError, TypeError, ValueError):
            _log.debug("a query's progress could not be read", exc_info=True)

    def _rest(self) -> None:
        """Until the next look; what panels show is asked for meanwhile."""
        until = time.monotonic() + self._every
        step = DRAWING if self._gallery else self._every
        while (left := until - time.monotonic()) > 0 and not self._stop.wait(min(left, step)):
            for seen in list(self._seen.values()):
                self._tell_progress(seen)

    def _run(self) -> None:
        try:
            over = False
            while not over:
                self._carefully(self._rest)
                over = self._stop.is_set()
                self._carefully(self.poll)
        except Exception as error:
            # Spark was stopped, or has died: in both cases no query of it goes on.
            stopped = self._spark.sparkContext._jsc is None
            for seen in self._seen.values():
                self._run_status.ended(seen.name, None if stopped else explain(error), seen.left)

    def _add(self, query: StreamingQuery, left: str = "") -> None:
        run = str(query.runId)
        with self._adding:
            if run in self._known:  # the thread that looks may have been the first to see it
                if left and run in self._seen:
                    self._seen[run].left = left
                return
            self._known.add(run)
            if not query.name:
                self._unnamed += 1
            seen = _Seen(query, query.name or f"query {self._unnamed}", left=left)
            self._run_status.started(seen.name)
            self._seen[run] = seen

    def _tell(self, seen: _Seen) -> None:
        self._tell_progress(seen)
        status = seen.query.status
        doing = status["message"]
        self._run_status.update(seen.name, _phase(doing, seen.batch, active=status["isTriggerActive"]), doing)

    def _tell_progress(self, seen: _Seen) -> None:
        # Spark's own object, not PySpark's of it: what panels see may be long, and is asked for only when it is new.
        asked: Any = seen.query._jsq
        newest = asked.lastProgress()
        if newest is None or _key(newest) == seen.key:
            return
        # Asking for all that Spark remembers costs a call for each: only when a batch was missed.
        recent = [newest] if newest.batchId() <= seen.batch + 1 else list(asked.recentProgress())
        keys = [_key(told) for told in recent]
        # By place, not by time: a clock may be set back.
        for told in recent[keys.index(seen.key) + 1 if seen.key in keys else 0 :]:
            seen.key = _key(told)
            self._take(seen, told.json())

    def _take(self, seen: _Seen, text: str) -> None:
        told: dict[str, Any] = json.loads(text)
        progress = BatchProgress.of(told, seen.name)
        fresh = progress.executed and progress.batch > seen.batch  # Spark may tell of a batch again while it waits
        seen.batch = progress.batch if progress.executed else seen.batch
        self._run_status.batch_done(progress)
        self._told(progress)
        if self._gallery and fresh:
            try:
                self._gallery.observe(told.get("observedMetrics") or {})
            except Exception:  # a panel must not be taken for a query that has failed
                _log.warning("what panels see could not be understood", exc_info=True)


def _key(told: Any) -> tuple[int, str]:
    """Which word of Spark's this is."""
    return told.batchId(), told.timestamp()


def _phase(doing: str, batch: int, *, active: bool) -> Phase:
    if doing.startswith("Waiting"):
        return Phase.WAITING
    if batch < 0 and not active:
        return Phase.STARTING
    return Phase.RUNNING
