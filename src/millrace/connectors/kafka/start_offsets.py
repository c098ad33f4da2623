"""Where sources began, kept: at the end for all queries of a pipeline alike, and the first batch of each query."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from confluent_kafka import TopicPartition

from millrace.atomic_files import write_whole
from millrace.clients.kafka import offsets
from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.api import RunContext
from millrace.connectors.base.query_checkpoint import source_starts

Offsets = dict[str, dict[str, int]]
"""By topic and partition, as in JSON."""


def note_start(context: RunContext, topics: Collection[str], find: Callable[[], Offsets]) -> Offsets:
    """Where a query's first batch begins; the same when that batch comes again."""
    start = noted_start(context, topics)
    if start is None:
        start = find()
        write_whole(_note(context), json.dumps(start))
    return start


def noted_start(context: RunContext, topics: Collection[str]) -> Offsets | None:
    """Where the first batch of a query begins that has planned one, as it was noted here or by Spark's own source."""
    if context.newest_batch < 0 or context.checkpoint is None:
        return None
    if _note(context).exists():
        noted: Offsets = json.loads(_note(context).read_text("utf-8"))
        return noted
    starts: Offsets = {}
    for start in source_starts(context.checkpoint):
        starts |= {name: offsets for name, offsets in start.items() if name in topics}
    return starts or None


def forget_start(context: RunContext) -> None:
    """A query begins, and Spark's own source notes where."""
    if context.query:
        _note(context).unlink(missing_ok=True)


def _note(context: RunContext) -> Path:
    return context.state / "starts" / context.query / f"{context.name}.json"


def pinned_path(context: RunContext) -> Path:
    """Return the file that holds where a source begins, for all queries of the pipeline."""
    return context.state / "starts" / f"{context.name}.json"


def pinned_ends(context: RunContext, cluster: Cluster, read: Sequence[tuple[str, int]]) -> Offsets:
    """The ends of partitions when the pipeline first ran, so that all its queries begin at the same records."""
    partitions, path = [TopicPartition(*partition) for partition in read], pinned_path(context)
    if not path.exists():
        write_whole(path, json.dumps(by_topic(offsets.resolve(cluster, partitions, "latest"))))
    pinned: Offsets = json.loads(path.read_text("utf-8"))
    first = offsets.resolve(cluster, partitions, "earliest")
    # A partition that was added since then is read from its beginning, and so is one whose records of then are gone.
    return by_topic({key: max(pinned.get(key[0], {}).get(str(key[1]), 0), first[key]) for key in read})


def by_topic(partition_offsets: Mapping[tuple[str, int], int]) -> Offsets:
    """Offsets of partitions as they are written in JSON."""
    offsets_by_topic: Offsets = {}
    for (topic, number), offset in sorted(partition_offsets.items()):
        offsets_by_topic.setdefault(topic, {})[str(number)] = offset
    return offsets_by_topic
