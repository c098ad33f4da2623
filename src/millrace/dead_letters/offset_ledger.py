"""What of a source's partition has been dealt with, as text small enough to be committed beside an offset.

An offset alone would not do. Two tasks may read two parts of one partition at once, and the later part may be done
first; a pipeline may be started again from the beginning with another schema, and what was good may be bad now. So a
ledger says who has dealt with which offsets, and only those are left out when a task is run again.

Marks in dead topics: which letters of a partition have been dealt with, and how they look as records.

A mark lies in the partition of its letters, after them, and is written in the transaction that sends them again. So it
is there exactly if they were sent, it is kept as long as they are, and it goes with the topic.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from millrace.clients.kafka.record import Record

_MOST_BYTES = 3500
"""Brokers take 4096 bytes beside an offset."""

OffsetRange = tuple[int, int]
"""From the first offset to the one after the last."""


@dataclass(frozen=True)
class DecoderId:
    """Who deals with records: a query in one of its batches, and how it judges them."""

    query: str
    decoder_version: str
    """Readers of one lineage judge every record alike: what one has dealt with, the others need not."""
    batch: int | None = None

    @property
    def key(self) -> str:
        """The query and the lineage, in few letters."""
        return _short(self.query) + _short(self.decoder_version)


@dataclass(frozen=True)
class LedgerEntry:
    """What one query has dealt with."""

    decoder: str
    batch: int | None
    ranges: tuple[OffsetRange, ...]

    def with_range(self, batch: int | None, span: OffsetRange) -> LedgerEntry:
        """The entry after another span. A query goes on where it was, so its earlier batches leave no gap."""
        newer = batch is not None and self.batch is not None and batch > self.batch
        before = _hull(self.ranges) if newer else self.ranges
        return replace(self, batch=batch if newer else self.batch, ranges=_merged((*before, span)))


@dataclass(frozen=True)
class OffsetLedger:
    """The entries of one partition, the one that changed last at the end."""

    entries: tuple[LedgerEntry, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> OffsetLedger:
        """What was committed. Text that is none of ours (a group moved by hand) means that nothing is known."""
        try:
            found = orjson.loads(text or "[]")
            return cls(tuple(LedgerEntry(mark, batch, tuple((a, b) for a, b in spans)) for mark, batch, spans in found))
        except (ValueError, TypeError):
            return cls()

    def text(self) -> str:
        """What to commit; the oldest is forgotten when there is too much. What is forgotten may be done again."""
        kept = self.entries
        while len(text := orjson.dumps([[one.decoder, one.batch, one.ranges] for one in kept])) > _MOST_BYTES:
            last = kept[-1]
            kept = kept[1:] if len(kept) > 1 else (replace(last, ranges=last.ranges[len(last.ranges) // 2 :]),)
        return text.decode("ascii")

    def missing(self, reader: DecoderId, offsets: Iterable[int]) -> list[int]:
        """The offsets that nobody has dealt with who judges as the reader does."""
        alike = _short(reader.decoder_version)
        spans = [span for one in self.entries if one.decoder.endswith(alike) for span in one.ranges]
        return [offset for offset in offsets if not any(first <= offset < end for first, end in spans)]

    def with_range(self, reader: DecoderId, span: OffsetRange) -> OffsetLedger:
        """The ledger after the reader has dealt with a span."""
        own = next(
            (one for one in self.entries if one.decoder == reader.key), LedgerEntry(reader.key, reader.batch, ())
        )
        others = tuple(one for one in self.entries if one.decoder != reader.key)
        return OffsetLedger((*others, own.with_range(reader.batch, span)))


def _hull(spans: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
    return ((min(first for first, _ in spans), max(end for _, end in spans)),) if spans else ()


def _merged(spans: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
    merged: list[OffsetRange] = []
    for first, end in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((first, end))
    return tuple(merged)


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8"), digest_size=6).hexdigest()


MARKER_KEY = b"millrace.redriven"
"""The key of every mark; a letter that happens to have it has the headers of a letter."""


def marker_record(partition: int, offsets: Iterable[int], told: dict[str, Any]) -> Record:
    """The record that marks letters of a partition, with what else is to be said about it."""
    value = orjson.dumps({"letters": list(ranges_of_offsets(offsets)), **told})
    return Record(value, MARKER_KEY, partition=partition)


def marked_ranges(key: bytes | None, value: bytes | None) -> list[OffsetRange] | None:
    """The letters that a record marks; None when it is no mark."""
    if key != MARKER_KEY:
        return None
    try:
        return [(int(first), int(end)) for first, end in orjson.loads(value or b"")["letters"]]
    except (ValueError, TypeError, KeyError):
        return None


def ranges_of_offsets(offsets: Iterable[int]) -> Iterator[OffsetRange]:
    """Offsets as spans, in order."""
    first = end = None
    for offset in sorted(set(offsets)):
        if first is not None and end is not None and offset != end:
            yield first, end
            first = None
        first, end = offset if first is None else first, offset + 1
    if first is not None and end is not None:
        yield first, end


@dataclass
class RedriveMarkers:
    """The marked letters of dead topics."""

    _by_place: dict[tuple[str, int], list[OffsetRange]] = field(default_factory=dict)
    _tidy: dict[tuple[str, int], list[OffsetRange]] = field(default_factory=dict)

    def add(self, topic: str, partition: int, more: Iterable[OffsetRange]) -> None:
        """Take in what a mark says."""
        self._by_place.setdefault((topic, partition), []).extend(more)
        self._tidy.pop((topic, partition), None)

    def contains(self, topic: str, partition: int, offset: int) -> bool:
        """Whether a letter is marked."""
        place = (topic, partition)
        if place not in self._by_place:
            return False
        if place not in self._tidy:
            self._tidy[place] = _merged_marks(self._by_place[place])
        found = self._tidy[place]
        at = bisect_right(found, offset, key=lambda span: span[0]) - 1
        return at >= 0 and offset < found[at][1]


def _merged_marks(found: Iterable[OffsetRange]) -> list[OffsetRange]:
    merged: list[OffsetRange] = []
    for first, end in sorted(found):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((first, end))
    return merged
