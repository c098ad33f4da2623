"""Offsets: what earliest, latest, a time or a number means in each partition."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from datetime import datetime

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from millrace.clients.cluster import Cluster
from millrace.errors import InvalidOption


def ask(cluster: Cluster, wanted: Sequence[TopicPartition], spec: OffsetSpec) -> dict[tuple[str, int], int]:
    """The offset that a spec (earliest, latest, a time) means for each partition; -1 when there is none."""
    with cluster.speaking("ask for offsets"):
        return {place: result.result().offset for place, result in _request(cluster, wanted, spec).items()}


def known(cluster: Cluster, wanted: Sequence[TopicPartition], spec: OffsetSpec) -> dict[tuple[str, int], int]:
    """The same without the partitions whose leader does not answer: a view of a cluster in trouble."""
    asked = _request(cluster, wanted, spec)
    return {place: result.result().offset for place, result in asked.items() if result.exception() is None}


def _request(
    cluster: Cluster, wanted: Sequence[TopicPartition], spec: OffsetSpec
) -> dict[tuple[str, int], Future[ListOffsetsResultInfo]]:
    if not wanted:
        return {}
    admin = cluster.admin()
    with suppress(KafkaException):  # a client that knows no leaders yet may take seconds to find them
        admin.list_topics(timeout=cluster.timeout)
    asked = admin.list_offsets(dict.fromkeys(wanted, spec), request_timeout=cluster.timeout)
    wait(asked.values())  # the client must live until the last answer
    return {(place.topic, place.partition): result for place, result in asked.items()}


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
