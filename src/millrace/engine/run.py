"""A pipeline from its plan to its end: prepared, started, watched, stopped in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING

from millrace.clients.cluster import Cluster
from millrace.connectors.memory import MEMORY
from millrace.connectors.stream import Site
from millrace.engine.answering import Answering
from millrace.engine.failures import explain
from millrace.engine.state import State
from millrace.engine.stopping import PATIENCE, stop_all
from millrace.engine.structured import Workshop, prepare
from millrace.engine.tuning import ROCKSDB
from millrace.engine.watch import Watch
from millrace.errors import MillraceError
from millrace.pipeline.plan import Plan
from millrace.telemetry.board import Board

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK = 0.1


@dataclass(frozen=True)
class Settings:
    """What the user chose for a run."""

    state: Path
    cluster: Callable[[], Cluster]
    master: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    """End after so long."""
    create_topics: bool = True
    print: Callable[[str], None] = print
    tell: Callable[[str], None] = lambda _: None
    session: SparkSession | None = None
    """A session to use and to leave open; None opens one for the run."""


def run(plan: Plan, settings: Settings, board: Board, stop: threading.Event) -> None:
    """Run until every query has ended, the time is over or `stop` is set; a query that fails ends all and raises."""
    with State(settings.state, plan.pipeline) as state:
        state.claim(plan, settings.cluster().connect().cluster_id if plan.pipeline.uses("kafka") else None)
        for name in state.unused(plan):
            settings.tell(f"the checkpoint of query {name!r} is not used any more: no sink of the pipeline leads to it")
        MEMORY.clear()
        with _session(plan, settings, state) as opening:
            ground = Site(
                None,  # the JVM starts while topics and folders are made
                plan.pipeline.name,
                "",
                state.folder,
                settings.cluster,
                state.id,
                create_topics=settings.create_topics,
                print=settings.print,
            )
            prepare(plan.pipeline, ground)
            workshop = Workshop(plan.pipeline, replace(ground, spark=opening.result()))
            if not stop.is_set():
                _work(workshop, plan, settings, board, stop)


def _work(workshop: Workshop, plan: Plan, settings: Settings, board: Board, stop: threading.Event) -> None:
    try:
        with (
            Answering(workshop.spark, workshop.ground.state),
            Watch(workshop.spark, board, dead=workshop.dead) as watch,
        ):
            settings.tell(f"starting {len(plan.queries)} quer{'y' if len(plan.queries) == 1 else 'ies'}")
            _queries(workshop, plan, settings, watch, stop)
    except MillraceError:
        raise
    except Exception as error:
        raise explain(error) from error


def _queries(workshop: Workshop, plan: Plan, settings: Settings, watch: Watch, stop: threading.Event) -> None:
    started: list[StreamingQuery] = []
    try:
        for query in plan.queries:
            started.append(workshop.start(query))
            watch.follow(started[-1])
        _stay(started, settings, stop)
    finally:
        patience = PATIENCE if all(query.batches for query in plan.queries) else 0.0
        stop_all(started, patience)
    _require_sound(started, settings)  # a batch may have failed while its end was waited for


def _stay(started: list[StreamingQuery], settings: Settings, stop: threading.Event) -> None:
    deadline = None if settings.seconds is None else time.monotonic() + settings.seconds
    while not stop.wait(_LOOK):
        active = any(running.isActive for running in started)
        _require_sound(started, settings)
        if not active or (deadline is not None and time.monotonic() >= deadline):
            return


def _require_sound(started: list[StreamingQuery], settings: Settings) -> None:
    for running in started:
        failure = None if running.isActive else running.exception()
        if failure is not None:
            raise _failure(failure, running, settings) from failure


def _failure(failure: Exception, running: StreamingQuery, settings: Settings) -> MillraceError:
    try:
        cluster = settings.cluster()
    except MillraceError:
        cluster = None
    error = explain(failure, cluster=cluster)
    error.message = f"query {running.name!r} failed: {error.message}"
    return error


@contextmanager
def _session(plan: Plan, settings: Settings, state: State) -> Iterator[Future[SparkSession]]:
    """A session that is opened in the background; stopped at the end, however it comes."""
    from millrace.engine.session import close_session, open_session

    if settings.session is not None:
        given: Future[SparkSession] = Future()
        given.set_result(settings.session)
        yield given
        return
    with ThreadPoolExecutor(1, "session") as pool:
        opening = pool.submit(
            open_session,
            plan.pipeline.name,
            master=settings.master,
            settings={**_state_store(plan), **settings.spark},
            log=state.folder / "spark.log",
            realtime=any(query.trigger.kind == "realtime" for query in plan.queries),
            beside=Path(plan.pipeline.place.file).absolute().parent,
            holds=(state.held,),  # if we are killed, nobody else writes there before the JVM has ended
        )
        try:
            yield opening
        finally:
            if opening.exception() is None:
                close_session(opening.result())


def _state_store(plan: Plan) -> dict[str, str]:
    """RocksDB where a table keeps arbitrary state, which Spark keeps nowhere else."""
    used = {name for table in plan.pipeline.tables if table.function for name in _names_in(table.function.__code__)}
    return {ROCKSDB.key: ROCKSDB.value} if any(name.startswith("transformWithState") for name in used) else {}


def _names_in(code: CodeType) -> Iterator[str]:
    """Every name that a function's code uses, and those of functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
