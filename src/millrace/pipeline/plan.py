"""A model as the queries that run it, in order; nothing is started here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from millrace.pipeline.model import Pipeline, Sink, Trigger

_WITHOUT_BATCHES = ("realtime", "continuous")


@dataclass(frozen=True)
class Query:
    """One streaming query: a table that is written to one sink, or to several that share what was read."""

    name: str
    table: str
    sinks: tuple[Sink, ...]
    mode: str
    trigger: Trigger
    buries: tuple[str, ...] = ()
    """The sources whose dead letters this query writes: each source has one query that does."""

    @property
    def batches(self) -> bool:
        """Whether it runs in batches; real-time mode and the continuous trigger do not."""
        return self.trigger.kind not in _WITHOUT_BATCHES


@dataclass(frozen=True)
class Plan:
    """What a run does."""

    pipeline: Pipeline
    queries: tuple[Query, ...]


def make_plan(pipeline: Pipeline, *, once: bool = False) -> Plan:
    """The queries of a pipeline. `once` ends each when what is there now is done, whatever its trigger."""
    groups: dict[str, list[Sink]] = {}
    for sink in pipeline.sinks:
        groups.setdefault(_name(sink, pipeline), []).append(sink)
    owned: set[str] = set()
    queries = []
    for name, sinks in groups.items():
        table, mode = sinks[0].table, sinks[0].mode
        trigger = Trigger("once") if once else sinks[0].trigger or pipeline.trigger
        needed = [one for one in pipeline.upstream(table) if pipeline.source(one)]
        buries = tuple(one for one in needed if one not in owned)
        owned.update(buries)
        queries.append(Query(name, table, tuple(sinks), mode, trigger, buries))
    return Plan(pipeline, tuple(queries))


def _name(sink: Sink, pipeline: Pipeline) -> str:
    """The name of a sink's query, and of its checkpoint: sinks of one name share it.

    It depends on the sink alone, as it is written: another sink that comes or goes, or another way to run, must not
    lead a query to another checkpoint.
    """
    parts = [sink.table]
    parts += [] if sink.mode == "append" else [sink.mode]
    parts += [] if sink.trigger is None else [sink.trigger.kind, f"{sink.trigger.seconds or ''}"]
    if (sink.trigger or pipeline.trigger).kind in _WITHOUT_BATCHES:  # which Spark gives one sink only
        parts += [sink.connection.connector, str(sink.connection.argument)]
    return re.sub(r"[^\w.-]+", "_", "-".join(filter(None, parts)))
