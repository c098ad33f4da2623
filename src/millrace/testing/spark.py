"""One Spark for every test of a process: started by the first of them, stopped when the process ends.

Modules that stand beside a pipeline, in the Python workers of a test.
"""

from __future__ import annotations

import ast
import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.engine.session.jvm import environment_variables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millrace.pipeline.model import PipelineDef

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


def warm_session() -> SparkSession:
    """The one Spark of this process."""
    if _Warm.spark is None:
        _Warm.spark = _active() or _opened()
    return _Warm.spark


def lend_session(spark: SparkSession) -> None:
    """Use a session that somebody else has opened and will close."""
    _Warm.spark = spark


def _active() -> SparkSession | None:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _opened() -> SparkSession:
    from millrace.engine.session.session import close_session, open_session

    java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {_JAVA}".strip()
    with environment_variables({"JDK_JAVA_OPTIONS": java}):
        spark = open_session("millrace test", master="local[2]", settings=_SETTINGS)
    _write_no_checksums(spark)

    def close() -> None:
        _Warm.spark = None
        close_session(spark, at_once=True)

    atexit.register(close)
    return spark


def _write_no_checksums(spark: SparkSession) -> None:
    """Keep Hadoop from writing a checksum file beside each local file: a test soon removes its files."""
    jvm: Any = spark._jvm
    settings: Any = spark._jsc.hadoopConfiguration()
    jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), settings).setWriteChecksum(False)


@contextmanager
def own_modules(spark: SparkSession, pipeline: PipelineDef) -> Iterator[None]:
    """Workers find the modules beside a pipeline that it names; where it names none, those that run are used again."""
    own = Path(pipeline.place.file).absolute()
    environment: dict[str, str] = spark.sparkContext.environment
    before = dict(environment)
    if own.suffix == ".py" and own.is_file() and _names_modules(own):
        environment["PYTHONPATH"] = str(own.parent)
    try:
        yield
    finally:
        environment.clear()
        environment.update(before)


def _names_modules(file: Path) -> bool:
    """Whether a file imports a module beside it, wherever in it, or has its name in quotes."""
    named: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            named.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            named.add(node.module or "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named.add(node.value)
    beside = (*file.parent.glob("*.py"), *(one.parent for one in file.parent.glob("*/*.py")))
    return not {one.stem for one in beside}.isdisjoint(name.partition(".")[0] for name in named)
