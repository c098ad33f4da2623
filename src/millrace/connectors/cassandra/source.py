"""A table of Cassandra as a data source of Spark's: read by token ranges or by keys, in pages of Arrow.

Which part of a table is asked for: all of it by token ranges, or some partitions that filters name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from hashlib import sha256
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from millrace.clients.cassandra import Cassandra, is_transient
from millrace.connectors.base.message_source import data_source
from millrace.connectors.cassandra.table import CassandraTable, quoted, quoted_table
from millrace.connectors.cassandra.types import Cql, spark_type
from millrace.errors import RowRefused
from millrace.errors.transport import errors_in_transport

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_FIRST, _LAST = -(2**63), 2**63 - 1
_MOST_KEYS = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIGNS = {"GreaterThan": ">", "GreaterThanOrEqual": ">=", "LessThan": "<", "LessThanOrEqual": "<="}
_TAKES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("text", "varchar", "ascii"), (str,)),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "varint"), (int,)),
    "boolean": (bool,),
    "double": (float,),
    "date": (date,),
    "timestamp": (datetime,),
    **dict.fromkeys(("uuid", "timeuuid"), (str,)),
}
"""Types of key columns by which Cassandra is asked, and what Spark's filters have for them.
Not decimal: to Cassandra 1.5 and 1.50 are two keys, and Spark asks for 1.500000000000000000."""
_OTHER_ORDER = ("uuid", "timeuuid")
"""Types that Cassandra has in another order than Spark has their text."""


@dataclass(frozen=True)
class Select:
    """One statement and what is bound to it."""

    statement: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class TableQuery:
    """What is asked of a table, as far as Cassandra can serve it; Spark looks at every row again."""

    table: CassandraTable
    columns: tuple[str, ...]
    equal: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Columns of the key and the values that they may have."""
    ranges: Mapping[str, tuple[tuple[str, Any], ...]] = field(default_factory=dict)

    def narrowed(self, filters: Iterable[Any]) -> TableQuery:
        """The same with what filters of Spark's say about the key."""
        equal: dict[str, tuple[Any, ...]] = dict(self.equal)
        ranges: dict[str, list[tuple[str, Any]]] = {}
        for condition in filters:
            attribute: tuple[str, ...] = getattr(condition, "attribute", ())
            name = self.table.column(attribute[0]) if len(attribute) == 1 else None
            if name is None or name not in self.table.key:
                continue
            kind, sort = self.table.columns[name], type(condition).__name__
            if sort in ("EqualTo", "In"):
                given = (condition.value,) if sort == "EqualTo" else condition.value
                values = tuple(dict.fromkeys(_bound(kind, value) for value in given))
                if None not in values:
                    equal.setdefault(name, values)
            elif sort in _SIGNS and kind.name not in _OTHER_ORDER and _bound(kind, condition.value) is not None:
                sign, value = _sign(_SIGNS[sort], condition.value), _bound(kind, condition.value)
                ranges.setdefault(name, []).append((sign, value))
        return replace(self, equal=equal, ranges={name: tuple(bounds) for name, bounds in ranges.items()})

    def selects(self, parts: int) -> list[Select]:
        """Return its statements: one for each partition that is named, else one for each token range."""
        if all(name in self.equal for name in self.table.partition):
            keys = list(product(*(self.equal[name] for name in self.table.partition)))
            if len(keys) <= _MOST_KEYS:
                return [self._of_partition(key) for key in keys]
        return list(self._of_ranges(parts))

    def _of_partition(self, key: Sequence[Any]) -> Select:
        where = [f"{quoted(name)} = ?" for name in self.table.partition]
        values = list(key)
        for name in self.table.clustering:
            if len(self.equal.get(name, ())) != 1:
                for sign, value in _narrowest(self.ranges.get(name, ())):
                    where.append(f"{quoted(name)} {sign} ?")
                    values.append(value)
                break
            where.append(f"{quoted(name)} = ?")
            values.append(self.equal[name][0])
        return Select(f"{self._select} WHERE {' AND '.join(where)}", tuple(values))

    def _of_ranges(self, parts: int) -> Iterator[Select]:
        token = f"token({', '.join(map(quoted, self.table.partition))})"
        edges = [_FIRST + (_LAST - _FIRST) * number // parts for number in range(parts)] + [_LAST]
        for low, high in pairwise(edges):
            above = ">=" if low == _FIRST else ">"
            yield Select(f"{self._select} WHERE {token} {above} ? AND {token} <= ?", (low, high))

    @property
    def _select(self) -> str:
        chosen = ", ".join(_expression(name, self.table.columns[name]) for name in self.columns)
        return f"SELECT {chosen} FROM {quoted_table(self.table.name)}"  # noqa: S608 - names are quoted


def _narrowest(ranges: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """One bound on each side, which is all that Cassandra takes: the one that leaves the least."""
    lower = [bound for bound in ranges if bound[0] in (">", ">=")]
    upper = [bound for bound in ranges if bound[0] in ("<", "<=")]
    if lower:
        yield max(lower, key=lambda bound: (bound[1], bound[0] == ">"))
    if upper:
        yield min(upper, key=lambda bound: (bound[1], bound[0] == "<="))


def _expression(name: str, kind: Cql) -> str:
    """Timestamps as numbers: one that Python has no date for would fail the whole read."""
    return f"toUnixTimestamp({quoted(name)})" if kind.name == "timestamp" else quoted(name)


def _sign(sign: str, value: Any) -> str:
    """Cassandra knows milliseconds: what is below a time between two of them may be the first of the two."""
    return "<=" if sign == "<" and isinstance(value, datetime) and value.microsecond % 1000 else sign


def _bound(kind: Cql, value: Any) -> Any:
    """A filter's value as the driver takes it for a column; None where we would rather not ask Cassandra."""
    takes = _TAKES.get(kind.name, ())
    if not isinstance(value, takes) or (isinstance(value, bool) and bool not in takes):
        return None
    if isinstance(value, datetime):
        at = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (at - _EPOCH) // timedelta(milliseconds=1) if kind.name == "timestamp" else None
    if isinstance(value, float) and value == 0:  # there are two, which only Spark takes for one
        return None
    if kind.name not in _OTHER_ORDER:
        return value
    with suppress(ValueError):
        return UUID(str(value))
    return None


PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
_PAGE = 5000
_EARLIEST, _LATEST = -62_135_596_800_000, 253_402_300_799_999
"""Milliseconds of the first and the last moment that Spark and Python both have: years 1 to 9999."""
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


@dataclass(frozen=True)
class TokenRangeRead:
    """All that a task must know to read a part of a table."""

    door: Cassandra
    question: TableQuery
    parts: int
    on_bad: str = "null"
    consistency: str = "LOCAL_QUORUM"
    patience: float = 60.0

    def ddl(self) -> str:
        kinds = self.question.table.columns
        return ", ".join(f"`{name}` {spark_type(kinds[name])}" for name in self.question.columns)

    def batches(self, select: Select, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of one statement, a batch of the schema for each page."""
        from cassandra import ConsistencyLevel

        with self.door.translated_errors(f"read table {self.question.table.name}"):
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
                if not is_transient(error) or time.monotonic() - began > self.patience:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _batch(self, rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
        import pyarrow as pa

        kinds = self.question.table.columns
        columns = zip(self.question.columns, zip(*rows, strict=True), schema, strict=True)
        arrays = [pa.array(self._arrow_values(name, kinds[name], values), own.type) for name, values, own in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _arrow_values(self, name: str, kind: Cql, values: Sequence[Any]) -> list[Any]:
        try:
            return [None if value is None else _arrow_value(kind, value) for value in values]
        except _OutsideError:
            if self.on_bad == "fail":
                raise RowRefused(
                    f"column {name} of {self.question.table.name} has a value that Spark cannot hold",
                    why="a time outside of the years 1 to 9999, or a number with too many digits",
                    hint="fix it, leave the column out with columns: […], or say on_bad: null",
                ) from None
            return [_or_none(kind, value) for value in values]


class TableReader(DataSourceReader):  # type: ignore[misc]  # pyspark's types are not read
    def __init__(self, reading: TokenRangeRead, schema: StructType) -> None:
        self._reading = reading
        self._question = reading.question
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Use what filters say about the key; all of them stay, so that Spark has the last word."""
        self._question = self._question.narrowed(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(select) for select in self._question.selects(self._reading.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with errors_in_transport():
            yield from self._reading.batches(partition.value, self._schema)


def table_source(reading: TokenRangeRead) -> type[DataSource]:
    """A data source for one table."""
    key = repr((reading.door.address, reading.question, reading.on_bad, reading.parts))
    name = f"cassandra_{sha256(key.encode()).hexdigest()[:12]}"
    return data_source(name, reading.ddl(), lambda schema: TableReader(reading, schema))


class _OutsideError(Exception):
    """A value that Spark has no place for."""


def _or_none(kind: Cql, value: Any) -> Any:
    with suppress(_OutsideError):
        return None if value is None else _arrow_value(kind, value)
    return None


def _arrow_value(kind: Cql, value: Any) -> Any:
    """A value of the driver's as Arrow takes it."""
    if convert := _CONVERTERS.get(kind.name):
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
    return [_arrow_value(kind.inner[0], element) for element in value]


def _paired(kind: Cql, value: Any) -> list[tuple[Any, Any]]:
    of_key, of_value = kind.inner
    return [(_arrow_value(of_key, key), _arrow_value(of_value, element)) for key, element in value.items()]


_CONVERTERS: dict[str, Callable[[Cql, Any], Any]] = {
    "timestamp": _moment,
    "date": _day,
    **dict.fromkeys(("decimal", "varint"), _number),
    **dict.fromkeys(("list", "set", "vector"), _listed),
    "map": _paired,
}
