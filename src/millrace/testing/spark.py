"""One Spark for every test of a process: started by the first of them, stopped when the process ends."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING

from millrace.engine.permissions import set_in_the_jvm, write_no_checksums
from millrace.engine.surroundings import variables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.sql.shuffle.partitions": "1",  # a test has a handful of rows, and each partition is a task of every batch
    "spark.sql.streaming.stateStore.maintenanceInterval": "10min",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",  # a second file for each that a batch writes
    "spark.sql.codegen.wholeStage": "false",  # code that is made and compiled for three rows is most of their time
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.memory": "1g",
    "spark.buffer.pageSize": "1m",  # an aggregation takes one for three rows; by default its size follows the heap's
    "spark.broadcast.blockSize": "128k",  # and a batch takes some of these, by default of 4 MB
    "spark.sql.ui.explainMode": "simple",  # every batch is described for a page that nobody opens
}

_JAVA = "-XX:TieredStopAtLevel=1"
"""Code that is compiled quickly, not well: a test has run before the other kind would pay."""


class _Warm:
    """The session, once there is one; somebody else's is used and left open."""

    spark: SparkSession | None = None


def session() -> SparkSession:
    """The one Spark of this process."""
    if _Warm.spark is None:
        _Warm.spark = _active() or _opened()
    return _Warm.spark


def lend(spark: SparkSession) -> None:
    """Use a session that somebody else has opened and will close."""
    _Warm.spark = spark


def _active() -> SparkSession | None:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _opened() -> SparkSession:
    from millrace.engine.session import close_session, open_session

    java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {_JAVA}".strip()
    with variables({"JDK_JAVA_OPTIONS": java}):
        spark = open_session("millrace test", master="local[2]", settings=_SETTINGS)
    set_in_the_jvm(spark)
    write_no_checksums(spark)

    def close() -> None:
        _Warm.spark = None
        close_session(spark, hurried=True)

    atexit.register(close)
    return spark
