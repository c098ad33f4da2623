"""A StreamingContext on the Spark of the tests, and what its streams gave."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from dstreams.stages import Stage
from talking import Talker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.streaming import StreamingContext


@pytest.fixture
def ssc(spark: SparkSession) -> Iterator[StreamingContext]:
    """A context with short batches, stopped in the end whatever it did."""
    from pyspark.streaming import StreamingContext

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of Spark: all of DStreams is deprecated
        made = StreamingContext(spark.sparkContext, 0.2)
    yield made
    made.stop(stopSparkContext=False)


@pytest.fixture
def running(ssc: StreamingContext) -> Callable[[Callable[[], object]], None]:
    """Start the context and wait until a condition holds, or until the context fails."""

    def run(until: Callable[[], Any]) -> None:
        ssc.start()
        deadline = time.monotonic() + 60
        while not until():
            assert time.monotonic() < deadline, "it took too long"
            ssc.awaitTerminationOrTimeout(0.1)

    return run


@pytest.fixture
def stage(spark: SparkSession) -> Iterator[Stage]:
    """A context for one test."""
    made = Stage(spark)
    yield made
    made.stop()


@pytest.fixture
def talker() -> Iterator[Talker]:
    """A server on a socket."""
    with Talker() as found:
        yield found
