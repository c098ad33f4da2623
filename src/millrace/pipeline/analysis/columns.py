"""The columns of sources, tables and the queries inside them, and how a name in SQL finds one.

- `ResolvedColumn` is one column of some rows; `Relation` are the columns of some rows, as far as they are known.
- `Scope` is what the expressions of one SELECT may name; `Scope.find` resolves a name as Spark does.
- `field_type` is the type of a field of a struct, of a map or of an array of structs.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from millrace.errors import did_you_mean
from millrace.pipeline.schema import Array, Map, Schema, Struct, Type

_WINDOWS = ("window", "session_window")
"""Columns that `GROUP BY window(…)` makes."""
FROM_SPARK = (
    "current_date",
    "current_timestamp",
    "current_time",
    "localtime",
    "current_user",
    "session_user",
    "user",
    "current_path",
    "grouping__id",
    "_metadata",
)
"""Names that mean something without being a column."""


@dataclass(frozen=True, eq=False, slots=True)
class ResolvedColumn:
    """A column; two are the same only if they are one object, as with Spark's attributes."""

    name: str | None
    """None if only Spark knows it: `a + 1` without an alias."""
    type: Type | None = None
    """None if it is not known."""


@dataclass(frozen=True)
class Relation:
    """The columns of some rows; `open` says that there may be others."""

    columns: tuple[ResolvedColumn, ...] = ()
    open: bool = False

    def named(self, name: str) -> list[ResolvedColumn]:
        """Return the columns of a name."""
        return [column for column in self.columns if column.name and column.name.lower() == name.lower()]

    def copy(self, names: Iterable[str] = ()) -> Relation:
        """Return the same columns as Spark sees them at another place of the query, renamed if there are names."""
        given = list(names)
        if given and len(given) != len(self.columns):
            return Relation(tuple(map(ResolvedColumn, given)), self.open)
        if given:
            pairs = zip(given, self.columns, strict=True)
            return Relation(tuple(ResolvedColumn(name, column.type) for name, column in pairs), self.open)
        copies = {id(column): ResolvedColumn(column.name, column.type) for column in self.columns}
        return Relation(tuple(copies[id(column)] for column in self.columns), self.open)


UNKNOWN_RELATION = Relation(open=True)


def relation_of(schema: Schema) -> Relation:
    """Return the columns that a schema declares."""
    return Relation(tuple(ResolvedColumn(part.name, part.type) for part in schema.fields))


class NotFound(Exception):
    """A name that is no column, field or table of what a query reads."""

    def __init__(self, condition: str, message: str, hint: str | None = None, why: str | None = None) -> None:
        super().__init__(message)
        self.condition, self.message, self.hint, self.why = condition, message, hint, why


class Aliases(Enum):
    """Whether a name may be an alias of the SELECT list."""

    NONE = "not at all, as in WHERE"
    AFTER = "if nothing else has it, as in the SELECT list"
    WHOLE = "as a whole, as in GROUP BY"
    FIRST = "before anything else, as in HAVING and ORDER BY"


