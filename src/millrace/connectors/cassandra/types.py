"""Types of Cassandra and of Spark: which become which, and which fit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_TOKEN = re.compile(r"\s*([<>,]|\"(?:[^\"]|\"\")*\"|'[^']*'|[\w.]+)")
_FIT = {
    "string": ("text", "varchar", "ascii", "uuid", "timeuuid", "inet"),
    "boolean": ("boolean",),
    "byte": ("tinyint", "smallint", "int", "bigint", "varint"),
    "short": ("smallint", "int", "bigint", "varint"),
    "integer": ("int", "bigint", "varint"),
    "long": ("bigint", "varint"),
    "float": ("float", "double"),
    "double": ("double",),
    "decimal": ("decimal",),
    "date": ("date",),
    "timestamp": ("timestamp",),
    "timestamp_ntz": ("timestamp",),
    "binary": ("blob",),
    "array": ("list", "set", "vector"),
    "map": ("map",),
}
"""What a Spark type may be written to; the first is what a new table gets."""
_SAME = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp")
_READ = {
    **{name: name for name in _SAME},
    "counter": "bigint",
    "varint": "decimal(38,0)",
    "decimal": "decimal(38,18)",
    "blob": "binary",
}
"""The Spark type of what is read; all else is read as text."""


@dataclass(frozen=True)
class Cql:
    """A type of Cassandra's: `map<text, int>` is a map of two."""

    name: str
    inner: tuple[Cql, ...] = ()

    def __str__(self) -> str:
        """As CQL writes it; collections of a new table are frozen, since they are written whole."""
        if not self.inner:
            return self.name
        return f"frozen<{self.name}<{', '.join(map(str, self.inner))}>>"


def parse_type(text: str) -> Cql:
    """A type as `system_schema` tells it; `frozen` makes no difference where values are written whole."""
    return _parsed(_TOKEN.findall(text), 0)[0]


def _parsed(tokens: list[str], at: int) -> tuple[Cql, int]:
    name, at = tokens[at], at + 1
    inner: list[Cql] = []
    if at < len(tokens) and tokens[at] == "<":
        while tokens[at] != ">":
            element, at = _parsed(tokens, at + 1)
            inner.append(element)
        at += 1
    return (inner[0] if name == "frozen" else Cql(name, tuple(inner))), at


def column_type(kind: DataType) -> Cql:
    """The type that a column of a new table gets."""
    return Cql(_FIT[kind.typeName()][0], tuple(map(column_type, _elements(kind))))


def has_cassandra_type(kind: DataType) -> bool:
    """Whether Cassandra has a type for it; what has none is written as JSON or text."""
    return kind.typeName() in _FIT and all(map(has_cassandra_type, _elements(kind)))


def fits(kind: DataType, cql: Cql) -> bool:
    """Whether values of a Spark type can be written to a column, and none is lost or changed."""
    if cql.name not in _FIT.get(kind.typeName(), ()):
        return False
    inner = cql.inner[:1] if cql.name == "vector" else cql.inner
    elements = _elements(kind)
    return len(inner) == len(elements) and all(fits(*pair) for pair in zip(elements, inner, strict=True))


def fitting(kind: DataType) -> str:
    """What a Spark type fits, in words."""
    return str(column_type(kind)) if _elements(kind) else " or ".join(_FIT[kind.typeName()])


def spark_type(cql: Cql) -> str:
    """The Spark type of what is read, in Spark's DDL."""
    if cql.name in ("list", "set", "vector"):
        return f"array<{spark_type(cql.inner[0])}>"
    if cql.name == "map":
        return f"map<{spark_type(cql.inner[0])}, {spark_type(cql.inner[1])}>"
    return _READ.get(cql.name, "string")


def _elements(kind: Any) -> list[DataType]:
    name = kind.typeName()
    if name == "array":
        return [kind.elementType]
    return [kind.keyType, kind.valueType] if name == "map" else []
