"""A system outside Spark as the source of a DStream: it decides what a batch reads, and reads it."""

from __future__ import annotations

import pickle
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer
from pyspark.sql import SparkSession
from pyspark.streaming import DStream, StreamingContext
from pyspark.streaming.dstream import TransformedDStream

from millrace.dstreams import context_tracker
from millrace.dstreams.batch_log import BatchInput
from millrace.dstreams.jvm_internals import ticking_input

_RECEIVER_MAX_RATE = "spark.streaming.receiver.maxRate"


@dataclass(frozen=True)
class DStreamBatch:
    """What the driver knows when it creates a batch."""

    time: int
    """Milliseconds."""
    seconds: float
    """The batch interval."""
    context: SparkContext
    rate: float | None = None
    """Records a second that backpressure allows, of all partitions; None without a limit."""

    def session(self) -> SparkSession:
        """Return the program's session if it has one, else a new one on its context."""
        session: SparkSession | None = SparkSession._instantiatedSession
        if session is None or session.sparkContext is not self.context:
            session = SparkSession(self.context)
        return session

    def with_receiver_limit(self) -> DStreamBatch:
        """Return the batch of a receiver-style stream, which Spark's limit for receivers applies to as well."""
        limits = [rate for rate in (self.rate, float(self.setting(_RECEIVER_MAX_RATE, "0"))) if rate]
        return replace(self, rate=min(limits)) if limits else self

    def setting(self, name: str, default: str = "") -> str:
        return str(self.context._conf.get(name, default))  # `getConf` copies all of them, for each batch


class StreamSource(ABC):
    """A source of a DStream.

    It is pickled into Spark's checkpoint: connections belong into the client that `open` returns, and a renamed class
    or attribute needs an entry in `pickle_names`.
    """

    def __init__(self) -> None:
        self.stream = uuid.uuid4().hex
        """Its id, the same in a recovered program."""
        self.input = -1
        """Spark's number of the input stream."""
        context_tracker.track_contexts()

    @abstractmethod
    def description(self) -> str:
        """Return what it reads, in words: `Kafka topics a, b`."""

    def open(self) -> Any:
        """Return the client: connections and other state that cannot be pickled; called once in a process."""
        return None

    @abstractmethod
    def next_input(self, previous: BatchInput | None, batch: DStreamBatch, client: Any) -> BatchInput:
        """Return what a new batch reads, after the input of the previous batch; called once a batch, in order of time.

        An exception stops the program: no later batch is created, checkpointed or committed.
        """

    @abstractmethod
    def empty_input(self, previous: BatchInput | None) -> BatchInput:
        """Return the input of a batch that reads nothing."""

    @abstractmethod
    def read(self, batch_input: BatchInput, batch: DStreamBatch, client: Any) -> RDD[Any]:
        """Return the records of an input, the same ones each time."""

    @abstractmethod
    def record_count(self, batch_input: BatchInput) -> int:
        """Return about how many records an input has."""

    def commit(self, batch_input: BatchInput, client: Any) -> bool:
        """Record that everything up to the end of this input is done; return False to be called again."""
        del batch_input, client
        return True

    def close(self, client: Any) -> None:
        """Close the client after the program's StreamingContext has ended."""
        del client

    def __getstate__(self) -> dict[str, Any]:
        """Raise PicklingError when a batch could not be created: no later checkpoint may be written.

        For any other error PySpark prints a traceback, once for each stream and batch.
        """
        if failure := context_tracker.current_failure():
            raise pickle.PicklingError(
                f"no checkpoint is written after a batch that could not be created ({failure.message})"
            )
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        context_tracker.track_contexts()
        context_tracker.register_source(self, None)


def stream_of(ssc: StreamingContext, source: StreamSource) -> DStream[Any]:
    """Return the DStream of a source."""
    tick, jticks = ticking_input(ssc)
    ticks: DStream[Any] = DStream(jticks, ssc, NoOpSerializer())

    def records(time: datetime, tick: RDD[Any]) -> RDD[Any]:
        return context_tracker.batch_rdd(source, time, tick.context)

    source.input = int(tick.id())
    context_tracker.register_source(source, ssc)
    transformed = TransformedDStream(ticks, records)
    # A plain DStream: PySpark would fold a transformed one into each of its followers, and read once for each.
    return DStream(transformed._jdstream, ssc, transformed._jrdd_deserializer)