@dataclass
class Scope:
    """What the expressions of a SELECT may name."""

    outer: Scope | None = None
    relations: dict[str, Relation] = field(default_factory=dict)
    """What FROM reads, by the name that columns may be qualified with, in lower case."""
    visible: list[ResolvedColumn] = field(default_factory=list)
    """The columns that may be named without a qualifier, in the order of `SELECT *`."""
    open: bool = False
    aliases: dict[str, ResolvedColumn] = field(default_factory=dict)
    """What the SELECT list has named so far, by the name in lower case."""

    variables: dict[str, Type | None] = field(default_factory=dict)
    """The variables of the lambda functions around an expression, by the name in lower case."""

    def add(self, name: str, relation: Relation) -> None:
        """Add what a name in FROM stands for."""
        self.open = self.open or relation.open
        self.visible += relation.columns
        if name:
            before = self.relations.get(name.lower(), Relation())
            self.relations[name.lower()] = Relation(before.columns + relation.columns, before.open or relation.open)

    def find(self, parts: list[str], aliases: Aliases = Aliases.AFTER) -> Type | None:
        """Return the type of what a dotted name stands for, None if it is not known; raise NotFound."""
        scope: Scope | None = self
        if (variable := parts[0].lower()) in self.variables:
            return _fields(ResolvedColumn(parts[0], self.variables[variable]), parts[1:])
        while scope is not None:
            alias = scope.aliases.get(parts[0].lower()) if scope is self and aliases is not Aliases.NONE else None
            if aliases is Aliases.WHOLE and len(parts) > 1 and parts[0].lower() not in _WINDOWS:
                alias = None
            if alias and aliases is Aliases.FIRST:
                with suppress(NotFound):  # Spark then looks at what the query reads
                    return _fields(alias, parts[1:])
            columns, rest, is_open = scope.candidates(parts)
            if len({id(column) for column in columns}) > 1:
                raise self._ambiguous(parts)
            if columns:
                return _fields(columns[0], rest)
            if is_open:
                return None
            if alias:
                return _fields(alias, parts[1:])
            scope = scope.outer
        if parts[0].lower() in FROM_SPARK or (not parts[0].isidentifier() and self._has_unnamed()):
            return None
        raise self._unknown(parts)

    def star(self, parts: list[str]) -> Relation:
        """Return what `*`, `table.*` or `struct.*` stands for; raise NotFound."""
        if not parts:
            return Relation(tuple(self.visible), self.open)
        scope: Scope | None = self
        while scope is not None:
            if len(parts) == 1 and parts[0].lower() in scope.relations:
                return scope.relations[parts[0].lower()]
            scope = scope.outer
        kind = self.find(parts)
        if kind is None:
            return UNKNOWN_RELATION
        if isinstance(kind, Struct):
            return Relation(tuple(ResolvedColumn(part.name, part.type) for part in kind.fields))
        name = ".".join(parts)
        hint = "only a struct has fields; for an array use explode or inline"
        raise NotFound("column.unknown", f"{name}.* is not possible: {name} is {kind.ddl()} and has no fields", hint)

    def candidates(self, parts: list[str]) -> tuple[list[ResolvedColumn], list[str], bool]:
        """Return the columns that a dotted name may mean, its fields, and whether there may be others."""
        qualified = self.relations.get(parts[0].lower()) if len(parts) > 1 else None
        if qualified is not None:
            if columns := qualified.named(parts[1]):
                return columns, parts[2:], False
            if qualified.open:
                return [], [], True
        named = [column for column in self.visible if column.name and column.name.lower() == parts[0].lower()]
        return named, parts[1:], self.open

    def _has_unnamed(self) -> bool:
        return any(column.name is None for column in self.visible) or (self.outer is not None)

    def _ambiguous(self, parts: list[str]) -> NotFound:
        name = parts[0]
        owners = [table for table, relation in self.relations.items() if relation.named(name)]
        hint = f"write {' or '.join(f'{owner}.{name}' for owner in owners)}" if owners else "give one another name"
        why = f"{' and '.join(map(repr, owners))} both have it" if len(owners) > 1 else None
        return NotFound("column.ambiguous", f"{name!r} may be more than one column", hint, why)

    def _unknown(self, parts: list[str]) -> NotFound:
        scope: Scope | None = self
        tables: dict[str, Relation] = {}
        visible: list[ResolvedColumn] = []
        while scope is not None:
            tables = {**scope.relations, **tables}
            visible += scope.visible
            scope = scope.outer
        relation = tables.get(parts[0].lower()) if len(parts) > 1 else None
        if relation is not None:
            message = f"{parts[0]!r} has no column {parts[1]!r}"
            return NotFound("column.unknown", message, column_hint(parts[1], relation.columns))
        if len(parts) > 1:
            message = f"{parts[0]!r} is no table and no column that is read here (in {'.'.join(parts)})"
            return NotFound("column.unknown", message, column_hint(parts[0], visible, *tables))
        why = f"the query reads {', '.join(tables)}" if tables else None
        return NotFound("column.unknown", f"there is no column {parts[0]!r}", column_hint(parts[0], visible), why)


def column_hint(name: str, columns: Iterable[ResolvedColumn], *others: str) -> str:
    """Return a hint for a name that is none of some columns, nor of some other names."""
    every = list(columns)
    names = [*others, *(column.name for column in every if column.name)]
    if every and not names:
        return "its columns have no names: give them some, as count(*) AS n"
    return did_you_mean(name, names)


def _fields(column: ResolvedColumn, names: list[str]) -> Type | None:
    kind = column.type
    path = column.name or ""
    for name in names:
        kind = field_type(kind, name, path)
        path = f"{path}.{name}"
    return kind


def field_type(kind: Type | None, name: str, path: str) -> Type | None:
    """Return the type of a field of what `path` says; None if it is not known. Raise NotFound."""
    if isinstance(kind, Array) and isinstance(kind.element, Struct):
        return Array(_field(kind.element, name, path))
    if isinstance(kind, Struct):
        return _field(kind, name, path)
    if kind is None:
        return None
    if isinstance(kind, Map):
        return kind.value
    message = f"{path!r} is {kind.ddl()} and has no field {name!r}"
    raise NotFound("column.unknown", message, "only a struct has fields, and a map has keys")


def _field(struct: Struct, name: str, path: str) -> Type:
    for part in struct.fields:
        if part.name.lower() == name.lower():
            return part.type
    names = [part.name for part in struct.fields]
    raise NotFound("column.unknown", f"{path!r} has no field {name!r}", did_you_mean(name, names))
