"""How far queries have read, told to Kafka: so its own tools, and everybody else's, show their lag."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from types import TracebackType

from confluent_kafka import Consumer, TopicPartition

from millrace.clients.kafka.cluster import Cluster
from millrace.errors import MillraceError
from millrace.telemetry.progress import BatchProgress, Place

_AGAIN = 600.0
"""Seconds after which a position that has not changed is told again: Kafka forgets groups that are silent for days."""
_RETRY = 2.0
_PATIENCE = 5.0
_log = logging.getLogger(__name__)


def group_of(pipeline: str, query: str) -> str:
    """The consumer group in which a query's position is."""
    return f"millrace.{pipeline}.{query}"


class OffsetCommitter:
    """A thread that commits, for each query, the end of its newest finished batch; never what is not done yet.

    Spark keeps its own offsets and never asks for these: a group that is moved moves no query, and one that cannot be
    committed harms none.
    """

    def __init__(self, cluster: Callable[[], Cluster], pipeline: str, queries: Collection[str]) -> None:
        self._cluster = cluster
        self._pipeline = pipeline
        self._queries = frozenset(queries)
        self._clients: dict[str, Consumer] = {}
        self._newest: dict[str, Mapping[Place, int]] = {}
        self._told: dict[str, tuple[float, Mapping[Place, int]]] = {}
        self._changed = threading.Condition()
        self._over = False
        self._complained = False
        self._thread = threading.Thread(target=self._run, name="positions", daemon=True)

    def __enter__(self) -> OffsetCommitter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join(_PATIENCE)

    def take(self, progress: BatchProgress) -> None:
        """A batch is finished."""
        read = progress.read
        if read and progress.query in self._queries:
            with self._changed:
                self._newest[progress.query] = read
                self._changed.notify()

    def _run(self) -> None:
        over = False
        while not over:
            with self._changed:
                self._changed.wait_for(lambda: self._over or self._due(), timeout=_RETRY)
                over, newest = self._over, dict(self._newest)
            for query, read in newest.items():
                if self._stale(query, read):
                    self._tell(query, read)
        for client in self._clients.values():
            client.close()

    def _due(self) -> bool:
        return any(self._stale(query, read) for query, read in self._newest.items())

    def _stale(self, query: str, read: Mapping[Place, int]) -> bool:
        when, before = self._told.get(query, (0.0, {}))
        return before != read or time.monotonic() - when > _AGAIN

    def _tell(self, query: str, read: Mapping[Place, int]) -> None:
        try:
            offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in read.items()]
            with self._cluster().speaking(f"tell Kafka the position of query {query!r}"):
                self._client(query).commit(offsets=offsets, asynchronous=False)
        except MillraceError as error:
            level = logging.DEBUG if self._complained else logging.WARNING
            _log.log(level, "%s; it is tried again, and the query goes on", error.message)
            self._complained = True
            with self._changed:  # no sooner than this, unless it is the end
                self._changed.wait_for(lambda: self._over, timeout=_RETRY)
            return
        self._told[query] = (time.monotonic(), read)

    def _client(self, query: str) -> Consumer:
        if query not in self._clients:
            own = {"group.id": group_of(self._pipeline, query), "enable.auto.commit": False}
            self._clients[query] = Consumer({**self._cluster().config(), **own})
        return self._clients[query]
