"""Selects what a replay runs and reads.

- `sinks_of` and `streams_of`: the sinks that can have generations, the sources that can be read again.
- `replayed_pipeline`: the part of a pipeline that leads to these sinks.
- `covered`: the offsets from which, and up to which, topics are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from hashlib import sha256

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.offsets import Offsets, end_offsets, parse_bound, start_offsets
from millrace.connectors.base.offset_range import Offsets as TopicOffsets
from millrace.connectors.base.registry import CONNECTORS, in_generation, sink_of, source_of
from millrace.connectors.kafka.source import KafkaSource
from millrace.engine.checkpoints.resume import with_current_options
from millrace.engine.replay.generations import pipeline_of
from millrace.errors import InvalidReplay
from millrace.pipeline.compatibility.query_snapshot import snapshot_query
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef
from millrace.pipeline.plan import make_plan


def sinks_of(pipeline: PipelineDef, leave_out: Collection[str]) -> list[SinkDef]:
    """Return the sinks that a replay writes to; raise InvalidReplay if another one is not in `leave_out`."""
    sinks = []
    for sink in pipeline.sinks:
        kind = sink.connection.connector
        if in_generation(sink.connection, 2) is not None:
            sinks.append(sink)
        elif not sink_of(sink).transient and kind not in leave_out:
            raise InvalidReplay(
                f"the sink {kind} of {sink.table!r} cannot have generations",
                place=sink.place,
                why="a replay would write everything to it again, beside what the running pipeline writes",
                hint=f"--leave-out {kind} replays without it; a run writes the rows after the end of the replay to it",
            )
    if not sinks:
        what = f"pipeline {pipeline.name!r} has no sink that a replay could write to"
        raise InvalidReplay(what, place=pipeline.place, hint="kafka, files and cassandra can have generations")
    return sinks


def replayed_pipeline(pipeline: PipelineDef, number: int, leave_out: Collection[str]) -> PipelineDef:
    """Return the part of a pipeline that leads to the sinks of a generation."""
    sinks = sinks_of(pipeline, leave_out)
    needed = {name.lower() for sink in sinks for name in pipeline.upstream(sink.table)}
    sources = tuple(source for source in pipeline.sources if source.name.lower() in needed)
    _require_no_loop(sources, sinks)
    return pipeline_of(replace(pipeline, sources=sources, sinks=tuple(sinks), panels=()), number)


def _require_no_loop(sources: Collection[SourceDef], sinks: Collection[SinkDef]) -> None:
    """Raise InvalidReplay if the pipeline reads what it writes: the replay would read the output of the old code."""
    written = {resource for sink in sinks for resource in sink_of(sink).resources(sink.table)}
    for source in sources:
        if both := written.intersection(source_of(source).resources()):
            raise InvalidReplay(
                f"source {source.name!r} reads what the pipeline writes itself: {', '.join(sorted(both))}",
                place=source.place,
                why="a replay writes to another generation, but the source would still read what the old code wrote",
                hint="split it into two pipelines, and replay one after the other (current: true in the second)",
            )


def sink_target_name(sink: SinkDef) -> str:
    """Return the topic, folder or table of a sink that can have generations."""
    writer = sink_of(sink)
    return str(next((getattr(writer, name) for name in writer.in_generation(2) or {}), ""))


def streams_of(pipeline: PipelineDef) -> list[SourceDef]:
    """Return the streams of a pipeline; raise InvalidReplay if one cannot be read again."""
    streams = [source for source in pipeline.sources if not source.static]
    for source in streams:
        if why := source_of(source).not_replayed:
            what = f"source {source.name!r} ({source.connection.connector}) cannot be replayed"
            hint = "write it to a topic, and read it from there"
            raise InvalidReplay(what, place=source.place, why=why, hint=hint)
    return streams


def code_of(model: PipelineDef, *, as_written: bool = False) -> str:
    """Return a digest of a pipeline's code; with the option names `as_written`, as earlier versions recorded it."""
    snapshots = [snapshot_query(model, query, CONNECTORS) for query in make_plan(model, once=True).queries]
    if not as_written:
        snapshots = [with_current_options(snapshot) for snapshot in snapshots]
    return sha256(json.dumps(snapshots, sort_keys=True, default=str).encode()).hexdigest()[:16]


_EVERYTHING = ("earliest", "latest")


def covered(
    pipeline: PipelineDef, model: PipelineDef, asked: tuple[str, str], cluster: Callable[[], Cluster]
) -> tuple[TopicOffsets, TopicOffsets]:
    """Return the start and end offsets of a replay; of topics that only the whole pipeline reads, the end only."""
    first, last = _bounds(cluster, _partitions(streams_of(model), cluster), asked)
    read = {source.name for source in model.sources}
    others = kafka_sources(source for source in pipeline.sources if source.name not in read and not source.static)
    # Of what the replay does not read, a run of the generation does not start with the whole past.
    partitions = {key for reader in others for key in reader.places_now(cluster())} - last.keys()
    if partitions:
        last = last | end_offsets(cluster(), sorted(partitions), "latest", dict.fromkeys(partitions, 0))
    return _by_topic(first), _by_topic(last)


def kafka_sources(sources: Iterable[SourceDef]) -> list[KafkaSource]:
    """Return the readers of those sources that are topics."""
    return [reader for source in sources if isinstance(reader := source_of(source), KafkaSource)]


def _partitions(sources: Collection[SourceDef], cluster: Callable[[], Cluster]) -> list[tuple[str, int]]:
    """Return every partition of Kafka that is read."""
    partitions: dict[tuple[str, int], None] = {}
    for reader in kafka_sources(sources):
        for name in reader.topics_now(cluster()):
            topics.require(cluster().connect(), name)
        partitions |= dict.fromkeys(reader.places_now(cluster()))
    return list(partitions)


def _bounds(
    cluster: Callable[[], Cluster], partitions: list[tuple[str, int]], asked: tuple[str, str]
) -> tuple[Offsets, Offsets]:
    start, end = map(parse_bound, asked)
    if partitions:
        first = start_offsets(cluster(), partitions, start)
        last = end_offsets(cluster(), partitions, end, first)
        if asked != _EVERYTHING and all(last[key] <= first[key] for key in partitions):
            hint = "millrace kafka topics describe NAME shows the offsets; times are those of records"
            raise InvalidReplay(f"there is no record between {asked[0]} and {asked[1]}", hint=hint)
        return first, last
    if asked != _EVERYTHING:
        hint = "--from earliest, without --to"
        raise InvalidReplay("a replay without a topic among its sources reads all files", hint=hint)
    return {}, {}


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(number)] = offset
    return by_topic


def by_partition(offsets: TopicOffsets) -> dict[tuple[str, int], int]:
    """Return the offsets of topics by topic and partition."""
    return {(topic, int(number)): offset for topic, numbers in offsets.items() for number, offset in numbers.items()}
