"""Rows that reach a worker whole or not at all.

A task that fails closes the stream of rows to its Python worker, and so does a JVM that is killed. Arrow takes a stream
that breaks off between two batches for one that ends: a worker would go on as if it had seen every row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class _Watched:
    """A stream that knows whether it was read beyond its end: one that is whole says where it ends."""

    closed = False

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.broken = False

    def read(self, size: int = -1) -> bytes:
        """What was asked for, or less at the end."""
        found = self._stream.read(size)
        self.broken = self.broken or len(found) < size
        return found


def insist() -> None:
    """From now on, in this process, a stream of batches that breaks off raises where Spark's worker reads it."""
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    if ArrowStreamSerializer.load_stream is not _load_stream:
        ArrowStreamSerializer.load_stream = _load_stream


def _load_stream(serializer: Any, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """In the place of the serializer's own."""
    import pyarrow as pa

    del serializer
    watched = _Watched(stream)
    yield from pa.ipc.open_stream(watched)
    if watched.broken:
        raise EOFError("the rows of the task broke off")
