"""A schema that fits samples of JSON: what `millrace schema` proposes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from millrace.errors import InputError
from millrace.formats.instants import days_of_text, micros_of_text
from millrace.pipeline.schema import Array, Field, Map, Schema, Simple, Struct, Type

_STRING = Simple("string")
_WIDER = {
    frozenset((Simple("bigint"), Simple("double"))): Simple("double"),
    frozenset((Simple("date"), Simple("timestamp"))): Simple("timestamp"),
}
_BIGGEST = 1 << 63
DEEPEST = 30
"""How deep lists and objects are told apart; below that everything is text."""


class _Object(dict[str, "_Kind"]):
    """The fields of objects seen so far, in order of their first appearance."""


class _List:
    """The elements of arrays seen so far."""

    def __init__(self, element: _Kind) -> None:
        self.element = element


_Kind = Simple | _Object | _List | None
"""What has been seen of a field; None is nothing but null."""


def infer_schema(values: Iterable[bytes]) -> Schema:
    """The columns of JSON objects: wide enough for all samples, in order of appearance, and nullable."""
    whole, count, objects = _Object(), 0, 0
    for value in values:
        count += 1
        try:
            record = orjson.loads(value)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict):
            objects += 1
            _widen(whole, record, 0)
    fields = _fields(whole)
    if not fields:
        seen = "objects without named fields" if objects else "no JSON object among them"
        raise InputError(
            f"no schema can be proposed from {count} records: {seen}",
            hint="millrace schema reads JSON; other formats need a schema written by hand",
        )
    return Schema(fields)


def _widen(fields: _Object, record: dict[str, Any], depth: int) -> None:
    for name, value in record.items():
        fields[name] = _merged(fields.get(name), _kind(value, depth + 1))


def _kind(value: Any, depth: int) -> _Kind:
    if value is None:
        return None
    if depth > DEEPEST:
        return _STRING
    if isinstance(value, dict):
        seen = _Object()
        _widen(seen, value, depth)
        return seen
    if isinstance(value, list):
        element: _Kind = None
        for one in value:
            element = _merged(element, _kind(one, depth + 1))
        return _List(element)
    return leaf(value)


def leaf(value: Any) -> Simple:
    """The narrowest type of a value that is neither a list nor an object."""
    if isinstance(value, bool):
        return Simple("boolean")
    if isinstance(value, int):
        return Simple("bigint" if -_BIGGEST <= value < _BIGGEST else "double")
    if isinstance(value, float):
        return Simple("double")
    if _reads(days_of_text, value):
        return Simple("date")
    return Simple("timestamp") if _reads(micros_of_text, value) else _STRING


def _reads(read: Callable[[str], int], text: str) -> bool:
    try:
        read(text)
    except (ValueError, OverflowError):
        return False
    return True


def _merged(one: _Kind, other: _Kind) -> _Kind:
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, _Object) and isinstance(other, _Object):
        for name, kind in other.items():
            one[name] = _merged(one.get(name), kind)
        return one
    if isinstance(one, _List) and isinstance(other, _List):
        return _List(_merged(one.element, other.element))
    if isinstance(one, Simple) and isinstance(other, Simple):
        return _WIDER.get(frozenset((one, other)), _STRING)
    return _STRING


def _fields(seen: _Object) -> tuple[Field, ...]:
    """Spark takes names that differ in case only for one, so the first of them stands."""
    fields: dict[str, Field] = {}
    for name, kind in seen.items():
        if name:
            fields.setdefault(name.lower(), Field(name, _type(kind)))
    return tuple(fields.values())


def _type(kind: _Kind) -> Type:
    if isinstance(kind, _Object):
        fields = _fields(kind)
        return Struct(fields) if fields else Map(_STRING, _STRING)
    if isinstance(kind, _List):
        return Array(_type(kind.element))
    return kind or _STRING
