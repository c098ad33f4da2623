"""Dead letters where they lie: topics and folders, made, found, and read from the oldest to the present end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

from millrace.clients import offsets, topics
from millrace.clients.cluster import Cluster
from millrace.clients.letters import SUFFIX, Letter, from_line, from_record
from millrace.errors import FileUnusable, InvalidTopic, KafkaUnreachable, Place

_ROOM = 1 << 20
"""Bytes that a dead topic takes beyond the largest record of the source: for what is written beside the record."""
_OPEN = 2.0
"""Seconds in which a transaction that is being committed is waited for: it is decided before it can be seen."""
_LIMIT = "max.message.bytes"


@dataclass(frozen=True)
class Found:
    """A letter, and where it lies."""

    letter: Letter
    home: str
    """The dead topic, or the file."""
    partition: int | None
    offset: int
    """The offset in the dead topic, or the line in the file."""
    buried: int
    """When it was put there, in milliseconds since 1970."""


def make(cluster: Cluster, wanted: Mapping[str, str]) -> list[str]:
    """Make the dead topics (by topic) that do not exist; gives the names of those that it made."""
    existing = cluster.connect().topics
    missing = {topic: dead for topic, dead in wanted.items() if dead not in existing}
    limits = _limits(cluster, list(missing))
    for topic, dead in missing.items():
        configs = {
            _LIMIT: str(limits[topic] + _ROOM),
            "cleanup.policy": "delete",  # compaction would keep one letter of each key
            "retention.ms": "-1",  # until somebody has dealt with them
        }
        try:
            topics.create(cluster, dead, len(existing[topic].partitions), configs=configs)
        except InvalidTopic:
            if dead not in cluster.connect().topics:  # else another was quicker
                raise
    return list(missing.values())


def _limits(cluster: Cluster, names: list[str]) -> dict[str, int]:
    """The largest record that each topic takes."""
    metadata = cluster.connect()
    for name in names:
        topics.require(metadata, name)
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    asked = cluster.admin().describe_configs(resources) if resources else {}
    with cluster.speaking("read the settings of topics"):
        return {resource.name: int(asked[resource].result()[_LIMIT].value) for resource in resources}


def dead_topics(cluster: Cluster) -> list[str]:
    """Every topic for dead letters."""
    return sorted(name for name in cluster.connect().topics if name.endswith(SUFFIX))


def dead_folders(state: Path, pipeline: str | None = None) -> list[Path]:
    """Every folder for dead letters of a pipeline's file sources, or of every pipeline's.

    `state` is the folder of all runs, or that of a single one (`run --state`), whose pipeline the letters name.
    """
    pipelines = state / "pipelines"
    found = [*pipelines.glob("*/dead/*")] if pipeline is None else [*(pipelines / pipeline / "dead").glob("*")]
    return sorted(path for path in (*found, *(state / "dead").glob("*")) if path.is_dir())


def in_topic(cluster: Cluster, topic: str) -> Iterator[Found]:
    """The committed letters that a topic has now."""
    return in_topics(cluster, [topic])


def in_topics(cluster: Cluster, names: Sequence[str], strange: Callable[[], None] = lambda: None) -> Iterator[Found]:
    """The committed letters that topics have now, by partition in order; `strange` is called for each other record."""
    for message in _messages(cluster, names):
        headers: list[tuple[str, bytes | None]] | None = message.headers()  # type: ignore[assignment]  # declared wider
        letter = from_record(message.value(), message.key(), headers)
        if letter is None:
            strange()
        else:
            offset, (_, time_) = message.offset() or 0, message.timestamp()
            yield Found(letter, message.topic() or "", message.partition(), offset, time_)


def in_folder(folder: Path) -> Iterator[Found]:
    """The letters of a folder, the oldest file first; raises when a line is not one."""
    ages = {}
    for file in folder.glob("*.jsonl"):
        with suppress(FileNotFoundError):
            ages[file] = file.stat().st_mtime_ns
    for file in sorted(ages, key=lambda one: (ages[one], one.name)):
        with suppress(FileNotFoundError), file.open("rb") as lines:  # a run that repeats its batch removes it
            for number, line in enumerate(lines, 1):
                yield Found(_letter(file, number, line), str(file), None, number, ages[file] // 1_000_000)


def _letter(file: Path, number: int, line: bytes) -> Letter:
    try:
        return from_line(line)
    except ValueError as error:
        raise FileUnusable("a line is no dead letter", why=str(error), place=Place(str(file), number)) from None


def _messages(cluster: Cluster, names: Sequence[str]) -> Iterator[Message]:
    """What is committed in topics at this moment."""
    metadata = cluster.connect()
    for name in names:
        topics.require(metadata, name)
    places = [TopicPartition(name, number) for name in names for number in metadata.topics[name].partitions]
    first = offsets.ask(cluster, places, OffsetSpec.earliest())
    ends = {
        place: end for place, end in offsets.ask(cluster, places, OffsetSpec.latest()).items() if end > first[place]
    }
    own = {
        "group.id": f"millrace-{uuid.uuid4()}",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,  # the last offsets may be marks of transactions, which never come
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 100,
    }
    with cluster.speaking("open a consumer"):
        consumer = Consumer({**cluster.config(), **own})
    try:
        consumer.assign([TopicPartition(*place, first[place]) for place in ends])
        yield from _until(cluster, consumer, ends)
    finally:
        consumer.close()


def _until(cluster: Cluster, consumer: Consumer, ends: dict[tuple[str, int], int]) -> Iterator[Message]:
    """Messages up to the given ends, or to a transaction that stays open."""
    heard = started = time.monotonic()
    reached: dict[tuple[str, int], int] = {}
    at_end: set[tuple[str, int]] = set()
    while any(reached.get(place, 0) < end for place, end in ends.items()):
        got = consumer.consume(1000, 0.1)
        for message in got:
            offset, problem = message.offset() or 0, message.error()
            place = (message.topic() or "", message.partition() or 0)
            if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
                raise cluster.error(problem, f"read topic {place[0]!r}")
            if problem is None and offset < ends[place]:
                yield message
            reached[place] = offset + (problem is None)
            (at_end.discard if problem is None else at_end.add)(place)
        now = time.monotonic()
        heard = now if got else heard
        if ends.keys() == at_end and not got and now - started > _OPEN:
            return
        if now - heard > cluster.timeout:
            raise KafkaUnreachable(
                f"dead letters could not be read to their end: nothing came for {cluster.timeout:.0f} s",
                hint="look at millrace kafka status",
            )
