"""Where a replay begins and ends, as people write it, and which offsets that means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.clients import offsets
from millrace.clients.cluster import Cluster
from millrace.errors import InvalidOption, OffsetsGone
from millrace.units import parse_time

Places = dict[tuple[str, int], int]
"""An offset for each topic and partition."""
Bound = str | datetime | Places
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


def begin_of(cluster: Cluster, places: Sequence[tuple[str, int]], bound: Bound) -> Places:
    """The first offset of each partition; raises when retention has removed what was asked for."""
    wanted = [TopicPartition(*place) for place in places]
    first = offsets.ask(cluster, wanted, OffsetSpec.earliest())
    end = offsets.ask(cluster, wanted, OffsetSpec.latest(), committed=True)
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


def end_of(
    cluster: Cluster, places: Sequence[tuple[str, int]], bound: Bound, begin: Mapping[tuple[str, int], int]
) -> Places:
    """The offset of each partition before which a replay ends; never one that is not there yet."""
    wanted = [TopicPartition(*place) for place in places]
    end = offsets.ask(cluster, wanted, OffsetSpec.latest(), committed=True)
    if isinstance(bound, datetime):
        found = offsets.ask(cluster, wanted, OffsetSpec.for_timestamp(_milliseconds(bound)))
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


def _since(cluster: Cluster, wanted: list[TopicPartition], moment: datetime, first: Places, end: Places) -> Places:
    found = offsets.ask(cluster, wanted, OffsetSpec.for_timestamp(_milliseconds(moment)))
    begin = {place: end[place] if offset < 0 else min(offset, end[place]) for place, offset in found.items()}
    # Everything that is left is of that time or later, and there was something before it. The first record may come
    # after the first offset: that may be the end of a transaction, or of what compaction has removed.
    there = offsets.ask(cluster, wanted, OffsetSpec.for_timestamp(0))
    gone = [place for place in begin if first[place] > 0 and there[place] == begin[place] < end[place]]
    if gone:
        told = "; ".join(f"{_named(place)} begins at offset {first[place]}" for place in gone)
        raise OffsetsGone(
            f"what is left in Kafka begins after {moment.isoformat(timespec='seconds')}: {told}",
            why="Kafka deleted what was before (retention.ms, retention.bytes)",
            hint="--from earliest begins with what is left",
        )
    return begin


def _require_known(bound: Places, places: Sequence[tuple[str, int]]) -> None:
    for place in bound:
        if place not in places:
            here = ", ".join(map(_named, places))
            raise InvalidOption(f"{_named(place)} is not read by the pipeline", hint=f"it reads {here}")


def _require_not_past(bound: Places, end: Places) -> None:
    for place, offset in bound.items():
        if offset > end[place]:
            raise InvalidOption(f"{_named(place)} has no offset {offset} yet", why=f"the next record gets {end[place]}")


def _milliseconds(moment: datetime) -> int:
    return max(0, int(moment.timestamp() * 1000))


def _named(place: tuple[str, int]) -> str:
    return f"{place[0]}[{place[1]}]"
