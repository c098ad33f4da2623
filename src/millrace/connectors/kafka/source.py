"""Topics of Kafka as a source on Spark.

- `KafkaSource`: the options, the dead letter topics, and where a query starts.
- `in_bulk` decides whether Spark's own Kafka source reads the topics, or ours in bulk (`bulk_source`): if enough
  records are waiting, or if batches of them are to be cut by event time.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.clients.kafka import offsets, topics
from millrace.clients.kafka.bulk_fetch import unsupported
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import FETCH_MAX_WAIT_MS
from millrace.clients.kafka.offsets import PartitionId
from millrace.connectors.base.api import RecordDecoder, RunContext
from millrace.connectors.base.message_source import PartitionedSource, bad_start, data_loss_option
from millrace.connectors.kafka.start_offsets import (
    Offsets,
    by_topic,
    forget_start,
    note_start,
    noted_start,
    pinned_ends,
)
from millrace.connectors.kafka.topic_options import access_in_config, bad_topic_names, ensure_topic
from millrace.dead_letters.kafka_writer import KafkaDeadLetterTarget
from millrace.dead_letters.letter import DEAD_TOPIC_SUFFIX, dead_topic
from millrace.errors import InvalidDefinition
from millrace.pipeline.connector_facts import OptionMistake
from millrace.plugins import option
from millrace.settings import BULK_READER
from millrace.units import parse_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CARRIED = {
    "key": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "array<struct<key: string, value: binary>>",
}
_RAW = {"value": "binary", **_CARRIED}
_EARLIEST, _LATEST = -2, -1
"""What Spark's source takes for the beginning and the end of a partition."""
_RECENT_S = 60.0
WORTHWHILE_RECORDS = 100_000
"""From how many records on the bulk source saves more time than the start of its process costs."""


