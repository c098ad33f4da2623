"""The private parts of Spark that a stop between two batches needs; written for Spark 4.3.

`query.stop()` of PySpark interrupts the running batch, which the next start has to run again. Spark has no public call
that lets the batch finish first. So `StreamExecution` uses what the class of that name has in the JVM:

- `awaitProgressLock`, the lock under which Spark plans each batch and commits it: no batch starts while it is held;
- `state`, which is set to TERMINATED as `query.stop()` does, but without an interrupt;
- `queryExecutionThread`, to see whether the query has ended, sleeps or waits for the lock;
- `offsetLog` and `commitLog`, to see whether a batch was started and not committed;
- the texts of the query's status, which say what the query is doing.

No other module reaches for them. `tests/engine/supervision/test_stream_execution.py` fails if Spark changes them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

SPARK_VERSION = "4.3"
TERMINATED = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$"
BATCH_MESSAGES = ("Writing offsets to log", "Processing new data", "No new data but cleaning up state")
"""The status from the moment a batch is planned; the last one closes windows, and writes them."""
OFFSETS_MESSAGE, WAITING_MESSAGE, NO_BATCHES_MESSAGE = "Getting offsets from", "Waiting for", "Running"


class StreamExecution:
    """The execution of a query in Spark's JVM."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._execution: Any = query._jsq.streamingQuery()

    @cached_property
    def _lock(self) -> Any:
        return self._execution.awaitProgressLock()

    @property
    def is_alive(self) -> bool:
        return bool(self._execution.queryExecutionThread().isAlive())

    def try_lock(self, timeout_s: float) -> bool:
        """Try to take the lock under which batches are planned and committed; the same thread has to unlock it."""
        return bool(self._lock.tryLock(int(timeout_s * 1000), _jvm().java.util.concurrent.TimeUnit.MILLISECONDS))

    def unlock(self) -> None:
        self._lock.unlock()

    def waits_for_lock(self) -> bool:
        """Return whether the query waits for the lock, to plan or to commit a batch."""
        return bool(self._lock.hasQueuedThread(self._execution.queryExecutionThread()))

    def plans_batch(self) -> bool:
        """Return whether a trigger has begun whose batch waits for the lock to be planned."""
        return bool(self._query.status["isTriggerActive"]) and self.waits_for_lock()

    def start_no_more_batches(self) -> None:
        """Let the running batch be the last one, without an interrupt and without waiting for its end."""
        self._execution.state().set(getattr(getattr(_jvm(), TERMINATED), "MODULE$"))

    def runs_batch(self) -> bool:
        """Return whether a batch was planned and is not committed."""
        status = self._query.status
        return bool(status["isTriggerActive"]) and status["message"].startswith(BATCH_MESSAGES)

    def gets_offsets(self) -> bool:
        """Return whether the query asks its sources where they end."""
        return str(self._query.status["message"]).startswith(OFFSETS_MESSAGE)

    def is_stoppable(self) -> bool:
        """Return whether the query waits for its next trigger, or runs without batches."""
        if self._query.status["message"] == NO_BATCHES_MESSAGE:
            return True
        # Each answer may be a moment old. A thread that sleeps while the status says twice that no trigger is active
        # sleeps between two triggers; a batch that has begun meanwhile shows in the second status.
        return self._waits_for_trigger() and self._sleeps() and self._waits_for_trigger()

    def _waits_for_trigger(self) -> bool:
        status = self._query.status
        return not status["isTriggerActive"] and status["message"].startswith(WAITING_MESSAGE)

    def _sleeps(self) -> bool:
        return str(self._execution.queryExecutionThread().getState().toString()) == "TIMED_WAITING"

    def has_committed_all(self) -> bool:
        """Return whether the newest batch in the offset log is also the newest in the commit log."""
        newest = self._execution.offsetLog().getLatestBatchId()
        return bool(newest.equals(self._execution.commitLog().getLatestBatchId()))


def has_pinned_threads() -> bool:
    """Return whether each thread of Python has its own thread in the JVM; without that, no lock can be released."""
    from pyspark import SparkContext
    from pyspark.java_gateway import ClientServer

    return isinstance(SparkContext._gateway, ClientServer)


def _jvm() -> Any:
    from pyspark import SparkContext

    return SparkContext._jvm
