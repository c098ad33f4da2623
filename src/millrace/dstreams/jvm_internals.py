"""What is asked of Spark Streaming's own insides in the JVM, which has no public word for it.

A stream of Spark's that gives nothing, once a batch: what the batch reads is decided then.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.streaming import StreamingContext

_LOOK = 0.05
_PATIENCE = 30.0


def pending_batches(java: Any) -> list[int]:
    """The times of the batches that Spark has made and not done; one that failed stays among them."""
    found = java.scheduler().getPendingTimes()
    return [int(found.apply(at).milliseconds()) for at in range(found.size())]


def last_done(java: Any) -> set[int]:
    """The time of the batch that was done last, with its checkpoint; a listener is not told any more at the end."""
    generator = _field_value(java.scheduler(), "jobGenerator")
    last = _field_value(generator, "lastProcessedBatch")
    return set() if last is None else {int(last.milliseconds())}


def remember_milliseconds(java: Any) -> int:
    """For how many milliseconds inputs of the graph may be asked for the past; waits while a batch is made."""
    streams = java.graph().getInputStreams()
    spans = [streams[at].rememberDuration() for at in range(len(streams))]
    return max((int(span.milliseconds()) for span in spans if span is not None), default=0)


def report_input(java: Any, stream: int, batch: int, records: int) -> None:
    """Say how many records a batch of a stream has, as Spark's own inputs do."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    nothing = getattr(jvm.scala.collection.immutable, "Map$").__getattr__("MODULE$").empty()
    streaming = jvm.org.apache.spark.streaming
    info = streaming.scheduler.StreamInputInfo(stream, records, nothing)
    with suppress(Py4JError):  # it is there to be looked at, and no more
        java.scheduler().inputInfoTracker().reportInfo(streaming.Time(batch), info)


def await_failure(jssc: Any) -> None:
    """Wait until Spark knows that something failed, or has stopped."""
    deadline = time.monotonic() + _PATIENCE
    with suppress(Py4JError, OSError):  # this is how it says so, or that its JVM is gone
        while time.monotonic() < deadline and not jssc.awaitTerminationOrTimeout(int(_LOOK * 1000)):
            if str(jssc.getState()) == "STOPPED":  # it could not even start
                break


def stop_streams(jssc: Any) -> None:
    """Stop the streams alone, at once; those of a JVM that is gone have been."""
    with suppress(Py4JError, OSError):
        jssc.stop(False, False)


def _field_value(owner: Any, name: str) -> Any:
    field = owner.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)


_KIND = "ConstantInputDStream"


def ticking_input(ssc: StreamingContext) -> tuple[Any, Any]:
    """An input that needs nothing outside: it gives the same empty RDD for each batch. The stream, and Java's of it."""
    jvm: Any = ssc._jvm
    tag = getattr(jvm.scala.reflect, "ClassTag$").__getattr__("MODULE$").Any()
    empty = ssc._sc._jsc.sc().emptyRDD(tag)
    tick = getattr(jvm.org.apache.spark.streaming.dstream, _KIND)(ssc._jssc.ssc(), empty, tag)
    return tick, jvm.JavaDStream(tick, tag)


def keep_ticking(ssc: StreamingContext) -> None:
    """Before a context starts: the RDD of an input that comes from a checkpoint belongs to no SparkContext.

    Spark would find out as soon as it lets go of the first batch after the recovery (SPARK-13758), and end.
    """
    context = ssc._jssc.ssc()
    for stream in context.graph().getInputStreams():
        if stream.getClass().getSimpleName() == _KIND:
            empty = _accessible_field(stream.getClass(), "rdd").get(stream)
            owner = _accessible_field(empty.getClass().getSuperclass(), "_sc")
            if owner.get(empty) is None:
                owner.set(empty, context.sparkContext())


def _accessible_field(owner: Any, name: str) -> Any:
    found = owner.getDeclaredField(name)
    found.setAccessible(True)
    return found
