"""The archive of Spark's classes with which a JVM starts in two thirds of the time.

- `ensure_class_archive` creates it, once for each version of Java and Spark.
- `class_archive_options` returns the options of a JVM that uses it.
- Run as a program, this module runs a short Spark session whose JVM writes the archive when it ends.
"""

from __future__ import annotations

import hashlib
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.locks import FolderLock
from millrace.services.java import find_java
from millrace.settings import ARCHIVE, CACHE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_ARCHIVES = 3
_CREATE_TIMEOUT_S = 180.0
_PROGRAM = "millrace.engine.session.class_archive"
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"  # of an archive that no longer fits

_log = logging.getLogger(__name__)


def class_archive_path() -> Path:
    """Return the path of the archive for this Java and this Spark, whether it exists or not."""
    java, jars = find_java(), _jars()
    # A JVM refuses an archive of jars with another path, size or time, which a new installation changes.
    stamps = [(jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars]
    identity = (java.path.resolve(), java.version, metadata.version("pyspark"), jars[:1], stamps)
    digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:12]
    return CACHE.value().absolute() / "classes" / f"spark-{digest}.jsa"


def _jars() -> list[Path]:
    spark = util.find_spec("pyspark")
    return sorted(Path(spark.origin).parent.glob("jars/*.jar")) if spark and spark.origin else []


def class_archive_options() -> str:
    """Return the options with which a JVM uses the archive; empty if there is none."""
    if not ARCHIVE.value():
        return ""
    path = class_archive_path()
    return f'"-XX:SharedArchiveFile={path}" {_SILENT}' if path.exists() and path.stat().st_size else ""


def ensure_class_archive(notify: Callable[[str], None]) -> None:
    """Create the archive if it does not exist; where it cannot be created, an empty file prevents another attempt."""
    if not ARCHIVE.value():
        return
    path = class_archive_path()
    if path.exists():
        return
    try:
        with FolderLock(path.parent):
            if not path.exists():
                _create(path, notify)
    except OSError as error:  # a cache that cannot be written, as one that is part of an image
        _log.debug("no archive of Spark's classes can be kept: %s", error)


def _create(path: Path, notify: Callable[[str], None]) -> None:
    notify("preparing Spark for quick starts: once on this machine, about half a minute")
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    try:
        command = [sys.executable, "-m", _PROGRAM, str(draft)]
        subprocess.run(command, check=True, capture_output=True, timeout=_CREATE_TIMEOUT_S)
        draft.rename(path)
    except subprocess.TimeoutExpired:  # a machine that is busy now may have time at the next start
        _log.debug("an archive of Spark's classes took too long")
    except (OSError, subprocess.SubprocessError) as error:
        _log.debug("no archive of Spark's classes could be created: %s", error)
        path.touch()
    # Archives of a Java or a Spark that was removed are left over.
    for old in sorted(path.parent.glob("spark-*.jsa"), key=lambda archive: archive.stat().st_mtime)[:-_MAX_ARCHIVES]:
        old.unlink(missing_ok=True)


def main(archive: str) -> None:
    """Load the classes that pipelines use in a Spark session whose JVM writes them to the archive at its end."""
    from millrace.engine.session.session import close_session, open_session, scratch_folder

    options = {"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={archive}"'}
    spark = open_session("training", master="local[2]", settings=options)
    try:
        _run_query(spark, Path(tempfile.mkdtemp(dir=scratch_folder())))
    finally:
        close_session(spark, timeout_s=120)


def _run_query(spark: SparkSession, folder: Path) -> None:
    """Run lines through Python and a window into a batch function."""
    lines = folder / "lines"
    lines.mkdir()
    (lines / "lines.txt").write_text("2026-01-01 00:00:00\n" * 3)
    rows = spark.readStream.text(str(lines)).mapInArrow(lambda batches: batches, "value string")
    counts = rows.selectExpr("timestamp(value) AS at").withWatermark("at", "1 second").groupBy("at").count()

    def take(frame: Any, _: int) -> None:
        frame.localCheckpoint().toArrow()

    query = counts.writeStream.outputMode("update").option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).foreachBatch(take).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
