"""A pipeline from its plan to its end: prepared, started, watched, stopped in order.

Python workers are woken while Spark still plans: their parent takes a second or two to start, on another core.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.clients.cassandra import Cassandra
from millrace.clients.hadoop import HadoopStore
from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.api import MessageSource, RunContext, no_cassandra
from millrace.connectors.base.offset_range import ReplayRange
from millrace.connectors.base.registry import reader_of, system_of, uses_system, writer_of
from millrace.connectors.kafka.commit_ledger import LEDGER
from millrace.connectors.memory import MEMORY
from millrace.engine.checkpoints.resume import check_sinks, require_resumable, resume_decisions
from millrace.engine.checkpoints.run_lease import RunLease
from millrace.engine.checkpoints.state_dir import StateDir, nearby, require_fit
from millrace.engine.failures.explain import explain
from millrace.engine.memory_sql import MemorySql, QueryServer
from millrace.engine.queries.builder import QueryBuilder, follow_generations, prepare
from millrace.engine.session.executors import ExecutorsStopped, RemoteExecutorSettings, require_reachable
from millrace.engine.session.spark_conf import ON_A_STORE, ON_DISK, conf_doubts, is_local, state_store
from millrace.engine.source_feeds import filled
from millrace.engine.supervision.monitor import QueryMonitor
from millrace.engine.supervision.offset_commits import OffsetCommitter
from millrace.engine.supervision.restart_policy import Policy
from millrace.engine.supervision.supervisor import Supervisor
from millrace.errors import MillraceError
from millrace.object_stores import StorePath, mounted
from millrace.pipeline.model import PipelineDef
from millrace.pipeline.plan import Plan
from millrace.settings import STOP_TIMEOUT
from millrace.telemetry.channels import Channels
from millrace.telemetry.panel_registry import PanelRegistry
from millrace.telemetry.progress import BatchProgress
from millrace.telemetry.query_status import RunStatus
from millrace.units import format_count, format_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def wake_workers(spark: SparkSession, pipeline: PipelineDef) -> None:
    """Begin to start what decodes the pipeline's messages; what fails here fails again where it counts."""
    readers = [reader_of(source) for source in pipeline.sources]
    # What is only sifted in Python goes another way, whose parent of workers is another one.
    decoded = any(isinstance(reader, MessageSource) and reader.decoding == "arrow" for reader in readers)
    if decoded and is_local(str(spark.sparkContext.master)):
        threading.Thread(target=_wake, args=(spark,), name="waking", daemon=True).start()


def _wake(spark: SparkSession) -> None:
    with suppress(Exception):
        spark.range(1, numPartitions=1).mapInArrow(_same, "id long").collect()


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


_SILENCE = 1.0


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
    supervision: Policy = field(default_factory=Policy)
    """How often and how soon a query that fails is started again."""
    patience: float = STOP_TIMEOUT.default
    """Seconds that the batches in hand have to end when the run is stopped."""
    session: SparkSession | None = None
    """A session to use and to leave open; None opens one for the run."""
    accept: Collection[str] = ()
    """Queries that go on with a state that was computed otherwise."""
    cassandra: Callable[[], Cassandra] = no_cassandra
    span: ReplayRange | None = None
    """The part of Kafka's topics to read, where the pipeline's file does not decide it."""
    mark: str = ""
    """What a replay adds to the names of topics for dead letters."""
    told: Callable[[BatchProgress], None] | None = None
    """Told of every batch, instead of Kafka: a replay is no reader whose lag somebody wants to see."""
    enough: Callable[[str], bool] = lambda _: False
    """Whether a query has read all that it shall."""
    listen: bool = True
    """Whether sources that others send to listen; a replay reads what has come."""
    packages: bool = False
    """Whether executors on other machines are sent the packages of this Python."""
    memory_sql: MemorySql = field(default_factory=MemorySql)
    """Who answers SQL over the memory tables, for `millrace query` and the dashboard."""
    holding: Callable[[], None] = lambda: None
    """Called when the state folder is ours, before anything is begun; raises when nothing shall be."""


