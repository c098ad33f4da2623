"""Bytes become rows inside Spark's Python workers; what cannot be decoded is a dead letter before the task ends."""

from __future__ import annotations

import json
import re
import warnings
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.clients.letters import Headers, Letter
from millrace.connectors.burying import Burial, FolderBurial, Grave, Task
from millrace.connectors.carried import carry
from millrace.connectors.cutting import QUERY_ID
from millrace.connectors.stream import Messages, Site
from millrace.engine.buried import Buried
from millrace.engine.checkpoint import finished
from millrace.engine.onthejvm import parsed, unpacked
from millrace.errors import BadRecord
from millrace.formats.base import Decoder, Format
from millrace.pipeline.schema import Field, Schema, Simple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_BATCH = "streaming.sql.batchId"
_CARE = "millrace: a bad record asks for care"
_ASKED = re.compile(rf"(?:\[USER_RAISED_EXCEPTION\]|Spark failed:|AsksForCare:) {_CARE}")
"""As it was raised: every failure of such a query quotes its plan, and the words with it."""


class AsksForCare(Exception):
    """A bad record among those that were taken for good."""

    def __init__(self) -> None:
        super().__init__(_CARE)


@dataclass(frozen=True)
class Bad:
    """What becomes of bad records in one query: picklable, for the workers."""

    when: str
    burial: Burial | None
    """None where another query of the pipeline buries the same records."""
    pipeline: str
    source: str
    count: Any = None
    """An accumulator, which adds up what the workers buried."""
    static: bool = False
    """Whether the same records are read anew in every batch."""
    trusting: bool = False
    """Whether all are taken for good, and the first that is not ends the query: it is started again with care."""

    def open(self) -> Burying:
        """In a task: ready for its bad records."""
        return Burying(self)


class Burying:
    """The bad records of one task; closed before the task ends, so that they are safe before its batch counts."""

    def __init__(self, bad: Bad) -> None:
        self._bad = bad
        self._grave: Grave | None = None
        self._parts = 0

    def add(self, letters: Sequence[Letter]) -> None:
        """Take bad records, as the pipeline wants it: buried, dropped, or the end of the query."""
        if self._bad.when == "fail" and letters:
            first = letters[0]
            raise carry(
                BadRecord(
                    f"a record of {self._bad.source!r} cannot be decoded: {first.reason}",
                    why=f"it is at {first.place}",
                    hint="mend what writes it, or set on_bad: dead to keep it apart and go on",
                )
            )
        if letters:
            self._count(letters)
        if self._bad.when == "dead" and self._bad.burial and letters:
            self._grave = self._grave or self._bad.burial.open(_task(static=self._bad.static))
            self._grave.bury(letters)

    def _count(self, letters: Sequence[Letter]) -> None:
        """Under a name that is the same when the batch comes again."""
        if self._bad.count is None:
            return
        task, first = _task(static=self._bad.static), letters[0]
        self._parts += 1
        part = f"{first.file} {task.partition_id} {self._parts}" if first.topic is None else first.place
        self._bad.count.add(Buried(0, -1 if task.batch_id is None else task.batch_id, {part: len(letters)}))

    def close(self) -> None:
        """Make them safe, or raise."""
        if self._grave:
            self._grave.close()

    def abandon(self) -> None:
        """The task failed: it will be tried again."""
        if self._grave:
            self._grave.abandon()


