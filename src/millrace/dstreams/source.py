"""What an outside system is to a DStream: it says what a batch reads, and reads it."""

from __future__ import annotations

import pickle
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millrace.dstreams import context_tracker
from millrace.dstreams.batch_log import Note
from millrace.dstreams.jvm_internals import ticking_input

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession
    from pyspark.streaming import DStream, StreamingContext

_RECEIVED = "spark.streaming.receiver.maxRate"


@dataclass(frozen=True)
class DStreamBatch:
    """What the driver knows when it makes a batch."""

    time: int
    """Milliseconds."""
    seconds: float
    """The batch interval."""
    context: SparkContext
    rate: float | None = None
    """Records a second that backpressure allows, of all partitions; None without a limit."""

    def session(self) -> SparkSession:
        """The session of a program that has one, else a new one on its context."""
        from pyspark.sql import SparkSession

        found: SparkSession | None = SparkSession._instantiatedSession
        if found is None or found.sparkContext is not self.context:
            found = SparkSession(self.context)
        return found

    def received(self) -> DStreamBatch:
        """The same for a stream in receiver style: the rate of a receiver is a limit too."""
        limits = [rate for rate in (self.rate, float(self.setting(_RECEIVED, "0"))) if rate]
        return replace(self, rate=min(limits)) if limits else self

    def setting(self, name: str, otherwise: str = "") -> str:
        """A setting of Spark's."""
        return str(self.context._conf.get(name, otherwise))  # `getConf` copies all of them, for each batch


class StreamSource(ABC):
    """A stream from outside. It is pickled into the checkpoint: connections go into what `open` gives, not in here."""

    def __init__(self) -> None:
        self.stream = uuid.uuid4().hex
        """Its id; a recovered program has the same one."""
        self.input = -1
        """The number by which Spark knows it."""
        context_tracker.attend()

    @abstractmethod
    def described(self) -> str:
        """What it reads, as one says it: `Kafka topics a, b`."""

    def open(self) -> Any:
        """Connections and what else cannot be pickled; made once in a process, kept by the course."""
        return None

    @abstractmethod
    def decide(self, before: Note | None, batch: DStreamBatch, opened: Any) -> Note:
        """What a new batch reads, after what the batch before it read; called once a batch, in order of time.

        What raises here ends the program: nothing later is made, checkpointed or settled.
        """

    @abstractmethod
    def nothing(self, before: Note | None) -> Note:
        """The note of a batch that reads nothing."""

    @abstractmethod
    def read(self, note: Note, batch: DStreamBatch, opened: Any) -> RDD[Any]:
        """The records of a note, the same ones each time."""

    @abstractmethod
    def count(self, note: Note) -> int:
        """About how many records a note has."""

    def settle(self, note: Note, opened: Any) -> bool:
        """Everything up to the end of this note is done and needs not be read again; False to be asked once more."""
        del note, opened
        return True

    def close(self, opened: Any) -> None:
        """The program's StreamingContext has ended."""
        del opened

    def __getstate__(self) -> dict[str, Any]:
        """Refuses when a batch could not be made: no checkpoint may pass it, and none can without this.

        In pickle's words: for any other error PySpark prints a traceback, once for each stream and batch.
        """
        if failure := context_tracker.failure():
            said = f"no checkpoint is written after a batch that could not be made ({failure.message})"
            raise pickle.PicklingError(said)
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        context_tracker.attend()
        context_tracker.arrived(self, None)


def stream_of(ssc: StreamingContext, inflow: StreamSource) -> DStream[Any]:
    """The DStream of an inflow."""
    from pyspark.serializers import NoOpSerializer
    from pyspark.streaming import DStream
    from pyspark.streaming.dstream import TransformedDStream

    tick, jticks = ticking_input(ssc)
    ticks: DStream[Any] = DStream(jticks, ssc, NoOpSerializer())

    def records(time: datetime, tick: RDD[Any]) -> RDD[Any]:
        return context_tracker.rdd_of(inflow, time, tick.context)

    inflow.input = int(tick.id())
    context_tracker.arrived(inflow, ssc)
    made = TransformedDStream(ticks, records)
    # A plain DStream: PySpark would fold a transformed one into each of its followers, and read once for each.
    return DStream(made._jdstream, ssc, made._jrdd_deserializer)
