"""Checkpoints of queries with state, as Spark writes their files, for tests that start no Spark.

- `write_checkpoint` makes one whose query has caught up.
- `commit_last_batch` commits the batch that ends event time.
"""

from __future__ import annotations

import json
from pathlib import Path

SOURCE = '{"posts":{"0":7}}'
"""Where the source of the query is after each batch."""
LAST = 3
"""The last batch that has records; that which ends event time comes after it."""
END_MS = 253402300799999


def write_checkpoint(folder: Path, *, watermark: int = 1000, after: int = 2000, committed: bool = True) -> Path:
    """Write the checkpoint of a query after a batch, and return it; `after` is the watermark of the next batch."""
    for name in ("offsets", "commits", "state"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    fields = {"batchWatermarkMs": watermark, "batchTimestampMs": 5, "conf": {"spark.sql.shuffle.partitions": "3"}}
    (folder / "offsets" / f"{LAST}").write_text(f"v1\n{json.dumps(fields)}\n{SOURCE}\n-")
    if committed:
        _commit(folder, LAST, after)
    return folder


def commit_last_batch(folder: Path) -> None:
    """Commit the batch that ends event time, which is planned."""
    _commit(folder, LAST + 1, END_MS)


def _commit(folder: Path, batch: int, watermark: int) -> None:
    (folder / "commits" / f"{batch}").write_text(f'v1\n{{"nextBatchWatermarkMs":{watermark}}}')
    (folder / "commits" / f".{batch}.crc").write_bytes(b"crc")
