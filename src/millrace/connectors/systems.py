"""Which outside system has the records of a pipeline's sources and sinks, as their connectors declare it."""

from __future__ import annotations

from millrace.connectors.options import make_reader
from millrace.connectors.stream import READERS, Reader
from millrace.errors import InputError
from millrace.pipeline.model import Pipeline, Source


def system_of(source: Source) -> str:
    """That of a source: of what comes through Kafka, Kafka."""
    name = source.connection.connector
    try:
        return READERS.load(name).system or name
    except InputError:  # there is none of that name, which is for `check` to tell
        return name


def uses(pipeline: Pipeline, system: str) -> bool:
    """Whether a source or a sink has its records in this system."""
    return any(sink.connection.connector == system for sink in pipeline.sinks) or any(
        system_of(source) == system for source in pipeline.sources
    )


def topics_read(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """The topics that each source in Kafka names; one with a pattern names none."""
    return {name: reader.topics() for name, reader in _kafka_readers(pipeline).items()}


def patterns_read(pipeline: Pipeline) -> tuple[str, ...]:
    """The patterns by which sources in Kafka find their topics."""
    return tuple(pattern for reader in _kafka_readers(pipeline).values() if (pattern := reader.matching))


def _kafka_readers(pipeline: Pipeline) -> dict[str, Reader]:
    readers = {one.name: make_reader(one.connection)[0] for one in pipeline.sources if system_of(one) == "kafka"}
    return {name: reader for name, reader in readers.items() if reader}
