"""What sinks that have one generation only get twice, or never, when another generation begins to count.

Each generation remembers for itself how far it has read. Where the one that counts now does not go on exactly where the
one before has stopped, the outputs of both are whole; such a sink gets from both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from millrace.connectors.base.registry import CONNECTORS, system_of
from millrace.engine.checkpoints.query_history import position, recorded_start
from millrace.engine.replay.generations import FIRST, is_single, load, pipeline_of, state_of
from millrace.pipeline.compatibility.query_snapshot import snapshot_query
from millrace.pipeline.model import PipelineDef, SinkDef
from millrace.pipeline.plan import Query, make_plan
from millrace.telemetry.progress import offsets_in


@dataclass(frozen=True)
class SinkHandover:
    """One sink."""

    sink: SinkDef
    twice: tuple[str, ...] = ()
    """Offsets that it gets once more, as `posts[0] 10 to 19`."""
    never: tuple[str, ...] = ()
    """Offsets that neither gives it."""
    anew: tuple[str, ...] = ()
    """Sources that are read from their beginning: nothing tells how far the generation before has read them."""


def handovers(pipeline: PipelineDef, base: Path, before: int | None, now: int) -> list[SinkHandover]:
    """The sinks that do not get every record once, as things stand, when a run goes on with a generation."""
    if before is None:
        return []
    single = [sink for sink in pipeline.sinks if is_single(sink)]
    found = [_handover(pipeline, sink, base, before, now) for sink in single]
    return [one for one in found if one.twice or one.never or one.anew]


def _handover(pipeline: PipelineDef, sink: SinkDef, base: Path, before: int, now: int) -> SinkHandover:
    old, new = (_query(pipeline, sink, number) for number in (before, now))
    if not _gave(pipeline, sink, old, state_of(base, before)):
        return SinkHandover(sink)
    given = _read(state_of(base, before), old)
    begins = _begins(base, now, new, given)
    both = sorted(given.keys() & begins.keys())
    twice = [_told(place, begins[place], given[place]) for place in both if begins[place] < given[place]]
    if _gave(pipeline, sink, new, state_of(base, now)):  # it was handed over before: what is between, it has from there
        return SinkHandover(sink, tuple(twice))
    never = [_told(place, given[place], begins[place]) for place in both if given[place] < begins[place]]
    return SinkHandover(sink, tuple(twice), tuple(never), tuple(_anew(pipeline, new, base, now)))


def _query(pipeline: PipelineDef, sink: SinkDef, number: int) -> Query:
    """The query that gives a sink its rows in a generation."""
    return next(query for query in make_plan(pipeline_of(pipeline, number)).queries if sink in query.sinks)


def _gave(pipeline: PipelineDef, sink: SinkDef, query: Query, state: Path) -> bool:
    """Whether a query has given anything to a sink."""
    known = recorded_start(state, query.name)
    own = snapshot_query(pipeline, query, CONNECTORS)["sinks"][query.sinks.index(sink)]
    return known is not None and any(
        (one["connector"], one["to"]) == (own["connector"], own["to"]) for one in known.said["sinks"]
    )


def _begins(base: Path, number: int, query: Query, known: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Where a run goes on: after its checkpoint, or else where the replay has ended (0 in partitions of after that)."""
    made = load(base).get(number)
    if position(state_of(base, number), query.name) is not None or made is None:
        return _read(state_of(base, number), query)
    return dict.fromkeys(known, 0) | _flat(made.end)


def _read(state: Path, query: Query) -> dict[tuple[str, int], int]:
    """How far a query has read, by topic and partition."""
    at = position(state, query.name)
    return {place: offset for source in (at.offsets if at else ()) for place, offset in offsets_in(source).items()}


def _anew(pipeline: PipelineDef, query: Query, base: Path, number: int) -> Iterator[str]:
    if number == FIRST or position(state_of(base, number), query.name) is not None:
        return
    for name in pipeline.upstream(query.table):
        source = pipeline.source(name)
        if source and not source.static and system_of(source) != "kafka":
            yield source.name


def _flat(offsets: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, int], int]:
    return {(topic, int(number)): offset for topic, own in offsets.items() for number, offset in own.items()}


def _told(place: tuple[str, int], first: int, end: int) -> str:
    topic, number = place
    return f"{topic}[{number}] {first:,} to {end - 1:,}"
