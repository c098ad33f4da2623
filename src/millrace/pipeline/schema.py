"""The columns of a stream: their names and Spark types, read from Spark's DDL without Spark.

A schema is plain frozen data: it is compared, printed as DDL and sent to Spark's workers. `ddl()` of a part is how
Spark writes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

SIMPLE = (
    "string",
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "date",
    "timestamp",
    "timestamp_ntz",
    "binary",
)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Simple:
    """A type that is only a name, one of `SIMPLE`."""

    name: str

    def ddl(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decimal:
    """Exact numbers with a precision and a scale."""

    precision: int = 10
    scale: int = 0

    def ddl(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class Array:
    """A list of one type; elements may be null."""

    element: Type

    def ddl(self) -> str:
        return f"array<{self.element.ddl()}>"


@dataclass(frozen=True, slots=True)
class Map:
    """Keys and values; values may be null."""

    key: Type
    value: Type

    def ddl(self) -> str:
        return f"map<{self.key.ddl()},{self.value.ddl()}>"


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields within a field."""

    fields: tuple[Field, ...]

    def ddl(self) -> str:
        return f"struct<{', '.join(field.ddl(':') for field in self.fields)}>"


Type: TypeAlias = Simple | Decimal | Array | Map | Struct


def inner_types(kind: Type) -> tuple[Type, ...]:
    """Return the types directly within a type."""
    if isinstance(kind, Struct):
        return tuple(field.type for field in kind.fields)
    if isinstance(kind, Map):
        return kind.key, kind.value
    return (kind.element,) if isinstance(kind, Array) else ()


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field of a struct; `NOT NULL` makes it required."""

    name: str
    type: Type
    nullable: bool = True

    def ddl(self, mark: str = "") -> str:
        """Return the field with a mark (a colon within structs) after its name."""
        name = self.name if _PLAIN_NAME.fullmatch(self.name) else f"`{self.name.replace('`', '``')}`"
        return f"{name}{mark} {self.type.ddl()}{'' if self.nullable else ' NOT NULL'}"


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns in order."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(field.name for field in self.fields)

    def nullable(self) -> Schema:
        """The same columns, none of them required, all the way down."""
        return Schema(tuple(_optional(field) for field in self.fields))

    def ddl(self) -> str:
        """The schema as Spark's DDL: what `parse_schema` reads back as an equal schema."""
        return ", ".join(field.ddl() for field in self.fields)


def _optional(field: Field) -> Field:
    return Field(field.name, _optional_type(field.type))


def _optional_type(kind: Type) -> Type:
    if isinstance(kind, Struct):
        return Struct(tuple(_optional(field) for field in kind.fields))
    if isinstance(kind, Array):
        return Array(_optional_type(kind.element))
    return Map(kind.key, _optional_type(kind.value)) if isinstance(kind, Map) else kind


def parse_schema(text: str) -> Schema:
    """The schema that a DDL text describes: `id string NOT NULL, at timestamp, tags array<string>`."""
    from millrace.pipeline.schema_ddl import parse_ddl

    return parse_ddl(text)
