"""Records of a stream by the Kinesis source in a warm Spark, against a bare boto3 loop, interleaved.

The clock of the source runs from the start of its query's first trigger, before anything is read, to the end of the
batch that has the last row. CPU seconds are those of all processes but the emulator: what there is to spare is its.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from measure import Took, median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from emulator import KEYS, REGION, Emulator
from millrace.connectors.kinesis.source import ShardSourceSpec, stream_source
from millrace.engine.session.session import close_session, open_session

RECORDS = int(os.environ.get("RECORDS", "200000"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
SHARDS = 2
STREAM = "bench"


def cpu(emulator: Emulator) -> float:
    """Seconds of this process and of those that it has started, without the emulator's."""
    own = psutil.Process()
    others = [one for one in own.children(recursive=True) if one.pid != emulator.pid]
    return sum(map(seconds, (own, *others)))


def seconds(process: psutil.Process) -> float:
    """CPU seconds of a process and of its ended children; nothing of one that has just ended: its parent has them."""
    try:
        return sum(process.cpu_times()[:4])
    except psutil.NoSuchProcess:
        return 0.0


def bare(emulator: Emulator) -> Any:
    """A client as boto3 makes it."""
    import boto3

    keys = {"aws_access_key_id": KEYS["access_key"], "aws_secret_access_key": KEYS["secret_key"]}
    return boto3.Session(region_name=REGION, **keys).client("kinesis", endpoint_url=emulator.endpoint)


def by_loop(emulator: Emulator, client: Any) -> Took:
    """What a program of a few lines does: shard by shard, as much as an answer may have."""
    before, began, count = cpu(emulator), time.time(), 0
    for shard in client.list_shards(StreamName=STREAM)["Shards"]:
        where = {"StreamName": STREAM, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        at = client.get_shard_iterator(**where)["ShardIterator"]
        while at:
            answer = client.get_records(ShardIterator=at, Limit=10_000)
            count += len(answer["Records"])
            at = answer.get("NextShardIterator") if answer["Records"] else None
    wall = time.time() - began
    assert count == RECORDS
    return Took(wall, cpu(emulator) - before)


def by_source(emulator: Emulator, spark: Any, folder: str) -> Took:
    """A query that follows the stream from its oldest record and counts what comes."""
    kind = stream_source(ShardSourceSpec(emulator.door, STREAM))
    spark.dataSource.register(kind)
    counted: list[tuple[int, float]] = []

    def count(frame: Any, _: int) -> None:
        counted.append((frame.count(), time.time()))

    rows = spark.readStream.format(kind.name()).load()
    before = cpu(emulator)
    query = rows.writeStream.foreachBatch(count).option("checkpointLocation", folder).start()
    try:
        while sum(number for number, _ in counted) < RECORDS:
            query.awaitTermination(0.05)
        spent = cpu(emulator) - before
        query.processAllAvailable()
        began = datetime.fromisoformat(query.recentProgress[0].timestamp).timestamp()
    finally:
        query.stop()
    assert sum(number for number, _ in counted) == RECORDS, counted
    print(f"  {len(counted)} batches, of rows: {[number for number, _ in counted]}")
    return Took(max(at for number, at in counted if number) - began, spent)


def main() -> None:
    """Some rounds of each, one after the other."""
    emulator = Emulator()
    with tempfile.TemporaryDirectory() as folder:
        spark = open_session("bench", master=None, settings={}, log=Path(folder) / "spark.log")
        try:
            emulator.create(STREAM, SHARDS)
            emulator.put(STREAM, [f'{{"id": {n}, "text": "{"x" * 150}"}}' for n in range(RECORDS)])
            client = bare(emulator)
            by_source(emulator, spark, f"{folder}/warm")
            rounds = [
                (by_loop(emulator, client), by_source(emulator, spark, f"{folder}/{number}"))
                for number in range(ROUNDS)
            ]
            for name, side in (("loop", 0), ("source", 1)):
                wall, spent = (median([getattr(one[side], what) for one in rounds]) for what in ("wall", "cpu"))
                print(f"{name}: {RECORDS / wall:,.0f} records/s, {wall:.1f} s, {spent:.1f} CPU seconds")
            print(f"ratio: {median([loop.wall / ours.wall for loop, ours in rounds]):.2f}")
        finally:
            close_session(spark)
            emulator.stop()


if __name__ == "__main__":
    main()
