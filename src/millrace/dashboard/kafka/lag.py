"""How far each query is behind Kafka: in records, and in seconds since the oldest of them came.

- `LagMeter` measures the lag of each query.
- `EndOffsets` remembers the ends of partitions: from that, how old what waits is, and how fast topics grow.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.clients.kafka import offsets
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import TopicTail
from millrace.errors import KafkaUnreachable, MillraceError
from millrace.telemetry.channels import Channels
from millrace.telemetry.measurements import Lag, Measurements
from millrace.telemetry.progress import BatchProgress
from millrace.telemetry.query_status import RunStatus
from millrace.telemetry.topology import Topology

Place = tuple[str, int]
"""A topic and a partition."""
ENDS_KEPT = 900
"""Looks that are remembered: a quarter of an hour, at one a second."""
_OVER = 5.0
"""Seconds over which a rate is measured."""


class EndOffsets:
    """The end offsets of partitions at each look, with the moment of it by the monotonic clock."""

    def __init__(self, kept: int = ENDS_KEPT) -> None:
        self._looks: deque[tuple[float, Mapping[Place, int]]] = deque(maxlen=kept)

    def add(self, moment: float, ends: Mapping[Place, int]) -> None:
        """One more look."""
        self._looks.append((moment, dict(ends)))

    @property
    def newest(self) -> Mapping[Place, int]:
        """The ends at the last look."""
        return self._looks[-1][1] if self._looks else {}

    def waited(self, place: Place, read: int, now: float) -> float | None:
        """Seconds for which the first unread record has been there; None when it was there before the first look."""
        if self.newest.get(place, 0) <= read:
            return 0.0
        later: tuple[float, int] | None = None
        for moment, ends in reversed(self._looks):
            end = ends.get(place)
            if end is None:
                break
            if end <= read:
                return max(0.0, now - _between((moment, end), later, read)) if later else 0.0
            later = (moment, end)
        return None

    def rates(self) -> dict[str, float]:
        """Records a second that come into each topic."""
        if len(self._looks) < 2:
            return {}
        now, newest = self._looks[-1]
        then, before = next(((at, ends) for at, ends in self._looks if now - at <= _OVER), self._looks[-2])
        if then >= now:
            then, before = self._looks[-2]
        rates: dict[str, float] = defaultdict(float)
        for partition, end in newest.items():
            rates[partition[0]] += max(0, end - before.get(partition, end)) / max(now - then, 1e-9)
        return rates


def _between(before: tuple[float, int], after: tuple[float, int], read: int) -> float:
    """When the record at an offset came, if records came evenly between two looks."""
    (start, low), (end, high) = before, after
    return start + (end - start) * (read - low) / max(1, high - low)


LAG_EVERY = 1.0
LAG_KEPT = 600
LAG_COLUMNS = ("time", "lag", "seconds")
_MOST_ASKED = 16
"""Partitions whose first unread record is looked at in one look."""
_ASK = 3.0
_PATIENCE = 0.5
_NOT_ALL = "Kafka does not report the end of every partition now"
_SELDOM = "Spark reports how far such a query has read only at its checkpoints"

Behind = Callable[[], Mapping[Place, int]]


class LagMeter:
    """Measures each second. `behind` returns the lag of the consumers inside Spark, where it is known."""

    def __init__(
        self,
        cluster: Callable[[], Cluster],
        run_status: RunStatus,
        measurements: Measurements,
        topology: Topology,
        channels: Channels,
        behind: Behind | None = None,
    ) -> None:
        self._cluster, self._behind = cluster, behind
        self._run_status, self._measurements = run_status, measurements
        self._topology, self._channels = topology, channels
        self._ends = EndOffsets()
        self._places: set[Place] = set()
        """Every partition that Kafka has named of late."""
        self._here: set[str] = set()
        """The topics that were in this Kafka once: one that is not named now may only be slow to come back."""
        self._following: TopicTail | None = None
        self._moments: dict[str, tuple[float, dict[Place, int]]] = {}
        """When the first unread records were made that came before we looked, in milliseconds since 1970."""

    def look(self) -> None:
        """Measure once."""
        queries = [status.query for status in self._run_status.queries()]
        read = {query: read_by(self._run_status.history(query)) for query in queries}
        try:
            cluster = self._cluster()
            self._ends.add(time.monotonic(), self._now(cluster, read.values()))
        except MillraceError as error:
            for query in read:
                self._publish(query, Lag(why=error.message))
            return
        self._measurements.put_rates(self._ends.rates())
        for query, offsets_read in read.items():
            try:
                lag = self._lag(cluster, query, offsets_read)
            except MillraceError as error:
                lag = Lag(why=error.message)
            if lag is not None:
                self._publish(query, lag)

    def _now(self, cluster: Cluster, read: Iterable[Mapping[Place, int]]) -> Mapping[Place, int]:
        """The ends of every partition that matters: of what is read, and of what is written."""
        named = {topic for topics in self._topology.topics.values() for topic in topics}
        named |= {edge.topic for edge in self._topology.edges if edge.topic}
        named |= {topic for offsets_read in read for topic, _ in offsets_read}
        if not named:
            return {}
        self._run_status.kafka.asked(cluster.bootstrap)
        try:
            ends = self._ask(cluster, named)
        except MillraceError as error:
            if not isinstance(error, KafkaUnreachable):
                self._run_status.kafka.came()
            raise
        self._run_status.kafka.came()
        return ends

    def _ask(self, cluster: Cluster, named: Collection[str]) -> Mapping[Place, int]:
        existing = cluster.connect().topics
        self._places = {(topic, n) for topic in named if topic in existing for n in existing[topic].partitions}
        self._here |= {topic for topic, _ in self._places}
        return offsets.list_available_offsets(
            cluster, [TopicPartition(*place) for place in sorted(self._places)], OffsetSpec.latest()
        )

    def _lag(self, cluster: Cluster, query: str, read: Mapping[Place, int]) -> Lag | None:
        """None leaves it to what Spark says: a query whose records are not in this Kafka."""
        if not self._topology.query(query).batches:
            return self._lag_inside_spark(query)
        ends = self._ends.newest
        here = self._here | {*self._topology.read_by(query)}
        mine = {place: offset for place, offset in read.items() if place[0] in here}
        if not mine:
            return Lag(why="no batch has ended yet") if self._topology.read_by(query) and not read else None
        topics = {topic for topic, _ in mine}
        wanted = mine.keys() | {place for place in self._places if place[0] in topics}
        if not wanted <= ends.keys():
            return Lag(why=_NOT_ALL)  # the sum of some of them would look like less than there is
        # A partition that came after the last batch has not been read.
        waits = {place: max(0, ends[place] - mine.get(place, 0)) for place in wanted}
        unread = {place: mine.get(place, 0) for place, waiting in waits.items() if waiting}
        seconds = self._seconds(cluster, query, unread)
        return Lag(sum(waits.values()), seconds, _named(waits))

    def _lag_inside_spark(self, query: str) -> Lag:
        consumers = self._behind() if self._behind else {}
        # The consumers write the dots of a topic's name as underscores.
        topics = {name: topic for topic in self._topology.read_by(query) for name in (topic.replace(".", "_"), topic)}
        waits = {(topics[name], number): lag for (name, number), lag in consumers.items() if name in topics}
        if not waits:
            return Lag(why=_SELDOM)
        ends, now = self._ends.newest, time.monotonic()
        ages = [self._ends.waited(place, ends.get(place, 0) - records, now) for place, records in waits.items()]
        seconds = None if None in ages else max(age for age in ages if age is not None)
        return Lag(sum(waits.values()), seconds, _named(waits))

    def _seconds(self, cluster: Cluster, query: str, unread: Mapping[Place, int]) -> float | None:
        """How long the oldest of the first unread records of partitions has been there."""
        now = time.monotonic()
        ages = {place: self._ends.waited(place, offset, now) for place, offset in unread.items()}
        older = {place: unread[place] for place, age in ages.items() if age is None}
        seconds = [age for age in ages.values() if age is not None]
        if older:
            seconds += self._ages_of(cluster, query, older)
        return round(max(seconds, default=0.0), 3) if seconds or not unread else None

    def _ages_of(self, cluster: Cluster, query: str, unread: Mapping[Place, int]) -> list[float]:
        """The ages of records that came before we looked, by their own timestamps; asked for now and then."""
        asked, moments = self._moments.get(query, (0.0, {}))
        if time.monotonic() - asked > _ASK or not moments.keys() >= set(list(unread)[:1]):
            moments = self._first_made(cluster, dict(list(unread.items())[:_MOST_ASKED]))
            self._moments[query] = (time.monotonic(), moments)
        now = time.time() * 1000
        return [max(0.0, (now - moment) / 1000) for place, moment in moments.items() if place in unread]

    def _first_made(self, cluster: Cluster, unread: Mapping[Place, int]) -> dict[Place, int]:
        """When the records at these offsets (or the next ones that are there) were made."""
        if self._following is None:
            self._following = TopicTail(cluster, {}, ahead=64)
        timestamps: dict[Place, int] = {}
        deadline = time.monotonic() + _PATIENCE
        self._following.assign(unread)
        try:
            while len(timestamps) < len(unread) and time.monotonic() < deadline:
                for message in self._following.take(0.05, 10):
                    timestamps.setdefault((message.topic() or "", message.partition() or 0), message.timestamp()[1])
        finally:
            self._following.assign({})
        return timestamps

    def close(self) -> None:
        """Let go of Kafka."""
        if self._following is not None:
            self._following.close()

    def _publish(self, query: str, lag: Lag) -> None:
        self._measurements.put_lag(query, lag)
        ring = self._channels.row_buffer(f"lag:{query}", LAG_KEPT, LAG_COLUMNS)
        partitions = {f"p:{name}": records for name, records in (lag.partitions or {}).items()}
        ring.append({"time": round(time.time() * 1000), "lag": lag.records, "seconds": lag.seconds, **partitions})


def read_by(history: Sequence[BatchProgress]) -> dict[Place, int]:
    """How far a query has read each partition, by its newest word about it."""
    return next((read for progress in reversed(history) if (read := progress.read)), {})


def _named(waits: Mapping[Place, int]) -> dict[str, int | None]:
    return {f"{topic}/{number}": records for (topic, number), records in sorted(waits.items())}
