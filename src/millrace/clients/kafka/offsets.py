"""Where a replay begins and ends, as people write it, and which offsets that means.

Offsets: what earliest, latest, a time or a number means in each partition.
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

_A_DAY = 24 * 3600.0
"""What is taken for it where nobody may ask: Kafka kept them no longer once, and keeps them for a week now."""
_MOVING = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_LEADER_EPOCH}


def list_offsets(
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
    with cluster.translated_errors("ask for offsets"):
        return {place: result.result().offset for place, result in asked.items()}


def list_available_offsets(
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
    first = list_offsets(cluster, places, OffsetSpec.earliest())
    end = list_offsets(cluster, places, OffsetSpec.latest())
    if isinstance(to, datetime):
        found = list_offsets(cluster, places, OffsetSpec.for_timestamp(max(0, int(to.timestamp() * 1000))))
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


def offset_retention_s(cluster: Cluster) -> float:
    """Seconds for which the cluster keeps the offsets of a group that nobody commits to any more."""
    some = next(iter(cluster.connect().brokers))
    asked = cluster.admin().describe_configs([ConfigResource(ResourceType.BROKER, str(some))])
    try:
        with cluster.translated_errors("read a broker's settings"):
            told = next(iter(asked.values())).result().get("offsets.retention.minutes")
    except AccessDenied:  # who may write to a topic need not be allowed to look at brokers
        return _A_DAY
    return 60.0 * float(told.value) if told else _A_DAY


Offsets = dict[tuple[str, int], int]
"""An offset for each topic and partition."""
Bound = str | datetime | Offsets
"""`earliest`, `latest`, a time, or offsets."""

_OFFSET = re.compile(r"([A-Za-z0-9._-]{1,249})\[(\d{1,6})\]@(\d{1,18})")
_HINT = "write earliest, latest, 2026-05-01T12:00:00Z, '2h ago', or offsets as posts[0]@23,posts[1]@40"


def parse_bound(text: str) -> Bound:
    """`earliest`, `latest` (or `now`), a time, how long ago, or offsets as `posts[0]@23,posts[1]@40`."""
    if text in ("earliest", "latest", "now"):
        return "latest" if text == "now" else text
    if "@" in text or "[" in text:
        found = [_OFFSET.fullmatch(part.strip()) for part in text.split(",")]
        if not all(found):
            raise InvalidOption(f"{text!r} is not a list of offsets", hint=_HINT)
        return {(one[1], int(one[2])): int(one[3]) for one in found if one}
    try:
        return parse_time(text)
    except InvalidOption:
        raise InvalidOption(f"{text!r} is no place to begin or to end", hint=_HINT) from None


def start_offsets(cluster: Cluster, places: Sequence[tuple[str, int]], bound: Bound) -> Offsets:
    """The first offset of each partition; raises when retention has removed what was asked for."""
    wanted = [TopicPartition(*place) for place in places]
    first = list_offsets(cluster, wanted, OffsetSpec.earliest())
    end = list_offsets(cluster, wanted, OffsetSpec.latest(), committed=True)
    if isinstance(bound, datetime):
        return _since(cluster, wanted, bound, first, end)
    if isinstance(bound, str):
        return first if bound == "earliest" else end
    _require_known(bound, places)
    gone = [(place, offset) for place, offset in bound.items() if offset < first[place]]
    if gone:
        told = "; ".join(f"{_named(place)}: offsets {offset} to {first[place] - 1}" for place, offset in gone)
        raise OffsetsGone(
            f"what was asked for is no longer in Kafka: {told}",
            why="Kafka deleted it (retention.ms, retention.bytes)",
            hint="--from earliest begins with what is left",
        )
    _require_not_past(bound, end)
    return {place: bound.get(place, first[place]) for place in places}


def end_offsets(
    cluster: Cluster, places: Sequence[tuple[str, int]], bound: Bound, begin: Mapping[tuple[str, int], int]
) -> Offsets:
    """The offset of each partition before which a replay ends; never one that is not there yet."""
    wanted = [TopicPartition(*place) for place in places]
    end = list_offsets(cluster, wanted, OffsetSpec.latest(), committed=True)
    if isinstance(bound, datetime):
        found = list_offsets(cluster, wanted, OffsetSpec.for_timestamp(_milliseconds(bound)))
        chosen = {place: end[place] if offset < 0 else min(offset, end[place]) for place, offset in found.items()}
    elif isinstance(bound, str):
        if bound == "earliest":
            raise InvalidOption("a replay cannot end at the beginning", hint=_HINT)
        chosen = end
    else:
        _require_known(bound, places)
        _require_not_past(bound, end)
        chosen = {place: bound.get(place, end[place]) for place in places}
    return {place: max(chosen[place], begin[place]) for place in places}


def _since(cluster: Cluster, wanted: list[TopicPartition], moment: datetime, first: Offsets, end: Offsets) -> Offsets:
    found = list_offsets(cluster, wanted, OffsetSpec.for_timestamp(_milliseconds(moment)))
    begin = {place: end[place] if offset < 0 else min(offset, end[place]) for place, offset in found.items()}
    # Everything that is left is of that time or later, and there was something before it. The first record may come
    # after the first offset: that may be the end of a transaction, or of what compaction has removed.
    there = list_offsets(cluster, wanted, OffsetSpec.for_timestamp(0))
    gone = [place for place in begin if first[place] > 0 and there[place] == begin[place] < end[place]]
    if gone:
        told = "; ".join(f"{_named(place)} begins at offset {first[place]}" for place in gone)
        raise OffsetsGone(
            f"what is left in Kafka begins after {moment.isoformat(timespec='seconds')}: {told}",
            why="Kafka deleted what was before (retention.ms, retention.bytes)",
            hint="--from earliest begins with what is left",
        )
    return begin


def _require_known(bound: Offsets, places: Sequence[tuple[str, int]]) -> None:
    for place in bound:
        if place not in places:
            here = ", ".join(map(_named, places))
            raise InvalidOption(f"{_named(place)} is not read by the pipeline", hint=f"it reads {here}")


def _require_not_past(bound: Offsets, end: Offsets) -> None:
    for place, offset in bound.items():
        if offset > end[place]:
            raise InvalidOption(f"{_named(place)} has no offset {offset} yet", why=f"the next record gets {end[place]}")


def _milliseconds(moment: datetime) -> int:
    return max(0, int(moment.timestamp() * 1000))


def _named(place: tuple[str, int]) -> str:
    return f"{place[0]}[{place[1]}]"
