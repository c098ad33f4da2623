"""The Kappa way: the retained log once more, through today's code, into a new generation of the outputs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from millrace.clients.kafka.offsets import parse_bound
from millrace.connectors.base.offset_range import Offsets, ReplayRange
from millrace.connectors.base.registry import in_generation, reader_of, system_of, writer_of
from millrace.connectors.kafka.source import KafkaSource
from millrace.engine.checkpoints.checkpoint import is_closed, reopen_last_batch, replayed_until, trim
from millrace.engine.checkpoints.query_history import checkpoint_of
from millrace.engine.checkpoints.state_dir import StateDir
from millrace.engine.queries.builder import follow_generations
from millrace.engine.replay import generations
from millrace.engine.replay.generations import Generation, Generations, Output, mark_of, pipeline_of, state_of
from millrace.engine.replay.progress import PartitionProgress, ReplayProgress
from millrace.engine.replay.selection import code_of, covered, replayed_pipeline, sink_target_name, sinks_of, streams_of
from millrace.engine.run import RunSettings, run
from millrace.errors import InvalidReplay, RunError
from millrace.pipeline.model import PipelineDef, SourceDef
from millrace.pipeline.plan import Plan, Query, make_plan
from millrace.telemetry.query_status import RunStatus

_MOST = 500_000
"""Records in a batch, where the source does not say: a batch is what is repeated, and what progress is told by."""


@dataclass(frozen=True)
class ReplayRequest:
    """What the user wants."""

    start: str
    end: str = "latest"
    leave_out: tuple[str, ...] = ()
    """Connectors whose sinks the replay does without."""
    anew: bool = False
    """Whether one that was not finished is left as it is."""


def require_possible(pipeline: PipelineDef, asked: ReplayRequest) -> None:
    """Raise when it is clear without asking Kafka that a replay cannot be."""
    parse_bound(asked.start)
    parse_bound(asked.end)
    streams_of(replayed_pipeline(pipeline, 2, asked.leave_out))


def begin(pipeline: PipelineDef, base: Path, asked: ReplayRequest, settings: RunSettings) -> Generation:
    """The generation that a replay goes on with, or a new one; what it covers is fixed from here on."""
    known = generations.load(base)
    open_one = known.waiting()
    if open_one is not None and not asked.anew:
        if (asked.start, asked.end) != open_one.asked:
            start, end = open_one.asked
            raise InvalidReplay(
                f"generation {open_one.number} is not finished, and was asked for otherwise",
                why=f"it goes from {start} to {end}",
                hint="--resume goes on with it; --new leaves it and begins another",
            )
        return resumed(pipeline, base)
    number = known.last + 1
    model = follow_generations(replayed_pipeline(pipeline, number, asked.leave_out), settings.context.cluster)
    first, last = covered(
        follow_generations(pipeline, settings.context.cluster),
        model,
        (asked.start, asked.end),
        settings.context.cluster,
    )
    made = Generation(
        number,
        (asked.start, asked.end),
        code_of(replayed_pipeline(pipeline, number, asked.leave_out)),
        first,
        last,
        tuple(_outputs(pipeline, number, asked.leave_out)),
        asked.leave_out,
        time.time(),
    )
    _require_free(model, settings)

    def add(now: Generations) -> Generations:
        if now.last >= number:
            raise InvalidReplay("another replay was begun at the same moment", hint="--list shows it")
        return now.with_one(made)

    generations.change(base, add)
    return made


def resumed(pipeline: PipelineDef, base: Path) -> Generation:
    """The generation that was not finished; raises when there is none, or when its code has changed since."""
    found = generations.load(base).waiting()
    if found is None:
        raise InvalidReplay("no replay waits to go on", hint="--from earliest begins one")
    if code_of(replayed_pipeline(pipeline, found.number, found.left_out)) != found.code:
        raise InvalidReplay(
            f"the pipeline has changed since generation {found.number} was begun",
            place=pipeline.place,
            why="one generation would have the rows of two codes",
            hint="--new begins another generation; or undo the change",
        )
    return found


def carry_out(
    pipeline: PipelineDef,
    base: Path,
    made: Generation,
    settings: RunSettings,
    run_status: RunStatus,
    stop: threading.Event,
    shown: Callable[[ReplayProgress], None] = lambda _: None,
) -> bool:
    """Run a replay until its end is reached or `stop` is set; tells whether it is finished."""
    model = follow_generations(replayed_pipeline(pipeline, made.number, made.left_out), settings.context.cluster)
    _require_same(streams_of(model), made, settings)
    plan = make_plan(model, once=True)
    folder = state_of(base, made.number)
    _go_on(model, plan, base, made, settings)
    _prepare(pipeline, model, made, generations.load(base).current, settings)
    distance = ReplayProgress({query.name: _way(model, query, made, folder, settings) for query in plan.queries})
    shown(distance)
    chosen = replace(
        settings,
        context=replace(
            settings.context,
            state=folder,
            offset_range=ReplayRange(made.begin, made.end, _MOST),
            topic_suffix=mark_of(made.number),
        ),
        on_batch=distance.take,
        start_listeners=False,
        is_done=distance.is_over,
        on_locked=lambda: _require_open(base, made),
    )
    todo = replace(plan, queries=tuple(query for query in plan.queries if not distance.is_empty(query.name)))
    if todo.queries:  # one that has nothing to read would read the rest of the log, and throw it away
        run(todo, chosen, run_status, stop)
    return _finish(model, plan, base, made, settings, ended=not stop.is_set())


def missing(made: Generation) -> list[tuple[str, int, int]]:
    """Where the beginning of the log was asked for and is gone: topic, partition, and the first offset that is left."""
    if made.asked[0] != "earliest":
        return []
    return [(topic, number, offset) for (topic, number), offset in _flat(made.begin).items() if offset > 0]


def _require_same(sources: Collection[SourceDef], made: Generation, settings: RunSettings) -> None:
    """Raise when other topics are read than when the replay was begun: its offsets mean nothing in them."""
    readers = [reader_of(source) for source in sources]
    read = {
        name for one in readers if isinstance(one, KafkaSource) for name in one.topics_now(settings.context.cluster())
    }
    lost = sorted(made.begin.keys() - read)
    if lost:
        raise InvalidReplay(
            f"generation {made.number} was begun with {', '.join(lost)}, which the pipeline does not read any more",
            why=f"it reads {', '.join(sorted(read)) or 'no topic'}: another generation of a source counts by now",
            hint="--new begins another generation",
        )


def _go_on(model: PipelineDef, plan: Plan, base: Path, made: Generation, settings: RunSettings) -> None:
    """Let a query that has read everything do its last batch again, if that has not closed its windows."""
    folder = state_of(base, made.number)
    with StateDir(folder, model):
        _require_open(base, made)
        for query in plan.queries:
            begin, end = _within(model, query, made, settings)
            at = replayed_until(checkpoint_of(folder, query.name), begin, end)
            if at and all(offset >= _at(end, place) for place, offset in at.items()):
                reopen_last_batch(checkpoint_of(folder, query.name))


def _finish(
    model: PipelineDef, plan: Plan, base: Path, made: Generation, settings: RunSettings, *, ended: bool
) -> bool:
    """Cut the checkpoints back to the end, if all queries have got there, and note it."""
    folder = state_of(base, made.number)
    with StateDir(folder, model):
        if _is_done(base, made):  # by another process, and a run may have gone on from there
            return True
        for query in plan.queries:
            begin, end = _within(model, query, made, settings)
            behind = [
                place
                for place, at in replayed_until(checkpoint_of(folder, query.name), begin, end).items()
                if at < _at(end, place)
            ]
            if behind and not ended:
                return False
            if behind:
                topic, number = behind[0]
                raise RunError(
                    f"query {query.name!r} ended before the end of {topic}[{number}] was reached",
                    hint="the same command goes on with it",
                )
            if not ended and not (_is_certain(model, query) and is_closed(checkpoint_of(folder, query.name))):
                return False  # nothing but the end of the query tells that files are done, and windows written
        for query in plan.queries:
            trim(checkpoint_of(folder, query.name), made.end)
        # Before the folder is anybody else's: who finds it not done would cut back what has gone on since.
        generations.change(base, lambda now: now.with_one(replace(made, done=time.time())))
    return True


def _is_done(base: Path, made: Generation) -> bool:
    """Whether its end was reached; asked while the folder is ours. Raises when it was deleted meanwhile."""
    found = generations.load(base).require(made.number)
    return found is not None and found.done is not None


def _require_open(base: Path, made: Generation) -> None:
    if _is_done(base, made):
        raise InvalidReplay(f"generation {made.number} is finished already", hint="--list shows it")


def _outputs(pipeline: PipelineDef, number: int, leave_out: Collection[str]) -> Iterator[Output]:
    for sink in sinks_of(pipeline, leave_out):
        moved = in_generation(sink.connection, number)
        if moved is not None:
            yield Output(
                sink.connection.connector, sink_target_name(sink), sink_target_name(replace(sink, connection=moved))
            )


def _require_free(model: PipelineDef, settings: RunSettings) -> None:
    for sink in model.sinks:
        if writer_of(sink).is_there(replace(settings.context, pipeline=model.name, name=sink.table)):
            raise InvalidReplay(
                f"{sink_target_name(sink)} is there already, and no replay of this state folder has made it",
                place=sink.place,
                hint="delete it, or use the --state that it belongs to",
            )


def _prepare(pipeline: PipelineDef, model: PipelineDef, made: Generation, current: int, settings: RunSettings) -> None:
    """Make the outputs as those are that count."""
    with_generations = replace(pipeline, sinks=tuple(sinks_of(pipeline, made.left_out)))
    counts = pipeline_of(with_generations, current)
    for plainly, old, new in zip(with_generations.sinks, counts.sinks, model.sinks, strict=True):
        site = replace(settings.context, pipeline=model.name, name=new.table)
        # What the file names may be deleted; what counts may not have it yet.
        like = old if writer_of(old).is_there(site) else plainly
        writer_of(new).prepare_like(writer_of(like), site)
        writer_of(new).prepare(site)  # a replay has batches, also where a run of the pipeline has none


def _within(model: PipelineDef, query: Query, made: Generation, settings: RunSettings) -> tuple[Offsets, Offsets]:
    """The part of the span that a query reads."""
    readers = [reader_of(source) for source in _streams(model, query)]
    read = {
        place for one in readers if isinstance(one, KafkaSource) for place in one.places_now(settings.context.cluster())
    }
    first, last = (
        {
            topic: {number: offset for number, offset in numbers.items() if (topic, int(number)) in read}
            for topic, numbers in bound.items()
        }
        for bound in (made.begin, made.end)
    )
    return first, last


def _way(model: PipelineDef, query: Query, made: Generation, folder: Path, settings: RunSettings) -> PartitionProgress:
    begin, end = _within(model, query, made, settings)
    read = {
        (topic, int(number)): at
        for (topic, number), at in replayed_until(checkpoint_of(folder, query.name), begin, end).items()
    }
    return PartitionProgress(_flat(begin), _flat(end), read, _is_certain(model, query))


def _is_certain(model: PipelineDef, query: Query) -> bool:
    """Whether offsets tell all that a query reads."""
    return all(system_of(source) == "kafka" for source in _streams(model, query))


def _streams(model: PipelineDef, query: Query) -> list[SourceDef]:
    found = [model.source(name) for name in model.upstream(query.table)]
    return [source for source in found if source and not source.static]


def _flat(offsets: Offsets) -> dict[tuple[str, int], int]:
    return {(topic, int(number)): at for topic, numbers in offsets.items() for number, at in numbers.items()}


def _at(offsets: Offsets, place: tuple[str, str]) -> int:
    return offsets[place[0]][place[1]]
