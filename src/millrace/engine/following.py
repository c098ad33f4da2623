"""Sources that read what another pipeline writes, in whichever generation counts when they start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from millrace.clients.alias import aliases, leading
from millrace.clients.cluster import Cluster
from millrace.connectors.files import CURRENT, FilesReader
from millrace.connectors.kafka import KafkaReader
from millrace.connectors.options import make_reader
from millrace.connectors.stream import Reader
from millrace.pipeline.model import Pipeline, Source, freeze


def follow(pipeline: Pipeline, cluster: Callable[[], Cluster]) -> Pipeline:
    """The pipeline with what its sources mean: the topics of `current: true`, the folders that links lead to.

    A source whose topic or folder has changed is another one: offsets of the old mean nothing in the new. So a query
    that has read the old one does not resume, and says why; it is replayed, or begins anew.
    """
    readers = {source.name: make_reader(source.connection)[0] for source in pipeline.sources}
    asked = any(isinstance(one, KafkaReader) and one.current for one in readers.values())
    now = leading(aliases(cluster()).values()) if asked else {}
    sources = tuple(_led(source, readers[source.name], now) for source in pipeline.sources)
    return replace(pipeline, sources=sources)


def _led(source: Source, reader: Reader | None, now: Mapping[str, str]) -> Source:
    if isinstance(reader, KafkaReader) and reader.current:
        names = tuple(now.get(name, name) for name in reader.topic)
        return _reading(source, "topic", names[0] if len(names) == 1 else names)
    if isinstance(reader, FilesReader) and reader.path.endswith(CURRENT) and Path(reader.path).is_symlink():
        # Spark's log of a folder has the paths of its files as they were written: it finds none through a link.
        return _reading(source, "path", str(Path(reader.path).resolve()))
    return source


def _reading(source: Source, option: str, value: str | tuple[str, ...]) -> Source:
    old = source.connection
    others = {name: one for name, one in old.options if name != option}
    return replace(source, connection=replace(old, argument=value, options=freeze(others)))
