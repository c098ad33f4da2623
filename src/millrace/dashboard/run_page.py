"""Everything beside a run that makes its page: samplers that fill channels, answers to questions, the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from millrace.clients.cluster import Cluster
from millrace.clients.dead import dead_folders
from millrace.dashboard.hub import TICK
from millrace.dashboard.kafka import dead, tail
from millrace.dashboard.kafka.lag import EVERY as LAG_EVERY
from millrace.dashboard.kafka.lag import LagMeter
from millrace.dashboard.kafka.records import records
from millrace.dashboard.kafka.redriving import Redriving
from millrace.dashboard.kafka.shown import COLUMNS
from millrace.dashboard.kafka.topics import EVERY as TOPICS_EVERY
from millrace.dashboard.kafka.topics import Topics
from millrace.dashboard.kafka.visible import Visible
from millrace.dashboard.server import Dashboard, Options
from millrace.dashboard.subject import Group, Letters, Subject, Work
from millrace.engine.consumers import behind
from millrace.engine.memory_sql import MemorySql
from millrace.errors import MillraceError, NoCluster, NotReady
from millrace.telemetry import process, telling
from millrace.telemetry.board import Board
from millrace.telemetry.channels import Channels
from millrace.telemetry.health import health
from millrace.telemetry.outline import UNPLANNED, Outline
from millrace.telemetry.sampler import Sampler
from millrace.telemetry.samples import Samples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FindCluster = Callable[[], Cluster]


@dataclass(frozen=True)
class About:
    """What is known of a run before it begins."""

    describe: Callable[[], Mapping[str, Any]]
    """The pipeline, as `/api/pipeline` tells it."""
    outline: Outline = UNPLANNED
    pipeline: str | None = None
    """Its name, if it is a pipeline."""
    state: Path | None = None
    """The folder of the run."""
    buries: Mapping[str, str] = field(default_factory=dict)
    """The query that buries the dead letters of each source."""
    uses_kafka: bool = True
    patterns: tuple[str, ...] = ()
    """What the names of topics match that its sources do not name."""


class Watching:
    """A run's page, from before Spark starts until the run has ended."""

    def __init__(self, board: Board, about: About, options: Options) -> None:
        self.channels = Channels()
        self._board = board
        self._about = about
        self._samples = Samples()
        self._telling = telling.Telling(board, self._samples, about.outline, self.channels)
        self._spark: SparkSession | None = None
        self.memory_sql = MemorySql()
        self._cluster: FindCluster | None = None
        self._visible = Visible(about.outline, board, about.patterns, options.all_topics)
        self._redriving = Redriving(self.channels.slot("redrive"))
        self._open = ExitStack()
        self._server = Dashboard(self._subject(), options)
        self._page_seen = False

    def __enter__(self) -> Watching:
        self._open.enter_context(self._server)
        self._sample("board", self._telling.look, telling.EVERY)
        self._sample("process", process.Meter(self._samples).look, process.EVERY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, MillraceError):
            self._samples.failure = error.message
            self._telling.diary.note(error.message, "error")
        self._samples.over = True
        self._telling.look()
        if self._page_seen:
            time.sleep(3 * TICK)  # so that pages see the end before the server goes
        self._open.close()

    @property
    def samples(self) -> Samples:
        """What is measured beside Spark's own words."""
        return self._samples

    @property
    def address(self) -> str:
        """Where the page is."""
        return self._server.address

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return self._server.loopback

    def doing(self, text: str) -> None:
        """What the run does now, in words, while it has no queries yet."""
        self._samples.doing = text
        self._telling.diary.note(text)

    @contextmanager
    def kafka(self, cluster: FindCluster) -> Iterator[None]:
        """A time in which there is a Kafka: lag is measured, and topics can be looked at."""
        meter = LagMeter(cluster, self._board, self._samples, self._about.outline, self.channels, self._behind)
        sampler = Sampler("lag", meter.look, LAG_EVERY, last=False).start()
        self._cluster = cluster
        try:
            yield
        finally:
            self._cluster = None
            sampler.close()
            meter.close()

    def spark_is(self, spark: SparkSession) -> None:
        """Spark has started."""
        self._spark = spark
        self._samples.doing = "starting the queries"

    def spark_ends(self) -> None:
        """Spark is about to be stopped."""
        self._spark = None

    def _behind(self) -> Mapping[tuple[str, int], int]:
        return behind(self._spark) if self._spark is not None else {}

    def _sample(self, name: str, look: Callable[[], None], every: float) -> None:
        self._open.callback(Sampler(name, look, every).start().close)

    def _subject(self) -> Subject:
        return Subject(
            self.channels,
            lambda: health(self._board, self._samples, self._about.outline),
            self._described,
            self._ask,
            lambda: Topics(self._kafka(), self._visible.among).look(),
            self._records,
            self._letters,
            self._work,
            self._opened,
            self._redrive,
        )

    def _described(self) -> Mapping[str, Any]:
        told = self._about.describe()
        kafka = {"kafka": self._cluster().bootstrap} if self._cluster else {}
        return {**told, "versions": {**told["versions"], **kafka}}

    def _opened(self) -> None:
        self._page_seen = True
        self._telling.diary.note("a page was opened")

    def _ask(self, sql: str, most: int) -> Mapping[str, Any]:
        if self._about.pipeline is None:
            raise NotReady("a program has no tables in memory that could be asked here")
        return self.memory_sql.ask(sql, most)

    def _kafka(self) -> Cluster:
        if not self._about.uses_kafka:
            raise NoCluster("this run uses no Kafka")
        if self._cluster is None:
            raise NotReady("Kafka is not there yet", hint="ask again")
        return self._cluster()

    def _records(self, topic: str, start: str, most: int) -> list[Mapping[str, Any]]:
        cluster = self._kafka()
        self._visible.require(cluster, topic)
        return list(records(cluster, topic, start, most))

    def _where(self) -> dead.Where:
        kafka = self._kafka if self._about.uses_kafka else None
        return dead.Where(kafka, self._folders, self._about.pipeline, self._about.buries, self._visible.among)

    def _folders(self) -> list[Path]:
        return dead_folders(self._about.state) if self._about.state else []

    def _letters(self, wanted: Letters) -> Iterator[Mapping[str, Any]]:
        return dead.letters(self._where(), wanted, self.channels.slot("dead").value or ())

    def _redrive(self, group: Group) -> Mapping[str, Any]:
        told = self._redriving.run(self._where(), group)
        self._telling.diary.note(f"{told['sent']:,} dead letters of {group.source} were sent again")
        return told

    def _work(self, name: str) -> Work | None:
        if name == "topics":
            return self._fill_topics
        if name == "dead":
            return lambda stop: dead.follow(self._where(), self.channels.slot("dead"), stop)
        kind, _, topic = name.partition(":")
        if kind == "tail":
            return lambda stop: self._fill_tail(name, topic, stop)
        return None

    def _fill_tail(self, name: str, topic: str, stop: threading.Event) -> None:
        cluster = self._kafka()
        self._visible.require(cluster, topic)  # a name that is made up leaves no ring behind
        tail.follow(cluster, topic, self.channels.ring(name, tail.KEPT, COLUMNS), stop)

    def _fill_topics(self, stop: threading.Event) -> None:
        topics = Topics(self._kafka(), self._visible.among)
        while not stop.is_set():
            self.channels.slot("topics").set(topics.look())
            stop.wait(TOPICS_EVERY)