def run(plan: Plan, settings: Settings, run_status: RunStatus, stop: threading.Event) -> None:
    """Run until every query has ended, the time is over or `stop` is set; one that is given up ends all and raises."""
    require_fit(plan, settings.state)
    plan = replace(plan, pipeline=follow_generations(plan.pipeline, settings.cluster))
    if uses_system(plan.pipeline, "kafka"):
        require_reachable(settings.spark.get("spark.master", settings.master), settings.cluster().bootstrap)
    with suppress(ExecutorsStopped):
        if settings.session is None and isinstance(settings.state, StorePath):
            # Nothing of the state can be read before Spark is there: it has the way to the store.
            with _session(plan, settings, stop) as opening, mounted(HadoopStore.of(spark := opening.result())):
                _run(plan, replace(settings, session=spark), run_status, stop)
        else:
            _run(plan, settings, run_status, stop)


def _run(plan: Plan, settings: Settings, run_status: RunStatus, stop: threading.Event) -> None:
    at_rest = partial(_at_rest, settings.session)
    with StateDir(settings.state, plan.pipeline, tell=settings.tell, at_rest=at_rest) as state:
        settings.holding()
        cluster_id = settings.cluster().connect().cluster_id if uses_system(plan.pipeline, "kafka") else None
        ground = _ground(plan, settings, state)
        found = [check_sinks(one, ground) for one in resume_decisions(plan, state.folder, cluster_id, settings.accept)]
        # What only Spark can tell is asked when a query starts; nobody waits for it to hear of the rest.
        require_resumable(found, state.folder, settings.tell)
        state.claim(plan, cluster_id)
        for name in state.unused(plan):
            settings.tell(f"the checkpoint of query {name!r} is not used any more: no sink of the pipeline leads to it")
        MEMORY.clear()
        with _session(plan, settings, stop, holds=(state.held,)) as opening:
            ground = replace(ground, state_id=state.id)
            prepare(plan.pipeline, ground)  # while the JVM starts
            gallery = None if settings.panels is None else PanelRegistry(settings.panels)
            if gallery:
                gallery.expect(plan)
            with _lease(plan, settings, state) as lease, _filled(plan, settings, stop):
                workshop = QueryBuilder(
                    plan.pipeline,
                    replace(ground, spark=opening.result()),
                    gallery=gallery,
                    require_held=state.require_held,
                    require_not_lost=state.require_not_lost,
                    require_alone=lease.require if lease else lambda: None,
                    still_alone=partial(_require_alone, state, lease),
                    holds_name=partial(_holds_name, state, lease),
                    tell=settings.tell,
                    accept=settings.accept,
                    undertaken={query.undertakes.name for query in plan.queries if query.undertakes},
                )
                settings.opened(workshop.spark)
                if settings.session is None:
                    wake_workers(workshop.spark, plan.pipeline)
                try:
                    for sentence in conf_doubts(workshop.spark, settings.spark):
                        settings.tell(sentence)
                    if not stop.is_set():
                        with mounted(HadoopStore.of(workshop.spark)):
                            _work(workshop, plan, settings, run_status, stop)
                finally:
                    settings.closing()


def _at_rest(spark: SparkSession | None) -> bool:
    """Whether no query is at work any more; one whose batch could not be cut off may still be."""
    try:
        return spark is None or not spark.streams.active
    except Exception:  # its JVM is gone, and nobody knows what executors still do
        return False


def _require_alone(state: StateDir, lease: RunLease | None) -> None:
    state.require_held()
    if lease:
        lease.require_held()


def _holds_name(state: StateDir, lease: RunLease | None) -> bool:
    try:
        state.require_not_lost()
    except MillraceError:
        return False
    return lease is not None and lease.holds()


def _ground(plan: Plan, settings: Settings, state: StateDir) -> RunContext:
    """What connectors may know before Spark is there."""
    return RunContext(
        None,
        plan.pipeline.name,
        "",
        state.folder,
        settings.cluster,
        create_topics=settings.create_topics,
        print=settings.print,
        cassandra=settings.cassandra,
        offset_range=settings.span,
        topic_suffix=settings.mark,
        checks_ownership_per_batch=isinstance(state.folder, StorePath),
    )


def _work(workshop: QueryBuilder, plan: Plan, settings: Settings, run_status: RunStatus, stop: threading.Event) -> None:
    try:
        with (
            QueryServer(settings.memory_sql, nearby(settings.state, plan.pipeline.name), settings.tell),
            _positions(plan, settings) as told,
            QueryMonitor(
                workshop.spark,
                run_status,
                dead_letter_counts=workshop.dead,
                panels=workshop.gallery,
                on_batch=told,
                supervised=True,
            ) as watch,
        ):
            settings.tell(f"starting {format_count(len(plan.queries), 'query')}")
            queries = Supervisor(
                workshop,
                run_status,
                watch.track,
                settings.supervision,
                has_read_enough=settings.enough,
                stop_timeout_s=settings.patience,
            )
            _queries(queries, plan, settings, watch, stop)
    except MillraceError:
        raise
    except Exception as error:
        raise explain(error) from error


