"""Which offsets of a partition are done, in two forms that Kafka stores.

- `OffsetLedger`: the offsets of a source's partition whose dead letters are written, as text beside a committed offset.
  An offset alone would not do: two tasks may read two parts of a partition, and the later part may finish first; and a
  pipeline that starts from scratch with another schema may find other records bad. So the ledger has an entry for each
  decoder, and a task that runs again leaves out only what a decoder of the same version has done.
- Redrive markers: records in a dead topic that name the letters that were sent again. A marker is in the partition of
  its letters, after them, and is written in the transaction that sends them. So it exists exactly if they were sent,
  and as long as they do.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from millrace.clients.kafka.record import Record

_MAX_LEDGER_BYTES = 3500
"""Brokers store at most 4096 bytes beside an offset."""

OffsetRange = tuple[int, int]
"""From the first offset to the one after the last, in a partition."""


def merge_ranges(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Return the same offsets as ranges that neither overlap nor touch, in order."""
    merged: list[OffsetRange] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((first, end))
    return tuple(merged)


def ranges_of_offsets(offsets: Iterable[int]) -> tuple[OffsetRange, ...]:
    """Return offsets as ranges, in order."""
    return merge_ranges((offset, offset + 1) for offset in offsets)


@dataclass(frozen=True)
class DecoderId:
    """Who decodes records: a query in one of its batches, and a version of the decoder."""

    query: str
    decoder_version: str
    """Decoders of one version find the same records bad: what one has done, the others leave out."""
    batch: int | None = None

    @property
    def key(self) -> str:
        """Return the query and the version as a short text."""
        return _digest(self.query) + _digest(self.decoder_version)


@dataclass(frozen=True)
class LedgerEntry:
    """What one query has done."""

    decoder: str
    batch: int | None
    ranges: tuple[OffsetRange, ...]

    def with_range(self, batch: int | None, done: OffsetRange) -> LedgerEntry:
        """Return the entry with one more range. A query reads on where it was: its earlier batches leave no gap."""
        newer = batch is not None and self.batch is not None and batch > self.batch
        before = ((self.ranges[0][0], self.ranges[-1][1]),) if newer and self.ranges else self.ranges
        return replace(self, batch=batch if newer else self.batch, ranges=merge_ranges((*before, done)))


@dataclass(frozen=True)
class OffsetLedger:
    """The entries of one partition, the one that changed last at the end."""

    entries: tuple[LedgerEntry, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> OffsetLedger:
        """Return the ledger of a committed text; an empty one for foreign text, as of a group that was reset."""
        try:
            entries = orjson.loads(text or "[]")
            return cls(tuple(LedgerEntry(key, batch, tuple((a, b) for a, b in done)) for key, batch, done in entries))
        except (ValueError, TypeError):
            return cls()

    def text(self) -> str:
        """Return what to commit, without the oldest entries if it is too long: their letters may be written again."""
        kept = self.entries
        while len(text := orjson.dumps([[entry.decoder, entry.batch, entry.ranges] for entry in kept])) > (
            _MAX_LEDGER_BYTES
        ):
            last = kept[-1]
            kept = kept[1:] if len(kept) > 1 else (replace(last, ranges=last.ranges[len(last.ranges) // 2 :]),)
        return text.decode("ascii")

    def missing(self, decoder: DecoderId, offsets: Iterable[int]) -> list[int]:
        """Return the offsets that no decoder of the same version has done."""
        version = _digest(decoder.decoder_version)
        done = [span for entry in self.entries if entry.decoder.endswith(version) for span in entry.ranges]
        return [offset for offset in offsets if not any(first <= offset < end for first, end in done)]

    def with_range(self, decoder: DecoderId, done: OffsetRange) -> OffsetLedger:
        """Return the ledger after a decoder has done a range."""
        new = LedgerEntry(decoder.key, decoder.batch, ())
        own = next((entry for entry in self.entries if entry.decoder == decoder.key), new)
        others = (entry for entry in self.entries if entry.decoder != decoder.key)
        return OffsetLedger((*others, own.with_range(decoder.batch, done)))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8"), digest_size=6).hexdigest()


MARKER_KEY = b"millrace.redriven"
"""The key of every marker; a letter that happens to have it has the headers of a letter."""


def marker_record(partition: int, offsets: Iterable[int], details: dict[str, Any]) -> Record:
    """Return the record that marks letters of a partition as sent again."""
    value = orjson.dumps({"letters": ranges_of_offsets(offsets), **details})
    return Record(value, MARKER_KEY, partition=partition)


def marked_ranges(key: bytes | None, value: bytes | None) -> list[OffsetRange] | None:
    """Return the letters that a record marks; None if it is no marker."""
    if key != MARKER_KEY:
        return None
    try:
        return [(int(first), int(end)) for first, end in orjson.loads(value or b"")["letters"]]
    except (ValueError, TypeError, KeyError):
        return None


@dataclass
class RedriveMarkers:
    """The marked letters of dead topics."""

    _ranges: dict[tuple[str, int], list[OffsetRange]] = field(default_factory=dict)
    _merged: dict[tuple[str, int], tuple[OffsetRange, ...]] = field(default_factory=dict)

    def add(self, topic: str, partition: int, marked: Iterable[OffsetRange]) -> None:
        self._ranges.setdefault((topic, partition), []).extend(marked)
        self._merged.pop((topic, partition), None)

    def contains(self, topic: str, partition: int, offset: int) -> bool:
        source = (topic, partition)
        if source not in self._merged:
            self._merged[source] = merge_ranges(self._ranges.get(source, ()))
        merged = self._merged[source]
        index = bisect_right(merged, offset, key=lambda range_: range_[0]) - 1
        return index >= 0 and offset < merged[index][1]
