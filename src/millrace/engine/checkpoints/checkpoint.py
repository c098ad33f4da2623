"""The batch that a query was at when it failed, as its checkpoint tells.

The batch that closes windows: a watermark counts from the batch after the one that it was seen in.

What Spark's checkpoint of a query says of its batches.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CHECKPOINTS = "checkpoints"
"""The folder of the state that holds the checkpoints of queries that write."""
PANEL_CHECKPOINTS = "panels"
"""The folder of the state that holds the checkpoints of queries that only draw panels."""


def last_committed_batch(checkpoint: Path) -> int:
    """The newest batch that was finished; -1 before the first."""
    return max(batch_numbers(checkpoint / "commits"), default=-1)


def unfinished_batch(checkpoint: Path) -> int | None:
    """The batch that was begun and not finished, which the next run begins with."""
    begun = max(batch_numbers(checkpoint / "offsets"), default=-1)
    return begun if begun > last_committed_batch(checkpoint) else None


def batch_numbers(log: Path) -> list[int]:
    """The numbers of the batches that one of its logs tells of."""
    return [int(path.name) for path in log.glob("*") if path.name.isdecimal()]


@dataclass(frozen=True, slots=True)
class BatchState:
    """How far a query is: what is done, and what was begun and is not done."""

    done: int = -1
    batch: int | None = None
    ranges: tuple[BatchOffsetRange, ...] = ()
    """The records of the batch, where they come from Kafka."""

    def __str__(self) -> str:
        """The batch with its records."""
        shown = "; ".join(map(str, self.ranges[:4])) + ("; …" if len(self.ranges) > 4 else "")
        return f"batch {self.batch}" + (f": {shown}" if shown else "")


def batch_state(checkpoint: Path) -> BatchState:
    """The state of a query's checkpoint; without one, nothing is done and nothing was begun."""
    done, begun = last_committed_batch(checkpoint), unfinished_batch(checkpoint)
    if begun is None:
        return BatchState(done)
    offsets = checkpoint / "offsets"
    before = "" if begun == 0 else _read(offsets / str(begun - 1))
    return BatchState(done, begun, tuple(ranges_between(before, _read(offsets / str(begun)))))


def next_offsets(checkpoint: Path) -> dict[tuple[str, int], int]:
    """Where a query reads next, by topic and partition: at the start of the batch that was begun, or after the last."""
    done = last_committed_batch(checkpoint)
    if done < 0:  # where the first batch begins is noted by Spark's sources, and beside the state by ours
        texts = [_read(path) for path in (checkpoint / "sources").glob("*/0")]
        if (checkpoint / "offsets" / "0").exists():
            texts += [_read(path) for path in (checkpoint.parents[1] / "starts" / checkpoint.name).glob("*.json")]
    else:
        texts = [_read(checkpoint / "offsets" / str(done))]
    return {place: offset for text in texts for place, offset in offsets_in(text).items()}


def _read(path: Path) -> str:
    with suppress(OSError):  # it is an extra: what failed is told without it
        return path.read_text("utf-8")
    return ""


def is_closed(checkpoint: Path) -> bool:
    """Whether the watermark of the last finished batch has had its effect, or there is nothing that it could close."""
    last = last_committed_batch(checkpoint)
    if last < 0 or not (checkpoint / "state").is_dir():
        return True
    return _said(checkpoint / "commits" / str(last), "nextBatchWatermarkMs") <= _said(
        checkpoint / "offsets" / str(last), "batchWatermarkMs"
    )


def reopen_last_batch(checkpoint: Path) -> None:
    """Let the last batch be run again, and so the one that closes its windows.

    Spark runs a batch without input only after one that it has run itself since it was started. The sinks know the
    batch by its number, and do not write it twice.
    """
    if unfinished_batch(checkpoint) is None and not is_closed(checkpoint):
        commits, last = checkpoint / "commits", last_committed_batch(checkpoint)
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)


def _said(path: Path, name: str) -> int:
    """A number in the head of a file of Spark's logs: after the line with its form comes JSON."""
    try:
        return int(json.loads(path.read_text("utf-8").split("\n")[1]).get(name, 0))
    except (OSError, ValueError, IndexError, TypeError):
        return 0


_OFFSETS = re.compile(r"^Current (Committed|Available) Offsets: (.*)$", re.MULTILINE)


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


def batch_ranges(text: str) -> list[BatchOffsetRange]:
    """The records of the batch that failed, from what a failed query says about its Kafka sources."""
    told = dict(_OFFSETS.findall(text))
    return ranges_between(told.get("Committed", ""), told.get("Available", ""))


def ranges_between(before: str, after: str) -> list[BatchOffsetRange]:
    """What a batch reads, from the offsets at which it begins and ends as Spark writes them."""
    committed, available = offsets_in(before), offsets_in(after)
    found = [BatchOffsetRange(*place, committed.get(place), end - 1) for place, end in sorted(available.items())]
    return [one for one in found if one.last >= (one.first or 0)]


def offsets_in(text: str) -> dict[tuple[str, int], int]:
    """`{KafkaV2[Subscribe[t]]: {"t":{"0":50}}}` by topic and partition."""
    found: dict[tuple[str, int], int] = {}
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find('{"', at)) >= 0:
        try:
            told, at = decoder.raw_decode(text, at)
        except ValueError:
            at += 1
            continue
        found |= _by_partition(told)
    return found


def _by_partition(told: object) -> dict[tuple[str, int], int]:
    if not isinstance(told, dict):
        return {}
    return {
        (topic, int(partition)): offset
        for topic, partitions in told.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
        if partition.isdigit() and isinstance(offset, int)
    }
