"""A short life of Spark, at whose end the JVM writes an archive of the classes that it used: run as a program."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(archive: str) -> None:
    """Use what pipelines use, and end."""
    from millrace.engine.session.session import close_session, open_session, scratch_folder

    writes = {"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={archive}"'}
    spark = open_session("training", master="local[2]", settings=writes)
    try:
        _use(spark, Path(tempfile.mkdtemp(dir=scratch_folder())))
    finally:
        close_session(spark, patience=120)


def _use(spark: SparkSession, folder: Path) -> None:
    """A stream of lines through Python and a window into a batch function."""
    lines = folder / "lines"
    lines.mkdir()
    (lines / "one.txt").write_text("2026-01-01 00:00:00\n" * 3)
    read = spark.readStream.text(str(lines)).mapInArrow(_same, "value string")
    counted = read.selectExpr("timestamp(value) AS at").withWatermark("at", "1 second").groupBy("at").count()

    def take(frame: Any, _: int) -> None:
        frame.localCheckpoint().toArrow()

    query = counted.writeStream.outputMode("update").option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).foreachBatch(take).start().awaitTermination()


def _same(batches: Any) -> Any:
    return batches


if __name__ == "__main__":
    main(sys.argv[1])