@contextmanager
def _positions(plan: Plan, settings: Settings) -> Iterator[Callable[[BatchProgress], None]]:
    """Who tells Kafka how far the queries have read."""
    if settings.told is not None:
        yield settings.told
        return
    if not any(system_of(source) == "kafka" for source in plan.pipeline.sources):
        yield lambda _: None
        return
    writing = [query.name for query in plan.queries if query.sinks]
    with OffsetCommitter(settings.cluster, plan.pipeline.name, writing) as positions:
        yield positions.on_batch


@contextmanager
def _filled(plan: Plan, settings: Settings, stop: threading.Event) -> Iterator[None]:
    """A time in which the sources that others send to listen."""
    with filled(plan, settings.cluster, settings.tell, stop) if settings.listen else nullcontext():
        yield


@contextmanager
def _lease(plan: Plan, settings: Settings, state: StateDir) -> Iterator[RunLease | None]:
    """A hold on the pipeline's name in Kafka, where two runs of it would write twice."""
    writers = [writer_of(sink) for query in plan.queries if query.batches for sink in query.sinks]
    if not any(writer.needs_single_writer for writer in writers):
        yield None
        return
    with RunLease(settings.cluster(), plan.pipeline.name, state.identity, LEDGER) as lease:
        yield lease


def _queries(queries: Supervisor, plan: Plan, settings: Settings, watch: QueryMonitor, stop: threading.Event) -> None:
    try:
        first = next((query for query in plan.queries if query.sinks), plan.queries[0])
        for query in plan.queries:
            running = queries.start(query)
            if running is not None and query is first:
                watch.await_batch(running, settings.head_start, stop)
        queries.wait(settings.seconds, stop)
    finally:
        _stop(queries, settings.patience if all(query.batches for query in plan.queries) else 0.0, settings.tell)
    queries.require_no_failure()  # a batch may have failed while its end was waited for


def _stop(queries: Supervisor, patience: float, tell: Callable[[str], None]) -> None:
    """Stop all; nobody waits for long without being told for what."""
    bound = f" when the batch in hand has ended (at most {format_duration(patience)}; a second Ctrl-C does not wait)"
    late = threading.Timer(_SILENCE, tell, [f"stopping{bound if patience else ''}"])
    late.daemon = True
    late.start()
    try:
        for name in queries.stop(patience):
            tell(f"query {name!r} was stopped in the middle of a batch, which the next run begins anew")
        queries.release()
    finally:
        late.cancel()


@contextmanager
def _session(
    plan: Plan, settings: Settings, stop: threading.Event, holds: Sequence[int] = ()
) -> Iterator[Future[SparkSession]]:
    """A session that is opened in the background; stopped at the end, however it comes."""
    from millrace.engine.session.session import open_in_background, open_session, submitted_conf

    if settings.session is not None:
        given: Future[SparkSession] = Future()
        given.set_result(settings.session)
        yield given
        return
    on_a_store = isinstance(settings.state, StorePath)
    told = {**submitted_conf(), **settings.spark}
    preferred = (*state_store(plan, settings.master, told), ON_A_STORE if on_a_store else ON_DISK)
    opened = partial(
        open_session,
        plan.pipeline.name,
        master=settings.master,
        settings=settings.spark,
        preferred={choice.key: choice.value for choice in preferred},
        log=nearby(settings.state, plan.pipeline.name) / "spark.log",
        realtime=any(not query.batches for query in plan.queries),  # each partition holds a slot for ever
        module_folder=Path(plan.pipeline.place.file).absolute().parent,
        inherited_fds=holds,  # if we are killed, nobody else writes there before the JVM has ended
        jar_sets=jar_sets(plan.pipeline, settings.state),
        remote_executors=RemoteExecutorSettings(
            None if on_a_store else settings.state, settings.packages, settings.tell, stop.is_set
        ),
    )
    with open_in_background(opened) as opening:
        yield opening


def jar_sets(pipeline: PipelineDef, state: Path) -> tuple[str, ...]:
    """The sets of jars that a pipeline needs besides Spark's connectors."""
    connections = [*(one.connection for one in pipeline.sources), *(one.connection for one in pipeline.sinks)]
    named = [str(state), *map(repr, connections)]
    return ("s3",) if any("s3a://" in text for text in named) else ()
