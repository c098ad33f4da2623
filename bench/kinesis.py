"""Records of a stream by the Kinesis source on Spark, against a bare boto3 loop over the same shards, interleaved."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from emulator import Emulator
from millrace.connectors.shards.reading import Following, source
from millrace.engine.session import close_session, open_session

RECORDS = int(os.environ.get("RECORDS", "20000"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
SHARDS = 2


def by_loop(client: Any, stream: str) -> float:
    """What a program of a few lines does: shard by shard, as much as an answer may have."""
    began, count = time.monotonic(), 0
    for shard in client.list_shards(StreamName=stream)["Shards"]:
        where = {"StreamName": stream, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        at = client.get_shard_iterator(**where)["ShardIterator"]
        while at:
            answer = client.get_records(ShardIterator=at, Limit=10_000)
            count += len(answer["Records"])
            at = answer.get("NextShardIterator") if answer["Records"] else None
    assert count == RECORDS
    return RECORDS / (time.monotonic() - began)


def by_source(spark: Any, following: Following, folder: str) -> float:
    """A query that reads all there is and counts it, from its start to the end of its last batch."""
    kind = source(following)
    spark.dataSource.register(kind)
    counted: list[int] = []
    rows = spark.readStream.format(kind.name()).load()
    query = (
        rows.writeStream.foreachBatch(lambda frame, _: counted.append(frame.count()))
        .option("checkpointLocation", folder)
        .trigger(availableNow=True)
    )
    began = time.monotonic()
    query.start().awaitTermination()
    assert sum(counted) == RECORDS, counted
    return RECORDS / (time.monotonic() - began)


def main() -> None:
    """Some rounds of each, one after the other."""
    emulator = Emulator()
    with tempfile.TemporaryDirectory() as folder:
        spark = open_session("bench", master=None, settings={}, log=Path(folder) / "spark.log")
        try:
            emulator.create("bench", SHARDS)
            emulator.put("bench", [f'{{"id": {n}, "text": "{"x" * 150}"}}' for n in range(RECORDS)])
            following = Following(emulator.door, "bench")
            by_source(spark, following, f"{folder}/warm")
            rounds = [
                (by_loop(emulator.client, "bench"), by_source(spark, following, f"{folder}/{number}"))
                for number in range(ROUNDS)
            ]
            loop, ours = (median([one[side] for one in rounds]) for side in (0, 1))
            print(f"records/s: loop {loop:,.0f}, source {ours:,.0f}, ratio {median([b / a for a, b in rounds]):.2f}")
        finally:
            close_session(spark)
            emulator.stop()


if __name__ == "__main__":
    main()
