"""Everything that reaches into private parts of Spark Streaming's JVM classes (written for Spark 4).

- Ask the job scheduler for pending and completed batches, and report input sizes to it.
- Provide an input stream that only ticks: its function decides what a batch reads.
- Wait for a failure, and stop the streams without their SparkContext.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.streaming import StreamingContext

_POLL_INTERVAL_S = 0.05
_FAILURE_TIMEOUT_S = 30.0
_TICKING_INPUT = "ConstantInputDStream"


def pending_batches(java: Any) -> list[int]:
    """Return the times of the batches that Spark has created and not completed; a failed batch stays among them."""
    times = java.scheduler().getPendingTimes()
    return [int(times.apply(index).milliseconds()) for index in range(times.size())]


def last_completed_batch(java: Any) -> set[int]:
    """Return the time of the last batch that was completed and checkpointed; at the end no listener is called."""
    last = _field(_field(java.scheduler(), "jobGenerator"), "lastProcessedBatch")
    return set() if last is None else {int(last.milliseconds())}


def remember_milliseconds(java: Any) -> int:
    """Return how long inputs of the graph may be asked for the past; waits while a batch is created."""
    durations = [stream.rememberDuration() for stream in java.graph().getInputStreams()]
    return max((int(duration.milliseconds()) for duration in durations if duration is not None), default=0)


def report_input(java: Any, stream: int, batch: int, records: int) -> None:
    """Report how many records a batch of a stream has, as Spark's own inputs do."""
    jvm: Any = SparkContext._jvm
    no_metadata = getattr(jvm.scala.collection.immutable, "Map$").__getattr__("MODULE$").empty()
    streaming = jvm.org.apache.spark.streaming
    info = streaming.scheduler.StreamInputInfo(stream, records, no_metadata)
    with suppress(Py4JError):  # it is only displayed
        java.scheduler().inputInfoTracker().reportInfo(streaming.Time(batch), info)


def await_failure(jssc: Any) -> None:
    """Wait until Spark knows that something failed, or has stopped."""
    deadline = time.monotonic() + _FAILURE_TIMEOUT_S
    with suppress(Py4JError, OSError):  # it raises the failure, or its JVM has ended
        while time.monotonic() < deadline and not jssc.awaitTerminationOrTimeout(int(_POLL_INTERVAL_S * 1000)):
            if str(jssc.getState()) == "STOPPED":  # it could not even start
                break


def stop_streams(jssc: Any) -> None:
    """Stop the streams alone, at once, unless their JVM has ended."""
    with suppress(Py4JError, OSError):
        jssc.stop(False, False)


def ticking_input(ssc: StreamingContext) -> tuple[Any, Any]:
    """Return an input that yields the same empty RDD for each batch: the Scala stream, and the Java one of it."""
    jvm: Any = ssc._jvm
    tag = getattr(jvm.scala.reflect, "ClassTag$").__getattr__("MODULE$").Any()
    empty = ssc._sc._jsc.sc().emptyRDD(tag)
    tick = getattr(jvm.org.apache.spark.streaming.dstream, _TICKING_INPUT)(ssc._jssc.ssc(), empty, tag)
    return tick, jvm.JavaDStream(tick, tag)


def restore_ticking_inputs(ssc: StreamingContext) -> None:
    """Give the RDDs of ticking inputs from a checkpoint the SparkContext that they lack.

    Spark would fail when it releases the first batch after the recovery (SPARK-13758).
    """
    context = ssc._jssc.ssc()
    for stream in context.graph().getInputStreams():
        if stream.getClass().getSimpleName() == _TICKING_INPUT:
            empty = _field(stream, "rdd")
            owner = _accessible_field(empty.getClass().getSuperclass(), "_sc")
            if owner.get(empty) is None:
                owner.set(empty, context.sparkContext())


def _field(owner: Any, name: str) -> Any:
    return _accessible_field(owner.getClass(), name).get(owner)


def _accessible_field(kind: Any, name: str) -> Any:
    field = kind.getDeclaredField(name)
    field.setAccessible(True)
    return field
