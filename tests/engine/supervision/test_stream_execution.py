"""What a stop between two batches needs of Spark's private parts is what this version of Spark has."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from millrace.engine.supervision import stream_execution
from millrace.engine.supervision.stream_execution import SPARK_VERSION, StreamExecution


def test_it_was_written_for_this_version_of_spark() -> None:
    """Another version needs a look at the sources of StreamExecution and of MicroBatchExecution."""
    assert pyspark.__version__.startswith(f"{SPARK_VERSION}.")


def test_spark_has_what_is_reached_for(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="1 hour").start()
    execution = StreamExecution(query)
    deadline = time.monotonic() + 60
    while not execution.is_stoppable():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert execution.try_lock(10)
    execution.unlock()
    assert execution.is_alive
    assert not execution.waits_for_lock()
    assert not execution.runs_batch()
    assert not execution.gets_offsets()
    assert execution.has_committed_all()
    execution.start_no_more_batches()
    query.stop()
    assert not execution.is_alive
    assert query.exception() is None


def test_spark_has_the_texts_of_the_status() -> None:
    """They are constants in the class files of Spark, so a text that was changed is not found there."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-sql_*.jar")
    with zipfile.ZipFile(jar) as archive:
        names = ("runtime/MicroBatchExecution", "runtime/StreamExecution", "continuous/ContinuousExecution")
        classes = b"".join(archive.read(f"org/apache/spark/sql/execution/streaming/{name}.class") for name in names)
    messages = (
        *stream_execution.BATCH_MESSAGES,
        stream_execution.OFFSETS_MESSAGE,
        stream_execution.WAITING_MESSAGE,
        stream_execution.NO_BATCHES_MESSAGE,
    )
    assert [message for message in messages if message.encode() not in classes] == []
