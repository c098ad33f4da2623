"""A context with quick batches on the Spark of the tests, and what its streams give, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.streaming import DStream, StreamingContext

BATCH = 0.2
"""Seconds of a batch."""
Rows = list[Any]
Collected = dict[str, list[Rows]]
"""By the name of a stream: the rows of each of its batches, sorted."""


class Stage:
    """One context: what its streams give is collected until there is enough of it."""

    def __init__(self, spark: SparkSession, seconds: float = BATCH) -> None:
        from pyspark.streaming import StreamingContext

        self.sc = spark.sparkContext
        self.ssc: StreamingContext = StreamingContext(self.sc, seconds)  # type: ignore[arg-type]
        self.found: Collected = {}

    def queue(self, *batches: list[Any]) -> DStream[Any]:
        """A stream of these batches, one after the other."""
        return self.ssc.queueStream([self.sc.parallelize(batch, 2) for batch in batches])

    def keep_state(self, folder: Path) -> None:
        """Where state is kept, without which Spark refuses to have any.

        With `ssc.checkpoint` the whole program would be kept too, and a queue cannot be.
        """
        self.sc.setCheckpointDir(str(folder))

    def collect(self, **streams: DStream[Any]) -> None:
        """Keep what each of these streams gives, batch by batch."""
        for name, stream in streams.items():
            self.found[name] = []
            stream.foreachRDD(self._keep(name))

    def _keep(self, name: str) -> Callable[[Any], None]:
        return lambda rdd: self.found[name].append(sorted(rdd.collect(), key=repr))

    def run(self, batches: int) -> Collected:
        """Run until each stream has given so many batches; gives these.

        What is due after them is not waited for: where the machine is busy that is much.
        """
        self.ssc.start()
        self.until(lambda: all(len(one) >= batches for one in self.found.values()))
        self.stop()
        return {name: given[:batches] for name, given in self.found.items()}

    def all(self, name: str) -> Rows:
        """What a stream has given until now."""
        return [row for batch in self.found[name] for row in batch]

    def until(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        """Wait for something; a batch that fails is raised here."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, self.found
            self.ssc.awaitTerminationOrTimeout(0.02)  # type: ignore[arg-type]

    def stop(self, *, gracefully: bool = False) -> None:
        """End the streams; Spark stays."""
        self.ssc.stop(stopSparkContext=False, stopGraceFully=gracefully)
