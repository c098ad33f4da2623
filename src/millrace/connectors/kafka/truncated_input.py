"""Make a Python worker of Spark fail on rows that break off, instead of taking them for all rows of its task.

A task that fails closes the stream of rows to its Python worker, and so does a JVM that is killed. Arrow takes a stream
that ends between two record batches for a complete one, so the worker would continue with a part of the rows. A sink
that commits what it got would lose the rest: see "Rows that break off" in docs/decisions/0016-exactly-once.md.

Spark has no hook for this. `fail_on_truncated_input` replaces `ArrowStreamSerializer.load_stream`, a private method of
PySpark, in the process that calls it. It must be called before the worker reads its first row, that is while the
function of the task is unpickled. It was written for Spark 4.3; its test fails with another version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class _TruncationCheckingStream:
    """A stream that knows whether it was read beyond its end: a complete one contains a mark of its end."""

    closed = False

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.truncated = False

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(size)
        self.truncated = self.truncated or len(content) < size
        return content


def fail_on_truncated_input() -> None:
    """Let this process raise EOFError where a stream of Arrow batches from Spark has no end mark."""
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    ArrowStreamSerializer.load_stream = _load_stream


def _load_stream(serializer: Any, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream, as the method of the serializer does."""
    import pyarrow as pa

    del serializer
    checked = _TruncationCheckingStream(stream)
    yield from pa.ipc.open_stream(checked)
    if checked.truncated:
        raise EOFError("the rows of the task broke off")