@dataclass(frozen=True, kw_only=True)
class KafkaSource(PartitionedSource):
    """Topics of a Kafka cluster."""

    carried: ClassVar[dict[str, str]] = _CARRIED
    realtime: ClassVar[bool] = True
    continuous: ClassVar[bool] = True

    topic: tuple[str, ...] = option((), "The topic, or several.", argument=True)
    pattern: str | None = option(None, "Every topic whose name matches this regular expression.")
    partitions: Mapping[str, Any] | None = option(None, "Only these partitions, as {posts: [0, 1]}.")
    start: str | Mapping[str, Any] = option(
        "earliest", "Where to begin: earliest, latest, a time, 1h ago, or offsets as {posts: {0: 23}}."
    )
    max_per_batch: int | None = option(
        None, "Maximum number of records in a batch.", least=1, shown_default="all; in bulk, as many as take about 10 s"
    )
    isolation: str = option(
        "read_committed",
        "Whether records of open and aborted transactions are read.",
        choices=("read_committed", "read_uncommitted"),
    )
    on_data_loss: str = data_loss_option()
    min_tasks: int | None = option(None, "Minimum number of tasks that read, even from fewer partitions.", least=1)
    current: bool = option(False, "Read the generation of the topic that counts, where replay has made several.")
    config: Mapping[str, Any] | None = option(None, "More properties of the Kafka consumer, in Java's names.")

    @property
    def continues_on_data_loss(self) -> bool:
        return self.on_data_loss == "continue"

    @property
    def not_replayed(self) -> str | None:
        return None

    def mistakes(self) -> Iterator[OptionMistake]:
        yield from super().mistakes()
        if sum(map(bool, (self.topic, self.pattern, self.partitions))) != 1:
            yield OptionMistake("option.missing", "kafka needs exactly one of: a topic, pattern or partitions")
        if self.current and not self.topic:
            yield OptionMistake("option.invalid", "current is for topics that are named", "current")
        yield from bad_topic_names(self.topic or tuple(self.partitions or ()))
        yield from access_in_config(self.config)
        if isinstance(self.start, str):
            hint = "write earliest, latest, 2026-05-01T12:00:00Z, 1h ago, or offsets as {posts: {0: 23}}"
            yield from bad_start("kafka", self.start, hint)

    def prepare(self, context: RunContext) -> None:
        for name in self.topics():
            ensure_topic(context, name)
        if not self.keeps_dead_letters:
            return
        cluster = context.cluster()
        if context.create_topics:
            names = self._dead_topics(context, cluster)
            KafkaDeadLetterTarget(cluster, context.pipeline, context.name, names).prepare(self.topics_now(cluster))
            return
        for name in self.topics_now(cluster):
            topics.require(cluster.connect(), dead_topic(f"{name}{context.topic_suffix}"))

    def _dead_topics(self, context: RunContext, cluster: Cluster) -> dict[str, str]:
        """The dead letter topics that have other names than usual."""
        names = self.topics_now(cluster) if context.topic_suffix else []
        return {name: dead_topic(f"{name}{context.topic_suffix}") for name in names}

    def resources(self) -> tuple[str, ...]:
        return tuple(f"topic {name}" for name in self.topics())

    def topics(self) -> tuple[str, ...]:
        return self.topic or tuple(self.partitions or ())

    def load(self, context: RunContext) -> DataFrame:
        return self.opened(context, None)[0]

    def opened(self, context: RunContext, decoding: RecordDecoder | None) -> tuple[DataFrame, bool]:
        """In bulk, decoded where they are read."""
        if not in_bulk(self, context):
            rows = context.spark.readStream.format("kafka").options(**self._options(context)).load().select(*_RAW)
            return context.offset_range.part(rows, context.name) if context.offset_range else rows, False
        if decoding:
            return bulk_rows(self, context, decoding.needs, decoding.ddl, decoding), True
        return bulk_rows(self, context, tuple(_RAW), ", ".join(f"{name} {kind}" for name, kind in _RAW.items())), False

    def dead_letter_target(self, context: RunContext) -> KafkaDeadLetterTarget:
        """Return the dead letter topics: the letters of `t` go to `t.dead`."""
        other = () if self.decoder == "arrow" else (self.decoder,)
        decoder = repr((context.state_id, self.format, self.schema, self.included, self.more, *other))
        return KafkaDeadLetterTarget(
            context.cluster(),
            context.pipeline,
            context.name,
            self._dead_topics(context, context.cluster()),
            decoder_version=sha256(decoder.encode()).hexdigest()[:12],
            create=bool(self.pattern and context.create_topics),
        )

    @property
    def matching(self) -> str | None:
        """The pattern without the topics of dead letters: what is read from there would only die again."""
        return rf"(?!.*{re.escape(DEAD_TOPIC_SUFFIX)}$)(?:{self.pattern})" if self.pattern else None

    def topics_now(self, cluster: Cluster) -> list[str]:
        """The topics that are read, as far as they are known."""
        if self.matching:
            names = (name for name in cluster.connect().topics if not name.startswith("__"))
            return sorted(name for name in names if re.fullmatch(self.matching, name))
        return list(self.topics())

    def places_now(self, cluster: Cluster) -> list[PartitionId]:
        """The partitions that are read, as far as they are known."""
        existing = cluster.connect().topics
        return [
            (name, number)
            for name in self.topics_now(cluster)
            if name in existing
            for number in sorted(existing[name].partitions)
            if not self.partitions or number in self.partitions[name]
        ]

    def _options(self, context: RunContext) -> dict[str, str]:
        cluster = context.cluster()
        chosen = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "kafka.isolation.level": self.isolation,
            "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
            **({"kafka.fetch.max.wait.ms": str(FETCH_MAX_WAIT_MS)} if context.batches else {}),
            "includeHeaders": "true",
            "failOnDataLoss": str(not self.continues_on_data_loss).lower(),
            **{f"kafka.{name}": value for name, value in cluster.java_properties().items()},
            **{f"kafka.{name}": str(value) for name, value in (self.config or {}).items()},
            **self._subscription(),
            **self._beginning(context, cluster),
        }
        limits = {"maxOffsetsPerTrigger": self._cap(context), "minPartitions": self.min_tasks}
        return chosen | {name: str(limit) for name, limit in limits.items() if limit}

    def _cap(self, context: RunContext) -> int | None:
        """Return the maximum number of records in a batch of Spark's own source.

        It gives each partition its share, so that a backlog would have late records: then it has no maximum.
        """
        most = most_per_batch(self, context)
        if most is None or not self.aligned_by(context.watermark):
            return most
        why = left_to_spark(self, batches=True) or unsupported(context.cluster())
        if why and context.batches:  # else everything fits in one batch
            what = "max_per_batch" if self.max_per_batch else f"the replay's maximum of {most:,} records in a batch"
            context.notify(
                f"source {context.name!r}: {what} is not used, as Spark's own source, which reads it ({why}), "
                "cannot cut batches by event time, and records would be late"
            )
        return None

    def _subscription(self) -> dict[str, str]:
        if self.matching:
            return {"subscribePattern": self.matching}
        if self.partitions:
            return {"assign": json.dumps({name: list(numbers) for name, numbers in self.partitions.items()})}
        return {"subscribe": ",".join(self.topic)}

    def _beginning(self, context: RunContext, cluster: Cluster) -> dict[str, str]:
        if known := noted_start(context, self.topics_now(cluster)):
            every = by_topic(dict.fromkeys(self.places_now(cluster), _EARLIEST))
            return {"startingOffsets": json.dumps({name: each | known.get(name, {}) for name, each in every.items()})}
        forget_start(context)
        if context.offset_range and context.offset_range.knows(self.topics_now(cluster)):
            return {"startingOffsets": json.dumps(context.offset_range.starting(self.places_now(cluster)))}
        if self.start == "earliest":
            return {"startingOffsets": "earliest"}
        if self.start == "latest":
            return {"startingOffsets": json.dumps(pinned_ends(context, cluster, self.places_now(cluster)))}
        if isinstance(self.start, str):
            moment = int(parse_time(self.start).timestamp() * 1000)
            return {"startingTimestamp": str(moment), "startingOffsetsByTimestampStrategy": "latest"}
        return {"startingOffsets": json.dumps({topic: dict(numbers) for topic, numbers in self.start.items()})}


