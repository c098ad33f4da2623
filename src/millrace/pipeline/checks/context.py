"""What the rules look at: the model, the shapes of its tables, and what the connectors say; each found once.

The columns of a source or a table, as far as they are known without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from millrace.errors import InvalidSql
from millrace.pipeline.analysis.operators import UNKNOWN, Operator, StreamPlan
from millrace.pipeline.analysis.pipeline import analyse
from millrace.pipeline.connector_facts import Connectors, Facts
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef, TableDef, Trigger
from millrace.pipeline.schema import Decimal, Schema, Simple, Type
from millrace.pipeline.sql import parsed

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_WINDOWS = ("window", "session_window")


@dataclass(frozen=True, slots=True)
class KnownColumn:
    """A column: its name, what the page takes it for (`number`, `time`, `other`; None: not known), and Spark's type."""

    name: str
    type: str | None = None
    spark: str = ""


def columns_of_schema(schema: Schema) -> list[KnownColumn]:
    """The columns that a schema declares."""
    return [KnownColumn(field.name, _type(field.type), field.type.ddl()) for field in schema.fields]


def columns_of_sql(sql: str) -> list[KnownColumn] | None:
    """The columns that a query names; None when one of them has a name that only Spark can tell."""
    from sqlglot import exp

    try:
        chosen = parsed(sql).selects
    except InvalidSql:
        return None
    for one in chosen:
        windowed = isinstance(one, exp.Anonymous) and one.name.lower() in _WINDOWS
        if one.is_star or not one.alias_or_name or not (windowed or isinstance(one, exp.Alias | exp.Column | exp.Dot)):
            return None
    return [KnownColumn(one.alias_or_name) for one in chosen]


def _type(kind: Type) -> str:
    if isinstance(kind, Decimal):
        return "number"
    name = kind.name if isinstance(kind, Simple) else ""
    return "number" if name in _NUMBERS else "time" if name in _TIMES else "other"


class CheckContext:
    """A pipeline with all that is known of it."""

    def __init__(self, pipeline: PipelineDef, connectors: Connectors) -> None:
        self.pipeline = pipeline
        self._connectors = connectors
        self._sources: dict[int, Facts] = {}
        self._sinks: dict[int, Facts] = {}

    @cached_property
    def shapes(self) -> dict[str, StreamPlan]:
        """The shape of every source and table, by name in small letters."""
        return analyse(self.pipeline)

    def shape(self, name: str) -> StreamPlan:
        """The shape of one of them."""
        return self.shapes.get(name.lower(), UNKNOWN)

    @property
    def elements(self) -> tuple[SourceDef | TableDef, ...]:
        """All that has a name to read it by."""
        return (*self.pipeline.sources, *self.pipeline.tables)

    def columns(self, element: SourceDef | TableDef) -> list[KnownColumn] | None:
        """Its columns, when they are known without Spark."""
        if isinstance(element, SourceDef):
            schema = self.source_facts(element).schema
            return columns_of_schema(schema) if schema else None
        return columns_of_sql(element.sql) if element.sql else None

    def source_facts(self, source: SourceDef) -> Facts:
        """What the connector says of a source; nothing when the source could not be read in full."""
        if id(source) not in self._sources:
            readable = source.connection.readable
            asked = self._connectors.source(source.connection, source.static) if readable else Facts()
            self._sources[id(source)] = asked
        return self._sources[id(source)]

    def sink_facts(self, sink: SinkDef) -> Facts:
        """What the connector says of a sink."""
        if id(sink) not in self._sinks:
            readable = sink.connection.readable
            self._sinks[id(sink)] = self._connectors.sink(sink.connection, sink.table) if readable else Facts()
        return self._sinks[id(sink)]

    def trigger(self, sink: SinkDef) -> Trigger:
        """What holds for a sink: its own trigger, else the pipeline's."""
        return sink.trigger or self.pipeline.trigger

    def sinks_with(self, trigger: str) -> Iterator[SinkDef]:
        """The sinks whose trigger is of a kind."""
        return (sink for sink in self.pipeline.sinks if self.trigger(sink).kind == trigger)

    def steps(self, sink: SinkDef, kind: str) -> Iterator[Operator]:
        """The operations of a kind on the way to a sink that are certainly there."""
        return (step for step in self.shape(sink.table).steps if step.kind == kind and step.sure)

    def sources_of(self, sink: SinkDef) -> Iterator[SourceDef]:
        """The streams that a sink's rows come from."""
        found = (self.pipeline.source(name) for name in self.pipeline.upstream(sink.table))
        return (source for source in found if source and not source.static)

    def watermarked(self, sink: SinkDef) -> Iterator[SourceDef | TableDef]:
        """The streams and tables on the way to a sink that have a watermark of their own."""
        for name in self.pipeline.upstream(sink.table):
            element = self.pipeline.table(name) or self.pipeline.source(name)
            if element and element.watermark:
                yield element


def written_to(sink: SinkDef) -> str:
    """A sink in a message."""
    return f"the {sink.connection.connector or 'unknown'} sink of {sink.table!r}"
