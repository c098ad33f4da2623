"""Where dead letters are stored: topics and folders.

- Create and list the dead topics of a cluster; list the folders of a state.
- Read letters and redrive markers of topics, from the oldest to the current end.
- Read letters of folders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Message

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import OffsetRanges, partition_of, read_ranges, topic_ranges
from millrace.dead_letters.file_journal import Journal, JournalCounts
from millrace.dead_letters.letter import DEAD_TOPIC_SUFFIX, DeadLetter, dead_topic, from_json_line, from_record
from millrace.dead_letters.offset_ledger import OffsetRange, RedriveMarkers, marked_ranges
from millrace.errors import FileUnusable, SourceLocation

_HEADERS_BYTES = 1 << 20
"""Bytes that a dead topic takes beyond the largest record of the source: for what is written beside the record."""
_MAX_BYTES_CONFIG = "max.message.bytes"

OnMarker = Callable[[str, int, list[OffsetRange]], None]
"""Called for each redrive marker: its topic, its partition, and the offsets of the letters that were sent again."""


@dataclass(frozen=True)
class StoredDeadLetter:
    """A letter and its position."""

    letter: DeadLetter
    location: str
    """The dead topic, or the file."""
    partition: int | None
    offset: int
    """The offset in the dead topic, or the line in the file."""
    stored_at: int
    """When it was put there, in milliseconds since 1970."""
    redriven: bool = False
    """Whether its record was sent again; known where somebody has looked."""

    @property
    def from_replay(self) -> bool:
        """Return whether a replay has stored it, in a dead topic of its own."""
        return None not in (self.partition, self.letter.topic) and self.location != dead_topic(self.letter.topic or "")

    @property
    def position(self) -> str:
        """Return where the letter is, for people."""
        if self.partition is None:
            return f"{self.location}:{self.offset}"
        return f"{self.location}[{self.partition}]@{self.offset}"


def create_dead_letter_topics(cluster: Cluster, wanted: Mapping[str, str]) -> list[str]:
    """Create the dead topics (by topic) that do not exist, and return their names."""
    existing = cluster.connect().topics
    missing = {topic: dead for topic, dead in wanted.items() if dead not in existing}
    source_configs = topics.read_configs(cluster, list(missing))
    for topic, dead in missing.items():
        configs = {
            _MAX_BYTES_CONFIG: str(int(source_configs[topic][_MAX_BYTES_CONFIG]) + _HEADERS_BYTES),
            "cleanup.policy": "delete",  # compaction would keep one letter of each key
            "retention.ms": "-1",  # until somebody has dealt with them
        }
        topics.ensure(cluster, dead, len(existing[topic].partitions), configs)
    return list(missing.values())


def dead_topics(cluster: Cluster) -> list[str]:
    """Every topic for dead letters."""
    return sorted(name for name in cluster.connect().topics if name.endswith(DEAD_TOPIC_SUFFIX))


def dead_folders(state: Path, pipeline: str | None = None) -> list[Path]:
    """Every folder for dead letters of a pipeline's file sources, or of every pipeline's.

    `state` is the folder of all runs, or that of a single one (`run --state`), whose pipeline the letters name.
    """
    pipelines = state / "pipelines"
    paths = pipelines.glob("*/dead/*") if pipeline is None else (pipelines / pipeline / "dead").glob("*")
    return sorted(path for path in (*paths, *(state / "dead").glob("*")) if path.is_dir())


def letters_in_topics(
    cluster: Cluster,
    names: Sequence[str],
    on_foreign_record: Callable[[], None] = lambda: None,
    markers: RedriveMarkers | None = None,
) -> Iterator[StoredDeadLetter]:
    """Yield the committed letters that topics have now, those of a partition in order; as `letters_in_ranges`."""
    yield from letters_in_ranges(cluster, topic_ranges(cluster, names), on_foreign_record, markers=markers)


def letters_in_ranges(
    cluster: Cluster,
    ranges: OffsetRanges,
    on_foreign_record: Callable[[], None] = lambda: None,
    on_marker: OnMarker = lambda *_: None,
    markers: RedriveMarkers | None = None,
    *,
    require_all: bool = False,
) -> Iterator[StoredDeadLetter]:
    """Yield the committed letters of offset ranges, those of a partition in order.

    `on_marker` is called for each redrive marker, which comes after its letters, and `on_foreign_record` for each other
    record. With the `markers` of an earlier read, letters have `redriven` set. With `require_all` an open transaction
    that may hide a marker is waited for.
    """
    for batch in read_ranges(cluster, ranges, require_all=require_all):
        for message in batch:
            parsed = parse_record(message, markers)
            if isinstance(parsed, StoredDeadLetter):
                yield parsed
            elif parsed is None:
                on_foreign_record()
            else:
                on_marker(*partition_of(message), parsed)


def parse_record(
    message: Message, markers: RedriveMarkers | None = None
) -> StoredDeadLetter | list[OffsetRange] | None:
    """Return the letter of a record of a dead topic, or the letters that it marks; None if it is neither."""
    headers: list[tuple[str, bytes | None]] | None = message.headers()  # type: ignore[assignment]  # declared wider
    key, value = message.key(), message.value()
    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
    letter = from_record(value, key, headers)
    if letter is None:
        return marked_ranges(key, value)
    redriven = markers is not None and markers.contains(topic, partition, offset)
    return StoredDeadLetter(letter, topic, partition, offset, message.timestamp()[1], redriven)


def redrive_markers_in_topics(cluster: Cluster, names: Sequence[str]) -> RedriveMarkers:
    """The markers that topics have now: a first look at all that is there, before the letters are read."""
    markers = RedriveMarkers()
    for batch in read_ranges(cluster, topic_ranges(cluster, names), require_all=False):
        for message in batch:
            ranges = marked_ranges(message.key(), message.value())
            if ranges and isinstance(parse_record(message), list):
                markers.add(*partition_of(message), ranges)
    return markers


def letters_in_folder(folder: Path, tally: JournalCounts | None = None) -> Iterator[StoredDeadLetter]:
    """The letters of a folder, the oldest file first; raises when a line is not one."""
    ages = {}
    for file in folder.glob("*.jsonl"):
        with suppress(FileNotFoundError):
            ages[file] = file.stat().st_mtime_ns
    tally = tally or Journal(folder).counts()
    for file in sorted(ages, key=lambda path: (ages[path], path.name)):
        with suppress(FileNotFoundError), file.open("rb") as lines:  # a run that repeats its batch removes it
            for number, line in enumerate(lines, 1):
                letter = _letter(file, number, line)
                redriven = tally.is_done(file, letter)
                yield StoredDeadLetter(letter, str(file), None, number, ages[file] // 1_000_000, redriven)


def _letter(file: Path, number: int, line: bytes) -> DeadLetter:
    try:
        return from_json_line(line)
    except ValueError as error:
        place = SourceLocation(str(file), number)
        raise FileUnusable("a line is no dead letter", why=str(error), place=place) from None
