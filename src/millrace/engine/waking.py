"""Python workers are woken while Spark still plans: their parent takes a second or two to start, on another core."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from millrace.connectors.stream import Messages
from millrace.engine.structured import reader_of
from millrace.engine.tuning import is_local
from millrace.pipeline.model import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def wake_workers(spark: SparkSession, pipeline: Pipeline) -> None:
    """Begin to start what decodes the pipeline's messages; what fails here fails again where it counts."""
    readers = [reader_of(source) for source in pipeline.sources]
    # What is only sifted in Python goes another way, whose parent of workers is another one.
    decoded = any(isinstance(reader, Messages) and reader.decoding == "arrow" for reader in readers)
    if decoded and is_local(str(spark.sparkContext.master)):
        threading.Thread(target=_wake, args=(spark,), name="waking", daemon=True).start()


def _wake(spark: SparkSession) -> None:
    with suppress(Exception):
        spark.range(1, numPartitions=1).mapInArrow(_same, "id long").collect()


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    return batches
