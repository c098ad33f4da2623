"""Who reads topics, Spark's own source or ours in bulk; and how ours is told what to read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.clients.kafka import offsets
from millrace.clients.kafka.bulk_fetch import is_plaintext
from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.api import RecordDecoder, RunContext
from millrace.connectors.kafka.start_offsets import Offsets, by_topic, note_start, pinned_ends
from millrace.settings import BULK_READER
from millrace.units import parse_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from millrace.connectors.kafka.source import KafkaSource

_LATELY = 60.0
WORTHWHILE_RECORDS = 100_000
"""Records from which on reading in bulk is quicker by more than the process costs that says what is in a batch."""


def left_to_spark(reader: KafkaSource, *, batches: bool, part: bool) -> str:
    """Why Spark's own source reads the topics; empty where we can do it. `part`: a replay's part of them."""
    reasons = (
        (BULK_READER.value() == "off", "MILLRACE_BULK_READER is off"),
        (not batches, "without batches no Python runs"),
        (part, "a replay reads a part of the past"),
        (reader.min_tasks, "min_tasks is Spark's"),
        (reader.config, "config is for Java's consumer"),
        (isinstance(reader.start, Mapping), "start names offsets"),
    )
    return next((why for holds, why in reasons if holds), "")


def in_bulk(reader: KafkaSource, site: RunContext) -> bool:
    """Whether topics are read in columns, past Spark's own source."""
    if left_to_spark(reader, batches=site.batches, part=site.offset_range is not None) or not is_plaintext(
        site.cluster()
    ):
        return False
    return BULK_READER.value() == "on" or _waiting(reader, site) >= WORTHWHILE_RECORDS


def bulk_rows(
    reader: KafkaSource, site: RunContext, columns: tuple[str, ...], ddl: str, step: RecordDecoder | None = None
) -> DataFrame:
    """The rows of topics that are read in bulk: these columns, or what the step makes of them."""
    from millrace.connectors.kafka.bulk_source import BulkSourceSpec, bulk_data_source

    cluster = site.cluster()
    following = BulkSourceSpec(
        cluster,
        begin=note_start(site, reader.topics_now(cluster), lambda: _begin(reader, site, cluster)),
        topics=reader.topics(),
        pattern=reader.matching,
        only=reader.partitions,
        most=reader.max_per_batch,
        interval=site.trigger_interval_s,
        committed=reader.isolation == "read_committed",
        go_on=reader.continues_on_data_loss,
        columns=columns,
        ddl=ddl,
        step=step,
    )
    kind = bulk_data_source(following)
    site.spark.dataSource.register(kind)
    return site.spark.readStream.format(kind.name()).load()


def _waiting(reader: KafkaSource, site: RunContext) -> int:
    """How many records a query is about to read, or has come by in a minute, if that is more."""
    cluster = site.cluster()
    places = [TopicPartition(*place) for place in reader.places_now(cluster)]
    ends = offsets.list_offsets(cluster, places, OffsetSpec.latest())
    first = ends if reader.start == "latest" else offsets.list_offsets(cluster, places, OffsetSpec.earliest())
    lately = offsets.list_offsets(cluster, places, OffsetSpec.for_timestamp(round((time.time() - _LATELY) * 1000)))
    coming = sum(ends[place] - since for place, since in lately.items() if since >= 0)
    read = site.next_offsets or first
    return max(coming, sum(end - read.get(place, 0) for place, end in ends.items()))


def _begin(reader: KafkaSource, site: RunContext, cluster: Cluster) -> Offsets:
    if reader.start == "latest":
        return pinned_ends(site, cluster, reader.places_now(cluster))
    places = [TopicPartition(*place) for place in reader.places_now(cluster)]
    to = "earliest" if reader.start == "earliest" else parse_time(str(reader.start))
    return by_topic(offsets.resolve(cluster, places, to))
