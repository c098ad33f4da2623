"""Sources that read what another pipeline writes, in whichever generation counts when they start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millrace.clients.alias import aliases
from millrace.clients.cluster import Cluster
from millrace.connectors.kafka import KafkaReader
from millrace.connectors.options import make_reader
from millrace.pipeline.model import Connection, Pipeline, Source, freeze


def follow(pipeline: Pipeline, cluster: Callable[[], Cluster]) -> Pipeline:
    """The pipeline with the topics that its sources mean by `current: true`.

    A source whose topic has changed is another one: offsets of the old topic mean nothing in the new. So a query that
    has read the old one does not resume, and says why; it is replayed, or begins anew.
    """
    if not any(_follows(source) for source in pipeline.sources):
        return pipeline
    now = {name: topic for alias in aliases(cluster()).values() for name, topic in alias.topics.items()}
    sources = tuple(_led(source, now) if _follows(source) else source for source in pipeline.sources)
    return replace(pipeline, sources=sources)


def _follows(source: Source) -> KafkaReader | None:
    reader, _ = make_reader(source.connection)
    return reader if isinstance(reader, KafkaReader) and reader.current else None


def _led(source: Source, now: dict[str, str]) -> Source:
    reader = _follows(source)
    names = tuple(now.get(name, name) for name in (reader.topic if reader else ()))
    topic = names[0] if len(names) == 1 else names
    old = source.connection
    made: Connection = replace(old, argument=topic, options=freeze({k: v for k, v in old.options if k != "topic"}))
    return replace(source, connection=made)
