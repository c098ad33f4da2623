"""Where sources began, kept: at the end for all queries of a pipeline alike, and the first batch of each query."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import TopicPartition

from millrace.clients import offsets
from millrace.clients.cluster import Cluster
from millrace.connectors.stream import Site
from millrace.drafts import write_whole

Offsets = dict[str, dict[str, int]]
"""By topic and partition, as in JSON."""


def noted(site: Site, find: Callable[[], Offsets]) -> Offsets:
    """Where a query's first batch begins; the same when that batch comes again."""
    known = begun(site)
    if known is not None:
        return known
    found = find()
    write_whole(_note(site), json.dumps(found))
    return found


def begun(site: Site) -> Offsets | None:
    """Where the first batch of a query begins that has planned one; None before."""
    if site.newest < 0 or not _note(site).exists():
        return None
    known: Offsets = json.loads(_note(site).read_text("utf-8"))
    return known


def _note(site: Site) -> Path:
    return site.state / "starts" / site.query / f"{site.name}.json"


def pinned(site: Site, cluster: Cluster, names: Sequence[str]) -> Offsets:
    """The ends of topics when the pipeline first ran, so that all its queries begin at the same records."""
    metadata = cluster.connect().topics
    places = [TopicPartition(name, number) for name in names for number in metadata[name].partitions]
    path = site.state / "starts" / f"{site.name}.json"
    if not path.exists():
        write_whole(path, json.dumps(by_topic(offsets.resolve(cluster, places, "latest"))))
    known: Offsets = json.loads(path.read_text("utf-8"))
    first = offsets.resolve(cluster, places, "earliest")
    # A partition that was added since then is read from its beginning, and so is one whose records of then are gone.
    return {
        name: {
            str(number): max(known.get(name, {}).get(str(number), 0), first[name, number])
            for number in metadata[name].partitions
        }
        for name in names
    }


def by_topic(found: Mapping[tuple[str, int], int]) -> Offsets:
    """Offsets of partitions as they are written in JSON."""
    told: Offsets = {}
    for (topic, number), offset in sorted(found.items()):
        told.setdefault(topic, {})[str(number)] = offset
    return told
