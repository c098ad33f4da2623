"""Columns that a row has and its source has not: in a test, they are mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from millrace.errors import InvalidTest, Place, did_you_mean
from millrace.pipeline.schema import Array, Map, Struct, Type
from millrace.testing.cases import place_of

_AS_IT_IS = "a message that has more is given as a text, or {text: FILE}"


def stray(source: str, name: str, known: Iterable[str], place: Place | None) -> InvalidTest:
    """The error for a column, or a field of one, that a source does not have."""
    hint = f"{did_you_mean(name, known)} ({_AS_IT_IS})"
    return InvalidTest(f"{source!r} has no column {name!r}", place=place, hint=hint)


def strays(source: str, value: Any, kind: Type, place: Place | None, path: str = "") -> Iterator[InvalidTest]:
    """The errors for all that is in a value and not in its type."""
    if isinstance(kind, Struct) and isinstance(value, Mapping):
        fields = {f"{path}{one.name}": one.type for one in kind.fields}
        for name, one in value.items():
            at = place_of(value, name) or place
            if (full := f"{path}{name}") in fields:
                yield from strays(source, one, fields[full], at, f"{full}.")
            else:
                yield stray(source, full, fields, at)
    elif isinstance(kind, Array) and isinstance(value, list | tuple):
        for one in value:
            yield from strays(source, one, kind.element, place, path)
    elif isinstance(kind, Map) and isinstance(value, Mapping):
        for name, one in value.items():
            yield from strays(source, one, kind.value, place_of(value, name) or place, f"{path}{name}.")
