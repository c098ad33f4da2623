"""Topics with their partitions, their growth and the groups that read them.

Which topics of the cluster the dashboard shows: those of the run, or all of them if the operator says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.clients.kafka import consumer_groups, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.dashboard.kafka.lag import read_by
from millrace.dead_letters.letter import DEAD_TOPIC_SUFFIX
from millrace.errors import UnknownTopic
from millrace.telemetry.query_status import RunStatus
from millrace.telemetry.topology import Topology

TOPICS_EVERY = 2.0


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
        readers = _readers(consumer_groups.list_groups(self._cluster))
        now = time.monotonic()
        passed = None if self._then is None else now - self._then
        made: list[Mapping[str, Any]] = [self._as_json(topic, readers.get(topic.name, []), passed) for topic in found]
        self._then = now
        self._ends = {(topic.name, one.id): one.end or 0 for topic in found for one in topic.partitions}
        return made

    def _as_json(self, topic: topics.Topic, readers: list[dict[str, Any]], passed: float | None) -> dict[str, Any]:
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


def _readers(found: list[consumer_groups.ConsumerGroup]) -> dict[str, list[dict[str, Any]]]:
    made: dict[str, list[dict[str, Any]]] = {}
    for group in found:
        for topic in group.topics:
            lag = sum(one.lag or 0 for one in group.positions if one.topic == topic)
            made.setdefault(topic, []).append({"group": group.name, "state": group.state, "lag": lag})
    return made


_GENERATION = re.compile(r"\.g\d+$")
"""How a replay names the topics of its dead letters: `posts.g2.dead`."""


@dataclass(frozen=True)
class VisibleTopics:
    """The topics that a run reads or writes, and those of its dead letters."""

    topology: Topology
    run_status: RunStatus
    """Its progress names what the queries read, which is all that is known of a program."""
    patterns: tuple[str, ...] = ()
    """What the names of further topics match that the pipeline reads."""
    everything: bool = False

    def among(self, topics: Iterable[str]) -> set[str]:
        """Those of the topics of the cluster that are shown."""
        if self.everything:
            return set(topics)
        written, read = {edge.topic for edge in self.topology.edges}, self._read()
        return {topic for topic in topics if topic in written or self._is_of(topic, read)}

    def _is_of(self, topic: str, read: set[str]) -> bool:
        """Whether a topic is read, or has the dead letters of one that is."""
        source = topic.removesuffix(DEAD_TOPIC_SUFFIX)
        sources = {topic} if source == topic else {topic, source, _GENERATION.sub("", source)}
        return bool(sources & read) or any(map(self._matches, sources))

    def require(self, cluster: Cluster, topic: str) -> None:
        """Raise UnknownTopic unless the cluster has a topic that is shown; which others there are is not said."""
        existing = cluster.connect()
        if self.everything:
            topics.require(existing, topic)
        # A pattern sees only names that exist: what others make up could keep it busy.
        elif topic not in existing.topics or not self.among([topic]):
            hint = "start the run with --all-topics to see every topic of the cluster"
            raise UnknownTopic(f"this run has no topic {topic!r}", hint=hint)

    def _read(self) -> set[str]:
        """The topics that are named as read, and those that queries are seen to read."""
        seen = (
            topic for query in self.run_status.queries() for topic, _ in read_by(self.run_status.history(query.query))
        )
        return {topic for named in self.topology.topics.values() for topic in named} | set(seen)

    def _matches(self, topic: str) -> bool:
        return not topic.startswith("__") and any(re.fullmatch(pattern, topic) for pattern in self.patterns)
