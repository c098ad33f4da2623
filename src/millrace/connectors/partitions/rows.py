"""Records of a partition as rows: the columns that Spark's own Kafka source has, of which a query takes some."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from millrace.clients.bulk import Range
from millrace.clients.log import Records

if TYPE_CHECKING:
    import pyarrow as pa


def blocks(found: Iterator[Records], span: Range, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows, in blocks as large as the answers of the broker."""
    import pyarrow as pa

    for records in found:
        if len(records.offsets):
            arrays = [_COLUMNS[name](records, span) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _value(records: Records, span: Range) -> pa.Array:
    del span
    return records.bytes_of(records.values)


def _key(records: Records, span: Range) -> pa.Array:
    import pyarrow as pa

    del span
    if (records.keys[1] < 0).all():
        return pa.nulls(len(records.offsets), pa.binary())
    return records.bytes_of(records.keys)


def _topic(records: Records, span: Range) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(pa.scalar(span.topic, pa.string()), len(records.offsets))


def _partition(records: Records, span: Range) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(pa.scalar(span.partition, pa.int32()), len(records.offsets))


def _offset(records: Records, span: Range) -> pa.Array:
    import pyarrow as pa

    del span
    return pa.array(records.offsets, pa.int64())


def _timestamp(records: Records, span: Range) -> pa.Array:
    import pyarrow as pa

    del span
    return pa.array(records.times * np.int64(1000), pa.int64()).view(pa.timestamp("us", "UTC"))


def _headers(records: Records, span: Range) -> pa.Array:
    import pyarrow as pa

    del span
    kind = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
    if not records.headers[1].any():
        return pa.nulls(len(records.offsets), kind)
    return pa.array(records.headers_of(), kind)


_COLUMNS: dict[str, Callable[[Records, Range], pa.Array]] = {
    "value": _value,
    "key": _key,
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "headers": _headers,
}
