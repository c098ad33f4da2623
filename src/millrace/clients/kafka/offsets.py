"""Offsets of partitions.

- `list_offsets` and `resolve` find the offset that earliest, latest, a time or a number means in each partition.
- `parse_bound`, `start_offsets` and `end_offsets` find where a replay starts and ends, as users write it.
- `offset_retention_s` is how long the cluster keeps the offsets of an inactive group.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from datetime import datetime

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, ListOffsetsResultInfo, OffsetSpec, ResourceType

from millrace.clients.kafka.cluster import Cluster
from millrace.errors import AccessDenied, InvalidOption, OffsetsGone
from millrace.units import parse_time

PartitionId = tuple[str, int]
"""A topic and the number of one of its partitions."""
Offsets = dict[PartitionId, int]

_DEFAULT_RETENTION_S = 24 * 3600.0
"""Assumed where the setting may not be read: the default of old brokers; it is a week now."""
_LEADER_CHANGE = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_LEADER_EPOCH}


def list_offsets(
    cluster: Cluster, wanted: Sequence[TopicPartition], spec: OffsetSpec, *, committed: bool = False
) -> Offsets:
    """Return the offset that a spec (earliest, latest, a time) means for each partition; -1 if there is none.

    With `committed` the end is before the first transaction that is still open.
    """
    asked = _request(cluster, wanted, spec, committed=committed)
    deadline = time.monotonic() + cluster.timeout
    while any(map(_is_moving, asked.values())) and time.monotonic() < deadline:
        time.sleep(0.05)
        asked = _request(cluster, wanted, spec, committed=committed)
    with cluster.translated_errors("ask for offsets"):
        return {partition: result.result().offset for partition, result in asked.items()}


def list_available_offsets(
    cluster: Cluster, wanted: Sequence[TopicPartition], spec: OffsetSpec, *, committed: bool = False
) -> Offsets:
    """Return the same without the partitions whose leader does not answer."""
    asked = _request(cluster, wanted, spec, committed=committed)
    return {partition: result.result().offset for partition, result in asked.items() if result.exception() is None}


def _request(
    cluster: Cluster, wanted: Sequence[TopicPartition], spec: OffsetSpec, *, committed: bool = False
) -> dict[tuple[str, int], Future[ListOffsetsResultInfo]]:
    if not wanted:
        return {}
    admin = cluster.admin()
    with suppress(KafkaException):  # a client that knows no leaders yet may take seconds to find them
        admin.list_topics(timeout=cluster.timeout)
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = admin.list_offsets(dict.fromkeys(wanted, spec), isolation_level=level, request_timeout=cluster.timeout)
    wait(asked.values())  # the client must live until the last answer
    return {(key.topic, key.partition): result for key, result in asked.items()}


def _is_moving(asked: Future[ListOffsetsResultInfo]) -> bool:
    """Return whether the partition has no leader now, or one that does not know it yet."""
    problem = asked.exception()
    return isinstance(problem, KafkaException) and problem.args[0].code() in _LEADER_CHANGE


def resolve(cluster: Cluster, partitions: Sequence[TopicPartition], to: str | int | datetime) -> Offsets:
    """Return the offset of each partition that `earliest`, `latest`, an offset or a time means."""
    first = list_offsets(cluster, partitions, OffsetSpec.earliest())
    end = list_offsets(cluster, partitions, OffsetSpec.latest())
    if isinstance(to, datetime):
        return _offsets_at(cluster, partitions, to, end)
    if isinstance(to, int):
        for (topic, number), low in first.items():
            high = end[topic, number]
            if not low <= to <= high:
                why = (
                    f"it holds offsets {low} to {high - 1}" if high > low else f"it is empty, the next offset is {high}"
                )
                hint = f"choose an offset from {low} to {high}"
                raise InvalidOption(f"partition {number} of {topic!r} has no offset {to}", why=why, hint=hint)
        return dict.fromkeys(first, to)
    return first if to == "earliest" else end


def offset_retention_s(cluster: Cluster) -> float:
    """Return how long the cluster keeps the offsets of a group after its last commit."""
    broker = next(iter(cluster.connect().brokers))
    asked = cluster.admin().describe_configs([ConfigResource(ResourceType.BROKER, str(broker))])
    try:
        with cluster.translated_errors("read a broker's settings"):
            setting = next(iter(asked.values())).result().get("offsets.retention.minutes")
    except AccessDenied:  # the right to write to a topic does not include reading the settings of brokers
        return _DEFAULT_RETENTION_S
    return 60.0 * float(setting.value) if setting else _DEFAULT_RETENTION_S


Bound = str | datetime | Offsets
"""`earliest`, `latest`, a time, or offsets."""

_OFFSET = re.compile(r"([A-Za-z0-9._-]{1,249})\[(\d{1,6})\]@(\d{1,18})")
_HINT = "write earliest, latest, 2026-05-01T12:00:00Z, '2h ago', or offsets as posts[0]@23,posts[1]@40"


def parse_bound(text: str) -> Bound:
    """Parse `earliest`, `latest` (or `now`), a time, how long ago, or offsets as `posts[0]@23,posts[1]@40`."""
    if text in ("earliest", "latest", "now"):
        return "latest" if text == "now" else text
    if "@" in text or "[" in text:
        matches = [_OFFSET.fullmatch(part.strip()) for part in text.split(",")]
        if not all(matches):
            raise InvalidOption(f"{text!r} is not a list of offsets", hint=_HINT)
        return {(match[1], int(match[2])): int(match[3]) for match in matches if match}
    try:
        return parse_time(text)
    except InvalidOption:
        raise InvalidOption(f"{text!r} is not a valid start or end", hint=_HINT) from None


def start_offsets(cluster: Cluster, partitions: Sequence[PartitionId], bound: Bound) -> Offsets:
    """Return the first offset of each partition; raise OffsetsGone if retention has removed what was asked for."""
    wanted = [TopicPartition(*partition) for partition in partitions]
    first = list_offsets(cluster, wanted, OffsetSpec.earliest())
    end = list_offsets(cluster, wanted, OffsetSpec.latest(), committed=True)
    if isinstance(bound, datetime):
        return _since(cluster, wanted, bound, first, end)
    if isinstance(bound, str):
        return first if bound == "earliest" else end
    _require_known(bound, partitions)
    gone = [(partition, offset) for partition, offset in bound.items() if offset < first[partition]]
    if gone:
        ranges = "; ".join(f"{_partition_name(key)}: offsets {offset} to {first[key] - 1}" for key, offset in gone)
        why = "Kafka deleted it (retention.ms, retention.bytes)"
        hint = "--from earliest starts with the records that are left"
        raise OffsetsGone(f"these offsets are no longer in Kafka: {ranges}", why=why, hint=hint)
    _require_not_past(bound, end)
    return {partition: bound.get(partition, first[partition]) for partition in partitions}


def end_offsets(
    cluster: Cluster, partitions: Sequence[PartitionId], bound: Bound, begin: Mapping[PartitionId, int]
) -> Offsets:
    """Return the offset of each partition before which a replay ends; never beyond the present end."""
    wanted = [TopicPartition(*partition) for partition in partitions]
    end = list_offsets(cluster, wanted, OffsetSpec.latest(), committed=True)
    if isinstance(bound, datetime):
        chosen = _offsets_at(cluster, wanted, bound, end)
    elif isinstance(bound, str):
        if bound == "earliest":
            raise InvalidOption("a replay cannot end at the start", hint=_HINT)
        chosen = end
    else:
        _require_known(bound, partitions)
        _require_not_past(bound, end)
        chosen = {partition: bound.get(partition, end[partition]) for partition in partitions}
    return {partition: max(chosen[partition], begin[partition]) for partition in partitions}


def _since(cluster: Cluster, wanted: list[TopicPartition], moment: datetime, first: Offsets, end: Offsets) -> Offsets:
    begin = _offsets_at(cluster, wanted, moment, end)
    # Records are lost if all that are left are of that time or later, and there were others before them. The first
    # record may come after the first offset, which may be a transaction marker or a record that compaction removed.
    first_records = list_offsets(cluster, wanted, OffsetSpec.for_timestamp(0))
    gone = [
        partition
        for partition in begin
        if first[partition] > 0 and first_records[partition] == begin[partition] < end[partition]
    ]
    if gone:
        ranges = "; ".join(f"{_partition_name(partition)} starts at offset {first[partition]}" for partition in gone)
        raise OffsetsGone(
            f"the records that are left in Kafka start after {moment.isoformat(timespec='seconds')}: {ranges}",
            why="Kafka deleted the records before (retention.ms, retention.bytes)",
            hint="--from earliest starts with the records that are left",
        )
    return begin


def _require_known(bound: Offsets, partitions: Sequence[PartitionId]) -> None:
    for partition in bound:
        if partition not in partitions:
            here = ", ".join(map(_partition_name, partitions))
            raise InvalidOption(f"{_partition_name(partition)} is not read by the pipeline", hint=f"it reads {here}")


def _require_not_past(bound: Offsets, end: Offsets) -> None:
    for partition, offset in bound.items():
        if offset > end[partition]:
            why = f"the next record gets {end[partition]}"
            raise InvalidOption(f"{_partition_name(partition)} has no offset {offset} yet", why=why)


def _offsets_at(cluster: Cluster, wanted: Sequence[TopicPartition], moment: datetime, end: Offsets) -> Offsets:
    """Return the offset of the first record of a time or later; the end offset where there is none."""
    at = list_offsets(cluster, wanted, OffsetSpec.for_timestamp(max(0, int(moment.timestamp() * 1000))))
    return {key: end[key] if offset < 0 else min(offset, end[key]) for key, offset in at.items()}


def _partition_name(partition: PartitionId) -> str:
    return f"{partition[0]}[{partition[1]}]"
