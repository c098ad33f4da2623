"""What a query's checkpoint says about its batches, and how a replay changes it.

- Report the batch that was running when a query failed, with its Kafka offsets.
- Return the offsets that a query reads next, and how far a replay has got.
- Run the last batch again where its watermark has not closed windows yet.
- Cut a checkpoint back to the end of a replay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.atomic_files import write_whole
from millrace.connectors.base import query_checkpoint
from millrace.connectors.base.offset_range import Offsets
from millrace.connectors.base.query_checkpoint import json_or_text, last_committed_batch, read_entry, unfinished_batch
from millrace.errors import StateMismatch
from millrace.telemetry.progress import offsets_in

PartitionOffsets = dict[tuple[str, int], int]
CHECKPOINTS = "checkpoints"
"""The folder of the state with the checkpoints of queries that write."""
PANEL_CHECKPOINTS = "panels"
"""The folder of the state with the checkpoints of queries that only draw panels."""
_MAX_RANGES_SHOWN = 4
_BATCH_OFFSETS = re.compile(r"^Current (Committed|Available) Offsets: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class BatchOffsetRange:
    """Offsets of one partition that a batch was to read; the first is not known for a query's first batch."""

    topic: str
    partition: int
    first: int | None
    last: int

    def __str__(self) -> str:
        offsets = f"up to {self.last}" if self.first is None else f"{self.first}-{self.last}"
        return f"topic {self.topic} partition {self.partition} offsets {offsets}"


@dataclass(frozen=True, slots=True)
class BatchState:
    """The progress of a query: the last finished batch, and the batch that is planned and not finished."""

    done: int = -1
    batch: int | None = None
    ranges: tuple[BatchOffsetRange, ...] = ()

    def __str__(self) -> str:
        return f"batch {self.batch}" + (f": {ranges_text(self.ranges)}" if self.ranges else "")


def batch_state(checkpoint: Path) -> BatchState:
    """Return the progress of a query; of a query without a checkpoint, that of one that has done nothing."""
    done, planned = last_committed_batch(checkpoint), unfinished_batch(checkpoint)
    if planned is None:
        return BatchState(done)
    before = _source_offsets(checkpoint, planned - 1) if planned else {}
    return BatchState(done, planned, tuple(_ranges_between(before, _source_offsets(checkpoint, planned))))


def ranges_text(ranges: Sequence[BatchOffsetRange]) -> str:
    """Return the first ranges as text."""
    return "; ".join([*map(str, ranges[:_MAX_RANGES_SHOWN]), *(["…"] if len(ranges) > _MAX_RANGES_SHOWN else [])])


def batch_ranges(text: str) -> list[BatchOffsetRange]:
    """Return the Kafka records of the batch that failed, from the error message of its query."""
    offsets = {kind: _offsets_in_text(offsets) for kind, offsets in _BATCH_OFFSETS.findall(text)}
    return _ranges_between(offsets.get("Committed", {}), offsets.get("Available", {}))


def _ranges_between(committed: PartitionOffsets, available: PartitionOffsets) -> list[BatchOffsetRange]:
    ranges = [BatchOffsetRange(*key, committed.get(key), end - 1) for key, end in sorted(available.items())]
    return [range_ for range_ in ranges if range_.last >= (range_.first or 0)]


def _offsets_in_text(text: str) -> PartitionOffsets:
    """Return the offsets in `{KafkaV2[Subscribe[t]]: {"t":{"0":50}}}`, which is no JSON as a whole."""
    offsets: PartitionOffsets = {}
    decoder, position = json.JSONDecoder(), 0
    while (position := text.find('{"', position)) >= 0:
        try:
            value, position = decoder.raw_decode(text, position)
        except ValueError:
            position += 1
            continue
        offsets |= offsets_in(value)
    return offsets


def _source_offsets(checkpoint: Path, batch: int) -> PartitionOffsets:
    entry = read_entry(checkpoint / "offsets" / str(batch))
    return {key: offset for source in (entry.sources if entry else ()) for key, offset in offsets_in(source).items()}


