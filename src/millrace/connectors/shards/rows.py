"""Records of Kinesis as Arrow has them: on their way to a task, and as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from millrace.clients.aggregated import MAGIC, unpacked
from millrace.clients.tail import Record

if TYPE_CHECKING:
    import pyarrow as pa

DDL = "value binary, key binary, stream string, shard string, sequence string, timestamp timestamp"
_NAMES = [column.split()[0] for column in DDL.split(", ")]
_ROWS = 65_536


def kept(records: Sequence[Record]) -> bytes:
    """Records as bytes that travel."""
    import pyarrow as pa

    columns = {
        "value": pa.array([one["Data"] for one in records], pa.binary()),
        # A stream that spreads its records itself may have some without a key.
        "key": pa.array([one.get("PartitionKey") for one in records], pa.string()).cast(pa.binary()),
        "sequence": pa.array([one["SequenceNumber"] for one in records], pa.string()),
        "timestamp": pa.array([one["ApproximateArrivalTimestamp"] for one in records], pa.timestamp("us", "UTC")),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    held: bytes = sink.getvalue().to_pybytes()
    return held


def table(held: bytes) -> pa.Table:
    """The other way."""
    import pyarrow as pa

    return pa.ipc.open_stream(held).read_all()


def blocks(records: pa.Table, stream: str, shard: str) -> Iterator[pa.RecordBatch]:
    """Rows in the form of the DDL; records that were packed by the Kinesis Producer Library are taken apart."""
    import pyarrow as pa

    for batch in _plain(records).to_batches(_ROWS):
        size = batch.num_rows
        names = [pa.repeat(pa.scalar(one, pa.string()), size) for one in (stream, shard)]
        columns = [
            batch.column("value"),
            batch.column("key"),
            *names,
            batch.column("sequence"),
            batch.column("timestamp"),
        ]
        order = ["value", "key", "stream", "shard", "sequence", "timestamp"]
        yield pa.RecordBatch.from_arrays(columns, names=order)


def _plain(records: pa.Table) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    packed = pc.starts_with(records.column("value"), pattern=MAGIC)
    if not pc.any(packed).as_py():
        return records
    rows = []
    for row in records.to_pylist():
        inside = unpacked(row["value"])
        if inside is None:
            rows.append(row)
        else:
            rows += [row | {"key": key.encode(), "value": data} for key, data in inside]
    return pa.Table.from_pylist(rows, records.schema)
