"""The work of one task: rows of Arrow become records of a stream, many in a request; those that fail are sent again."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from millrace.clients.kafka.record import limited_batches
from millrace.clients.kinesis.client import Kinesis
from millrace.errors import KinesisFailed, RecordRefused
from millrace.errors.transport import errors_in_transport

if TYPE_CHECKING:
    import pyarrow as pa

PUT_RESULT = "rows bigint"
_MAX_RECORDS, _MAX_BYTES = 500, 5 * 1024 * 1024
"""What one request may have, as Kinesis says."""
_LONGEST_KEY = 256
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0


@dataclass(frozen=True)
class KinesisBatchWriter:
    """All that a task must know; rows of Arrow in, one row out that tells how many there were."""

    door: Kinesis
    stream: str
    largest: int = 1024 * 1024
    """Bytes that a record may have, with its key."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with errors_in_transport():
            requests = limited_batches(self._records(batches), _MAX_RECORDS, _size, _MAX_BYTES)
            count = sum(map(self.put, requests))
        yield pa.RecordBatch.from_pydict({"rows": pa.array([count], pa.int64())})

    def put(self, records: list[dict[str, Any]]) -> int:
        """Send records; returns when all are safe. While there is no capacity it waits, longer each time."""
        left, pause, began = records, _FIRST_PAUSE, time.monotonic()
        doing = f"write to stream {self.stream!r}"
        while True:
            put = self.door.client().put_records
            answer = self.door.call_with_retries(put, doing, StreamName=self.stream, Records=left)
            if not answer.get("FailedRecordCount"):
                return len(records)
            results = answer["Records"]
            before = len(left)
            left = [record for record, result in zip(left, results, strict=True) if result.get("ErrorCode")]
            if len(left) < before:
                began, pause = time.monotonic(), _FIRST_PAUSE
            if time.monotonic() - began > self.door.patience:
                failed = next(result for result in results if result.get("ErrorCode"))
                raise KinesisFailed(
                    f"{self.door.where}: {len(left)} records were not taken by stream {self.stream!r}",
                    why=f"{failed['ErrorCode']}: {failed.get('ErrorMessage')}",
                    hint="more shards, a better partition key, or a longer retry_timeout",
                )
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _records(self, batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
        for batch in batches:
            values = batch.column("value").to_pylist()
            keys = batch.column("key").to_pylist() if "key" in batch.schema.names else [None] * len(values)
            for value, key in zip(values, keys, strict=True):
                # Without a key records are spread over the shards.
                yield self._record(value, uuid4().hex if key is None or key == "" else key)

    def _record(self, value: bytes | None, key: str) -> dict[str, Any]:
        if value is None:
            raise RecordRefused(f"stream {self.stream!r} takes no record without a value")
        if len(key) > _LONGEST_KEY:
            raise RecordRefused(f"a partition key has {len(key)} characters, and Kinesis takes {_LONGEST_KEY}")
        record = {"Data": value, "PartitionKey": key}
        if _size(record) > self.largest:
            why = f"it has {len(value)} bytes, and a record of Kinesis may have {self.largest} with its key"
            raise RecordRefused(f"a record is too large for stream {self.stream!r}", why=why)
        return record


def _size(record: dict[str, Any]) -> int:
    return len(record["Data"]) + len(record["PartitionKey"].encode())
