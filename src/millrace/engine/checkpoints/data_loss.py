"""Topics that were deleted and made anew while a query was away: the offsets it knows mean other records now."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from millrace.clients import topics
from millrace.clients.cluster import Cluster
from millrace.drafts import write_whole
from millrace.errors import KafkaFailed


class Identities:
    """Kafka's own ids of the topics that a query reads, kept beside its checkpoint."""

    def __init__(self, state: Path, query: str, cluster: Cluster) -> None:
        self._path = state / "topics" / f"{query}.json"
        self._cluster = cluster

    def others(self, names: Iterable[str]) -> list[str]:
        """Those of some topics that are not the ones that were noted."""
        return [name for name, noted in self._noted().items() if name in names and self._now(name) not in ("", noted)]

    def note(self, names: Iterable[str]) -> None:
        """Keep the ids that these topics have now, and no others."""
        found = {name: self._now(name) for name in sorted(set(names))}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, json.dumps({name: one for name, one in found.items() if one}))

    def _noted(self) -> dict[str, str]:
        with suppress(OSError, ValueError):  # of a state that was begun before there were any
            noted: dict[str, str] = json.loads(self._path.read_text("utf-8"))
            return noted
        return {}

    def _now(self, name: str) -> str:
        with suppress(KafkaFailed):  # it is not there, or its brokers are too old to tell
            return topics.identity(self._cluster, name)
        return ""
