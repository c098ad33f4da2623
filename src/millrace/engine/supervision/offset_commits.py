"""Commits the offsets that queries have read to consumer groups, so that Kafka's own tools show their lag."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping

from confluent_kafka import Consumer, TopicPartition

from millrace.clients.kafka.cluster import Cluster
from millrace.errors import MillraceError
from millrace.telemetry.progress import BatchProgress, Place

_REFRESH_INTERVAL_S = 600.0
"""How often offsets that have not changed are committed again: Kafka removes groups that are idle for days."""
_RETRY_DELAY_S = 2.0
_CLOSE_TIMEOUT_S = 5.0
_log = logging.getLogger(__name__)


def group_of(pipeline: str, query: str) -> str:
    """Return the consumer group to which a query's offsets are committed."""
    return f"millrace.{pipeline}.{query}"


class OffsetCommitter:
    """A thread that commits, for each query, the end offsets of its last finished batch.

    Spark keeps its own offsets and never reads these: resetting a group moves no query, and a commit that fails harms
    none.
    """

    def __init__(self, cluster: Callable[[], Cluster], pipeline: str, queries: Collection[str]) -> None:
        self._cluster, self._pipeline, self._queries = cluster, pipeline, frozenset(queries)
        self._consumers: dict[str, Consumer] = {}
        self._offsets: dict[str, Mapping[Place, int]] = {}
        self._committed: dict[str, tuple[float, Mapping[Place, int]]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="offset-commits", daemon=True)

    def __enter__(self) -> OffsetCommitter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def on_batch(self, progress: BatchProgress) -> None:
        """Commit the offsets of a finished batch soon."""
        if progress.read and progress.query in self._queries:
            with self._changed:
                self._offsets[progress.query] = progress.read
                self._changed.notify()

    def _run(self) -> None:
        closed = False
        while not closed:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._due(), timeout=_RETRY_DELAY_S)
                closed, due = self._closed, self._due()
            for query, offsets in due.items():
                self._commit(query, offsets)
        for consumer in self._consumers.values():
            consumer.close()

    def _due(self) -> dict[str, Mapping[Place, int]]:
        refreshed = time.monotonic() - _REFRESH_INTERVAL_S
        committed = {query: offsets for query, (at, offsets) in self._committed.items() if at >= refreshed}
        return {query: offsets for query, offsets in self._offsets.items() if committed.get(query) != offsets}

    def _commit(self, query: str, offsets: Mapping[Place, int]) -> None:
        try:
            partitions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
            with self._cluster().translated_errors(f"commit the offsets of query {query!r}"):
                self._consumer(query).commit(offsets=partitions, asynchronous=False)
        except MillraceError as error:
            level = logging.DEBUG if self._warned else logging.WARNING
            _log.log(level, "%s; the commit is repeated, and the query continues", error.message)
            self._warned = True
            with self._changed:  # no sooner than this, unless it is the end
                self._changed.wait_for(lambda: self._closed, timeout=_RETRY_DELAY_S)
            return
        self._committed[query] = (time.monotonic(), offsets)

    def _consumer(self, query: str) -> Consumer:
        if query not in self._consumers:
            config = {"group.id": group_of(self._pipeline, query), "enable.auto.commit": False}
            self._consumers[query] = Consumer({**self._cluster().config(), **config})
        return self._consumers[query]
