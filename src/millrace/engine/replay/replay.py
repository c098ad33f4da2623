"""Replays the retained log through the current code into a new generation of the outputs (Kappa architecture).

- `begin_replay` creates the generation and fixes the offsets that it covers; `unfinished_generation` resumes one.
- `run_replay` runs the pipeline up to the end offsets.
- `truncated_partitions` lists partitions whose oldest records are gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from millrace.clients.kafka.offsets import parse_bound
from millrace.connectors.base.offset_range import Offsets, ReplayRange
from millrace.connectors.base.registry import in_generation, sink_of, system_of
from millrace.engine.checkpoints.checkpoint import is_closed, reopen_last_batch, replayed_until, trim
from millrace.engine.checkpoints.query_history import checkpoint_of
from millrace.engine.checkpoints.state_dir import StateDir
from millrace.engine.queries.builder import follow_generations
from millrace.engine.replay import generations, selection
from millrace.engine.replay.generations import Generation, Generations, Output, mark_of, pipeline_of, state_of
from millrace.engine.replay.progress import PartitionProgress, ReplayProgress
from millrace.engine.replay.selection import by_partition, replayed_pipeline, sink_target_name, sinks_of
from millrace.engine.run import RunSettings, run
from millrace.errors import InvalidReplay, RunError
from millrace.pipeline.model import PipelineDef, SourceDef
from millrace.pipeline.plan import Plan, Query, make_plan
from millrace.telemetry.query_status import RunStatus

_MAX_BATCH_RECORDS = 500_000
"""Where the source does not say: an interrupted batch is repeated, and progress is reported by batches."""


@dataclass(frozen=True)
class ReplayRequest:
    """What the user asks for."""

    start: str
    end: str = "latest"
    leave_out: tuple[str, ...] = ()
    """Connectors whose sinks are not part of the replay."""
    new: bool = False
    """Whether a new generation is written even if another one is unfinished."""


def require_possible(pipeline: PipelineDef, asked: ReplayRequest) -> None:
    """Raise InvalidReplay if a replay is impossible, as far as that is known without Kafka."""
    parse_bound(asked.start)
    parse_bound(asked.end)
    selection.streams_of(replayed_pipeline(pipeline, 2, asked.leave_out))


def begin_replay(pipeline: PipelineDef, base: Path, asked: ReplayRequest, settings: RunSettings) -> Generation:
    """Return the unfinished generation, or a new one whose offsets are fixed from now on."""
    stored = generations.load(base)
    unfinished = stored.unfinished()
    if unfinished is not None and not asked.new:
        if (asked.start, asked.end) != unfinished.asked:
            raise InvalidReplay(
                f"generation {unfinished.number} is not finished, and has another range",
                why=f"it goes from {' to '.join(unfinished.asked)}",
                hint="--resume resumes it; --new leaves it and starts another",
            )
        return unfinished_generation(pipeline, base)
    number, span, cluster = stored.last + 1, (asked.start, asked.end), settings.context.cluster
    replayed = replayed_pipeline(pipeline, number, asked.leave_out)
    model = follow_generations(replayed, cluster)
    first, last = selection.covered(follow_generations(pipeline, cluster), model, span, cluster)
    code, outputs = selection.code_of(replayed), tuple(_outputs(pipeline, number, asked.leave_out))
    generation = Generation(number, span, code, first, last, outputs, asked.leave_out, time.time())
    _require_free(model, settings)

    def add(now: Generations) -> Generations:
        if now.last >= number:
            raise InvalidReplay("another replay was started at the same time", hint="--list shows it")
        return now.with_generation(generation)

    generations.change(base, add)
    return generation


def unfinished_generation(pipeline: PipelineDef, base: Path) -> Generation:
    """Return the unfinished generation; raise InvalidReplay if there is none, or if the code has changed since."""
    generation = generations.load(base).unfinished()
    if generation is None:
        raise InvalidReplay("there is no unfinished replay", hint="--from earliest starts one")
    replayed = replayed_pipeline(pipeline, generation.number, generation.left_out)
    if generation.code not in (selection.code_of(replayed), selection.code_of(replayed, as_written=True)):
        raise InvalidReplay(
            f"the pipeline has changed since the start of generation {generation.number}",
            place=pipeline.place,
            why="one generation would have rows of two versions of the code",
            hint="--new starts another generation; or undo the change",
        )
    return generation


def run_replay(
    pipeline: PipelineDef,
    base: Path,
    generation: Generation,
    settings: RunSettings,
    run_status: RunStatus,
    stop: threading.Event,
    on_progress: Callable[[ReplayProgress], None] = lambda _: None,
) -> bool:
    """Run a replay up to its end or until `stop` is set; return whether it is finished.

    `on_progress` gets the progress, which is updated during the run.
    """
    replayed = replayed_pipeline(pipeline, generation.number, generation.left_out)
    model = follow_generations(replayed, settings.context.cluster)
    _require_same_topics(selection.streams_of(model), generation, settings)
    plan = make_plan(model, once=True)
    folder = state_of(base, generation.number)
    _reopen_finished_queries(model, plan, base, generation, settings)
    _prepare(pipeline, model, generation, generations.load(base).current, settings)
    progress = ReplayProgress(
        {query.name: _query_progress(model, query, generation, folder, settings) for query in plan.queries}
    )
    on_progress(progress)
    span = ReplayRange(generation.begin, generation.end, _MAX_BATCH_RECORDS)
    suffix = mark_of(generation.number)
    chosen = replace(
        settings,
        context=replace(settings.context, state=folder, offset_range=span, topic_suffix=suffix),
        on_batch=progress.on_batch,
        start_listeners=False,
        is_done=progress.is_finished,
        on_locked=lambda: _require_unfinished(base, generation),
    )
    remaining = replace(plan, queries=tuple(query for query in plan.queries if not progress.is_empty(query.name)))
    if remaining.queries:  # a query with nothing to read would read the rest of the log, and discard it
        run(remaining, chosen, run_status, stop)
    return _finish(model, plan, base, generation, settings, ended=not stop.is_set())


def truncated_partitions(generation: Generation) -> list[tuple[str, int, int]]:
    """Return the partitions that were to be read from their start and have lost it, with their first offset."""
    if generation.asked[0] != "earliest":
        return []
    return [(topic, number, offset) for (topic, number), offset in by_partition(generation.begin).items() if offset > 0]


def _require_same_topics(sources: Collection[SourceDef], generation: Generation, settings: RunSettings) -> None:
    """Raise InvalidReplay if other topics are read than at the start of the replay, to which its offsets belong."""
    read = {
        topic for reader in selection.kafka_sources(sources) for topic in reader.topics_now(settings.context.cluster())
    }
    lost = sorted(generation.begin.keys() - read)
    if lost:
        raise InvalidReplay(
            f"generation {generation.number} was started with {', '.join(lost)}, which the pipeline no longer reads",
            why=f"it reads {', '.join(sorted(read)) or 'no topic'}: the current generation of a source has changed",
            hint="--new starts another generation",
        )


def _reopen_finished_queries(
    model: PipelineDef, plan: Plan, base: Path, generation: Generation, settings: RunSettings
) -> None:
    """Let each query that has read everything repeat its last batch, if that has not closed its windows."""
    folder = state_of(base, generation.number)
    with StateDir(folder, model):
        _require_unfinished(base, generation)
        for query in plan.queries:
            begin, end = _query_offsets(model, query, generation, settings)
            offsets = replayed_until(checkpoint_of(folder, query.name), begin, end)
            if offsets and not _behind(offsets, end):
                reopen_last_batch(checkpoint_of(folder, query.name))


def _finish(
    model: PipelineDef, plan: Plan, base: Path, generation: Generation, settings: RunSettings, *, ended: bool
) -> bool:
    """If all queries have reached the end, trim their checkpoints to it and record that; return whether they have."""
    folder = state_of(base, generation.number)
    with StateDir(folder, model):
        if _is_finished(base, generation):  # by another process, and a run may have continued from there
            return True
        for query in plan.queries:
            begin, end = _query_offsets(model, query, generation, settings)
            offsets = replayed_until(checkpoint_of(folder, query.name), begin, end)
            behind = _behind(offsets, end)
            if behind and not ended:
                return False
            if behind:
                what = "query {!r} ended before the end of {}[{}]".format(query.name, *behind[0])
                raise RunError(what, hint="the same command resumes it")
            if not ended and not (_reads_only_kafka(model, query) and is_closed(checkpoint_of(folder, query.name))):
                return False  # only the end of the query shows that files were read, and windows written
        for query in plan.queries:
            trim(checkpoint_of(folder, query.name), generation.end)
        # While the folder is locked: a process that finds it unfinished would trim what a run has added since.
        generations.change(base, lambda now: now.with_generation(replace(generation, done=time.time())))
    return True


def _behind(offsets: Mapping[tuple[str, str], int], end: Offsets) -> list[tuple[str, str]]:
    """Return the partitions that were not read up to the end."""
    return [(topic, number) for (topic, number), offset in offsets.items() if offset < end[topic][number]]


def _is_finished(base: Path, generation: Generation) -> bool:
    """Return whether a generation is finished, while its folder is locked; raise InvalidReplay if it was deleted."""
    stored = generations.load(base).require(generation.number)
    return stored is not None and stored.done is not None


def _require_unfinished(base: Path, generation: Generation) -> None:
    if _is_finished(base, generation):
        raise InvalidReplay(f"generation {generation.number} is already finished", hint="--list shows it")


def _outputs(pipeline: PipelineDef, number: int, leave_out: Collection[str]) -> Iterator[Output]:
    for sink in sinks_of(pipeline, leave_out):
        if (moved := in_generation(sink.connection, number)) is not None:
            own = sink_target_name(replace(sink, connection=moved))
            yield Output(sink.connection.connector, sink_target_name(sink), own)


def _require_free(model: PipelineDef, settings: RunSettings) -> None:
    for sink in model.sinks:
        if sink_of(sink).is_there(replace(settings.context, pipeline=model.name, name=sink.table)):
            what = f"{sink_target_name(sink)} exists, and was not created by a replay of this state folder"
            raise InvalidReplay(what, place=sink.place, hint="delete it, or use the --state that it belongs to")


def _prepare(
    pipeline: PipelineDef, model: PipelineDef, generation: Generation, current: int, settings: RunSettings
) -> None:
    """Create the outputs with the properties of the current ones."""
    with_generations = replace(pipeline, sinks=tuple(sinks_of(pipeline, generation.left_out)))
    current_sinks = pipeline_of(with_generations, current).sinks
    for first, old, new in zip(with_generations.sinks, current_sinks, model.sinks, strict=True):
        context = replace(settings.context, pipeline=model.name, name=new.table)
        # The output of the first generation may be deleted; the current generation may not have this sink yet.
        like = old if sink_of(old).is_there(context) else first
        sink_of(new).prepare_like(sink_of(like), context)
        sink_of(new).prepare(context)  # a replay has batches, even if the trigger of the pipeline has none


def _query_offsets(
    model: PipelineDef, query: Query, generation: Generation, settings: RunSettings
) -> tuple[Offsets, Offsets]:
    """Return the start and end offsets of the partitions that a query reads."""
    readers = selection.kafka_sources(_streams(model, query))
    read = {partition for reader in readers for partition in reader.places_now(settings.context.cluster())}
    first, last = (
        {
            topic: {number: offset for number, offset in numbers.items() if (topic, int(number)) in read}
            for topic, numbers in bound.items()
        }
        for bound in (generation.begin, generation.end)
    )
    return first, last


def _query_progress(
    model: PipelineDef, query: Query, generation: Generation, folder: Path, settings: RunSettings
) -> PartitionProgress:
    begin, end = _query_offsets(model, query, generation, settings)
    offsets = replayed_until(checkpoint_of(folder, query.name), begin, end)
    read = {(topic, int(number)): offset for (topic, number), offset in offsets.items()}
    return PartitionProgress(by_partition(begin), by_partition(end), read, _reads_only_kafka(model, query))


def _reads_only_kafka(model: PipelineDef, query: Query) -> bool:
    """Return whether offsets cover everything that a query reads."""
    return all(system_of(source) == "kafka" for source in _streams(model, query))


def _streams(model: PipelineDef, query: Query) -> list[SourceDef]:
    return [source for source in model.upstream_sources(query.table) if not source.static]
