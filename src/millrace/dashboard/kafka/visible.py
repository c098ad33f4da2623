"""Which topics of the cluster the dashboard shows: those of the run, or all of them if the operator says so."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from millrace.clients import topics
from millrace.clients.cluster import Cluster
from millrace.clients.letters import SUFFIX
from millrace.dashboard.kafka.lag import read_by
from millrace.errors import UnknownTopic
from millrace.telemetry.board import Board
from millrace.telemetry.outline import Outline

_GENERATION = re.compile(r"\.g\d+$")
"""How a replay names the topics of its dead letters: `posts.g2.dead`."""


@dataclass(frozen=True)
class Visible:
    """The topics that a run reads or writes, and those of its dead letters."""

    outline: Outline
    board: Board
    """Its progress names what the queries read, which is all that is known of a program."""
    patterns: tuple[str, ...] = ()
    """What the names of further topics match that the pipeline reads."""
    everything: bool = False

    def among(self, topics: Iterable[str]) -> set[str]:
        """Those of the topics of the cluster that are shown."""
        if self.everything:
            return set(topics)
        written, read = {edge.topic for edge in self.outline.edges}, self._read()
        return {topic for topic in topics if topic in written or self._is_of(topic, read)}

    def _is_of(self, topic: str, read: set[str]) -> bool:
        """Whether a topic is read, or has the dead letters of one that is."""
        source = topic.removesuffix(SUFFIX)
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
        seen = (topic for query in self.board.queries() for topic, _ in read_by(self.board.history(query.query)))
        return {topic for named in self.outline.topics.values() for topic in named} | set(seen)

    def _matches(self, topic: str) -> bool:
        return not topic.startswith("__") and any(re.fullmatch(pattern, topic) for pattern in self.patterns)
