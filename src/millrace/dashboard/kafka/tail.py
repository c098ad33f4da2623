"""The records of a topic on the dashboard: as they come, or some of them on request.

- A record is shown as text where it is text, bounded, and marked where it is cut.
"""

from __future__ import annotations

import threading
import time
from itertools import chain
from typing import Any

from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.clients.kafka import offsets, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import ReadRequest, TopicTail, read_ranges, read_records
from millrace.telemetry.channels import MAX_TEXT_CHARS, RowBuffer
from millrace.units import parse_time

RECORD_COLUMNS = ("time", "partition", "offset", "key", "value", "cut", "binary", "headers", "skipped")


def record_fields(message: Message, skipped: int = 0) -> dict[str, Any]:
    """All of a record that fits on a page; bytes that are not UTF-8 stand as hex."""
    value, cut, binary = _text(message.value())
    key, _, _ = _text(message.key())
    kind, timestamp = message.timestamp()
    headers: list[tuple[str, bytes | None]] = message.headers() or []  # type: ignore[assignment]  # declared wider
    return {
        "time": timestamp if kind else None,
        "partition": message.partition(),
        "offset": message.offset(),
        "key": key,
        "value": value,
        "cut": cut,
        "binary": binary,
        "headers": {name: _text(content)[0] for name, content in headers[:50]},
        "skipped": skipped,
    }


def _text(content: bytes | str | None) -> tuple[str | None, bool, bool]:
    """Text, whether it was cut, and whether it stands for bytes that are no text."""
    if content is None:
        return None, False, False
    raw = content.encode("utf-8", "replace") if isinstance(content, str) else bytes(content)
    cut = len(raw) > MAX_TEXT_CHARS
    try:
        return _whole_characters(raw[:MAX_TEXT_CHARS], cut=cut), cut, False
    except UnicodeDecodeError:
        half = MAX_TEXT_CHARS // 3
        return raw[:half].hex(" "), len(raw) > half, True


def _whole_characters(raw: bytes, *, cut: bool) -> str:
    """Text, without the part of a character that a cut has left at its end."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if cut and error.start > len(raw) - 4 and error.reason == "unexpected end of data":
            return raw[: error.start].decode("utf-8")
        raise


KEPT = 500
RATE = 100
"""Records a second that are shown."""
_BEFORE = 20
"""Records of each partition that were there already."""
_TAKE = 0.1
_READ_TIMEOUT_S = 2.0
"""How long the newest records are read for one request."""
_LOOK = 5.0
"""Seconds between two looks for new partitions, and whether the topic is still there."""
_QUIET = 1.0
"""Seconds without a record after which there are no more."""
_MEASURE = 2.0
"""Seconds between two looks at how many records wait."""
BEHIND = 10_000
"""Records that may wait; when there are more, the topic is faster than we are, and its newest ones are gone on with."""


def follow(cluster: Cluster, topic: str, ring: RowBuffer, stop: threading.Event) -> None:
    """Fill a ring with the newest records of a topic, and those that come."""
    sieve = TailFilter(RATE)
    reading = _newest(cluster, topic, _BEFORE)
    looked = measured = time.monotonic()
    with TopicTail(cluster, reading) as following:
        ring.clear()
        while not stop.is_set():
            got = following.take(_TAKE)
            reading |= {(each.topic() or "", each.partition() or 0): (each.offset() or 0) + 1 for each in got}
            now = time.monotonic()
            ring.extend(record_fields(message, skipped) for message, skipped in sieve.take(got, now))
            if now - looked > _LOOK:
                looked = now
                if fresh := {place: 0 for place in _places(cluster, topic) if place not in reading}:
                    reading |= fresh
                    following.add(fresh)
            if now - measured > _MEASURE:
                measured = now
                sieve.skip(catch_up(cluster, topic, following, reading))


def catch_up(
    cluster: Cluster, topic: str, following: TopicTail, reading: dict[tuple[str, int], int], most: int = BEHIND
) -> int:
    """Go on with the newest records when too many wait: how many are left out by that."""
    newest = _newest(cluster, topic, _BEFORE)
    ahead = {place: max(offset, newest.get(place, 0)) for place, offset in reading.items()}
    left_out = sum(ahead.values()) - sum(reading.values())
    if left_out <= most:
        return 0
    reading |= ahead
    following.assign(reading)
    return left_out


def newest(cluster: Cluster, topic: str, most: int) -> list[dict[str, object]]:
    """Return the newest records of a topic, oldest first."""
    start = _newest(cluster, topic, most)
    ends = offsets.list_offsets(cluster, [TopicPartition(*place) for place in start], OffsetSpec.latest())
    ranges = {place: (start[place], end) for place, end in ends.items() if end > start[place]}
    batches = read_ranges(cluster, ranges, require_all=False, time_limit_s=_READ_TIMEOUT_S)
    messages = list(chain.from_iterable(batches))
    messages.sort(key=lambda message: (message.timestamp()[1], message.partition(), message.offset()))
    return [record_fields(message) for message in messages[-most:]]


class TailFilter:
    """Limits the records a second; the next one that passes says how many did not."""

    def __init__(self, rate: float) -> None:
        self._rate = self._allowed = rate
        self._then: float | None = None
        self._skipped = 0

    def skip(self, many: int) -> None:
        """Count records that were left out elsewhere."""
        self._skipped += many

    def take(self, got: list[Message], now: float) -> list[tuple[Message, int]]:
        """The newest ones for which there is room, each with the number that was left out before it."""
        passed = 0.0 if self._then is None else now - self._then
        self._then = now
        self._allowed = min(self._rate, self._allowed + passed * self._rate)
        room = min(len(got), int(self._allowed))
        self._allowed -= room
        self._skipped += len(got) - room
        passing = [(message, 0) for message in got[len(got) - room :]]
        if passing:
            passing[0] = (passing[0][0], self._skipped)
            self._skipped = 0
        return passing


def _places(cluster: Cluster, topic: str) -> list[tuple[str, int]]:
    metadata = cluster.connect()
    topics.require(metadata, topic)
    return [(topic, number) for number in sorted(metadata.topics[topic].partitions)]


def _newest(cluster: Cluster, topic: str, many: int) -> dict[tuple[str, int], int]:
    """Where to begin in each partition to get its last records."""
    places = [TopicPartition(*place) for place in _places(cluster, topic)]
    first = offsets.list_available_offsets(cluster, places, OffsetSpec.earliest())
    ends = offsets.list_available_offsets(cluster, places, OffsetSpec.latest())
    return {place: max(first[place], ends[place] - many) for place in first if place in ends}


def some_records(cluster: Cluster, topic: str, start: str, most: int) -> list[dict[str, Any]]:
    """Yield some records; `start` is `newest`, `earliest` or a time."""
    if start in ("newest", "latest"):
        return newest(cluster, topic, most)
    begin = "earliest" if start == "earliest" else parse_time(start)
    reading = ReadRequest(topic, begin, most=most, timeout=_QUIET)
    return [record_fields(message) for batch in read_records(cluster, reading) for message in batch][:most]
