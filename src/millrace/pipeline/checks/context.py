"""What the rules of `check` know about a pipeline.

- `CheckContext` has the pipeline, the plans of its tables and the facts of its connectors, each computed once.
- `columns_of_schema` and `columns_of_sql` find the columns of a source or a table without Spark.
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

_NUMBER_TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double")
_TIME_TYPES = ("date", "timestamp", "timestamp_ntz")
_WINDOW_FUNCTIONS = ("window", "session_window")


@dataclass(frozen=True, slots=True)
class KnownColumn:
    """A column: its name, its kind for panels (`number`, `time`, `other`; None: not known), and Spark's type."""

    name: str
    type: str | None = None
    spark: str = ""


def columns_of_schema(schema: Schema) -> list[KnownColumn]:
    """Return the columns of a schema."""
    return [KnownColumn(field.name, _type(field.type), field.type.ddl()) for field in schema.fields]


def columns_of_sql(sql: str) -> list[KnownColumn] | None:
    """Return the columns of a query; None if only Spark knows the name of one of them."""
    from sqlglot import exp

    try:
        selected = parsed(sql).selects
    except InvalidSql:
        return None
    for column in selected:
        is_window = isinstance(column, exp.Anonymous) and column.name.lower() in _WINDOW_FUNCTIONS
        has_name = is_window or isinstance(column, exp.Alias | exp.Column | exp.Dot)
        if column.is_star or not column.alias_or_name or not has_name:
            return None
    return [KnownColumn(column.alias_or_name) for column in selected]


def _type(kind: Type) -> str:
    if isinstance(kind, Decimal):
        return "number"
    name = kind.name if isinstance(kind, Simple) else ""
    return "number" if name in _NUMBER_TYPES else "time" if name in _TIME_TYPES else "other"


class CheckContext:
    """A pipeline with its plans and the facts of its connectors."""

    def __init__(self, pipeline: PipelineDef, connectors: Connectors) -> None:
        self.pipeline = pipeline
        self._connectors = connectors
        self._facts: dict[int, Facts] = {}

    @cached_property
    def plans(self) -> dict[str, StreamPlan]:
        """Return the plan of every source and table by its name in lower case."""
        return analyse(self.pipeline)

    def plan(self, name: str) -> StreamPlan:
        """Return the plan of a source or a table."""
        return self.plans.get(name.lower(), UNKNOWN)

    @property
    def elements(self) -> tuple[SourceDef | TableDef, ...]:
        """Return the sources and tables."""
        return (*self.pipeline.sources, *self.pipeline.tables)

    def columns(self, element: SourceDef | TableDef) -> list[KnownColumn] | None:
        """Return the columns of a source or a table; None if only Spark knows them."""
        if isinstance(element, SourceDef):
            schema = self.source_facts(element).schema
            return columns_of_schema(schema) if schema else None
        return columns_of_sql(element.sql) if element.sql else None

    def source_facts(self, source: SourceDef) -> Facts:
        """Return the facts about a source; none if a part of its definition could not be read."""
        if id(source) not in self._facts:
            readable = source.connection.readable
            facts = self._connectors.source(source.connection, source.static) if readable else Facts()
            self._facts[id(source)] = facts
        return self._facts[id(source)]

    def sink_facts(self, sink: SinkDef) -> Facts:
        """Return the facts about a sink."""
        if id(sink) not in self._facts:
            readable = sink.connection.readable
            self._facts[id(sink)] = self._connectors.sink(sink.connection, sink.table) if readable else Facts()
        return self._facts[id(sink)]

    def trigger(self, sink: SinkDef) -> Trigger:
        """Return a sink's own trigger, else the pipeline's."""
        return sink.trigger or self.pipeline.trigger

    def sinks_with(self, trigger: str) -> Iterator[SinkDef]:
        """Return the sinks with a kind of trigger."""
        return (sink for sink in self.pipeline.sinks if self.trigger(sink).kind == trigger)

    def sink_operators(self, kind: str) -> Iterator[tuple[SinkDef, Operator]]:
        """Return each sink with the operators of a kind that are certainly upstream of it."""
        for sink in self.pipeline.sinks:
            for operator in self.plan(sink.table).operators:
                if operator.kind == kind and operator.certain:
                    yield sink, operator

    def sources_of(self, sink: SinkDef) -> Iterator[SourceDef]:
        """Return the streaming sources of a sink."""
        sources = (self.pipeline.source(name) for name in self.pipeline.upstream(sink.table))
        return (source for source in sources if source and not source.static)

    def watermarked(self, sink: SinkDef) -> Iterator[SourceDef | TableDef]:
        """Yield the sources and tables upstream of a sink that have a watermark."""
        for name in self.pipeline.upstream(sink.table):
            element = self.pipeline.table(name) or self.pipeline.source(name)
            if element and element.watermark:
                yield element


def sink_name(sink: SinkDef) -> str:
    """Return the name of a sink for messages."""
    return f"the {sink.connection.connector or 'unknown'} sink of {sink.table!r}"
