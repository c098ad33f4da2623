"""Queries stopped between two batches, so that none is cut in the middle and run again next time."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from millrace.settings import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_IN_HAND = ("Writing offsets to log", "Processing new data", "No new data but cleaning up state")
"""What Spark says of a query from the moment that a batch is planned; the last one closes windows, and writes them."""
_TERMINATED = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$"
_ASKING = 2000
"""Milliseconds for a query to find out where its sources end, which may be out of reach."""
_LOOK = 0.005
_CUT = re.compile(
    r"java\.lang\.InterruptedException|InterruptedIOException|ClosedByInterruptException"
    r"|Job \S+ cancelled|cancelled job group"
)


def interrupted(failure: BaseException) -> bool:
    """Whether a query ended because it was stopped in the middle of something, which Spark may take for a failure.

    Nothing is lost: its batch is run again at the next start.
    """
    return _CUT.search(str(failure)) is not None


def stop_all(
    queries: Sequence[StreamingQuery], patience: float = PATIENCE.default, at_once: Sequence[StreamingQuery] = ()
) -> list[StreamingQuery]:
    """Stop queries, each when its batch has ended; and others, of whose batches nothing is kept, at once.

    Gives those whose batch took too long and was cut off. Whoever interrupts this is not held up: the threads end with
    the process.
    """
    cut: list[StreamingQuery] = []
    waits = [*((query, patience) for query in queries), *((query, None) for query in at_once)]
    threads = [threading.Thread(target=_stop, args=(*one, cut), daemon=True) for one in waits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return cut


def _stop(query: StreamingQuery, patience: float | None, cut: list[StreamingQuery]) -> None:
    deadline = None if patience is None else time.monotonic() + patience
    with suppress(Exception):  # a JVM that is gone, or a query that does not stop in time: both end with the session
        try:
            if deadline is not None and not _ended_between_batches(query, deadline):
                cut.append(query)
        finally:
            query.stop()


def _ended_between_batches(query: StreamingQuery, deadline: float) -> bool:
    """End a query when its batch is done; whether that was in time.

    Spark plans each batch, and notes that it is done, under a lock of the query: no other one begins while we have it.
    A source that does not say where it ends keeps the lock: then nothing of a batch has been written either.
    """
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    execution: Any = query._jsq.streamingQuery()
    lock = execution.awaitProgressLock()
    while lock.tryLock(_ASKING, jvm.java.util.concurrent.TimeUnit.MILLISECONDS):
        try:
            while _in_hand(query):
                if time.monotonic() >= deadline:
                    return False
                if lock.hasQueuedThreads():
                    break  # it has come to the end, and waits to note that
                time.sleep(_LOOK)
            else:
                # As `query.stop()` does; but that waits for the end of the query, which needs the lock.
                execution.state().set(getattr(getattr(jvm, _TERMINATED), "MODULE$"))
                execution.queryExecutionThread().interrupt()
                return True
        finally:
            lock.unlock()
        time.sleep(_LOOK)
    return True


def _in_hand(query: StreamingQuery) -> bool:
    status = query.status
    return bool(status["isTriggerActive"]) and status["message"].startswith(_IN_HAND)