def next_offsets(checkpoint: Path) -> PartitionOffsets:
    """Return the offsets that a query reads next, by topic and partition: after the last batch that is finished."""
    done = last_committed_batch(checkpoint)
    if done >= 0:
        return _source_offsets(checkpoint, done)
    starts: list[Any] = list(query_checkpoint.source_starts(checkpoint))
    if (checkpoint / "offsets" / "0").exists():  # our own sources write their start beside the checkpoint
        for path in (checkpoint.parents[1] / "starts" / checkpoint.name).glob("*.json"):
            with suppress(OSError):
                starts.append(json_or_text(path.read_text("utf-8")))
    return {key: offset for start in starts for key, offset in offsets_in(start).items()}


def is_closed(checkpoint: Path) -> bool:
    """Return whether the watermark of the last finished batch has closed its windows, or there is no state to close.

    A watermark takes effect in the batch after the one that computed it.
    """
    last = last_committed_batch(checkpoint)
    if last < 0 or not (checkpoint / "state").is_dir():
        return True
    next_watermark = metadata_number(checkpoint / "commits" / str(last), "nextBatchWatermarkMs")
    return next_watermark <= metadata_number(checkpoint / "offsets" / str(last), "batchWatermarkMs")


def reopen_last_batch(checkpoint: Path) -> None:
    """Make the next run repeat the last batch, and so run the one that closes its windows.

    Spark runs a batch without input only after one that it has run since it was started. The sinks recognize the batch
    by its number, and do not write it twice.
    """
    if unfinished_batch(checkpoint) is None and not is_closed(checkpoint):
        commits, last = checkpoint / "commits", last_committed_batch(checkpoint)
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)


def metadata_number(path: Path, name: str) -> int:
    """Return a number that an entry of a log has under a name; 0 if it has none."""
    entry = read_entry(path)
    return int(entry.metadata.get(name, 0)) if entry else 0


def replayed_until(checkpoint: Path, begin: Offsets, end: Offsets) -> dict[tuple[str, str], int]:
    """Return how far a query has read each partition that has something to read, at most to the end."""
    entry = read_entry(checkpoint / "offsets" / str(last_committed_batch(checkpoint)))
    read: dict[tuple[str, str], int] = {}
    for source in entry.sources if entry else ():
        for (topic, partition), offset in offsets_in(source).items():
            key = (topic, str(partition))
            read[key] = min(offset, read.get(key, offset))  # a topic may be read twice
    return {
        (topic, number): max(first, min(last, read.get((topic, number), first)))
        for topic, numbers in end.items()
        for number, last in numbers.items()
        if last > (first := begin[topic][number])
    }


def trim(checkpoint: Path, end: Offsets) -> None:
    """Write the end of a replay into every batch that was planned beyond it; a second call changes nothing.

    Spark's Kafka source has no end for streams: a query that ends when it has caught up fixes an end of its own when it
    starts. So a replay reads some records more and drops them before anything sees them. With its end in the offset
    log, state, sinks and offsets agree, and the next run reads the dropped records.
    """
    for path in query_checkpoint.batch_files(checkpoint / "offsets").values():
        text = path.read_text("utf-8")
        version, metadata, *sources = text.split("\n")
        if version != query_checkpoint.LOG_VERSION:
            raise StateMismatch(f"{path} has a format that Millrace does not know", why=version)
        trimmed = "\n".join([version, metadata, *(_trimmed(source, end) for source in sources)])
        if trimmed != text:
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of the old content
            write_whole(path, trimmed)


def _trimmed(text: str, end: Offsets) -> str:
    """Return the offsets of a source, none after the end; of a partition that was added later, 0."""
    offsets = json_or_text(text)
    if not isinstance(offsets, dict) or not offsets or not all(isinstance(part, dict) for part in offsets.values()):
        return text
    cut = {
        topic: {number: min(offset, end.get(topic, {}).get(number, 0)) for number, offset in numbers.items()}
        for topic, numbers in offsets.items()
    }
    return text if cut == offsets else json.dumps(cut, separators=(",", ":"))
