"""What comes out of a batch, gathered in any order: good rows, bad records and the index of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from millrace.formats.base import Bad, Decoded
from millrace.formats.layout import texts_of, why_no_text

Indices: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_MOST_ROWS = 65_536
_MOST_BYTES = 1 << 28


class Harvest:
    """Gathers the rows of one batch of messages."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[pa.RecordBatch] = []
        self._good: list[Indices] = []
        self._bad: list[Bad] = []

    def add(self, rows: pa.RecordBatch, good: Indices) -> None:
        """Take in good rows and the index of each."""
        if len(good):
            self._rows.append(rows)
            self._good.append(good)

    def refuse(self, index: int, reason: str) -> None:
        """Take in a bad record."""
        self._bad.append(Bad(int(index), reason))

    def texts(self, values: pa.Array, indices: Indices) -> tuple[pa.Array, Indices]:
        """Those of the messages that are text; the others are refused."""
        texts, broken = texts_of(values)
        if not broken.any():
            return texts, indices
        for place in np.flatnonzero(broken).tolist():
            self.refuse(indices[place], why_no_text(values[place].as_py()) or "not text")
        return texts.filter(pa.array(~broken)), indices[~broken]

    def decoded(self) -> Decoded:
        """Everything, in the order of the messages."""
        rows = pa.concat_batches(self._rows or [pa.RecordBatch.from_pylist([], self._schema)])
        good = np.concatenate(self._good) if self._good else np.empty(0, np.int64)
        if len(good) > 1 and np.any(np.diff(good) < 0):
            order = np.argsort(good)
            rows, good = rows.take(pa.array(order)), good[order]
        self._bad.sort(key=lambda bad: bad.index)
        return Decoded(rows, pa.array(good, pa.int64()) if self._bad else None, self._bad)


def portions(values: pa.Array) -> Iterator[tuple[pa.Array, Indices]]:
    """The values as binary arrays of a size that can be handled in one go, with their indices."""
    for start in range(0, len(values), _MOST_ROWS):
        yield from _halved(values.slice(start, _MOST_ROWS), start)


def _halved(values: pa.Array, start: int) -> Iterator[tuple[pa.Array, Indices]]:
    count = len(values)
    if count > 1 and values.nbytes > _MOST_BYTES:
        yield from _halved(values.slice(0, count // 2), start)
        yield from _halved(values.slice(count // 2), start + count // 2)
    else:
        yield values.cast(pa.binary()), np.arange(start, start + count)
