"""What is known of a run before it starts: its queries, and the edges along which rows flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace.pipeline.model import PipelineDef
from millrace.pipeline.plan import Plan, Query


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge from a source or table to a table, or to a sink (`sink:0` is the first of the pipeline)."""

    start: str
    end: str
    query: str | None = None
    """The query that writes the sink."""
    topic: str | None = None
    """The topic that the sink writes."""


@dataclass(frozen=True, slots=True)
class ExpectedQuery:
    """A query that the run will start."""

    name: str
    table: str
    mode: str = "append"
    lasting: bool = True
    """Whether it runs until it is stopped; one that is run once ends by itself."""
    batches: bool = True
    """False in real-time mode and with the continuous trigger, where Spark seldom reports progress."""
    every: float | None = None
    """Seconds between its batches, if it has a processing-time trigger."""
    watermarked: bool = False
    sources: tuple[str, ...] = ()
    """The streaming sources that it reads."""
    writes: bool = True
    """False for one that only panels need: the run is healthy without it."""


@dataclass(frozen=True)
class Topology:
    """A run as it was planned. A program that is not ours has none: its queries are known when they start."""

    queries: tuple[ExpectedQuery, ...] = ()
    edges: tuple[Edge, ...] = ()
    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The Kafka topics that each source names."""
    planned: bool = True

    def query(self, name: str) -> ExpectedQuery:
        """Return what is expected of a query; of one that is not planned, only its name."""
        return next((query for query in self.queries if query.name == name), ExpectedQuery(name, name))

    def read_by(self, query: str) -> tuple[str, ...]:
        """Return the topics that a query reads, as far as the plan names them."""
        return tuple(topic for source in self.query(query).sources for topic in self.topics.get(source, ()))


UNPLANNED = Topology(planned=False)


def topology_of(plan: Plan, topics: Mapping[str, tuple[str, ...]]) -> Topology:
    """Return the topology of a plan; `topics` are those that its sources name."""
    return Topology(tuple(_expected(query, plan.pipeline) for query in plan.queries), tuple(_edges(plan)), topics)


def _expected(query: Query, pipeline: PipelineDef) -> ExpectedQuery:
    needed = pipeline.upstream(query.table)
    sources = [source for name in needed if (source := pipeline.source(name))]
    tables = [table for name in needed if (table := pipeline.table(name))]
    return ExpectedQuery(
        query.name,
        query.table,
        query.mode,
        lasting=query.trigger.kind != "once",
        batches=query.batches,
        every=query.trigger.seconds if query.trigger.kind == "every" else None,
        watermarked=any(source.watermark for source in sources) or any(table.watermark for table in tables),
        sources=tuple(source.name for source in sources if not source.static),
        writes=query.lasts,
    )


def _edges(plan: Plan) -> list[Edge]:
    pipeline = plan.pipeline
    edges = [Edge(read, table.name) for table in pipeline.tables for read in table.reads]
    for number, sink in enumerate(pipeline.sinks):
        query = next((query.name for query in plan.queries if sink in query.sinks), None)
        kafka = sink.connection.connector == "kafka" and isinstance(sink.connection.argument, str)
        edges.append(Edge(sink.table, f"sink:{number}", query, sink.connection.argument if kafka else None))
    return edges
