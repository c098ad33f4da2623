"""What of a pipeline a replay runs: sources that can be read again, and sinks that can have generations.

What of Kafka a replay covers: from which offsets to which.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from hashlib import sha256

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.offsets import Offsets, end_offsets, parse_bound, start_offsets
from millrace.connectors.base.offset_range import Offsets as offset_range_Offsets
from millrace.connectors.base.registry import CONNECTORS, in_generation, reader_of, writer_of
from millrace.connectors.kafka.source import KafkaSource
from millrace.engine.replay.generations import pipeline_of
from millrace.errors import InvalidReplay
from millrace.pipeline.compatibility.query_snapshot import snapshot_query
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef
from millrace.pipeline.plan import make_plan


def sinks_of(pipeline: PipelineDef, leave_out: Collection[str]) -> list[SinkDef]:
    """The sinks that a replay writes to; raises when one of the others was not left out on purpose."""
    found = []
    for sink in pipeline.sinks:
        kind = sink.connection.connector
        if in_generation(sink.connection, 2) is not None:
            found.append(sink)
        elif not writer_of(sink).transient and kind not in leave_out:
            raise InvalidReplay(
                f"the sink {kind} of {sink.table!r} cannot have generations",
                place=sink.place,
                why="a replay would give it everything once more, beside what the running pipeline gives it",
                hint=f"--leave-out {kind} replays without it; from the end of the replay on, a run gives it new rows",
            )
    if not found:
        raise InvalidReplay(
            f"pipeline {pipeline.name!r} has no sink that a replay could write to",
            place=pipeline.place,
            hint="kafka, files and cassandra can have generations",
        )
    return found


def replayed_pipeline(pipeline: PipelineDef, number: int, leave_out: Collection[str]) -> PipelineDef:
    """The pipeline that a replay runs: only what leads to sinks of the generation."""
    sinks = sinks_of(pipeline, leave_out)
    needed = {name.lower() for sink in sinks for name in pipeline.upstream(sink.table)}
    sources = tuple(source for source in pipeline.sources if source.name.lower() in needed)
    _require_no_loop(sources, sinks)
    return pipeline_of(replace(pipeline, sources=sources, sinks=tuple(sinks), panels=()), number)


def _require_no_loop(sources: Collection[SourceDef], sinks: Collection[SinkDef]) -> None:
    """Raise when what is written is read again: a generation would be made of the output of the old code."""
    places = {place for sink in sinks for place in writer_of(sink).resources(sink.table)}
    for source in sources:
        both = places.intersection(reader_of(source).resources())
        if both:
            raise InvalidReplay(
                f"source {source.name!r} reads what the pipeline writes itself: {', '.join(sorted(both))}",
                place=source.place,
                why="a replay writes to a generation of its own; the source would still read what the old code made",
                hint="make two pipelines of it, and replay one after the other (current: true in the second)",
            )


def sink_target_name(sink: SinkDef) -> str:
    """The topic, folder or table of a sink that can have generations."""
    writer = writer_of(sink)
    return str(next((getattr(writer, name) for name in writer.in_generation(2) or {}), ""))


def streams_of(pipeline: PipelineDef) -> list[SourceDef]:
    """The streams that are read; raises when one cannot be read again."""
    found = [source for source in pipeline.sources if not source.static]
    for source in found:
        why = reader_of(source).not_replayed
        if why:
            raise InvalidReplay(
                f"source {source.name!r} ({source.connection.connector}) cannot be replayed",
                place=source.place,
                why=why,
                hint="let it go into a topic first, and read it from there",
            )
    return found


def code_of(model: PipelineDef) -> str:
    """Tells a pipeline's code from any other."""
    plan = make_plan(model, once=True)
    said = [snapshot_query(model, query, CONNECTORS) for query in plan.queries]
    return sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:16]


_EVERYTHING = ("earliest", "latest")


def covered(
    pipeline: PipelineDef, model: PipelineDef, asked: tuple[str, str], cluster: Callable[[], Cluster]
) -> tuple[offset_range_Offsets, offset_range_Offsets]:
    """Where a replay begins and ends; of topics that the pipeline reads and the replay does not, the end only."""
    first, last = _bounds(cluster, _places(streams_of(model), cluster), asked)
    return _by_topic(first), _by_topic(last | _ends(_left(pipeline, model), cluster, last))


def _left(pipeline: PipelineDef, model: PipelineDef) -> list[KafkaSource]:
    """The readers of streams that lead to no sink of the replay."""
    read = {source.name for source in model.sources}
    readers = [reader_of(one) for one in pipeline.sources if one.name not in read and not one.static]
    return [one for one in readers if isinstance(one, KafkaSource)]


def _ends(readers: Collection[KafkaSource], cluster: Callable[[], Cluster], known: Offsets) -> Offsets:
    """Where a run of the generation begins with what the replay does without: not with the whole past."""
    found = {place for one in readers for place in one.places_now(cluster())} - known.keys()
    return end_offsets(cluster(), sorted(found), "latest", dict.fromkeys(found, 0)) if found else {}


def _places(sources: Collection[SourceDef], cluster: Callable[[], Cluster]) -> list[tuple[str, int]]:
    """Every partition of Kafka that is read."""
    found: dict[tuple[str, int], None] = {}
    for source in sources:
        reader = reader_of(source)
        if isinstance(reader, KafkaSource):
            for name in reader.topics_now(cluster()):
                topics.require(cluster().connect(), name)
            found |= dict.fromkeys(reader.places_now(cluster()))
    return list(found)


def _bounds(
    cluster: Callable[[], Cluster], places: list[tuple[str, int]], asked: tuple[str, str]
) -> tuple[Offsets, Offsets]:
    start, end = map(parse_bound, asked)
    if places:
        first = start_offsets(cluster(), places, start)
        last = end_offsets(cluster(), places, end, first)
        if asked != _EVERYTHING and all(last[place] <= first[place] for place in places):
            raise InvalidReplay(
                f"no record lies between {asked[0]} and {asked[1]}",
                hint="millrace kafka topics describe NAME shows the offsets that there are; times are those of records",
            )
        return first, last
    if asked != _EVERYTHING:
        raise InvalidReplay(
            "without a topic among its sources a replay reads the files that are there",
            hint="--from earliest, without --to",
        )
    return {}, {}


def _by_topic(found: Offsets) -> dict[str, dict[str, int]]:
    made: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(found.items()):
        made.setdefault(topic, {})[str(number)] = offset
    return made
