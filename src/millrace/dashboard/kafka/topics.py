"""Topics with their partitions, their growth and the groups that read them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from millrace.clients import groups, topics
from millrace.clients.cluster import Cluster

EVERY = 2.0


class Topics:
    """Looks at a cluster's topics; remembers the last look, for the rates."""

    def __init__(self, cluster: Cluster, visible: Callable[[Iterable[str]], set[str]] = set) -> None:
        self._cluster = cluster
        self._visible = visible
        self._ends: dict[tuple[str, int], int] = {}
        self._then: float | None = None

    def look(self) -> list[Mapping[str, Any]]:
        """Every topic that is shown, as it is now; rates are null at the first look."""
        every = topics.list_topics(self._cluster, internal=True)
        shown = self._visible(one.name for one in every)
        found = [one for one in every if one.name in shown]
        readers = _readers(groups.list_groups(self._cluster))
        now = time.monotonic()
        passed = None if self._then is None else now - self._then
        made: list[Mapping[str, Any]] = [self._told(topic, readers.get(topic.name, []), passed) for topic in found]
        self._then = now
        self._ends = {(topic.name, one.id): one.end or 0 for topic in found for one in topic.partitions}
        return made

    def _told(self, topic: topics.Topic, readers: list[dict[str, Any]], passed: float | None) -> dict[str, Any]:
        partitions = [
            {
                "id": one.id,
                "leader": one.leader,
                "replicas": one.replicas,
                "isr": one.in_sync,
                "start": one.first,
                "end": one.end,
                "rate": self._rate(topic.name, one, passed),
            }
            for one in topic.partitions
        ]
        rates = [one["rate"] for one in partitions]
        return {
            "name": topic.name,
            "internal": topic.name.startswith("__"),
            "partitions": partitions,
            "groups": readers,
            "rate": sum(rates) if rates and None not in rates else None,
            "bytes": None,  # Kafka's clients for Python cannot ask how large a log is
        }

    def _rate(self, topic: str, one: topics.Partition, passed: float | None) -> float | None:
        before = self._ends.get((topic, one.id))
        if before is None or one.end is None or not passed:
            return None
        return max(0, one.end - before) / passed


def _readers(found: list[groups.Group]) -> dict[str, list[dict[str, Any]]]:
    made: dict[str, list[dict[str, Any]]] = {}
    for group in found:
        for topic in group.topics:
            lag = sum(one.lag or 0 for one in group.positions if one.topic == topic)
            made.setdefault(topic, []).append({"group": group.name, "state": group.state, "lag": lag})
    return made
