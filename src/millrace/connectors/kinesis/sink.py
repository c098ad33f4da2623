"""The work of one task: rows of Arrow become records of a stream, many in a request; those that fail are sent again."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from millrace.clients.kinesis.client import Kinesis
from millrace.errors import KinesisFailed, MillraceError, RecordRefused
from millrace.errors.transport import to_transport

if TYPE_CHECKING:
    import pyarrow as pa

PUT_RESULT = "rows bigint"
_RECORDS, _BYTES = 500, 5 * 1024 * 1024
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

        try:
            count = sum(self.put(request) for request in self._requests(batches))
        except MillraceError as error:
            raise to_transport(error) from None
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
            left = [one for one, result in zip(left, results, strict=True) if result.get("ErrorCode")]
            if len(left) < before:
                began, pause = time.monotonic(), _FIRST_PAUSE
            if time.monotonic() - began > self.door.patience:
                why = next(f"{one['ErrorCode']}: {one.get('ErrorMessage')}" for one in results if one.get("ErrorCode"))
                what = f"{self.door.where}: {len(left)} records were not taken by stream {self.stream!r}"
                raise KinesisFailed(
                    what, why=why, hint="more shards, a better partition key, or a longer retry_timeout"
                )
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _requests(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[dict[str, Any]]]:
        gathered: list[dict[str, Any]] = []
        size = 0
        for record in self._records(batches):
            own = len(record["Data"]) + len(record["PartitionKey"].encode())
            if gathered and (len(gathered) == _RECORDS or size + own > _BYTES):
                yield gathered
                gathered, size = [], 0
            gathered.append(record)
            size += own
        if gathered:
            yield gathered

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
        if len(value) + len(key.encode()) > self.largest:
            why = f"it has {len(value)} bytes, and a record of Kinesis may have {self.largest} with its key"
            raise RecordRefused(f"a record is too large for stream {self.stream!r}", why=why)
        return {"Data": value, "PartitionKey": key}