def most_per_batch(reader: KafkaSource, context: RunContext) -> int | None:
    """Return the maximum number of records in a batch; None if nobody has given one."""
    return reader.max_per_batch or (context.offset_range.most if context.offset_range else None)


def left_to_spark(reader: KafkaSource, *, batches: bool) -> str:
    """Return why Spark's own source reads the topics; empty if the bulk source can."""
    reasons = (
        (BULK_READER.value() == "off", "MILLRACE_BULK_READER is off"),
        (not batches, "without batches no Python runs"),
        (reader.min_tasks, "min_tasks is Spark's"),
        (reader.config, "config is for Java's consumer"),
    )
    return next((why for holds, why in reasons if holds), "")


def in_bulk(reader: KafkaSource, context: RunContext) -> bool:
    """Return whether the bulk source reads the topics instead of Spark's own."""
    if left_to_spark(reader, batches=context.batches) or unsupported(context.cluster()):
        return False
    if BULK_READER.value() == "on":
        return True
    waiting, most = _waiting(reader, context), most_per_batch(reader, context)
    if most is not None and reader.aligned_by(context.watermark):
        # Spark's own source can only read a backlog in one batch. That of a replay does not grow.
        is_bounded = context.offset_range is not None and context.offset_range.end is not None
        return waiting > most or not is_bounded
    return waiting >= WORTHWHILE_RECORDS


