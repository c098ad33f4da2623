"""The types of expressions in SQL, where they are cheap to know; None everywhere else.

- `type_of` is the type of an expression, so that the fields of its structs are known.
- `generated` are the columns that a generator gives: explode, inline, stack.
- `call_name` is the name of the function that a node of the syntax tree calls.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sqlglot import exp

from millrace.errors import InvalidSchema
from millrace.pipeline.analysis.columns import UNKNOWN_RELATION, NotFound, Relation, ResolvedColumn, Scope, field_type
from millrace.pipeline.schema import Array, Field, Map, Simple, Struct, Type, parse_schema
from millrace.pipeline.sql import call_of

_AROUND = (exp.Paren, exp.Alias, exp.Filter, exp.Window, exp.IgnoreNulls, exp.RespectNulls, exp.HavingMax)
_OF_THE_FIRST = frozenset(
    (  # noqa: SIM905
        "max min first last any_value first_value last_value max_by min_by mode lag lead slice sort_array array_sort "
        "array_distinct shuffle array_compact"
    ).split()
)
"""Functions that give a value of the type of their first argument."""
_LISTS = frozenset(("collect_list", "collect_set", "array_agg"))
CAST_FUNCTIONS = frozenset(
    "bigint binary boolean date decimal double float int smallint string timestamp tinyint".split()  # noqa: SIM905
)
"""Functions that are a CAST."""
_ELEMENTS = frozenset(("element_at", "try_element_at", "get", "array_max", "array_min"))
WINDOW = Struct((Field("start", Simple("timestamp")), Field("end", Simple("timestamp"))))
_COUNTS = frozenset(("count", "count_if", "approx_count_distinct"))
_GENERATORS = frozenset(
    (  # noqa: SIM905
        "explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple variant_explode "
        "variant_explode_outer collations sql_keywords range python_worker_logs"
    ).split()
)


def call_name(node: Any) -> str:
    """Return the name of the function that a node calls, in lower case; empty if it calls none."""
    call = call_of(node)
    return call.name.lower() if call else ""


def type_of(node: Any, scope: Scope) -> Type | None:
    """Return the type of an expression; None if it is not known."""
    while isinstance(node, _AROUND):
        node = node.this
    with suppress(NotFound, InvalidSchema, RecursionError):
        if isinstance(node, exp.Column):
            parts = [part.name for part in node.parts]
            return None if isinstance(node.this, exp.Star) else scope.find(parts)
        if isinstance(node, exp.Identifier):
            return scope.variables.get(node.name.lower())
        if isinstance(node, exp.Dot):
            return field_type(type_of(node.this, scope), node.expression.name, "")
        if isinstance(node, exp.Bracket):
            return _element(type_of(node.this, scope))
        if isinstance(node, exp.Literal) and (node.is_string or node.name.isdigit()):
            return Simple("string" if node.is_string else "int")
        if isinstance(node, exp.Cast):
            return parse_schema(f"x {node.to.sql(dialect='spark')}").fields[0].type
        return _type_of_call(node, scope)
    return None


def _type_of_call(node: Any, scope: Scope) -> Type | None:
    name = call_name(node)
    if name in ("window", "session_window"):
        return WINDOW
    if name == "window_time":
        return Simple("timestamp")
    if name in _COUNTS:
        return Simple("bigint")
    if name in CAST_FUNCTIONS:
        return parse_schema(f"x {name}").fields[0].type
    if isinstance(node, exp.Struct):
        return _struct(node, scope)
    first = node.expressions[0] if isinstance(node, exp.Anonymous | exp.Array) and node.expressions else node.this
    if not name or not isinstance(first, exp.Expression):
        return None
    kind = type_of(first, scope)
    if name in _OF_THE_FIRST:
        return kind
    if name in _LISTS or name == "array":
        return Array(kind) if kind is not None else None
    return _element(kind) if name in _ELEMENTS else None


def _struct(node: exp.Struct, scope: Scope) -> Struct | None:
    fields = []
    for part in node.expressions:
        inner = part.expression if isinstance(part, exp.PropertyEQ) else part
        name = part.this.name if isinstance(part, exp.PropertyEQ) else inner.name
        if isinstance(part, exp.PropertyEQ) and not part.this.meta:  # col1, of the parser: Spark has the field's name
            is_field = isinstance(inner, exp.Dot) and isinstance(inner.expression, exp.Identifier)
            name = inner.expression.name if is_field else ""
        kind = type_of(inner, scope)
        if kind is None or not name or isinstance(part, exp.Star):
            return None
        fields.append(Field(name, kind))
    return Struct(tuple(fields)) if fields else None


def _element(kind: Type | None) -> Type | None:
    return kind.element if isinstance(kind, Array) else kind.value if isinstance(kind, Map) else None


def is_generator(node: Any) -> bool:
    """Return whether a call gives several rows or columns for a row."""
    return call_name(node) in _GENERATORS


def generated(node: Any, scope: Scope) -> Relation:
    """Return the columns that a generator gives for each row; unknown for what is none, or only Spark knows."""
    name = call_name(node)
    if name == "range":
        return Relation((ResolvedColumn("id", Simple("bigint")),))
    if name not in _GENERATORS:
        return UNKNOWN_RELATION
    plain = name.removesuffix("_outer")
    argument = node.this if isinstance(node.this, exp.Expression) else next(iter(node.expressions), None)
    kind = type_of(argument, scope) if argument is not None else None
    if plain in ("explode", "posexplode"):
        columns = [ResolvedColumn("pos", Simple("int"))] if plain == "posexplode" else []
        if isinstance(kind, Array):
            return Relation((*columns, ResolvedColumn("col", kind.element)))
        if isinstance(kind, Map):
            return Relation((*columns, ResolvedColumn("key", kind.key), ResolvedColumn("value", kind.value)))
        return UNKNOWN_RELATION
    if plain == "inline" and isinstance(kind, Array) and isinstance(kind.element, Struct):
        return Relation(tuple(ResolvedColumn(part.name, part.type) for part in kind.element.fields))
    return UNKNOWN_RELATION
