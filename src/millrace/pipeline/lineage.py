"""Which pipeline's output feeds which other pipeline's input, and whether both see the same records.

- `endpoints` lists what a pipeline reads and writes, as plain data that passes between processes.
- `links` joins the endpoints of several pipelines.
- `mismatches` compares the two ends of links where both are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.errors import Problem, SourceLocation, printable
from millrace.pipeline.checks.context import CheckContext
from millrace.pipeline.connector_facts import Connectors, Facts
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef

_WITH_NAMES = ("json", "avro", "parquet", "orc")
"""Formats in which a record names its columns."""
_TAKE_ANYTHING = ("text", "raw")
_NO_NUMBERS = ("time", "other")


@dataclass(frozen=True)
class EndColumn:
    """A column of the records: its name, its kind (`number`, `time`, `other`) and its Spark type, where known."""

    name: str
    kind: str = ""
    type: str = ""


@dataclass(frozen=True)
class Endpoint:
    """What a pipeline reads or writes in one place."""

    pipeline: str
    element: str
    """The source, or the table whose rows are written."""
    writes: bool
    target: str
    """As `topic posts`: the same text for the same thing."""
    format: str
    columns: tuple[EndColumn, ...] | None
    """Of the records' values; None where only Spark knows them."""
    file: str
    line: int | None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Endpoint:
        """Return the endpoint of the dictionary that `asdict` makes of one, which may have passed through JSON."""
        texts = {name: _text(fields[name]) for name in ("pipeline", "element", "target", "format", "file")}
        columns, line = fields["columns"], fields["line"]
        known = None if columns is None else tuple(_column(column) for column in columns)
        number = None if line is None else int(line)
        return cls(**texts, writes=fields["writes"] is True, columns=known, line=number)

    @property
    def place(self) -> SourceLocation:
        """Return where the source or the sink stands."""
        return SourceLocation(self.file, self.line)


def _column(fields: Mapping[str, Any]) -> EndColumn:
    return EndColumn(**{name: _text(value) for name, value in fields.items()})


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return printable(value)


@dataclass(frozen=True)
class Link:
    """A place that one pipeline writes and another one reads."""

    writer: Endpoint
    reader: Endpoint

    def __str__(self) -> str:
        writer, reader = self.writer, self.reader
        target = f"{writer.pipeline} ({writer.element}) -> {writer.target}"
        return f"{target} -> {reader.pipeline} ({reader.element})"


def endpoints(pipeline: PipelineDef, connectors: Connectors) -> list[Endpoint]:
    """Return what a pipeline reads and writes."""
    context = CheckContext(pipeline, connectors)
    found: list[Endpoint] = []
    for source in pipeline.sources:
        facts = context.source_facts(source)
        columns = _columns(context, source.name, facts)
        found += (_endpoint(pipeline, source, source.name, target, facts, columns) for target in facts.touches)
    for sink in pipeline.sinks:
        facts = context.sink_facts(sink)
        columns = _columns(context, sink.table, facts)
        found += (_endpoint(pipeline, sink, sink.table, target, facts, columns) for target in facts.touches)
    return found


def _endpoint(
    pipeline: PipelineDef,
    end: SourceDef | SinkDef,
    name: str,
    target: str,
    facts: Facts,
    columns: tuple[EndColumn, ...] | None,
) -> Endpoint:
    writes, form = isinstance(end, SinkDef), facts.form.format if facts.form else ""
    return Endpoint(pipeline.name, name, writes, target, form, columns, end.place.file, end.place.line)


def _columns(context: CheckContext, name: str, facts: Facts) -> tuple[EndColumn, ...] | None:
    """Return the columns of the records' values; a column that is not among the known ones makes them unknown."""
    element, form = context.pipeline.element(name), facts.form
    known = context.columns(element) if element and form else None
    if known is None or form is None:
        return None
    columns = {column.name: EndColumn(column.name, column.type or "", column.spark) for column in known}
    if any(name not in columns for name in form.only):
        return None
    return tuple(columns[name] for name in form.only or columns if name not in form.beside)


def links(ends: Iterable[Endpoint]) -> list[Link]:
    """Return each pair of a writer and a reader of one place, of different pipelines."""
    ends = list(ends)
    return [
        Link(writer, reader)
        for writer in ends
        for reader in ends
        if writer.writes and not reader.writes and writer.target == reader.target and writer.pipeline != reader.pipeline
    ]


def texts(found: Iterable[Link]) -> list[str]:
    """Return the links as they are shown, each once: two files may have pipelines of one name."""
    return list(dict.fromkeys(map(str, found)))


def shared_names(pipelines: Iterable[tuple[str, SourceLocation]]) -> Iterator[Problem]:
    """Yield a warning for each pipeline, given by its name and the place of that, whose name another one has."""
    first: dict[str, SourceLocation] = {}
    for name, place in pipelines:
        other = first.setdefault(name, place)
        if name and other != place:
            what = f"the pipelines of {other.file} and {place.file} have one name: {name!r}"
            why = (
                f"{other} has it first; a state folder is named so: one run continues from the checkpoints of the other"
            )
            hint = "give one of them another name, or run each with a --state of its own"
            yield Problem("name.shared", what, place, hint, why, "warning")


def mismatches(found: Iterable[Link]) -> Iterator[Problem]:
    """Yield a warning for each reader that expects what no writer of another pipeline gives it."""
    writers: dict[Endpoint, list[Endpoint]] = {}
    for link in found:
        writers.setdefault(link.reader, []).append(link.writer)
    for reader, feeding in writers.items():
        yield from _of_reader(reader, feeding)


def _of_reader(reader: Endpoint, feeding: list[Endpoint]) -> Iterator[Problem]:
    names = ", ".join(dict.fromkeys(f"{writer.pipeline} ({writer.place})" for writer in feeding))
    formats = {writer.format for writer in feeding}
    if "" in formats or reader.format in ("", *_TAKE_ANYTHING):
        return
    if reader.format not in formats:
        what = f"source {reader.element!r} reads {reader.target} as {reader.format}"
        why = f"{names} writes it as {', '.join(sorted(formats))}"
        hint = "give both the same format"
        yield Problem("lineage.format", what, reader.place, hint, why, "warning")
        return
    columns = [writer.columns for writer in feeding if writer.columns is not None]
    if reader.format not in _WITH_NAMES or reader.columns is None or len(columns) < len(feeding):
        return
    for column in reader.columns:
        given = [each for known in columns for each in known if each.name.lower() == column.name.lower()]
        if not given:
            written = ", ".join(dict.fromkeys(each.name for known in columns for each in known))
            what = (
                f"source {reader.element!r} reads the column {column.name!r} of {reader.target}, and it is not written"
            )
            hint = "add it to the table that is written, or leave it out of the schema"
            yield Problem("lineage.column", what, reader.place, hint, f"{names} writes {written}", "warning")
        elif all(_is_no_number(each) for each in given) and column.kind == "number":
            what = f"source {reader.element!r} reads {column.name!r} of {reader.target} as {column.type}"
            why = f"{names} writes it as {given[0].type}"
            yield Problem("lineage.type", what, reader.place, "give both the same type", why, "warning")


def _is_no_number(column: EndColumn) -> bool:
    """Return whether a column is certainly no number; text may be one."""
    return bool(column.type) and column.kind in _NO_NUMBERS and column.type.lower() != "string"
