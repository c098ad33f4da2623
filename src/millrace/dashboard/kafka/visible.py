"""Which topics of the cluster the dashboard shows: those of the run, or all of them if the operator says so."""

from __future__ import annotations

import re
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

    def __call__(self, topic: str) -> bool:
        """Whether a topic of the cluster is shown."""
        if self.everything or topic in {edge.topic for edge in self.outline.edges}:
            return True
        if self._is_read(topic):
            return True
        source = topic.removesuffix(SUFFIX)
        return source != topic and (self._is_read(source) or self._is_read(_GENERATION.sub("", source)))

    def require(self, cluster: Cluster, topic: str) -> None:
        """Raise UnknownTopic unless the cluster has a topic that is shown; which others there are is not said."""
        existing = cluster.connect()
        if self.everything:
            topics.require(existing, topic)
        # A pattern sees only names that exist: what others make up could keep it busy.
        elif topic not in existing.topics or not self(topic):
            hint = "start the run with --all-topics to see every topic of the cluster"
            raise UnknownTopic(f"this run has no topic {topic!r}", hint=hint)

    def _is_read(self, topic: str) -> bool:
        if any(topic in named for named in self.outline.topics.values()):
            return True
        if not topic.startswith("__") and any(re.fullmatch(pattern, topic) for pattern in self.patterns):
            return True
        return any(
            topic == read for query in self.board.queries() for read, _ in read_by(self.board.history(query.query))
        )
