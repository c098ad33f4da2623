"""A pipeline from its plan to its end: prepared, started, watched, stopped in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING

from millrace.clients.cassandra import Cassandra
from millrace.clients.cluster import Cluster
from millrace.connectors.memory import MEMORY
from millrace.connectors.stream import Site, no_cassandra
from millrace.engine.answering import Answering
from millrace.engine.failures import explain
from millrace.engine.running import Running
from millrace.engine.state import State
from millrace.engine.structured import Workshop, prepare
from millrace.engine.tuning import ROCKSDB
from millrace.engine.waking import wake_workers
from millrace.engine.watch import Watch
from millrace.errors import MillraceError
from millrace.pipeline.plan import Plan
from millrace.telemetry.board import Board
from millrace.telemetry.channels import Channels
from millrace.telemetry.gallery import Gallery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    head_start: float = 0.0
    """Seconds that the first query has for its first batch before the others start, so that something is seen soon."""
    panels: Channels | None = None
    """Where panels are shown; None when nobody would see them, and then nothing is computed for them."""
    opened: Callable[[SparkSession], None] = lambda _: None
    """Told the session when it is there."""
    closing: Callable[[], None] = lambda: None
    """Called before the session is stopped."""
    session: SparkSession | None = None
    """A session to use and to leave open; None opens one for the run."""
    cassandra: Callable[[], Cassandra] = no_cassandra


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
                cassandra=settings.cassandra,
            )
            prepare(plan.pipeline, ground)
            gallery = None if settings.panels is None else Gallery(settings.panels)
            if gallery:
                gallery.expect(plan)
            workshop = Workshop(plan.pipeline, replace(ground, spark=opening.result()), gallery=gallery)
            settings.opened(workshop.spark)
            if settings.session is None:
                wake_workers(workshop.spark, plan.pipeline)
            try:
                if not stop.is_set():
                    _work(workshop, plan, settings, board, stop)
            finally:
                settings.closing()


def _work(workshop: Workshop, plan: Plan, settings: Settings, board: Board, stop: threading.Event) -> None:
    try:
        with (
            Answering(workshop.spark, workshop.ground.state),
            Watch(workshop.spark, board, dead=workshop.dead, gallery=workshop.gallery) as watch,
        ):
            settings.tell(f"starting {len(plan.queries)} quer{'y' if len(plan.queries) == 1 else 'ies'}")
            _queries(workshop, plan, settings, watch, stop)
    except MillraceError:
        raise
    except Exception as error:
        raise explain(error) from error


def _queries(workshop: Workshop, plan: Plan, settings: Settings, watch: Watch, stop: threading.Event) -> None:
    queries = Running(workshop)
    try:
        for query in plan.queries:
            running = queries.start(query)
            if running is not None:
                watch.follow(running)
                if query is plan.queries[0]:
                    watch.await_batch(running, settings.head_start, stop)
        queries.stay(settings.seconds, stop)
    finally:
        queries.stop(between_batches=all(query.batches for query in plan.queries))
    queries.require_sound()  # a batch may have failed while its end was waited for


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
            realtime=any(not query.batches for query in plan.queries),  # each partition holds a slot for ever
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
