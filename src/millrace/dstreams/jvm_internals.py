"""What is asked of Spark Streaming's own insides in the JVM, which has no public word for it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

_LOOK = 0.05
_PATIENCE = 30.0


def pending(java: Any) -> list[int]:
    """The times of the batches that Spark has made and not done; one that failed stays among them."""
    found = java.scheduler().getPendingTimes()
    return [int(found.apply(at).milliseconds()) for at in range(found.size())]


def last_done(java: Any) -> set[int]:
    """The time of the batch that was done last, with its checkpoint; a listener is not told any more at the end."""
    generator = _field(java.scheduler(), "jobGenerator")
    last = _field(generator, "lastProcessedBatch")
    return set() if last is None else {int(last.milliseconds())}


def remembered(java: Any) -> int:
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


def _field(owner: Any, name: str) -> Any:
    field = owner.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)
