"""What the rules of `check` know about a pipeline.

`CheckContext` has the pipeline, the plans of its tables and the facts of its connectors, each computed once, and finds
the columns of a source or a table without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from millrace.errors import Problem
from millrace.pipeline.analysis.columns import UNKNOWN_RELATION, Relation, ResolvedColumn, relation_of
from millrace.pipeline.analysis.operators import UNKNOWN, Operator, StreamPlan
from millrace.pipeline.analysis.pipeline import analyse
from millrace.pipeline.analysis.types import WINDOW
from millrace.pipeline.connector_facts import Connectors, Facts
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef, TableDef, Trigger
from millrace.pipeline.schema import Decimal, Simple, Type

_NUMBER_TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double")
_TIME_TYPES = ("date", "timestamp", "timestamp_ntz")
_WITH_OTHER_COLUMNS = ("files",)
"""Static sources whose rows may have more columns than the schema: those that the names of folders hold."""


@dataclass(frozen=True, slots=True)
class KnownColumn:
    """A column: its name, its kind for panels (number, time, window, other; None: not known), and Spark's type."""

    name: str
    type: str | None = None
    spark: str = ""


def _type(kind: Type) -> str:
    if isinstance(kind, Decimal):
        return "number"
    if kind == WINDOW:
        return "window"
    name = kind.name if isinstance(kind, Simple) else ""
    return "number" if name in _NUMBER_TYPES else "time" if name in _TIME_TYPES else "other"


def _known(column: ResolvedColumn) -> KnownColumn:
    kind = column.type
    return KnownColumn(column.name or "", _type(kind) if kind else None, kind.ddl() if kind else "")


class CheckContext:
    """A pipeline with its plans and the facts of its connectors."""

    def __init__(self, pipeline: PipelineDef, connectors: Connectors) -> None:
        self.pipeline = pipeline
        self._connectors = connectors
        self._facts: dict[int, Facts] = {}

    @cached_property
    def _plans(self) -> dict[str, StreamPlan]:
        forms = {table.name: table.ranking.kind for table in self.pipeline.tables if table.ranking}

        def written(operator: Operator) -> Operator:
            """Return an operator as the user wrote it: latest or top, not the aggregation that they are."""
            named = operator.kind == "aggregate" and operator.table in forms
            return replace(operator, what=forms[operator.table]) if named else operator

        plans = analyse(self.pipeline)
        return {name: replace(plan, operators=tuple(map(written, plan.operators))) for name, plan in plans.items()}

    def plan(self, name: str) -> StreamPlan:
        """Return the plan of a source or a table."""
        return self._plans.get(name.lower(), UNKNOWN)

    @property
    def elements(self) -> tuple[SourceDef | TableDef, ...]:
        """Return the sources and tables."""
        return (*self.pipeline.sources, *self.pipeline.tables)

    def columns(self, element: SourceDef | TableDef) -> list[KnownColumn] | None:
        """Return the columns of a source or a table; None if only Spark knows them."""
        relation = self.relation(element.name)
        known = [_known(column) for column in relation.columns if column.name]
        return known if not relation.open and len(known) == len(relation.columns) else None

    def relation(self, name: str) -> Relation:
        """Return the columns of a source or a table, as far as they are known without Spark."""
        return self._relations[0].get(name.lower(), UNKNOWN_RELATION)

    @property
    def column_problems(self) -> list[Problem]:
        """Return the names in SQL that stand for no column of what is read."""
        return self._relations[1]

    @cached_property
    def _relations(self) -> tuple[dict[str, Relation], list[Problem]]:
        from millrace.pipeline.analysis.resolution import resolved

        relations: dict[str, Relation] = {}
        problems: list[Problem] = []
        for name in self.pipeline.upstream(*(element.name for element in self.elements)):
            table = self.pipeline.table(name)
            source = self.pipeline.source(name)
            if table is not None and table.sql is not None:
                relations[name.lower()], mistakes = resolved(table, relations)
                problems += mistakes
                if table.ranking:  # its rows are those of what it reads, which its SQL does not say
                    read = relations.get(table.reads[0].lower(), UNKNOWN_RELATION)
                    rank = tuple(map(ResolvedColumn, filter(None, [table.ranking.rank])))
                    relations[name.lower()] = Relation((*read.columns, *rank), read.open)
            elif table is None and source is not None:
                schema = self.source_facts(source).schema
                relations[name.lower()] = UNKNOWN_RELATION
                if schema is not None and not (source.static and source.connection.connector in _WITH_OTHER_COLUMNS):
                    relations[name.lower()] = relation_of(schema)
        return relations, problems

    def source_facts(self, source: SourceDef) -> Facts:
        """Return the facts about a source; none if a part of its definition could not be read."""
        return self._facts_of(source, lambda: self._connectors.source(source.connection, source.static))

    def sink_facts(self, sink: SinkDef) -> Facts:
        """Return the facts about a sink; none if a part of its definition could not be read."""
        return self._facts_of(sink, lambda: self._connectors.sink(sink.connection, sink.table))

    def _facts_of(self, element: SourceDef | SinkDef, find: Callable[[], Facts]) -> Facts:
        if id(element) not in self._facts:
            self._facts[id(element)] = find() if element.connection.readable else Facts()
        return self._facts[id(element)]

    def trigger(self, sink: SinkDef) -> Trigger:
        """Return a sink's own trigger, else the pipeline's."""
        return sink.trigger or self.pipeline.trigger

    def sinks_with(self, trigger: str) -> Iterator[SinkDef]:
        """Return the sinks with a kind of trigger."""
        return (sink for sink in self.pipeline.sinks if self.trigger(sink).kind == trigger)

    def sink_operators(self, *kinds: str) -> Iterator[tuple[SinkDef, Operator]]:
        """Return each sink with the operators of some kinds that are certainly upstream of it."""
        for sink in self.pipeline.sinks:
            for operator in self.plan(sink.table).operators:
                if operator.kind in kinds and operator.certain:
                    yield sink, operator

    def sources_of(self, sink: SinkDef) -> Iterator[SourceDef]:
        """Return the streaming sources of a sink."""
        return (source for source in self.pipeline.upstream_sources(sink.table) if not source.static)

    def watermarked(self, sink: SinkDef) -> Iterator[SourceDef | TableDef]:
        """Return the sources and tables upstream of a sink that have a watermark."""
        elements = map(self.pipeline.element, self.pipeline.upstream(sink.table))
        return (element for element in elements if element and element.watermark)


def sink_name(sink: SinkDef) -> str:
    """Return the name of a sink for messages."""
    return f"the {sink.connection.connector or 'unknown'} sink of {sink.table!r}"
