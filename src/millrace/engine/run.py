"""Run a plan from start to end.

- Lock the state folder, decide for each query whether it resumes, and open Spark meanwhile.
- Start the queries under supervision, with what a run has beside them: listening sources, offset commits, SQL.
- Stop between two batches, and release what the sinks hold open.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.clients.hadoop import HadoopStore
from millrace.connectors.base.api import MessageSource, RunContext
from millrace.connectors.base.registry import sink_of, source_of, system_of, uses_system
from millrace.connectors.kafka.commit_ledger import LEDGER
from millrace.connectors.memory import MEMORY
from millrace.engine.checkpoints.last_batch import (
    LAST_BATCH,
    emits_at_end,
    has_open_windows,
    has_watermark,
    is_last_batch_planned,
    plan_last_batch,
    require_separate_queries,
)
from millrace.engine.checkpoints.resume import LEFT_OUT, check_sinks, require_resumable, resume_decisions
from millrace.engine.checkpoints.run_lease import RunLease, RunLocks
from millrace.engine.checkpoints.state_dir import StateDir, nearby, require_fit, unused_checkpoints
from millrace.engine.failures.explain import explained
from millrace.engine.memory_sql import MemorySql, QueryServer
from millrace.engine.queries.builder import QueryBuilder, follow_generations, prepare
from millrace.engine.session.executors import ExecutorsStopped, RemoteExecutorSettings, require_reachable
from millrace.engine.session.spark_conf import ON_A_STORE, ON_DISK, conf_doubts, is_local, state_store
from millrace.engine.source_feeds import run_source_feeds
from millrace.engine.supervision.monitor import QueryMonitor
from millrace.engine.supervision.offset_commits import OffsetCommitter
from millrace.engine.supervision.restart_policy import Policy
from millrace.engine.supervision.supervisor import Supervisor
from millrace.object_stores import StorePath, mounted
from millrace.pipeline.model import PipelineDef
from millrace.pipeline.plan import Plan, Query, with_letters_of
from millrace.settings import STOP_TIMEOUT
from millrace.telemetry.channels import Channels
from millrace.telemetry.panel_registry import PanelRegistry
from millrace.telemetry.progress import BatchProgress
from millrace.telemetry.query_status import RunStatus
from millrace.units import format_count, format_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SILENT_STOP_S = 1.0
"""Seconds for which a stop takes place without a message."""


@dataclass(frozen=True)
class RunSettings:
    """How a run proceeds: what only the run itself needs besides its context."""

    context: RunContext
    """What all parts of the run share. A session that it has is used and left open; else the run opens one."""
    master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    duration_s: float | None = None
    head_start_s: float = 0.0
    """Seconds that the first query has for its first batch before the others start, so that something is seen soon."""
    channels: Channels | None = None
    """Where panels are shown; None where nobody would see them, and then nothing is computed for them."""
    on_session_open: Callable[[SparkSession], None] = lambda _: None
    on_session_close: Callable[[], None] = lambda: None
    restart_policy: Policy = field(default_factory=Policy)
    stop_timeout_s: float = STOP_TIMEOUT.default
    """Seconds that running batches have to end when the run is stopped."""
    on_batch: Callable[[BatchProgress], None] | None = None
    """Gets the progress of every batch instead of Kafka: nobody wants to see the lag of a replay."""
    is_done: Callable[[str], bool] = lambda _: False
    """Whether a query has read all that it should."""
    start_listeners: bool = True
    """Whether sources that others send to listen; a replay reads what has come."""
    ship_packages: bool = False
    """Whether executors on other machines get the packages of this Python."""
    memory_sql: MemorySql = field(default_factory=MemorySql)
    """Answers SQL over the memory tables, for `millrace query` and the dashboard."""
    flush: bool = False
    """Whether the queries write their last windows when they have read everything."""
    on_locked: Callable[[], None] = lambda: None
    """Called when the state folder is locked, before anything starts; may raise to prevent it."""


def run(plan: Plan, settings: RunSettings, run_status: RunStatus, stop: threading.Event) -> None:
    """Run until every query has ended, the time is over or `stop` is set; raise if a query is given up."""
    context = replace(settings.context, pipeline=plan.pipeline.name)
    settings = replace(settings, context=context)
    require_fit(plan, context.state)
    plan = replace(plan, pipeline=follow_generations(plan.pipeline, context.cluster))
    if settings.flush:
        require_separate_queries(plan)
    if uses_system(plan.pipeline, "kafka"):
        require_reachable(settings.spark_conf.get("spark.master", settings.master), context.cluster().bootstrap)
    with suppress(ExecutorsStopped):
        if context.session is None and isinstance(context.state, StorePath):
            # The state can only be read through Spark, which knows how to reach the store.
            with _session(plan, settings, stop) as opening, mounted(HadoopStore.of(spark := opening.result())):
                _run(plan, replace(settings, context=replace(context, session=spark)), run_status, stop)
        else:
            _run(plan, settings, run_status, stop)


def _run(plan: Plan, settings: RunSettings, run_status: RunStatus, stop: threading.Event) -> None:
    context = settings.context
    at_rest = partial(_at_rest, context.session)
    with StateDir(context.state, plan.pipeline, tell=context.notify, at_rest=at_rest) as state:
        settings.on_locked()
        context = replace(context, state=state.folder)
        plan = _resumable(plan, context, state, flush=settings.flush)
        context = replace(context, state_id=state.id)
        MEMORY.clear()
        with _session(plan, settings, stop, inherited_fds=(state.held,)) as opening:
            prepare(plan.pipeline, context)  # while the JVM starts
            panels = None if settings.channels is None else PanelRegistry(settings.channels)
            if panels:
                panels.expect(plan)
            feeds = run_source_feeds(plan, context.cluster, context.notify, stop)
            with _lease(plan, context, state) as lease, feeds if settings.start_listeners else nullcontext():
                locks = RunLocks(state, lease)
                context = replace(context, session=opening.result(), lock=locks)
                letter_sources = {source.name for query in plan.queries if (source := query.dead_letter_source)}
                builder = QueryBuilder(plan.pipeline, context, panels=panels, dead_letter_sources=letter_sources)
                settings.on_session_open(builder.spark)
                if settings.context.session is None:
                    start_workers(builder.spark, plan.pipeline)
                try:
                    for sentence in conf_doubts(builder.spark, settings.spark_conf):
                        context.notify(sentence)
                    if not stop.is_set():
                        with mounted(HadoopStore.of(builder.spark)):
                            _supervise(builder, plan, settings, locks, run_status, stop)
                finally:
                    settings.on_session_close()


def _resumable(plan: Plan, context: RunContext, state: StateDir, *, flush: bool) -> Plan:
    """Claim the state folder, and return the plan without the queries that are left out.

    Raise if a query cannot resume, as far as that is known without Spark.
    """
    cluster_id = context.cluster().connect().cluster_id if uses_system(plan.pipeline, "kafka") else None
    decisions = resume_decisions(plan, state.folder, cluster_id, context.accept, flush=flush)
    require_resumable([check_sinks(decision, context) for decision in decisions], state.folder, context.notify)
    for name in unused_checkpoints(state.folder, plan):
        context.notify(f"the checkpoint of query {name!r} is not used any more: no sink of the pipeline leads to it")
    left_out = {decision.query.name for decision in decisions if decision.verdict == LEFT_OUT}
    for name in sorted(left_out):
        context.notify(f"query {name!r} is left out: its last windows are written, and those of others are not yet")
    plan = replace(plan, queries=tuple(query for query in plan.queries if query.name not in left_out))
    state.claim(plan, cluster_id)
    return plan


def _at_rest(spark: SparkSession | None) -> bool:
    """Return whether no query is running any more; one whose batch could not be cut off may still be."""
    try:
        return spark is None or not spark.streams.active
    except Exception:  # its JVM is gone, and nobody knows what executors still do
        return False


def start_workers(spark: SparkSession, pipeline: PipelineDef) -> None:
    """Start the parent of the Python workers that decode, while Spark still plans: it takes a second or two.

    What fails here fails again where it counts.
    """
    sources = [source_of(source) for source in pipeline.sources]
    # What is only filtered in Python is run by another parent of workers.
    decoded = any(isinstance(source, MessageSource) and source.decoding == "arrow" for source in sources)
    if decoded and is_local(str(spark.sparkContext.master)):

        def run_worker() -> None:
            from millrace.engine.queries.decoding import unchanged

            with suppress(Exception):
                spark.range(1, numPartitions=1).mapInArrow(unchanged, "id long").collect()

        threading.Thread(target=run_worker, name="start-workers", daemon=True).start()


def _supervise(
    builder: QueryBuilder,
    plan: Plan,
    settings: RunSettings,
    locks: RunLocks,
    run_status: RunStatus,
    stop: threading.Event,
) -> None:
    context = builder.context
    with (
        explained(),
        QueryServer(settings.memory_sql, nearby(context.state, context.pipeline), context.notify),
        _offset_commits(plan, settings) as on_batch,
        QueryMonitor(
            builder.spark,
            run_status,
            dead_letter_counts=builder.dead_letter_counts,
            late_records=builder.late_records,
            panels=builder.panels,
            on_batch=on_batch,
            supervised=True,
        ) as monitor,
    ):
        context.notify(f"starting {format_count(len(plan.queries), 'query')}")
        supervisor = Supervisor(
            builder,
            run_status,
            monitor.track,
            settings.restart_policy,
            has_read_enough=settings.is_done,
            stop_timeout_s=settings.stop_timeout_s,
        )
        try:
            queries = _as_they_were_left(builder, plan) if settings.flush else plan.queries
            builder.prepare([query for query in queries if query.lasts])
            first = next((query for query in queries if query.sinks), queries[0])
            for query in queries:
                running = supervisor.start(query)
                if running is not None and query is first:
                    monitor.await_batch(running, settings.head_start_s, stop)
            began = time.monotonic()
            supervisor.wait(settings.duration_s, stop)
            if settings.flush:
                duration_s = settings.duration_s and max(0.0, settings.duration_s - (time.monotonic() - began))
                _flush(supervisor, queries, duration_s, stop)
        finally:
            timeout_s = settings.stop_timeout_s if all(query.batches for query in plan.queries) else 0.0
            _stop(supervisor, timeout_s, locks, context.notify)
        supervisor.require_no_failure()  # a batch may have failed while its end was waited for
        if settings.flush:
            _report_open_windows(builder, plan)


def _as_they_were_left(builder: QueryBuilder, plan: Plan) -> Sequence[Query]:
    """Return the queries with the rest that they have to do, where a run was ended in their last batch."""
    planned = {
        query.name
        for query in plan.queries
        if is_last_batch_planned(builder.checkpoint(query))
        and builder.resumes(query, [sink_of(sink) for sink in query.sinks])
    }
    queries = [replace(query, trigger=LAST_BATCH) if query.name in planned else query for query in plan.queries]
    return with_letters_of(queries, plan.pipeline, planned)


def _flush(supervisor: Supervisor, queries: Sequence[Query], duration_s: float | None, stop: threading.Event) -> None:
    """Let each query that has read everything write the windows that the watermark has not passed."""
    builder = supervisor.builder
    if stop.is_set() or supervisor.is_busy():
        return
    for query in queries:
        if stop.is_set():
            break
        if query.trigger == LAST_BATCH or not emits_at_end(builder.pipeline, query):
            continue
        builder.context.lock.check()  # what is planned now is in the checkpoint
        if not builder.rereads(query):
            what = f"the last windows of query {query.name!r} are not written: its source cannot be read again"
            builder.context.notify(what)
        elif plan_last_batch(builder.checkpoint(query), watermarked=has_watermark(builder.pipeline, query)):
            builder.context.notify(f"query {query.name!r} writes its last windows, and does not resume after that")
            supervisor.start_last_batch(replace(query, trigger=LAST_BATCH))
    supervisor.wait(duration_s, stop)


def _report_open_windows(builder: QueryBuilder, plan: Plan) -> None:
    """Name the queries whose last windows the run was ended before."""
    rereading = [query for query in plan.queries if builder.rereads(query)]
    left = [query for query in rereading if has_open_windows(plan.pipeline, query, builder.checkpoint(query))]
    if names := ", ".join(repr(query.name) for query in left):
        what = f"the last windows of {names} are not written"
        builder.context.notify(f"{what}: repeat the run with --until-caught-up --flush")


def _stop(supervisor: Supervisor, timeout_s: float, locks: RunLocks, notify: Callable[[str], None]) -> None:
    """Stop all queries; say what is waited for if that takes long."""
    bound = f" when the running batch has ended (at most {format_duration(timeout_s)}; a second Ctrl-C does not wait)"
    late = threading.Timer(_SILENT_STOP_S, notify, [f"stopping{bound if timeout_s else ''}"])
    late.daemon = True
    late.start()
    try:
        for name in supervisor.stop(timeout_s):
            notify(f"query {name!r} was stopped in the middle of a batch, which the next run repeats")
        supervisor.release(locks.is_name_held)
    finally:
        late.cancel()


@contextmanager
def _offset_commits(plan: Plan, settings: RunSettings) -> Iterator[Callable[[BatchProgress], None]]:
    """Give what takes the progress of each batch: it commits offsets to Kafka, unless the settings say otherwise."""
    if settings.on_batch is not None:
        yield settings.on_batch
        return
    if not any(system_of(source) == "kafka" for source in plan.pipeline.sources):
        yield lambda _: None
        return
    writing = [query.name for query in plan.queries if query.sinks]
    with OffsetCommitter(settings.context.cluster, plan.pipeline.name, writing) as committer:
        yield committer.on_batch


def _lease(plan: Plan, context: RunContext, state: StateDir) -> AbstractContextManager[RunLease | None]:
    """Hold the pipeline's name in Kafka, where two runs of it would write twice."""
    sinks = [sink_of(sink) for query in plan.queries if query.batches for sink in query.sinks]
    if not any(sink.needs_single_writer for sink in sinks):
        return nullcontext()
    return RunLease(context.cluster(), plan.pipeline.name, state.identity, LEDGER)


