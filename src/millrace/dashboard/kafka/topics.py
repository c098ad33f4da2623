"""Topics of the cluster on the dashboard.

- `Topics` reads them with their partitions, their growth and the groups that read them.
- `VisibleTopics` decides which are shown: those of the run, or all of them with --all-topics.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
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
        self._cluster, self._visible = cluster, visible
        self._ends: dict[tuple[str, int], int] = {}
        self._then: float | None = None

    def look(self) -> list[Mapping[str, Any]]:
        """Every topic that is shown, as it is now; rates are null at the first look."""
        every = topics.list_topics(self._cluster, internal=True)
        names = self._visible(topic.name for topic in every)
        shown = [topic for topic in every if topic.name in names]
        readers = _readers(consumer_groups.list_groups(self._cluster))
        now = time.monotonic()
        passed = None if self._then is None else now - self._then
        rows: list[Mapping[str, Any]] = [self._as_json(topic, readers[topic.name], passed) for topic in shown]
        self._then = now
        self._ends = {(topic.name, part.id): part.end or 0 for topic in shown for part in topic.partitions}
        return rows

    def _as_json(self, topic: topics.Topic, readers: list[dict[str, Any]], passed: float | None) -> dict[str, Any]:
        partitions = [
            {
                "id": part.id,
                "leader": part.leader,
                "replicas": part.replicas,
                "isr": part.in_sync,
                "start": part.first,
                "end": part.end,
                "rate": self._rate(topic.name, part, passed),
            }
            for part in topic.partitions
        ]
        rates = [part["rate"] for part in partitions]
        return {
            "name": topic.name,
            "internal": topic.name.startswith("__"),
            "partitions": partitions,
            "groups": readers,
            "rate": sum(rates) if rates and None not in rates else None,
            "bytes": None,  # Kafka's clients for Python cannot ask how large a log is
        }

    def _rate(self, topic: str, partition: topics.Partition, passed: float | None) -> float | None:
        before, end = self._ends.get((topic, partition.id)), partition.end
        return None if before is None or end is None or not passed else max(0, end - before) / passed


def _readers(groups: list[consumer_groups.ConsumerGroup]) -> defaultdict[str, list[dict[str, Any]]]:
    readers = defaultdict(list)
    for group in groups:
        for topic in group.topics:
            lag = sum(position.lag or 0 for position in group.positions if position.topic == topic)
            readers[topic].append({"group": group.name, "state": group.state, "lag": lag})
    return readers


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
        histories = (self.run_status.history(query.query) for query in self.run_status.queries())
        named = {topic for topics_of_source in self.topology.topics.values() for topic in topics_of_source}
        return named | {topic for history in histories for topic, _ in read_by(history)}

    def _matches(self, topic: str) -> bool:
        return not topic.startswith("__") and any(re.fullmatch(pattern, topic) for pattern in self.patterns)
