"""Offsets: what earliest, latest, a time or a number means in each partition."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from datetime import datetime

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, ListOffsetsResultInfo, OffsetSpec, ResourceType

from millrace.clients.cluster import Cluster
from millrace.errors import AccessDenied, InvalidOption

_A_DAY = 24 * 3600.0
"""What is taken for it where nobody may ask: Kafka kept them no longer once, and keeps them for a week now."""
_MOVING = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_LEADER_EPOCH}


def ask(
    cluster: Cluster, wanted: Sequence[TopicPartition], spec: OffsetSpec, *, committed: bool = False
) -> dict[tuple[str, int], int]:
    """The offset that a spec (earliest, latest, a time) means for each partition; -1 when there is none.

    With `committed` the end is before the first transaction that is still open.
    """
    asked = _request(cluster, wanted, spec, committed=committed)
    deadline = time.monotonic() + cluster.timeout
    while any(map(_is_moving, asked.values())) and time.monotonic() < deadline:
        time.sleep(0.05)
        asked = _request(cluster, wanted, spec, committed=committed)
    with cluster.speaking("ask for offsets"):
        return {place: result.result().offset for place, result in asked.items()}


def known(
    cluster: Cluster, wanted: Sequence[TopicPartition], spec: OffsetSpec, *, committed: bool = False
) -> dict[tuple[str, int], int]:
    """The same without the partitions whose leader does not answer: a view of a cluster in trouble."""
    asked = _request(cluster, wanted, spec, committed=committed)
    return {place: result.result().offset for place, result in asked.items() if result.exception() is None}


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
    return {(place.topic, place.partition): result for place, result in asked.items()}


def _is_moving(asked: Future[ListOffsetsResultInfo]) -> bool:
    """Whether the partition has no leader at this moment, or one that does not know it yet."""
    problem = asked.exception()
    return isinstance(problem, KafkaException) and problem.args[0].code() in _MOVING


def resolve(cluster: Cluster, places: Sequence[TopicPartition], to: str | int | datetime) -> dict[tuple[str, int], int]:
    """The offset of each partition that `earliest`, `latest`, an offset or a time means."""
    first = ask(cluster, places, OffsetSpec.earliest())
    end = ask(cluster, places, OffsetSpec.latest())
    if isinstance(to, datetime):
        found = ask(cluster, places, OffsetSpec.for_timestamp(max(0, int(to.timestamp() * 1000))))
        return {place: end[place] if offset < 0 else offset for place, offset in found.items()}
    if isinstance(to, int):
        for place in first:
            _require_within(place, to, first[place], end[place])
        return dict.fromkeys(first, to)
    return first if to == "earliest" else end


def _require_within(place: tuple[str, int], offset: int, first: int, end: int) -> None:
    if not first <= offset <= end:
        raise InvalidOption(
            f"partition {place[1]} of {place[0]!r} has no offset {offset}",
            why=f"it holds offsets {first} to {end - 1}" if end > first else f"it is empty, the next offset is {end}",
            hint=f"choose an offset from {first} to {end}",
        )


def kept(cluster: Cluster) -> float:
    """Seconds for which the cluster keeps the offsets of a group that nobody commits to any more."""
    some = next(iter(cluster.connect().brokers))
    asked = cluster.admin().describe_configs([ConfigResource(ResourceType.BROKER, str(some))])
    try:
        with cluster.speaking("read a broker's settings"):
            told = next(iter(asked.values())).result().get("offsets.retention.minutes")
    except AccessDenied:  # who may write to a topic need not be allowed to look at brokers
        return _A_DAY
    return 60.0 * float(told.value) if told else _A_DAY
