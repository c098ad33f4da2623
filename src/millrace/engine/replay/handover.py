"""Rows that a sink without generations gets twice, or never, when another generation becomes the current one.

A replay writes its outputs beside the old ones, as a new generation. Each generation has its own offsets. If the new
one has read up to offset 100 and the old one has stopped at 120, a sink without generations (a Cassandra table, a
foreach function) gets the rows of 100 to 119 from both; the other way round it never gets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from millrace.clients.kafka.offsets import Offsets, PartitionId
from millrace.connectors.base.registry import CONNECTORS, system_of
from millrace.engine.checkpoints.query_history import position, read_offsets, recorded_start
from millrace.engine.replay.generations import FIRST, is_single, load, pipeline_of, state_of
from millrace.engine.replay.selection import by_partition
from millrace.pipeline.compatibility.query_snapshot import snapshot_query
from millrace.pipeline.model import PipelineDef, SinkDef
from millrace.pipeline.plan import Query, make_plan


@dataclass(frozen=True)
class SinkHandover:
    """What a sink without generations gets from the current generation after the previous one."""

    sink: SinkDef
    repeated: tuple[str, ...] = ()
    """Offsets that it gets again, such as `posts[0] 10 to 19`."""
    missed: tuple[str, ...] = ()
    """Offsets that it gets from neither generation."""
    reread: tuple[str, ...] = ()
    """Sources that are read from their start, since it is not known how far the previous generation has read them."""


def handovers(pipeline: PipelineDef, base: Path, before: int | None, now: int) -> list[SinkHandover]:
    """Return the sinks that do not get every record once when a run continues the generation `now`."""
    if before is None:
        return []
    single = (sink for sink in pipeline.sinks if is_single(sink))
    all_handovers = (_handover(pipeline, sink, base, before, now) for sink in single)
    return [handover for handover in all_handovers if handover.repeated or handover.missed or handover.reread]


def _handover(pipeline: PipelineDef, sink: SinkDef, base: Path, before: int, now: int) -> SinkHandover:
    old, new = (_query(pipeline, sink, number) for number in (before, now))
    if not _has_written(pipeline, sink, old, state_of(base, before)):
        return SinkHandover(sink)
    ends = read_offsets(state_of(base, before), old.name)
    starts = _start_offsets(base, now, new, ends)
    shared = sorted(ends.keys() & starts.keys())
    repeated = [_range_text(key, starts[key], ends[key]) for key in shared if starts[key] < ends[key]]
    if _has_written(pipeline, sink, new, state_of(base, now)):  # it wrote the records in between at an earlier handover
        return SinkHandover(sink, tuple(repeated))
    missed = [_range_text(key, ends[key], starts[key]) for key in shared if ends[key] < starts[key]]
    return SinkHandover(sink, tuple(repeated), tuple(missed), tuple(_reread_sources(pipeline, new, base, now)))


def _query(pipeline: PipelineDef, sink: SinkDef, number: int) -> Query:
    """Return the query that writes to a sink in a generation."""
    return next(query for query in make_plan(pipeline_of(pipeline, number)).queries if sink in query.sinks)


def _has_written(pipeline: PipelineDef, sink: SinkDef, query: Query, state: Path) -> bool:
    """Return whether a query was started with a sink."""
    start = recorded_start(state, query.name)
    own = snapshot_query(pipeline, query, CONNECTORS)["sinks"][query.sinks.index(sink)]
    targets = [(recorded["connector"], recorded["to"]) for recorded in (start.snapshot["sinks"] if start else ())]
    return (own["connector"], own["to"]) in targets


def _start_offsets(base: Path, number: int, query: Query, partitions: Iterable[PartitionId]) -> Offsets:
    """Return where a run resumes: at its checkpoint, or else at the end of the replay (0 in newer partitions)."""
    generation = load(base).get(number)
    if position(state_of(base, number), query.name) is not None or generation is None:
        return read_offsets(state_of(base, number), query.name)
    return dict.fromkeys(partitions, 0) | by_partition(generation.end)


def _reread_sources(pipeline: PipelineDef, query: Query, base: Path, number: int) -> Iterator[str]:
    if number == FIRST or position(state_of(base, number), query.name) is not None:
        return
    for source in pipeline.upstream_sources(query.table):
        if not source.static and system_of(source) != "kafka":
            yield source.name


def _range_text(partition: tuple[str, int], first: int, end: int) -> str:
    topic, number = partition
    return f"{topic}[{number}] {first:,} to {end - 1:,}"
