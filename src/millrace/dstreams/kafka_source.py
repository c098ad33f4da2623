"""Kafka's topics as an inflow: which offsets a batch reads is decided here, on the driver."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.clients.kafka import consumer_groups, offsets
from millrace.clients.kafka.cluster import Cluster
from millrace.dstreams.batch_log import Note
from millrace.dstreams.kafka_params import Parameters
from millrace.dstreams.kafka_rdd import RddDecoder, read_ranges
from millrace.dstreams.kafka_types import OffsetRange, Place
from millrace.dstreams.source import DStreamBatch, StreamSource
from millrace.errors import GroupInUse, KafkaFailed, KafkaUnreachable, OffsetsGone, RunError, TopicGone

if TYPE_CHECKING:
    from pyspark import RDD

log = logging.getLogger("millrace.dstreams")
_PATIENCE = 30.0
"""Seconds for which a topic may be unknown to a cluster that answers: one that is starting knows little."""
_MOST = "spark.streaming.kafka.maxRatePerPartition"
_LEAST = "spark.streaming.kafka.minRatePerPartition"
Sharing = dict[str, list[str]]
"""The streams of one group by topic: they have its partitions between them."""


@dataclass
class ClusterSnapshot:
    """What the cluster says at one moment; partitions without a leader are in `partitions` only."""

    partitions: list[Place]
    first: Mapping[Place, int] = field(default_factory=dict)
    end: Mapping[Place, int] = field(default_factory=dict)


@dataclass
class KafkaDriverClient:
    """The driver's connection to the brokers."""

    cluster: Cluster
    last: Note | None = None
    """The note that was decided last, which needs no second look."""
    begun: set[Place] | None = None
    """The partitions of which the group knows where we began; None before the first batch."""
    _silent_since: dict[str, float] = field(default_factory=dict)

    def look(self, topics: Collection[str], *, committed: bool) -> ClusterSnapshot | None:
        """What there is to read; None while nobody answers."""
        try:
            metadata = self.cluster.connect()
            partitions = [
                (name, one)
                for name in topics
                if self._is_there(name, metadata)
                for one in metadata.topics[name].partitions
            ]
            wanted = [TopicPartition(*place) for place in partitions]
            first = offsets.known(self.cluster, wanted, OffsetSpec.earliest())
            end = offsets.known(self.cluster, wanted, OffsetSpec.latest(), committed=committed)
        except (KafkaUnreachable, KafkaFailed) as error:
            self._say("the cluster", f"{error.message}; batches read nothing until it is back")
            return None
        for topic, partition in partitions:
            name = f"partition {partition} of {topic}"
            if (topic, partition) in first and (topic, partition) in end:
                self._silent_since.pop(name, None)
            else:
                self._say(name, f"{name} has no leader: batches read nothing of it until it has one")
        self._silent_since.pop("the cluster", None)
        return ClusterSnapshot(partitions, first, end)

    def _is_there(self, topic: str, metadata: Any) -> bool:
        if topic in metadata.topics:
            self._silent_since.pop(topic, None)
            return True
        since = self._say(topic, f"the cluster does not know the topic {topic} at the moment")
        if time.monotonic() - since > _PATIENCE:
            raise TopicGone(f"the topic {topic!r} is gone", hint="start anew when it is there again")
        return False

    def _say(self, about: str, words: str) -> float:
        """Log a trouble when it begins; gives when that was."""
        if about not in self._silent_since:
            log.warning("%s", words)
        return self._silent_since.setdefault(about, time.monotonic())