@dataclass(frozen=True)
class Decoding:
    """A function for mapInArrow: raw messages in, good rows out."""

    format: Format
    schema: Schema | None
    included: tuple[str, ...]
    columns: Schema
    bad: Bad

    @property
    def needs(self) -> tuple[str, ...]:
        """The bytes, and what stays beside their columns."""
        return ("value", *self.included)

    @property
    def placeless(self) -> bool:
        """Whether the place of a record is nobody's business: it need not travel, a quarter of what decoding costs."""
        return self.bad.trusting or self.bad.when == "drop"

    @property
    def ddl(self) -> str:
        """The decoded columns, then the included ones."""
        return self.columns.nullable().ddl()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode batch by batch."""
        burying = self.bad.open()
        decoder = self.format.decoder(self.schema)
        try:
            for batch in batches:
                yield self._decoded(batch, decoder, burying)
            burying.close()
        except GeneratorExit:
            burying.close()  # nobody wants more rows, as after a LIMIT: what was found bad so far still counts
            raise
        except BaseException as error:
            burying.abandon()
            raise carry(error) from error

    def _decoded(self, batch: pa.RecordBatch, decoder: Decoder, burying: Burying) -> pa.RecordBatch:
        import pyarrow as pa

        decoded = decoder.decode(batch.column("value"))
        if decoded.bad and self.bad.trusting:
            raise AsksForCare
        if decoded.bad:
            indices = [bad.index for bad in decoded.bad]
            burying.add(_letters(batch.take(pa.array(indices)), [bad.reason for bad in decoded.bad], self.bad))
        kept = batch if decoded.good is None else batch.take(decoded.good)
        names = [*decoded.rows.schema.names, *self.included]
        columns = [*decoded.rows.columns, *(self._carried(kept, name) for name in self.included)]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _carried(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        column = batch.column(name)
        return (
            text_of(column) if name == "key" and Field("key", Simple("binary")) not in self.columns.fields else column
        )


def text_of(column: pa.Array) -> pa.Array:
    """Bytes as text; what is not UTF-8 is shown by replacement characters."""
    import pyarrow as pa

    with suppress(pa.ArrowInvalid):
        return column.cast(pa.string())
    texts = [None if one is None else one.decode("utf-8", "replace") for one in column.to_pylist()]
    return pa.array(texts, pa.string())


@dataclass(frozen=True)
class Sifting:
    """A filter's function: bad rows in, as JSON (null for a good one); whether a row is good."""

    bad: Bad

    def __call__(self, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """Bury what is not null."""
        burying = self.bad.open()
        try:
            for batch in batches:
                if batch.null_count < len(batch):
                    burying.add([self._letter(json.loads(told)) for told in batch.drop_null().to_pylist()])
                yield batch.is_null()
            burying.close()
        except GeneratorExit:
            burying.close()
            raise
        except BaseException as error:
            burying.abandon()
            raise carry(error) from error

    def _letter(self, told: dict[str, Any]) -> Letter:
        value, key = told.pop("value", None), told.pop("key", None)
        shard = [told.pop(name, None) for name in ("stream", "shard", "sequence")]
        told |= {"file": _in_shard(*shard)} if shard[2] else {}
        return Letter(
            value=None if value is None else b64decode(value),
            key=None if key is None else b64decode(key),
            headers=_headers(told.pop("headers", None)),
            pipeline=self.bad.pipeline,
            source=self.bad.source,
            **told,
        )


def read_rows(reader: Messages, site: Site, bad: Bad) -> DataFrame:
    """A source's rows, decoded as they are read where no letter is to be written and the source can do that."""
    decoding = _decoding(reader, bad)
    rows, decoded = reader.opened(site, decoding if decoding and decoding.placeless else None)
    return rows if decoded else good_rows(reader, rows, bad)


def good_rows(reader: Messages, raw: DataFrame, bad: Bad) -> DataFrame:
    """What a source's rows are once they are decoded."""
    columns = reader.columns()
    if columns is None:
        return raw
    if decoding := _decoding(reader, bad):
        return _mapped(raw, decoding)
    if reader.decoding == "sift":
        return _sifted(reader, *reader.sift(raw), bad).selectExpr(*_selected(columns, raw))
    if reader.decoding == "spark":
        return unpacked(_sifted(reader, *_reasoned(reader, raw), bad), reader)
    return raw.selectExpr(*_selected(columns, raw))


def _decoding(reader: Messages, bad: Bad) -> Decoding | None:
    columns = reader.columns()
    if columns is None or reader.decoding != "arrow":
        return None
    return Decoding(reader.bytes_format, reader.declared, reader.included, columns, bad)


def _mapped(raw: DataFrame, decoding: Decoding) -> DataFrame:
    """Headers travel as JSON: a list of structs in each row makes the way there ten times longer."""
    from pyspark.sql import functions as F

    columns = decoding.columns.nullable()
    raw = raw.select(*decoding.needs) if decoding.placeless else raw
    if "headers" not in raw.columns:
        return raw.mapInArrow(decoding, columns.ddl())
    told = dict(raw.dtypes)["headers"]
    travelling = [Field("headers", Simple("string")) if one.name == "headers" else one for one in columns.fields]
    mapped = raw.withColumn("headers", F.to_json("headers")).mapInArrow(decoding, Schema(tuple(travelling)).ddl())
    return mapped.withColumn("headers", F.from_json("headers", told)) if "headers" in columns.names else mapped


def _selected(columns: Schema, raw: DataFrame) -> list[str]:
    kinds = dict(raw.dtypes)
    return [
        f"cast(`{field.name}` as string) `{field.name}`"
        if kinds.get(field.name) == "binary" and field.type == Simple("string")
        else f"`{field.name}`"
        for field in columns.fields
    ]


def _reasoned(reader: Messages, raw: DataFrame) -> tuple[DataFrame, Column]:
    """What Spark's own functions read, as `Messages.sift` tells it."""
    from pyspark.sql import functions as F

    frame, bad = parsed(reader, raw)
    return frame.withColumn("_bytes", F.col("value")), F.when(bad, F.lit("Spark cannot read it as the schema says"))


def _sifted(reader: Messages, frame: DataFrame, reason: Column, bad: Bad) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.functions import ArrowUDFType

    if bad.when == "drop" or (bad.when == "dead" and bad.burial is None):
        return frame.filter(reason.isNull())
    if bad.trusting and reader.seen_whole:
        wrong = F.when(reason.isNotNull(), F.raise_error(F.lit(_CARE)).cast("boolean")).otherwise(True)
        # Not the same each time, as far as Spark knows: else it would put a filter of the user's before this one.
        return frame.filter(wrong & (F.spark_partition_id() >= 0))
    # One column of text, which is null in good rows, is all that travels to Python.
    place = [_told(name) for name in reader.carried if name in frame.columns and name != "modified"]
    letter = F.to_json(F.struct(reason.alias("reason"), F.col("_bytes").alias("value"), *place))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would rather read type hints, and ours name what workers import late
        keep = F.arrow_udf(Sifting(bad), "boolean", ArrowUDFType.SCALAR_ITER).asNondeterministic()
    return frame.withColumn("_letter", F.when(reason.isNotNull(), letter)).filter(keep("_letter"))


def _told(name: str) -> Column:
    from pyspark.sql import functions as F

    if name == "headers":
        return F.to_json(name).alias(name)
    return F.unix_millis(name).alias(name) if name == "timestamp" else F.col(name)


def _letters(rows: pa.RecordBatch, reasons: Sequence[str], bad: Bad) -> list[Letter]:
    """Rows of the raw source as dead letters."""
    named: dict[str, list[Any]] = {name: rows.column(name).to_pylist() for name in rows.schema.names}
    empty: list[Any] = [None] * rows.num_rows

    def column(name: str) -> list[Any]:
        return named.get(name, empty)

    return [
        Letter(
            value=column("value")[at],
            key=column("key")[at],
            headers=_headers(column("headers")[at]),
            topic=column("topic")[at],
            partition=column("partition")[at],
            offset=column("offset")[at],
            timestamp=_milliseconds(column("timestamp")[at]),
            file=_in_shard(*(column(name)[at] for name in ("stream", "shard", "sequence"))) or column("file")[at],
            reason=reasons[at],
            pipeline=bad.pipeline,
            source=bad.source,
        )
        for at in range(rows.num_rows)
    ]


def _in_shard(stream: str | None, shard: str | None, sequence: str | None) -> str | None:
    """The place of a record of Kinesis, in the form of an address; None of any other."""
    return f"kinesis://{stream}/{shard}/{sequence}" if sequence else None


def _headers(told: str | list[dict[str, Any]] | None) -> Headers:
    """As JSON, in which they travel between Spark and Python, or as a source in Python has them."""
    if isinstance(told, list):
        return tuple((one["key"], one["value"]) for one in told)
    return tuple(
        (one["key"], b64decode(one["value"]) if one.get("value") is not None else None)
        for one in (json.loads(told) if told else ())
    )


def _milliseconds(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _task(*, static: bool) -> Task:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return Task("", None, 0)
    query, batch = context.getLocalProperty(QUERY_ID), "0" if static else context.getLocalProperty(_BATCH)
    return Task(query or "", int(batch) if batch else None, context.partitionId(), context.attemptNumber())


def forget_repeated(burial: Burial | None, checkpoint: Path, *, anew: bool) -> None:
    """Remove from folders the letters of batches that a query will run again: it may cut them into other tasks."""
    described = checkpoint / "metadata"
    if isinstance(burial, FolderBurial) and described.exists():
        burial.forget(json.loads(described.read_text("utf-8"))["id"], 0 if anew else finished(checkpoint) + 1)


def asks_for_care(failure: BaseException) -> bool:
    """Whether a query that trusted its records has met a bad one. The batch has not counted; it is run again."""
    return _ASKED.search(str(failure)) is not None


def bad_of(reader: Messages, site: Site, *, owns: bool, count: Any, trusting: bool = False) -> Bad:
    """What becomes of a source's bad records in a query.

    Letters in topics are written by every query that finds them, and are there once: each may be ahead of the others,
    or be removed one day. Letters in folders have no such ledger, so the query that owns the source writes them.
    """
    burial = reader.burial(site) if reader.keeps_letters else None
    if isinstance(burial, FolderBurial) and not owns:
        burial = None
    return Bad(reader.when_bad, burial, site.pipeline, site.name, count, site.static, trusting and burial is not None)
