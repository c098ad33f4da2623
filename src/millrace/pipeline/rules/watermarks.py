"""Watermarks: their column must be there, and be a time."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Place, Problem, did_you_mean
from millrace.pipeline.model import Source, Table
from millrace.pipeline.rules.scope import Scope

_TIMES = ("timestamp", "timestamp_ntz", "timestamp_ltz")


def unknown_column(scope: Scope) -> Iterator[Problem]:
    """A watermark's column must be among the source's or the table's."""
    for element in scope.elements:
        column = element.watermark.column if element.watermark else ""
        known = scope.columns(element) if column else None
        names = [one.name for one in known or ()]
        if known is not None and column.lower() not in map(str.lower, names):
            said = f"the watermark of {element.name!r} is on {column!r}, which is none of its columns"
            yield Problem("watermark.column", said, _place(element), did_you_mean(column, names))


def not_a_time(scope: Scope) -> Iterator[Problem]:
    """A watermark is on a timestamp."""
    for source in scope.pipeline.sources:
        schema = scope.source_facts(source).schema
        if not schema or not source.watermark:
            continue
        column = source.watermark.column
        for field in schema.fields:
            name = getattr(field.type, "name", None)
            if field.name.lower() == column.lower() and isinstance(name, str) and name not in _TIMES:
                said = f"the watermark of {source.name!r} is on {column!r}, which is {name} and no timestamp"
                hint = f"declare it as {column} timestamp, or make a table that casts it and set the watermark there"
                yield Problem("watermark.type", said, _place(source), hint)


def _place(element: Source | Table) -> Place:
    if isinstance(element, Source):
        return element.connection.places.get("watermark", element.place)
    return element.place
