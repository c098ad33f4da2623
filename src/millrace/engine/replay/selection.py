"""What of a pipeline a replay runs: sources that can be read again, and sinks that can have generations."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from hashlib import sha256

from millrace.connectors.options import CONNECTORS, in_generation
from millrace.engine.generations import pipeline_of
from millrace.engine.structured import reader_of, writer_of
from millrace.errors import InvalidReplay
from millrace.pipeline.model import Pipeline, Sink, Source
from millrace.pipeline.plan import make_plan
from millrace.pipeline.ran import as_said


def sinks_of(pipeline: Pipeline, leave_out: Collection[str]) -> list[Sink]:
    """The sinks that a replay writes to; raises when one of the others was not left out on purpose."""
    found = []
    for sink in pipeline.sinks:
        kind = sink.connection.connector
        if in_generation(sink.connection, 2) is not None:
            found.append(sink)
        elif not writer_of(sink).passing and kind not in leave_out:
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


def written(pipeline: Pipeline, number: int, leave_out: Collection[str]) -> Pipeline:
    """The pipeline that a replay runs: only what leads to sinks of the generation."""
    sinks = sinks_of(pipeline, leave_out)
    needed = {name.lower() for sink in sinks for name in pipeline.upstream(sink.table)}
    sources = tuple(source for source in pipeline.sources if source.name.lower() in needed)
    _require_no_loop(sources, sinks)
    return pipeline_of(replace(pipeline, sources=sources, sinks=tuple(sinks), panels=()), number)


def _require_no_loop(sources: Collection[Source], sinks: Collection[Sink]) -> None:
    """Raise when what is written is read again: a generation would be made of the output of the old code."""
    places = {place for sink in sinks for place in writer_of(sink).touches(sink.table)}
    for source in sources:
        both = places.intersection(reader_of(source).touches())
        if both:
            raise InvalidReplay(
                f"source {source.name!r} reads what the pipeline writes itself: {', '.join(sorted(both))}",
                place=source.place,
                why="a replay writes to a generation of its own; the source would still read what the old code made",
                hint="make two pipelines of it, and replay one after the other (current: true in the second)",
            )


def named(sink: Sink) -> str:
    """The topic, folder or table of a sink that can have generations."""
    writer = writer_of(sink)
    return str(next((getattr(writer, name) for name in writer.in_generation(2) or {}), ""))


def streams_of(pipeline: Pipeline) -> list[Source]:
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


def code_of(model: Pipeline) -> str:
    """Tells a pipeline's code from any other."""
    plan = make_plan(model, once=True)
    said = [as_said(model, query, CONNECTORS) for query in plan.queries]
    return sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:16]
