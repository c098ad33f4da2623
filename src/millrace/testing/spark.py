"""The Spark session of tests.

- `warm_session` starts one session for all tests of a process; it is stopped when the process ends.
- `own_modules` lets Python workers import the modules in the folder of a pipeline.
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
    "spark.sql.codegen.wholeStage": "false",  # compiling code takes longer than processing three rows
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.memory": "1g",
    "spark.buffer.pageSize": "1m",  # an aggregation allocates one; by default its size follows the heap's
    "spark.broadcast.blockSize": "128k",  # a batch allocates some of these, by default of 4 MB
    "spark.sql.ui.explainMode": "simple",  # Spark's web page, for which every batch is described, is not used
}

_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"
"""Compile quickly: a test ends before better code would pay off."""


class _Warm:
    """The session, once there is one; an active session of the program is used and left open."""

    spark: SparkSession | None = None


def warm_session() -> SparkSession:
    """Return the session of this process, starting one if there is none."""
    from pyspark.sql import SparkSession

    if _Warm.spark is None:
        _Warm.spark = SparkSession.getActiveSession() or _open()
    return _Warm.spark


def use_session(spark: SparkSession) -> None:
    """Use a session that the caller has opened and will close."""
    _Warm.spark = spark


def _open() -> SparkSession:
    from millrace.engine.session.session import close_session, open_session

    java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {_JAVA_OPTIONS}".strip()
    with environment_variables({"JDK_JAVA_OPTIONS": java}):
        spark = open_session("millrace test", master="local[2]", settings=_SETTINGS, forks_workers=True)
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
    """Let new Python workers import modules from a pipeline's folder, if it imports any; else reuse running workers."""
    file = Path(pipeline.place.file).absolute()
    environment: dict[str, str] = spark.sparkContext.environment
    before = dict(environment)
    if file.suffix == ".py" and file.is_file() and _imports_own_modules(file):
        environment["PYTHONPATH"] = str(file.parent)
    try:
        yield
    finally:
        environment.clear()
        environment.update(before)


def _imports_own_modules(file: Path) -> bool:
    """Return whether a file imports a module of its folder anywhere, or has its name in a string."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    modules = (*file.parent.glob("*.py"), *(path.parent for path in file.parent.glob("*/*.py")))
    return not {module.stem for module in modules}.isdisjoint(name.partition(".")[0] for name in names)
