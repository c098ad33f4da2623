"""An archive of Spark's classes, made once for a Java and a Spark: with it, a JVM starts in two thirds of the time."""

from __future__ import annotations

import hashlib
import logging
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path

from millrace.locks import FolderLock
from millrace.services.java import find_java
from millrace.settings import ARCHIVE, CACHE

_KEPT = 3
_PATIENCE = 180.0
_TRAINING = "millrace.engine.session.class_archive_program"
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"  # of an archive that no longer fits

_log = logging.getLogger(__name__)


def class_archive_path() -> Path:
    """Where the archive for this Java and this Spark is, or would be."""
    java, jars = find_java(), _jars()
    # A JVM refuses an archive of other jars: it goes by their place, size and time, which a new installation changes.
    stamps = [(jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars]
    fitting = (java.path.resolve(), java.version, metadata.version("pyspark"), jars[:1], stamps)
    digest = hashlib.sha256(repr(fitting).encode()).hexdigest()[:12]
    return CACHE.value().absolute() / "classes" / f"spark-{digest}.jsa"


def _jars() -> list[Path]:
    spark = util.find_spec("pyspark")
    return sorted(Path(spark.origin).parent.glob("jars/*.jar")) if spark and spark.origin else []


def class_archive_options() -> str:
    """What a JVM is started with to use the archive; nothing when there is none."""
    if not ARCHIVE.value():
        return ""
    found = class_archive_path()
    return f'"-XX:SharedArchiveFile={found}" {_SILENT}' if found.exists() and found.stat().st_size else ""


def ensure_class_archive(tell: Callable[[str], None]) -> None:
    """Make the archive if it is not there yet; where it cannot be made, an empty file says not to try again."""
    if not ARCHIVE.value():
        return
    wanted = class_archive_path()
    if wanted.exists():
        return
    try:
        with FolderLock(wanted.parent):
            if not wanted.exists():
                _make(wanted, tell)
    except OSError as error:  # a cache that cannot be written, as one that is part of an image
        _log.debug("no archive of Spark's classes can be kept: %s", error)


def _make(wanted: Path, tell: Callable[[str], None]) -> None:
    tell("preparing Spark for quick starts: once on this machine, about half a minute")
    made = wanted.with_suffix(".new")
    made.unlink(missing_ok=True)
    try:
        command = [sys.executable, "-m", _TRAINING, str(made)]
        subprocess.run(command, check=True, capture_output=True, timeout=_PATIENCE)
        made.rename(wanted)
    except subprocess.TimeoutExpired:  # a machine that is busy now may have time at the next start
        _log.debug("an archive of Spark's classes took too long")
    except (OSError, subprocess.SubprocessError) as error:
        _log.debug("no archive of Spark's classes could be made: %s", error)
        wanted.touch()
    _remove_old(wanted.parent)


def _remove_old(folder: Path) -> None:
    """A Java or a Spark that is gone leaves its archive behind."""
    for old in sorted(folder.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        old.unlink(missing_ok=True)