@contextmanager
def _session(
    plan: Plan, settings: RunSettings, stop: threading.Event, inherited_fds: Sequence[int] = ()
) -> Iterator[Future[SparkSession]]:
    """Open a session in the background, and stop it at the end; one that is given is left open."""
    from millrace.engine.session.session import open_in_background, open_session, submitted_conf

    context = settings.context
    if context.session is not None:
        given: Future[SparkSession] = Future()
        given.set_result(context.session)
        yield given
        return
    on_a_store = isinstance(context.state, StorePath)
    conf = {**submitted_conf(), **settings.spark_conf}
    preferred = (*state_store(plan, settings.master, conf), ON_A_STORE if on_a_store else ON_DISK)
    opened = partial(
        open_session,
        plan.pipeline.name,
        master=settings.master,
        settings=settings.spark_conf,
        preferred={choice.key: choice.value for choice in preferred},
        log=nearby(context.state, plan.pipeline.name) / "spark.log",
        realtime=any(not query.batches for query in plan.queries),  # each partition holds a slot for ever
        module_folder=Path(plan.pipeline.place.file).absolute().parent,
        inherited_fds=inherited_fds,  # if we are killed, nobody else writes there before the JVM has ended
        jar_sets=jar_sets(plan.pipeline, context.state),
        forks_workers=True,
        remote_executors=RemoteExecutorSettings(
            None if on_a_store else context.state, settings.ship_packages, context.notify, stop.is_set
        ),
    )
    with open_in_background(opened) as opening:
        yield opening


def jar_sets(pipeline: PipelineDef, state: Path) -> tuple[str, ...]:
    """Return the sets of jars that a pipeline needs besides Spark's connectors."""
    sources = [repr(source.connection) for source in pipeline.sources]
    sinks = [repr(sink.connection) for sink in pipeline.sinks]
    return ("s3",) if any("s3a://" in text for text in (str(state), *sources, *sinks)) else ()
