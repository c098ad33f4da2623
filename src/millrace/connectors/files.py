"""Files: folders as a source and as a sink on Spark, and one file as a sink for the records of feeds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from millrace.clients.kafka.record import Done, Record
from millrace.connectors.base.api import RunContext, Sink
from millrace.connectors.base.message_source import DecodedSource, bad_schema
from millrace.connectors.base.record_sink import DeliveryReport, RecordSink, SinkTarget
from millrace.dead_letters.file_journal import FileSource
from millrace.dead_letters.writer import DeadLetterTarget, FolderDeadLetterTarget
from millrace.errors import FileUnusable, InputError, InvalidDefinition, InvalidOption, StateMismatch, did_you_mean
from millrace.object_stores import is_mounted, is_url, names_authority, path_of
from millrace.pipeline.connector_facts import OptionMistake, RecordForm
from millrace.pipeline.schema import Schema, parse_schema
from millrace.plugins import option

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter


class FilesRecordSink(RecordSink):
    """A file, one value a line, appended to."""

    delivery_guarantee = "at least once: a batch counts as written when the system has it on disk"

    def __init__(self, target: SinkTarget) -> None:
        if not target.path:
            raise InvalidOption("a file needs a path", hint="add --out FILE")
        with _translated_errors(target.path):
            self._file = Path(target.path).open("ab")  # noqa: SIM115 - closed by close()
        self._path = target.path
        self.place = str(Path(target.path).absolute())
        self._written = 0

    def write(self, records: Sequence[Record], done: Done | None = None) -> None:
        """Append the values; on disk before `done` is called."""
        with _translated_errors(self._path):
            self._file.write(b"".join((record.value or b"") + b"\n" for record in records))
            if done:
                self._sync()
        self._written += len(records)
        if done:
            done(None)

    def tally(self) -> DeliveryReport:
        return DeliveryReport(self._written)

    def close(self) -> DeliveryReport:
        try:
            with _translated_errors(self._path):
                self._sync()
        finally:
            with suppress(OSError):  # the error was reported above
                self._file.close()
        return self.tally()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


@contextmanager
def _translated_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileUnusable(f"cannot write to {path}", why=str(error)) from None


CURRENT = ".current"
"""Added to the name of a folder that has generations, it is a link to the one that counts."""
_FORMATS = ("json", "csv", "text", "parquet", "orc")
_CORRUPT = "_corrupt_record"
_CLASSES = {
    "json": "JsonFileFormat",
    "csv": "CSVFileFormat",
    "text": "TextFileFormat",
    "parquet": "ParquetFileFormat",
    "orc": "OrcFileFormat",
}
"""Spark's writers of files, each in a package of the format's name."""


@dataclass(frozen=True, kw_only=True)
class FilesSource(DecodedSource):
    """Files of a folder, each read once when it appears; static: true reads those that are there."""

    carried: ClassVar[dict[str, str]] = {"file": "string", "modified": "timestamp"}
    reads_whole: ClassVar[bool] = True
    dead_letters_in_state_dir: ClassVar[bool] = True

    path: str = option(help="The folder, or a pattern as logs/*.json.", argument=True, parse=os.path.expanduser)
    format: str = option("json", "What the files are.", choices=_FORMATS)
    include: tuple[str, ...] = option((), "Columns to keep beside the decoded ones: file, modified.")
    header: bool = option(False, "For csv: the first line of a file names the columns.")
    separator: str = option(",", "For csv: what stands between values.")
    only: str | None = option(None, "Only files whose name matches this pattern, as *.csv.")
    recursive: bool = option(False, "Files of the folders within as well.")
    max_files: int | None = option(None, "Maximum number of new files in a batch.", least=1)
    after: str = option("keep", "What becomes of a file that was read.", choices=("keep", "archive", "delete"))
    archive: str | None = option(None, "With after: archive, the folder they are moved to.", parse=os.path.expanduser)

    @property
    def decoding(self) -> str:
        """JSON and text are lines that we decode; Spark reads the rest."""
        return {"json": self.decoder, "text": "sift", "csv": "sift"}.get(self.format, "whole")

    @property
    def not_replayed(self) -> str | None:
        return None if self.after == "keep" else f"its files are gone once they were read (after: {self.after})"

    def mistakes(self) -> Iterator[OptionMistake]:
        yield from bad_schema(self.schema)
        names = [field.name for field in fields(self) if not field.metadata.get("rest")]
        for name in self.more:
            yield OptionMistake("option.unknown", f"files has no option {name!r}", name, did_you_mean(name, names))
        if (self.after == "archive") != (self.archive is not None):
            yield OptionMistake("option.invalid", "after: archive and the folder in archive go together", "archive")
        for name in self.include:
            if name not in self.carried:
                hint = "it has: file, modified"
                yield OptionMistake("option.invalid", f"there is no {name!r} to include", "include", hint)

    def columns(self) -> Schema | None:
        if self.schema is None and self.format != "text":
            return None
        own = parse_schema(self.schema or "value string").fields
        carried = tuple(parse_schema(f"{name} {self.carried[name]}").fields[0] for name in self.include)
        return Schema((*own, *carried))

    def prepare(self, context: RunContext) -> None:
        if not context.static and not any(mark in self.path for mark in "*?[{:"):
            Path(self.path).mkdir(parents=True, exist_ok=True)

    def resolved(self, context: RunContext) -> FilesSource:
        """With the schema of the files that are there, if none was given."""
        if self.schema is not None or self.format == "text":
            return self
        try:
            files = self._batch(context).load(self.path)
        except Exception as error:
            what, why = f"the schema of {self.path} cannot be inferred", str(error).splitlines()[0]
            raise InputError(what, why=why, hint="put a file there first, or give a schema") from None
        return replace(self, schema=files._jdf.schema().toDDL())

    def resources(self) -> tuple[str, ...]:
        return (_folder(self.path),)

    def load(self, context: RunContext) -> DataFrame:
        """Lines with the file they come from; csv, parquet and orc as Spark reads them."""
        from pyspark.sql import functions as F

        reader = self._batch(context) if context.static else self._stream(context)
        lines = self.format in ("json", "text")
        if not lines:
            corrupt = f", {_CORRUPT} string" if self.format == "csv" else ""
            reader = reader.schema(f"{self.schema}{corrupt}")
        frame = (reader.format("text") if lines else reader).load(self.path)
        file = F.col("_metadata.file_path").alias("file")
        modified = F.col("_metadata.file_modification_time").alias("modified")
        return frame.select(F.col("value").cast("binary").alias("value") if lines else "*", file, modified)

    def sift(self, raw: DataFrame) -> tuple[DataFrame, Column]:
        from pyspark.sql import functions as F

        if self.format == "text":
            return super().sift(raw)
        schema = parse_schema(self.schema or "")
        reason = F.when(F.col(_CORRUPT).isNotNull(), F.lit("not a CSV row of the schema"))
        for name in (field.name for field in schema.fields if not field.nullable):
            reason = reason.when(F.col(f"`{name}`").isNull(), F.lit(f"column {name}: missing"))
        line = F.coalesce(F.col(_CORRUPT), F.to_csv(F.struct(*(f"`{name}`" for name in schema.names))))
        return raw.withColumn("_bytes", line.cast("binary")), reason

    def dead_letter_target(self, context: RunContext) -> DeadLetterTarget:
        names = parse_schema(self.schema).names if self.format == "csv" and self.header and self.schema else None
        files = FileSource(self.path, self.only, self.separator.join(names) if names else None)
        return FolderDeadLetterTarget(context.state / "dead" / context.name, context.pipeline, context.name, files)

    def _batch(self, context: RunContext) -> DataFrameReader:
        return context.spark.read.format(self.format).options(**self._options())

    def _stream(self, context: RunContext) -> DataStreamReader:
        clean = {"cleanSource": {"keep": "off"}.get(self.after, self.after)}
        chosen = {"sourceArchiveDir": self.archive, "maxFilesPerTrigger": self.max_files}
        options = {**self._options(), **clean, **{name: value for name, value in chosen.items() if value}}
        return context.spark.readStream.format(self.format).options(**options)

    def _options(self) -> dict[str, Any]:
        chosen: dict[str, Any] = {"recursiveFileLookup": self.recursive}
        if self.only:
            chosen["pathGlobFilter"] = self.only
        if self.format == "csv":
            chosen |= {"header": self.header, "sep": self.separator, "columnNameOfCorruptRecord": _CORRUPT}
        return chosen


@dataclass(frozen=True, kw_only=True)
class FilesSink(Sink):
    """Files in a folder, a few for each batch; what Spark reads of it is exactly what was committed."""

    delivery_guarantee: ClassVar[str] = (
        "exactly once, for readers that follow the folder's log of commits as Spark does"
    )
    modes: ClassVar[tuple[str, ...]] = ("append",)
    exclusive_target: ClassVar[bool] = True
    midway: ClassVar[bool] = False  # Spark makes the folder's log smaller every tenth batch, and wants those before

    path: str = option(help="The folder.", argument=True, parse=os.path.expanduser)
    format: str = option("parquet", "How rows are written.", choices=_FORMATS)
    partition_by: tuple[str, ...] = option((), "A folder for each value of these columns.", columns=True)
    header: bool = option(False, "For csv: names of the columns in the first line.")
    options: Mapping[str, Any] | None = option(None, "More options of Spark's writer, as {compression: zstd}.")

    def resources(self, table: str) -> tuple[str, ...]:
        del table
        return (_folder(self.path),)

    def record_form(self) -> RecordForm:
        return RecordForm(self.format)

    def shape(self, frame: DataFrame) -> DataFrame:
        for name in self.partition_by:
            if name.lower() not in [column.lower() for column in frame.columns]:
                what = f"partition_by names {name!r}, which the table does not have"
                raise InvalidDefinition(what, hint=did_you_mean(name, frame.columns))
        return frame

    def require_new(self) -> None:
        """Raise when another query has committed batches here: Spark would take ours of the same number for done."""
        if self._committed() is not None:
            raise StateMismatch(
                f"the folder {self.path} holds the output of another query, or of an earlier start of this one",
                why="its log has batches and this query has no checkpoint: Spark would skip as many of ours",
                hint="write to another folder, remove that one, or run with the --state that belongs to it",
            )

    def require_newest(self, context: RunContext) -> None:
        """Raise when batches are committed that the query does not know: Spark would skip its own of those numbers."""
        written = self._committed()
        if written is not None and written > context.newest_batch:
            raise StateMismatch(
                f"the folder {self.path} holds batch {written}, and the query has begun only {context.newest_batch}",
                why="the state folder is older than what was written: another run has gone on with a copy of it, "
                "or it was restored; Spark would skip what comes in batches of the same numbers",
                hint="continue with the newest state folder; to start from scratch choose other folders for both",
            )

    def _committed(self) -> int | None:
        """The newest batch in the folder's log; None where there is none, or where we cannot look."""
        if is_url(self.path) and not (is_mounted() and names_authority(self.path)):
            return None  # before Spark is there, where a query asks once more; or on whatever Hadoop takes for its own
        log = path_of(self.path) / "_spark_metadata"
        names = [path.name.removesuffix(".compact") for path in log.iterdir()] if log.is_dir() else []
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def in_generation(self, number: int) -> Mapping[str, Any]:
        return {"path": f"{self.path.rstrip('/')}.g{number}"}

    def is_there(self, context: RunContext) -> bool:
        del context
        folder = Path(self.path.removeprefix("file://"))
        return folder.is_dir() and any(folder.iterdir())

    def write(self, frame: DataFrame, batch: int, context: RunContext) -> None:
        """Commit a batch to the folder's log, as Spark's streaming sink does; one that is there already is left."""
        jvm: Any = context.spark._jvm
        execution, python = jvm.org.apache.spark.sql.execution, jvm.org.apache.spark.api.python.PythonUtils
        file_format = getattr(getattr(execution.datasources, self.format), _CLASSES[self.format])()
        columns, options = python.toSeq(list(self.partition_by)), python.toScalaMap(self._options())
        session = context.spark._jsparkSession
        folder = self.path if ":" in self.path else str(Path(self.path).absolute())
        sink = execution.streaming.sinks.FileStreamSink(session, folder, file_format, columns, options)
        sink.addBatch(batch, frame._jdf)

    def stream(self, rows: DataStreamWriter, context: RunContext) -> DataStreamWriter:
        if context.checks_ownership_per_batch:
            return super().stream(rows, context)
        written = rows.format(self.format).options(**self._options()).option("path", self.path)
        return written.partitionBy(*self.partition_by) if self.partition_by else written

    def _options(self) -> dict[str, str]:
        chosen = {name: str(value) for name, value in (self.options or {}).items()}
        return chosen | ({"header": "true"} if self.header else {})


def _folder(path: str) -> str:
    """A folder, named the same way however it is written."""
    return f"the folder {path if '://' in path else os.path.abspath(path)}"  # noqa: PTH100 - without looking