def bulk_rows(
    reader: KafkaSource, context: RunContext, columns: tuple[str, ...], ddl: str, step: RecordDecoder | None = None
) -> DataFrame:
    """Return the rows of the bulk source: these columns, or what a decoder returns for them."""
    from millrace.connectors.kafka.bulk_source import BulkSourceSpec, bulk_data_source

    cluster = context.cluster()
    following = BulkSourceSpec(
        cluster,
        begin=note_start(context, reader.topics_now(cluster), lambda: _begin(reader, context, cluster)),
        topics=reader.topics(),
        pattern=reader.matching,
        only=reader.partitions,
        until=context.offset_range.end if context.offset_range else None,
        most=most_per_batch(reader, context),
        event_time=reader.event_time(context.watermark),
        interval=context.trigger_interval_s,
        committed=reader.isolation == "read_committed",
        skip_lost=reader.continues_on_data_loss,
        columns=columns,
        ddl=ddl,
        step=step,
    )
    kind = bulk_data_source(following)
    context.spark.dataSource.register(kind)
    return context.spark.readStream.format(kind.name()).load()


def _waiting(reader: KafkaSource, context: RunContext) -> int:
    """Return how many records a query is about to read, or how many arrived in the last minute, if that is more."""
    cluster, part = context.cluster(), context.offset_range
    partitions = reader.places_now(cluster)
    places = [TopicPartition(*place) for place in partitions]
    ends = offsets.list_offsets(cluster, places, OffsetSpec.latest())
    if part and part.knows(reader.topics_now(cluster)):
        begin = part.starting(partitions)
        earliest = offsets.list_offsets(cluster, places, OffsetSpec.earliest())
        first = {
            (topic, number): max(offset, begin[topic][str(number)]) for (topic, number), offset in earliest.items()
        }
    else:
        first = ends if reader.start == "latest" else offsets.list_offsets(cluster, places, OffsetSpec.earliest())
    read = context.next_offsets or first
    if part and part.end is not None:  # what comes now is not read
        ends = {place: min(offset, part.end.get(place[0], {}).get(str(place[1]), 0)) for place, offset in ends.items()}
        return sum(max(0, end - read.get(place, 0)) for place, end in ends.items())
    lately = offsets.list_offsets(cluster, places, OffsetSpec.for_timestamp(round((time.time() - _RECENT_S) * 1000)))
    coming = sum(ends[place] - since for place, since in lately.items() if since >= 0)
    return max(coming, sum(end - read.get(place, 0) for place, end in ends.items()))


def _begin(reader: KafkaSource, context: RunContext, cluster: Cluster) -> Offsets:
    partitions = reader.places_now(cluster)
    if context.offset_range and context.offset_range.knows(reader.topics_now(cluster)):
        return _resolved(cluster, partitions, context.offset_range.starting(partitions))
    if isinstance(reader.start, Mapping):
        given = {topic: {str(number): offset for number, offset in own.items()} for topic, own in reader.start.items()}
        if missing := [f"{topic}[{number}]" for topic, number in partitions if str(number) not in given.get(topic, {})]:
            raise InvalidDefinition(
                f"start of source {context.name!r} names no offset for {', '.join(missing)}",
                hint="name one for each partition that is read; -2 is its beginning, -1 its end",
            )
        return _resolved(cluster, partitions, given)
    if reader.start == "latest":
        return pinned_ends(context, cluster, partitions)
    to = "earliest" if reader.start == "earliest" else parse_time(reader.start)
    return by_topic(offsets.resolve(cluster, [TopicPartition(*partition) for partition in partitions], to))


def _resolved(cluster: Cluster, partitions: Sequence[PartitionId], given: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets that are given for partitions, of which -2 and -1 mean the beginning and the end."""
    wanted = [TopicPartition(*partition) for partition in partitions]
    first, end = offsets.resolve(cluster, wanted, "earliest"), offsets.resolve(cluster, wanted, "latest")
    chosen: dict[PartitionId, int] = {}
    for topic, number in partitions:
        offset = given[topic][str(number)]
        special = {_EARLIEST: first, _LATEST: end}.get(offset)
        chosen[topic, number] = offset if special is None else special[topic, number]
    return by_topic(chosen)
