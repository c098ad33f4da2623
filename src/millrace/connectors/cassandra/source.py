"""A table of Cassandra as a data source of Spark's: read by token ranges or by keys, in pages of Arrow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, localcontext
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from millrace.clients.cassandra import Cassandra
from millrace.clients.refusals import passes
from millrace.connectors.carried import carry
from millrace.connectors.cql.question import Question, Select
from millrace.connectors.cql.types import Cql, spark_type
from millrace.errors import MillraceError, RowRefused

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
_PAGE = 5000
_EARLIEST, _LATEST = -62_135_596_800_000, 253_402_300_799_999
"""Milliseconds of the first and the last moment that Spark and Python both have: years 1 to 9999."""
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


@dataclass(frozen=True)
class Reading:
    """All that a task must know to read a part of a table."""

    door: Cassandra
    question: Question
    parts: int
    on_bad: str = "null"
    consistency: str = "LOCAL_QUORUM"
    patience: float = 60.0

    def ddl(self) -> str:
        """The columns in Spark's DDL."""
        kinds = self.question.table.columns
        return ", ".join(f"`{name}` {spark_type(kinds[name])}" for name in self.question.columns)

    def batches(self, select: Select, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of one statement, a batch of the schema for each page."""
        from cassandra import ConsistencyLevel

        with self.door.speaking(f"read table {self.question.table.name}"):
            session = self.door.session()
            prepared = session.prepare(select.statement)
            prepared.fetch_size = _PAGE
            prepared.consistency_level = getattr(ConsistencyLevel, self.consistency)
            pages = self._insisting(lambda: session.execute(prepared, select.values))
            while True:
                if pages.current_rows:
                    yield self._batch(pages.current_rows, schema)
                if not pages.has_more_pages:
                    return
                self._insisting(pages.fetch_next_page)

    def _insisting(self, ask: Callable[[], Any]) -> Any:
        """What a call gives, tried again while Cassandra is away or too slow."""
        began, pause = time.monotonic(), 0.05
        while True:
            try:
                return ask()
            except Exception as error:
                if not passes(error) or time.monotonic() - began > self.patience:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _batch(self, rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
        import pyarrow as pa

        kinds = self.question.table.columns
        columns = zip(self.question.columns, zip(*rows, strict=True), schema, strict=True)
        arrays = [pa.array(self._plain(name, kinds[name], values), own.type) for name, values, own in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _plain(self, name: str, kind: Cql, values: Sequence[Any]) -> list[Any]:
        try:
            return [None if one is None else _plain(kind, one) for one in values]
        except _OutsideError:
            if self.on_bad == "fail":
                raise RowRefused(
                    f"column {name} of {self.question.table.name} has a value that Spark cannot hold",
                    why="a time outside of the years 1 to 9999, or a number with too many digits",
                    hint="mend it, leave the column out with columns: […], or say on_bad: null",
                ) from None
            return [_or_none(kind, one) for one in values]


class TableReader(DataSourceReader):  # type: ignore[misc]  # pyspark's types are not read
    """Reads what is asked of a table."""

    def __init__(self, reading: Reading, schema: StructType) -> None:
        self._reading = reading
        self._question = reading.question
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Use what filters say about the key; all of them stay, so that Spark has the last word."""
        self._question = self._question.narrowed(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each statement."""
        return [InputPartition(select) for select in self._question.selects(self._reading.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one statement."""
        try:
            yield from self._reading.batches(partition.value, self._schema)
        except MillraceError as error:
            raise carry(error) from None


def source(reading: Reading) -> type[DataSource]:
    """A data source for one table. It is a class of its own: options would be shown in Spark's plans and logs."""
    told = repr((reading.door.address, reading.question, reading.on_bad, reading.parts))
    own = "cassandra_" + sha256(told.encode()).hexdigest()[:12]

    class CassandraTable(DataSource):  # type: ignore[misc]
        """One table of one Cassandra."""

        @classmethod
        def name(cls) -> str:
            """A name that only this table has."""
            return own

        def schema(self) -> str:
            """The columns that are read."""
            return reading.ddl()

        def reader(self, schema: StructType) -> DataSourceReader:
            """Who reads them."""
            return TableReader(reading, schema)

    return CassandraTable


class _OutsideError(Exception):
    """A value that Spark has no place for."""


def _or_none(kind: Cql, value: Any) -> Any:
    try:
        return None if value is None else _plain(kind, value)
    except _OutsideError:
        return None


def _plain(kind: Cql, value: Any) -> Any:
    """A value of the driver's as Arrow takes it."""
    convert = _PLAIN.get(kind.name)
    if convert is not None:
        return convert(kind, value)
    return value if spark_type(kind) != "string" or isinstance(value, str) else str(value)


def _moment(kind: Cql, value: Any) -> int:
    del kind
    milliseconds = value if isinstance(value, int) else round(value.timestamp() * 1000)
    if not _EARLIEST <= milliseconds <= _LATEST:
        raise _OutsideError
    return milliseconds * 1000


def _day(kind: Cql, value: Any) -> int:
    del kind
    days = int(value.days_from_epoch)
    if not _FIRST_DAY <= days <= _LAST_DAY:
        raise _OutsideError
    return days


def _number(kind: Cql, value: Any) -> Decimal:
    scale = 0 if kind.name == "varint" else 18
    try:
        with localcontext() as context:
            context.prec = 38
            return Decimal(value).quantize(Decimal(1).scaleb(-scale))
    except InvalidOperation:
        raise _OutsideError from None


def _listed(kind: Cql, value: Any) -> list[Any]:
    return [_plain(kind.inner[0], one) for one in value]


def _paired(kind: Cql, value: Any) -> list[tuple[Any, Any]]:
    return [(_plain(kind.inner[0], key), _plain(kind.inner[1], one)) for key, one in value.items()]


_PLAIN: dict[str, Callable[[Cql, Any], Any]] = {
    "timestamp": _moment,
    "date": _day,
    "decimal": _number,
    "varint": _number,
    "list": _listed,
    "set": _listed,
    "vector": _listed,
    "map": _paired,
}
