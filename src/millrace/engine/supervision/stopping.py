"""Queries stopped between two batches, so that none is cut in the middle and run again next time."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millrace.settings import STOP_TIMEOUT

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_IN_HAND = ("Writing offsets to log", "Processing new data", "No new data but cleaning up state")
"""What Spark says of a query from the moment that a batch is planned; the last one closes windows, and writes them."""
_ASKS, _WAITS, _HAS_NO_BATCHES = "Getting offsets from", "Waiting for", "Running"
_TERMINATED = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$"
_ASKING = 2.0
"""Seconds for a query to find out where its sources end, which may be out of reach."""
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
    queries: Sequence[StreamingQuery], patience: float = STOP_TIMEOUT.default, at_once: Sequence[StreamingQuery] = ()
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
    if patience is None:
        _came_off(query, query.stop)
        return
    deadline = time.monotonic() + patience
    whole = _came_off(query, lambda: _ended_between_batches(query, deadline))
    if not _came_off(query, query.stop) or not whole:
        cut.append(query)


def _came_off(query: StreamingQuery, step: Callable[[], bool | None]) -> bool:
    """Whether a step towards the end did no harm; one that fails does while the query runs, and a JVM is there."""
    try:
        return step() is not False
    except Exception:
        try:
            return not query._jsq.streamingQuery().queryExecutionThread().isAlive()
        except Exception:
            return True


def _ended_between_batches(query: StreamingQuery, deadline: float) -> bool:
    """End a query when its batch is done; False when it must be cut off, or was.

    Spark plans each batch, and notes that it is done, under a lock of the query: no other one begins while we have it.
    """
    execution: Any = query._jsq.streamingQuery()
    if not _pinned():
        _begins_no_other(execution)
        return _let_end(query, execution, deadline)
    lock = execution.awaitProgressLock()
    while True:
        if lock.tryLock(int(_ASKING * 1000), _jvm().java.util.concurrent.TimeUnit.MILLISECONDS):
            try:
                if _idle(query, execution, lock, deadline):
                    _begins_no_other(execution)
                    break
                if not lock.hasQueuedThread(execution.queryExecutionThread()):
                    return False
                # It has come to the end, and waits to note that.
            finally:
                lock.unlock()
            time.sleep(_LOOK)
        elif query.status["message"].startswith(_ASKS):
            return _broken_off(query, execution)
        elif time.monotonic() >= deadline:
            return False  # a log that takes so long to be written
    return _let_end(query, execution, deadline)


def _idle(query: StreamingQuery, execution: Any, lock: Any, deadline: float) -> bool:
    """Watch a batch, if there is one, until it waits for the lock or is out of time; whether there was none."""
    while in_hand := _in_hand(query.status):
        if lock.hasQueuedThread(execution.queryExecutionThread()) or time.monotonic() >= deadline:
            break
        time.sleep(_LOOK)
    return not in_hand


def _let_end(query: StreamingQuery, execution: Any, deadline: float) -> bool:
    """Wait for the end of a query that begins no other batch; False when it must be cut off, or was.

    One may have begun meanwhile: the batch that a start repeats was planned by the run before, not under the lock.
    """
    thread = execution.queryExecutionThread()
    busy = time.monotonic()
    while thread.isAlive():
        now, status = time.monotonic(), query.status
        if _in_hand(status):
            if now >= deadline:
                return False
            busy = now
        elif status["message"] == _HAS_NO_BATCHES or _sleeps(status, thread):
            return True
        elif now >= busy + _ASKING:
            return _broken_off(query, execution)
        time.sleep(_LOOK)
    return True


def _broken_off(query: StreamingQuery, execution: Any) -> bool:
    """Stop a query whose source does not answer; False when it did, and a batch had begun before we came."""
    query.stop()
    return bool(execution.offsetLog().getLatestBatchId().equals(execution.commitLog().getLatestBatchId()))


def _begins_no_other(execution: Any) -> None:
    """Let the batch in hand be the last, as `query.stop()` does; but that does not wait for its end."""
    execution.state().set(getattr(getattr(_jvm(), _TERMINATED), "MODULE$"))


def _in_hand(status: Mapping[str, Any]) -> bool:
    return bool(status["isTriggerActive"]) and status["message"].startswith(_IN_HAND)


def _sleeps(status: Mapping[str, Any], thread: Any) -> bool:
    """Whether it waits for its next trigger; the words alone may be those of a moment ago."""
    return bool(status["message"].startswith(_WAITS) and thread.getState().toString() == "TIMED_WAITING")


def _pinned() -> bool:
    """Whether a thread of ours is always the same one of the JVM's; if not, another might have to unlock."""
    from pyspark import SparkContext
    from pyspark.java_gateway import ClientServer

    return isinstance(SparkContext._gateway, ClientServer)


def _jvm() -> Any:
    from pyspark import SparkContext

    return SparkContext._jvm
