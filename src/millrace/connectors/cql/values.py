"""Columns of Arrow as the values that Cassandra's driver takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millrace.connectors.cql.types import Cql
from millrace.errors import RowRefused

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = 2**31
"""Cassandra counts days from the middle of what 32 bits can hold."""


def rows_of(batch: pa.RecordBatch, kinds: Sequence[Cql], keys: frozenset[int], absent: Any) -> list[tuple[Any, ...]]:
    """The rows of a batch; `absent` stands for null, which no column of the key (`keys`, by position) may be."""
    columns = []
    for number, kind in enumerate(kinds):
        column, name = batch.column(number), batch.schema.names[number]
        if column.null_count and number in keys:
            raise RowRefused(
                f"a row has no {name}, which is part of the key",
                hint=f"leave such rows out: WHERE {name} IS NOT NULL",
            )
        try:
            values = _values(column, kind)
        except _UnfitError as error:
            raise RowRefused(f"column {name}: {error}", hint=error.hint) from None
        columns.append([absent if one is None else one for one in values] if column.null_count else values)
    return list(zip(*columns, strict=True))


class _UnfitError(Exception):
    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.hint = hint


def _values(column: pa.Array, kind: Cql) -> list[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind.name == "timestamp":  # as a number: quicker, and years that Python does not have are whole
        moments = pc.floor_temporal(column.cast(pa.timestamp("us")), unit="millisecond")
        return list(moments.cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist())
    if kind.name == "date":
        return [None if days is None else days + _EPOCH for days in column.cast(pa.int32()).to_pylist()]
    convert = _converter(kind)
    values: list[Any] = column.to_pylist()
    return values if convert is None else [None if one is None else convert(one) for one in values]


def _converter(kind: Cql) -> Callable[[Any], Any] | None:
    """What makes one value of Arrow one of the driver's; None where they are the same."""
    if kind.name in ("uuid", "timeuuid"):
        return _uuid
    if kind.name == "date":
        return None
    if kind.name in ("list", "set", "vector"):
        return lambda values: _elements(values, _converter(kind.inner[0]))
    if kind.name == "map":
        of_key, of_value = (_converter(one) for one in kind.inner)
        return lambda pairs: dict(
            zip(_elements([k for k, _ in pairs], of_key), _elements([v for _, v in pairs], of_value), strict=True)
        )
    return None


def _elements(values: list[Any], convert: Callable[[Any], Any] | None) -> list[Any]:
    if None in values:
        raise _UnfitError("a list or map of Cassandra cannot hold null", "array_compact(…) leaves nulls out")
    return [convert(one) for one in values] if convert else values


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise _UnfitError(f"{text[:60]!r} is not a UUID") from None
