"""Records of a topic, for one question: the newest, the oldest, or those since a time."""

from __future__ import annotations

from typing import Any

from millrace.clients.cluster import Cluster
from millrace.clients.consumer import Reading, read
from millrace.dashboard.kafka import tail
from millrace.dashboard.kafka.shown import shown
from millrace.units import parse_time

_QUIET = 1.0
"""Seconds without a record after which there are no more."""


def records(cluster: Cluster, topic: str, start: str, most: int) -> list[dict[str, Any]]:
    """At most so many records; `start` is `newest`, `earliest` or a time."""
    if start in ("newest", "latest"):
        return tail.newest(cluster, topic, most)
    begin = "earliest" if start == "earliest" else parse_time(start)
    reading = Reading(topic, begin, most=most, timeout=_QUIET)
    return [shown(message) for batch in read(cluster, reading) for message in batch][:most]
