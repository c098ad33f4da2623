"""What of a source's partition has been dealt with, as text small enough to be committed beside an offset.

An offset alone would not do. Two tasks may read two parts of one partition at once, and the later part may be done
first; a pipeline may be started again from the beginning with another schema, and what was good may be bad now. So a
ledger says who has dealt with which offsets, and only those are left out when a task is run again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

import orjson

_MOST_BYTES = 3500
"""Brokers take 4096 bytes beside an offset."""

Span = tuple[int, int]
"""From the first offset to the one after the last."""


@dataclass(frozen=True)
class Reader:
    """Who deals with records: a query in one of its batches, and how it judges them."""

    query: str
    lineage: str
    """Readers of one lineage judge every record alike: what one has dealt with, the others need not."""
    batch: int | None = None

    @property
    def mark(self) -> str:
        """The query and the lineage, in few letters."""
        return _short(self.query) + _short(self.lineage)


@dataclass(frozen=True)
class Entry:
    """What one query has dealt with."""

    mark: str
    batch: int | None
    spans: tuple[Span, ...]

    def with_span(self, batch: int | None, span: Span) -> Entry:
        """The entry after another span. A query goes on where it was, so its earlier batches leave no gap."""
        newer = batch is not None and self.batch is not None and batch > self.batch
        before = _hull(self.spans) if newer else self.spans
        return replace(self, batch=batch if newer else self.batch, spans=_merged((*before, span)))


@dataclass(frozen=True)
class Ledger:
    """The entries of one partition, the one that changed last at the end."""

    entries: tuple[Entry, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> Ledger:
        """What was committed. Text that is none of ours (a group moved by hand) means that nothing is known."""
        try:
            found = orjson.loads(text or "[]")
            return cls(tuple(Entry(mark, batch, tuple((a, b) for a, b in spans)) for mark, batch, spans in found))
        except (ValueError, TypeError):
            return cls()

    def text(self) -> str:
        """What to commit; the oldest is forgotten when there is too much. What is forgotten may be done again."""
        kept = self.entries
        while len(text := orjson.dumps([[one.mark, one.batch, one.spans] for one in kept])) > _MOST_BYTES:
            last = kept[-1]
            kept = kept[1:] if len(kept) > 1 else (replace(last, spans=last.spans[len(last.spans) // 2 :]),)
        return text.decode("ascii")

    def missing(self, reader: Reader, offsets: Iterable[int]) -> list[int]:
        """The offsets that nobody has dealt with who judges as the reader does."""
        alike = _short(reader.lineage)
        spans = [span for one in self.entries if one.mark.endswith(alike) for span in one.spans]
        return [offset for offset in offsets if not any(first <= offset < end for first, end in spans)]

    def with_span(self, reader: Reader, span: Span) -> Ledger:
        """The ledger after the reader has dealt with a span."""
        own = next((one for one in self.entries if one.mark == reader.mark), Entry(reader.mark, reader.batch, ()))
        others = tuple(one for one in self.entries if one.mark != reader.mark)
        return Ledger((*others, own.with_span(reader.batch, span)))


def _hull(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    return ((min(first for first, _ in spans), max(end for _, end in spans)),) if spans else ()


def _merged(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    merged: list[Span] = []
    for first, end in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((first, end))
    return tuple(merged)


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8"), digest_size=6).hexdigest()
