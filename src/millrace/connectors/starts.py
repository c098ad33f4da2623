"""Where a source that starts at the end began, kept so that every query of a pipeline begins there."""

from __future__ import annotations

import json
from collections.abc import Sequence

from confluent_kafka import TopicPartition

from millrace.clients import offsets
from millrace.clients.cluster import Cluster
from millrace.connectors.stream import Site
from millrace.drafts import write_whole


def pinned(site: Site, cluster: Cluster, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """The ends of topics when the pipeline first ran, so that all its queries begin at the same records."""
    metadata = cluster.connect().topics
    places = [TopicPartition(name, number) for name in names for number in metadata[name].partitions]
    path = site.state / "starts" / f"{site.name}.json"
    if not path.exists():
        found: dict[str, dict[str, int]] = {}
        for (topic, number), offset in offsets.resolve(cluster, places, "latest").items():
            found.setdefault(topic, {})[str(number)] = offset
        write_whole(path, json.dumps(found))
    known: dict[str, dict[str, int]] = json.loads(path.read_text("utf-8"))
    first = offsets.resolve(cluster, places, "earliest")
    # A partition that was added since then is read from its beginning, and so is one whose records of then are gone.
    return {
        name: {
            str(number): max(known.get(name, {}).get(str(number), 0), first[name, number])
            for number in metadata[name].partitions
        }
        for name in names
    }