class KafkaStreamSource(StreamSource):
    """Topics of a cluster. With a group, the offsets of batches that are done are committed to it."""

    def __init__(
        self,
        parameters: Parameters,
        topics: Sequence[str],
        start: Mapping[Place, int],
        decoding: RddDecoder,
        *,
        without: Iterable[Place] = (),
        group: str | None = None,
    ) -> None:
        super().__init__()
        self.parameters, self.topics, self.decoding = parameters, tuple(topics), decoding
        self.start = dict(start)
        """Where the first batch begins; partitions that come later begin with their first record."""
        self.without = frozenset(without)
        self.group = group
        self.sharing: Sharing = {}

    def described(self) -> str:
        """The topics."""
        return f"Kafka topic{'s' if len(self.topics) > 1 else ''} {', '.join(self.topics)}"

    def open(self) -> KafkaDriverClient:
        """A connection."""
        return KafkaDriverClient(self.parameters.cluster())

    def decide(self, before: Note | None, batch: DStreamBatch, opened: KafkaDriverClient) -> Note:
        """From where the batch before ended to what is there now, or as far as the rate allows."""
        begin = self._positions(before)
        if opened.begun is None:  # before anything can keep a first note from being followed by its commit
            opened.begun = set(begin) if before else set()
        seen = opened.look(self.topics, committed=self.parameters.committed)
        if seen is None:
            return _noted((place, at, at) for place, at in begin.items())
        for place in seen.partitions:
            if self._is_ours(place) and place not in begin and place in seen.first:
                begin[place] = seen.first[place]
        _require_there(begin, begin, seen)
        held = self._not_begun(begin, opened)
        waiting = {place: 0 if place in held else seen.end.get(place, at) - at for place, at in begin.items()}
        limits = limits_of(waiting, batch if self.group is None else batch.received())
        opened.last = _noted((place, at, at + min(waiting[place], limits[place])) for place, at in begin.items())
        return opened.last

    def nothing(self, before: Note | None) -> Note:
        """Empty ranges where the batch before ended."""
        return _noted((place, at, at) for place, at in self._positions(before).items())

    def read(self, note: Note, batch: DStreamBatch, opened: KafkaDriverClient) -> RDD[Any]:
        """By Spark's own reader."""
        wanted = ranges_of(note)
        if note is not opened.last and any(one.count() for one in wanted):
            self._require_still_there(wanted, opened)
        return read_ranges(batch.session(), self.parameters, wanted, self.decoding)

    def count(self, note: Note) -> int:
        """Offsets."""
        return sum(one.count() for one in ranges_of(note))

    def settle(self, note: Note, opened: KafkaDriverClient) -> bool:
        """Commit where the note ends to the group, if there is one."""
        done = {(one.topic, one.partition): one.untilOffset for one in ranges_of(note)}
        try:
            self._commit(done, opened)
        except (RunError, GroupInUse) as error:  # the next batch that is done says more than this one
            log.warning("the offsets of the group %s were not committed yet: %s", self.group, error.message)
            return False
        return True

    def _not_begun(self, begin: Mapping[Place, int], opened: KafkaDriverClient) -> set[Place]:
        """Commit where partitions begin that no batch has read yet; gives those of which nothing may be read so far.

        A program that dies before a batch is done begins there again. Without that it would begin with what comes then.
        """
        begun = opened.begun or set()
        new = {place: at for place, at in begin.items() if place not in begun}
        try:
            self._commit(new, opened)
        except (KafkaUnreachable, KafkaFailed) as error:
            log.warning("%s; batches read nothing of the partitions that are new until it has worked", error.message)
            return set(new)
        opened.begun = begun | new.keys()
        return set()

    def _commit(self, reached: Mapping[Place, int], opened: KafkaDriverClient) -> None:
        if self.group is not None and reached:  # else another stream of the group has every partition
            moves = [consumer_groups.OffsetChange(*place, None, at) for place, at in sorted(reached.items())]
            consumer_groups.apply_reset(opened.cluster, self.group, moves)

    def _positions(self, before: Note | None) -> dict[Place, int]:
        if before is None:
            return {place: at for place, at in self.start.items() if self._is_ours(place)}
        return {(one.topic, one.partition): one.untilOffset for one in ranges_of(before)}

    def _is_ours(self, place: Place) -> bool:
        streams = self.sharing.get(place[0], [self.stream])
        return place not in self.without and streams[place[1] % len(streams)] == self.stream

    def _require_still_there(self, wanted: Sequence[OffsetRange], opened: KafkaDriverClient) -> None:
        """A batch that comes again may come after Kafka has deleted what it reads."""
        seen = opened.look(self.topics, committed=False)
        if seen is not None:
            full = [one for one in wanted if one.count()]
            begin = {(one.topic, one.partition): one.fromOffset for one in full}
            until = {(one.topic, one.partition): one.untilOffset for one in full}
            _require_there(begin, until, seen)


def ranges_of(note: Note) -> list[OffsetRange]:
    """The ranges of a batch."""
    return [OffsetRange(*one) for one in note["ranges"]]


def _noted(ranges: Iterable[tuple[Place, int, int]]) -> Note:
    return {"ranges": [[*place, begin, until] for place, begin, until in sorted(ranges)]}


def _require_there(begin: Mapping[Place, int], until: Mapping[Place, int], seen: ClusterSnapshot) -> None:
    gone = [place for place in begin if begin[place] < seen.first.get(place, 0)]
    ahead = [place for place in until if place in seen.end and until[place] > seen.end[place]]
    if not gone and not ahead:
        return
    told = [
        f"partition {one[1]} of {one[0]!r} begins at {seen.first[one]}, offset {begin[one]} is wanted" for one in gone
    ]
    told += [
        f"partition {one[1]} of {one[0]!r} ends at {seen.end[one]}, offset {until[one]} is wanted" for one in ahead
    ]
    raise OffsetsGone(
        "records that are to be read are not in Kafka: " + "; ".join(told),
        why="Kafka deleted them (retention.ms, retention.bytes)" if gone else "the topic was made anew or cut off",
        hint="start anew with another checkpoint folder, or with fromOffsets that are there",
    )


def limits_of(waiting: Mapping[Place, int], batch: DStreamBatch) -> dict[Place, int]:
    """How many records of each partition the batch may have: what lies in wait decides who gets how much."""
    most, least = float(batch.setting(_MOST, "0")), int(batch.setting(_LEAST, "1"))
    total = sum(waiting.values())
    if batch.rate and total:
        rates = {place: batch.rate * number / total for place, number in waiting.items()}
        rates = {place: min(rate, most) if most > 0 else rate for place, rate in rates.items()}
    elif most > 0:
        rates = dict.fromkeys(waiting, most)
    else:
        return dict(waiting)
    return {place: max(int(rate * batch.seconds), least) for place, rate in rates.items()}
