"""Which part of a table is asked for: all of it by token ranges, or some partitions that filters name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID

from millrace.connectors.cql.table import Table, quoted, quoted_table
from millrace.connectors.cql.types import Cql

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
    "uuid": (str,),
    "timeuuid": (str,),
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
class Question:
    """What is asked of a table, as far as Cassandra can serve it; Spark looks at every row again."""

    table: Table
    columns: tuple[str, ...]
    equal: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Columns of the key and the values that they may have."""
    ranges: Mapping[str, tuple[tuple[str, Any], ...]] = field(default_factory=dict)

    def narrowed(self, filters: Iterable[Any]) -> Question:
        """The same with what filters of Spark's say about the key."""
        equal: dict[str, tuple[Any, ...]] = dict(self.equal)
        ranges: dict[str, list[tuple[str, Any]]] = {}
        for one in filters:
            name, kind = self._named(one)
            if name is None or kind is None:
                continue
            sort = type(one).__name__
            if sort in ("EqualTo", "In"):
                given = (one.value,) if sort == "EqualTo" else tuple(one.value)
                values = tuple(_bound(kind, value) for value in given)
                if None not in values and name not in equal:
                    equal[name] = tuple(dict.fromkeys(values))
            elif sort in _SIGNS and kind.name not in _OTHER_ORDER and (value := _bound(kind, one.value)) is not None:
                ranges.setdefault(name, []).append((_sign(_SIGNS[sort], one.value), value))
        return Question(self.table, self.columns, equal, {name: tuple(found) for name, found in ranges.items()})

    def _named(self, one: Any) -> tuple[str | None, Cql | None]:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        name = self.table.column(attribute[0]) if len(attribute) == 1 else None
        return (name, self.table.columns[name]) if name in self.table.key else (None, None)

    def selects(self, parts: int) -> list[Select]:
        """The statements that answer it together: one for each partition that is named, else so many token ranges."""
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
        for number in range(parts):
            above = ">=" if number == 0 else ">"
            where = f"{token} {above} ? AND {token} <= ?"
            yield Select(f"{self._select} WHERE {where}", (edges[number], edges[number + 1]))

    @property
    def _select(self) -> str:
        chosen = ", ".join(_expression(name, self.table.columns[name]) for name in self.columns)
        return f"SELECT {chosen} FROM {quoted_table(self.table.name)}"  # noqa: S608 - names are quoted


def _narrowest(ranges: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """One bound on each side, which is all that Cassandra takes: the one that leaves the least."""
    lower = [one for one in ranges if one[0] in (">", ">=")]
    upper = [one for one in ranges if one[0] in ("<", "<=")]
    if lower:
        yield max(lower, key=lambda one: (one[1], one[0] == ">"))
    if upper:
        yield min(upper, key=lambda one: (one[1], one[0] == "<="))


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
    if kind.name in _OTHER_ORDER:
        try:
            return UUID(str(value))
        except ValueError:
            return None
    return value
