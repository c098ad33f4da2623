"""The dashboard of a run: samplers that fill channels, answers to requests, the server.

- `RunPage` lives from before Spark starts until the run has ended.
- `page_of_pipeline` and `page_of_program` make one for the two things that run: a pipeline, and a PySpark program.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.registry import patterns_read, topics_read, uses_system
from millrace.dashboard.kafka import dead_letters, tail
from millrace.dashboard.kafka.dead_letters import DashboardRedrive
from millrace.dashboard.kafka.lag import LAG_EVERY, LagMeter
from millrace.dashboard.kafka.tail import RECORD_COLUMNS, some_records
from millrace.dashboard.kafka.topics import TOPICS_EVERY, Topics, VisibleTopics
from millrace.dashboard.live import TICK
from millrace.dashboard.pipeline_info import masked, pipeline_info, program_info
from millrace.dashboard.run_interface import LetterGroup, RunInterface, Work
from millrace.dashboard.server import Dashboard, ServerOptions
from millrace.dead_letters.store import dead_folders
from millrace.engine.memory_sql import MemorySql
from millrace.engine.replay.generations import FIRST, listed
from millrace.engine.supervision.consumer_lag import consumer_lag
from millrace.errors import MillraceError, NoCluster, NotReady, StateMismatch
from millrace.pipeline.plan import Plan
from millrace.telemetry import publisher
from millrace.telemetry.channels import Channels
from millrace.telemetry.measurements import PROCESS_INTERVAL_S, Measurements, ProcessMeter, Sampler
from millrace.telemetry.metrics import health
from millrace.telemetry.publisher import PUBLISH_INTERVAL_S
from millrace.telemetry.query_status import RunStatus
from millrace.telemetry.topology import UNPLANNED, Topology, topology_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FindCluster = Callable[[], Cluster]


@dataclass(frozen=True)
class RunInfo:
    """What is known of a run before it begins."""

    describe: Callable[[], Mapping[str, Any]]
    """The pipeline, as `/api/pipeline` returns it."""
    topology: Topology = UNPLANNED
    pipeline: str | None = None
    """Its name, if it is a pipeline."""
    state: Path | None = None
    """The folder of the run."""
    dead_letter_queries: Mapping[str, str] = field(default_factory=dict)
    """The query that writes the dead letters of each source."""
    uses_kafka: bool = True
    patterns: tuple[str, ...] = ()
    """What the names of topics match that its sources do not name."""


class RunPage:
    """The dashboard of a run, from before Spark starts until the run has ended."""

    def __init__(self, run_status: RunStatus, info: RunInfo, options: ServerOptions) -> None:
        self.channels = Channels()
        self._run_status, self._info = run_status, info
        self.measurements = Measurements()
        self._publisher = publisher.StatusPublisher(run_status, self.measurements, info.topology, self.channels)
        self._status_sampler = Sampler("run_status", self._publisher.look, PUBLISH_INTERVAL_S)
        self._spark: SparkSession | None = None
        self.memory_sql = MemorySql()
        self._cluster: FindCluster | None = None
        self._visible = VisibleTopics(info.topology, run_status, info.patterns, options.all_topics)
        self._redriving = DashboardRedrive(self.channels.slot("redrive"))
        self._open = ExitStack()
        self._server = Dashboard(self._interface(), options)
        self._page_seen = False

    def __enter__(self) -> RunPage:
        self._open.enter_context(self._server)
        self._sample(self._status_sampler)
        self._sample(Sampler("process", ProcessMeter(self.measurements).look, PROCESS_INTERVAL_S))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, MillraceError):
            self.measurements.failure = error.message
            self._publisher.events.add(error.message, "error")
        self.measurements.over = True
        with self._open:
            self._status_sampler.call()
            if self._page_seen:
                time.sleep(3 * TICK)  # so that clients see the end before the server stops

    @property
    def address(self) -> str:
        """Return the address of the dashboard."""
        return self._server.address

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return self._server.loopback

    def doing(self, text: str) -> None:
        """What the run does now, in words, while it has no queries yet."""
        self.measurements.doing = text
        self._publisher.events.add(text)

    @contextmanager
    def kafka(self, cluster: FindCluster) -> Iterator[None]:
        """A time in which there is a Kafka: lag is measured, and topics can be looked at."""
        topology = self._info.topology
        meter = LagMeter(cluster, self._run_status, self.measurements, topology, self.channels, self._behind)
        with closing(meter), closing(Sampler("lag", meter.look, LAG_EVERY, last=False).start()):
            self._cluster = cluster
            try:
                yield
            finally:
                self._cluster = None

    def spark_is(self, spark: SparkSession) -> None:
        """Spark has started."""
        self._spark = spark
        self.measurements.doing = "starting the queries"

    def spark_ends(self) -> None:
        """Spark is about to be stopped."""
        self._spark = None

    def _behind(self) -> Mapping[tuple[str, int], int]:
        return consumer_lag(self._spark) if self._spark is not None else {}

    def _sample(self, sampler: Sampler) -> None:
        self._open.callback(sampler.start().close)

    def _interface(self) -> RunInterface:
        return RunInterface(
            self.channels,
            lambda: health(self._run_status, self.measurements, self._info.topology),
            self._described,
            self._ask,
            lambda: Topics(self._kafka(), self._visible.among).look(),
            self._records,
            lambda wanted: dead_letters.letters(self._where(), wanted, self.channels.slot("dead").value or ()),
            self._work,
            self._opened,
            self._redrive,
        )

    def _described(self) -> Mapping[str, Any]:
        info = self._info.describe()
        kafka = {"kafka": self._cluster().bootstrap} if self._cluster else {}
        return {**info, "versions": {**info["versions"], **kafka}}

    def _opened(self) -> None:
        self._page_seen = True
        self._publisher.events.add("a dashboard was opened")

    def _ask(self, sql: str, most: int) -> Mapping[str, Any]:
        if self._info.pipeline is None:
            raise NotReady("a program has no tables in memory that could be asked here")
        return self.memory_sql.ask(sql, most)

    def _kafka(self) -> Cluster:
        if not self._info.uses_kafka:
            raise NoCluster("this run uses no Kafka")
        if self._cluster is None:
            raise NotReady("Kafka has not started yet", hint="ask again")
        return self._cluster()

    def _records(self, topic: str, start: str, most: int) -> list[Mapping[str, Any]]:
        cluster = self._kafka()
        self._visible.require(cluster, topic)
        return list(some_records(cluster, topic, start, most))

    def _where(self) -> dead_letters.DeadLetterStores:
        info = self._info
        kafka = self._kafka if info.uses_kafka else None
        folders = partial(dead_folders, info.state) if info.state else list
        return dead_letters.DeadLetterStores(
            kafka, folders, info.pipeline, info.dead_letter_queries, self._visible.among
        )

    def _redrive(self, group: LetterGroup) -> Mapping[str, Any]:
        result = self._redriving.run(self._where(), group)
        self._publisher.events.add(f"{result['sent']:,} dead letters of {group.source} were sent again")
        return result

    def _work(self, name: str) -> Work | None:
        if name == "topics":
            return self._fill_topics
        if name == "dead":
            return lambda stop: dead_letters.follow(self._where(), self.channels.slot("dead"), stop)
        kind, _, topic = name.partition(":")
        if kind == "tail":
            return lambda stop: self._fill_tail(name, topic, stop)
        return None

    def _fill_tail(self, name: str, topic: str, stop: threading.Event) -> None:
        cluster = self._kafka()
        self._visible.require(cluster, topic)  # an unknown name leaves no channel behind
        tail.follow(cluster, topic, self.channels.row_buffer(name, tail.KEPT, RECORD_COLUMNS), stop)

    def _fill_topics(self, stop: threading.Event) -> None:
        topics = Topics(self._kafka(), self._visible.among)
        while not stop.is_set():
            self.channels.slot("topics").set(topics.look())
            stop.wait(TOPICS_EVERY)


def page_of_pipeline(
    plan: Plan,
    run_status: RunStatus,
    options: ServerOptions,
    *,
    state: Path,
    generation: int = FIRST,
    base: Path | None = None,
    master: str | None = None,
    spark: Mapping[str, str] | None = None,
) -> RunPage:
    """Return the page of a pipeline that is about to run; `base` is the state folder of its first generation."""

    @cache
    def lasting() -> Mapping[str, Any]:
        return pipeline_info(plan, master=master, spark=spark or {}, kafka=None, generation=generation)

    def describe() -> Mapping[str, Any]:
        # A replay or a switch beside the run changes which there are.
        try:
            generations = listed(base or state)
        except StateMismatch:  # another version wrote them; the rest of the dashboard does not need them
            generations = []
        return {**lasting(), "generations": masked("generations", generations)}

    info = RunInfo(
        describe,
        topology_of(plan, topics_read(plan.pipeline)),
        plan.pipeline.name,
        state,
        {source: query.name for query in plan.queries for source in query.buries},
        uses_system(plan.pipeline, "kafka"),
        patterns_read(plan.pipeline),
    )
    return RunPage(run_status, info, options)


def page_of_program(
    script: Path,
    run_status: RunStatus,
    options: ServerOptions,
    *,
    master: str | None = None,
    spark: Mapping[str, str] | None = None,
    kafka: str | None = None,
) -> RunPage:
    """The page of a PySpark program: its queries appear when it starts them."""

    @cache
    def describe() -> Mapping[str, Any]:
        return program_info(script.name, str(script), master=master, spark=spark or {}, kafka=kafka)

    return RunPage(run_status, RunInfo(describe, uses_kafka=kafka is not None), options)
