"""A model as the queries that run it, in order; nothing is started here."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from millrace.errors import SourceLocation
from millrace.pipeline.connector_facts import Connectors
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef, Trigger
from millrace.pipeline.panels import RunPanel, shown

WITHOUT_BATCHES = ("realtime", "continuous")
_SECONDARY_TRIGGER = Trigger("every", 1.0)
"""Nobody looks more often, and a query without sinks must leave the machine to those that write."""


@dataclass(frozen=True)
class Query:
    """One streaming query: a table that is written to one sink, or to several that share what was read."""

    name: str
    table: str
    sinks: tuple[SinkDef, ...]
    mode: str
    trigger: Trigger
    buries: tuple[str, ...] = ()
    """The sources whose dead letters this query writes: each source has one query that does."""
    panels: tuple[RunPanel, ...] = ()
    """The panels that look at its rows on their way."""
    infers: bool = False
    """Whether a panel is made up for its table: nobody declared one, and the page is served."""
    dead_letter_source: SourceDef | None = None
    """The source whose dead letters are all that this query is for: those that read it have no batches."""

    @property
    def batches(self) -> bool:
        """Whether it runs in batches; real-time mode and the continuous trigger do not."""
        return self.trigger.kind not in WITHOUT_BATCHES

    @property
    def lasts(self) -> bool:
        """Return whether its results outlive the run; a query that only has panels starts from scratch each time."""
        return bool(self.sinks) or self.dead_letter_source is not None

    @property
    def place(self) -> SourceLocation:
        """Where the user asked for it: its first sink, or its source or first panel where it has no sink."""
        if self.dead_letter_source:
            return self.dead_letter_source.place
        return self.sinks[0].place if self.sinks else self.panels[0].panel.place


@dataclass(frozen=True)
class Plan:
    """What a run does."""

    pipeline: PipelineDef
    queries: tuple[Query, ...]


def make_plan(pipeline: PipelineDef, *, once: bool = False, panels: bool = False) -> Plan:
    """The queries of a pipeline. `once` ends each when what is there now is done, whatever its trigger.

    `panels` is for a run whose page is served; else nobody would see them, and nothing is computed for them.
    """
    groups: defaultdict[str, list[SinkDef]] = defaultdict(list)
    for sink in pipeline.sinks:
        groups[_name(sink, pipeline)].append(sink)
    owned: set[str] = set()
    queries = []
    for name, sinks in groups.items():
        table, mode = sinks[0].table, sinks[0].mode
        trigger = Trigger("once") if once else sinks[0].trigger or pipeline.trigger
        queries.append(Query(name, table, tuple(sinks), mode, trigger, _take_unowned(pipeline, table, owned)))
    if panels:
        queries = _with_panels(pipeline, queries, owned)
    return Plan(pipeline, tuple(queries))


def with_letters(plan: Plan, connectors: Connectors) -> Plan:
    """The plan with a query for the dead letters of each source that is read without batches, where nothing is buried.

    It reads the source once more, in batches, and is there before the others are; also in a run that ends when it has
    caught up, so that it is never behind what the others have passed by.
    """
    names = unbatched(plan.pipeline)
    sources = [source for source in plan.pipeline.sources if source.name in names and not source.static]
    read_again = {source.name: source for source in sources if connectors.source(source.connection, False).letters}
    once = all(query.trigger.kind == "once" for query in plan.queries)
    trigger = Trigger("once") if once else _SECONDARY_TRIGGER
    # No table has a dot in its name, so no sink's query is called so.
    own = [
        Query(f"dead.{name}", name, (), "append", trigger, (name,), dead_letter_source=source)
        for name, source in read_again.items()
    ]
    others = [
        replace(query, buries=tuple(source for source in query.buries if source not in read_again))
        for query in plan.queries
    ]
    return replace(plan, queries=(*own, *others))


def with_letters_of(queries: Sequence[Query], pipeline: PipelineDef, ended: Collection[str]) -> list[Query]:
    """The queries, of which those that still read write the dead letters of sources whose query has ended."""
    owned = {source for query in queries if query.name not in ended for source in query.buries}
    return [
        query
        if query.name in ended
        else replace(query, buries=query.buries + _take_unowned(pipeline, query.table, owned))
        for query in queries
    ]


def unbatched(pipeline: PipelineDef) -> set[str]:
    """The sources that somebody reads without batches, as the file says and however it is run this time.

    Whoever reads one of them, Spark's own functions decode it: what is bad must be the same for all.
    """
    sinks = [sink for sink in pipeline.sinks if (sink.trigger or pipeline.trigger).kind in WITHOUT_BATCHES]
    return {source.name for sink in sinks for source in pipeline.upstream_sources(sink.table)}


def _with_panels(pipeline: PipelineDef, queries: list[Query], owned: set[str]) -> list[Query]:
    """The queries with what looks at them, and those that panels need for themselves.

    A panel looks at its table's rows on their way to a sink. Where the table has no sink, or its queries have no
    batches, the panel has a query of its own, which reads the source once more; so that one is left out of a run that
    ends when it has caught up, and whose page goes with it.
    """
    carried: defaultdict[str, list[RunPanel]] = defaultdict(list)
    alone: defaultdict[str, list[RunPanel]] = defaultdict(list)
    for panel in shown(pipeline.panels):
        table = panel.panel.table
        carrier = _carrier(queries, table)
        panels = carried[carrier.name] if carrier else alone[table]
        panels.append(panel)
    carriers = [_carrier(queries, query.table) for query in queries if not pipeline.panels]
    inferring = {carrier.name for carrier in carriers if carrier}
    with_panels = [
        replace(query, panels=tuple(carried[query.name]), infers=query.name in inferring) for query in queries
    ]
    if all(query.trigger.kind == "once" for query in queries):
        return with_panels
    trigger = pipeline.trigger if pipeline.trigger.kind == "every" else _SECONDARY_TRIGGER
    for table, panels in alone.items():
        # No table has a dot in its name, so no sink's query is called so.
        name, mode, unowned = f"panels.{table}", _mode(pipeline, table), _take_unowned(pipeline, table, owned)
        with_panels.append(Query(name, table, (), mode, trigger, unowned, tuple(panels)))
    return with_panels


def _carrier(queries: list[Query], table: str) -> Query | None:
    """The query whose rows say the most to a panel: changed ones at once, rather than those of finished windows."""
    queries = [query for query in queries if query.table.lower() == table.lower() and query.batches]
    return min(queries, key=lambda query: ("update", "complete", "append").index(query.mode), default=None)


def _mode(pipeline: PipelineDef, table: str) -> str:
    """The mode that shows the most: changes as they come where Spark can give them, else what is final."""
    from millrace.pipeline.analysis.operators import UNKNOWN
    from millrace.pipeline.analysis.pipeline import analyse

    plan = analyse(pipeline).get(table.lower(), UNKNOWN)
    final = any(
        operator.session
        or operator.join in ("left", "right", "full")
        or (operator.after_aggregate and operator.kind == "aggregate")
        for operator in plan.operators
    )
    return "update" if plan.aggregated and not final else "append"


def _take_unowned(pipeline: PipelineDef, table: str, owned: set[str]) -> tuple[str, ...]:
    """The sources whose dead letters no other query writes; they are this one's from now on."""
    unowned = [source.name for source in pipeline.upstream_sources(table) if source.name not in owned]
    owned.update(unowned)
    return tuple(unowned)


def _name(sink: SinkDef, pipeline: PipelineDef) -> str:
    """The name of a sink's query, and of its checkpoint: sinks of one name share it.

    It depends on the sink alone, as it is written: another sink that comes or goes, or another way to run, must not
    lead a query to another checkpoint.
    """
    parts = [sink.table]
    parts += [] if sink.mode == "append" else [sink.mode]
    parts += [] if sink.trigger is None else [sink.trigger.kind, f"{sink.trigger.seconds or ''}"]
    if (sink.trigger or pipeline.trigger).kind in WITHOUT_BATCHES:  # which Spark gives one sink only
        argument = sink.connection.argument
        if argument is not None and not isinstance(argument, str | int | float | bool):
            # A function or an object is called by its name: its text is another in each run.
            argument = getattr(argument, "__qualname__", type(argument).__qualname__)
        parts += [sink.connection.connector, str(argument)]
    return re.sub(r"[^\w.-]+", "_", "-".join(filter(None, parts)))
