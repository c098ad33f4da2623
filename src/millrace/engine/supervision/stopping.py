"""Stops queries between two batches, so that no batch is interrupted and run again at the next start.

- `stop_all` stops queries, and returns those whose batch took too long.
- `is_interruption` recognises failures that only come from a stop.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from millrace.engine.supervision.stream_execution import StreamExecution, has_pinned_threads
from millrace.settings import STOP_TIMEOUT

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_OFFSETS_TIMEOUT_S = 2.0
"""Time for a query to find out where its sources end; they may be unreachable."""
_POLL_INTERVAL_S = 0.005
_INTERRUPTED = re.compile(
    r"java\.lang\.InterruptedException|InterruptedIOException|ClosedByInterruptException"
    r"|Job \S+ cancelled|cancelled job group"
)


def is_interruption(failure: BaseException) -> bool:
    """Return whether a query failed only because it was stopped during a batch; the next start runs that batch."""
    return _INTERRUPTED.search(str(failure)) is not None


def stop_all(
    queries: Sequence[StreamingQuery], timeout_s: float = STOP_TIMEOUT.default, at_once: Sequence[StreamingQuery] = ()
) -> list[StreamingQuery]:
    """Stop `queries` when their batches have ended, and the queries `at_once`, which keep nothing, immediately.

    Return those whose batch took longer than `timeout_s` and was interrupted. The threads are daemons, so a process
    that is interrupted here can exit.
    """
    interrupted: list[StreamingQuery] = []
    timeouts = [*((query, timeout_s) for query in queries), *((query, None) for query in at_once)]
    threads = [threading.Thread(target=_stop, args=(*item, interrupted), daemon=True) for item in timeouts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return interrupted


def _stop(query: StreamingQuery, timeout_s: float | None, interrupted: list[StreamingQuery]) -> None:
    if timeout_s is None:
        _succeeds(query, query.stop)
        return
    deadline = time.monotonic() + timeout_s
    finished = _succeeds(query, lambda: _finish_batch(query, deadline))
    if not _succeeds(query, query.stop) or not finished:
        interrupted.append(query)


def _succeeds(query: StreamingQuery, step: Callable[[], bool | None]) -> bool:
    """Run a step; one that raises counts as a failure only if the query still runs in a JVM that answers."""
    try:
        return step() is not False
    except Exception:
        try:
            return not StreamExecution(query).is_alive
        except Exception:
            return True


def _finish_batch(query: StreamingQuery, deadline: float) -> bool:
    """Let the running batch be the last one and wait for its end; return False if it has to be interrupted."""
    execution = StreamExecution(query)
    if not has_pinned_threads():
        execution.start_no_more_batches()
        return _wait_for_end(execution, query, deadline)
    while True:
        if execution.try_lock(_OFFSETS_TIMEOUT_S):
            try:
                if not _batch_runs_until(execution, deadline):
                    if not execution.plans_batch() or time.monotonic() >= deadline:
                        execution.start_no_more_batches()
                        break
                elif not execution.waits_for_lock():
                    return False
                # A batch waits for the lock, to be planned or committed. One that is planned after the state was set
                # may be interrupted by Spark, so it becomes the last one in the next round.
            finally:
                execution.unlock()
            time.sleep(_POLL_INTERVAL_S)
        elif execution.gets_offsets():
            return _stop_without_answer(execution, query)
        elif time.monotonic() >= deadline:
            return False  # a log that takes too long to be written
    return _wait_for_end(execution, query, deadline)


def _batch_runs_until(execution: StreamExecution, deadline: float) -> bool:
    """Wait until a batch waits for the lock or is out of time; return False if none runs."""
    while runs := execution.runs_batch():
        if execution.waits_for_lock() or time.monotonic() >= deadline:
            break
        time.sleep(_POLL_INTERVAL_S)
    return runs


def _wait_for_end(execution: StreamExecution, query: StreamingQuery, deadline: float) -> bool:
    """Wait for the end of a query that starts no more batches; return False if it has to be interrupted.

    A batch may run nevertheless: the one that a start repeats was planned by the run before, not under the lock.
    """
    last_batch_seen = time.monotonic()
    while execution.is_alive:
        now = time.monotonic()
        if execution.runs_batch():
            if now >= deadline:
                return False
            last_batch_seen = now
        elif execution.is_stoppable():
            return True
        elif now >= last_batch_seen + _OFFSETS_TIMEOUT_S:
            return _stop_without_answer(execution, query)
        time.sleep(_POLL_INTERVAL_S)
    return True


def _stop_without_answer(execution: StreamExecution, query: StreamingQuery) -> bool:
    """Stop a query whose source does not answer; return False if it answered meanwhile and a batch was started."""
    query.stop()
    return execution.has_committed_all()
