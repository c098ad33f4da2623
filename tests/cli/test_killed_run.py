"""A run that is killed again and again ends with the result of one that was not."""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.conftest import Start
from conftest import CommandLine
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record

RECORDS = 40_000
PER_BATCH = 500
QUICK = ("--no-dashboard", "--set", "spark.sql.codegen.wholeStage=false")
START = datetime(2026, 1, 1, tzinfo=UTC)
PIPELINE = """
name: killed
sources:
  events: {kafka: TOPIC, schema: "user string, at timestamp", max_per_batch: 500, watermark: [at, 5 seconds]}
tables:
  counts: SELECT window(at, '10 seconds') AS window, user, count(*) AS count FROM events GROUP BY 1, 2
sinks:
  - {from: counts, files: out, format: parquet}
"""


def events() -> tuple[list[Record], Counter[tuple[datetime, str]]]:
    """Records in order of time, twenty a second, and the count of each window and user."""
    records, counts = [], Counter[tuple[datetime, str]]()
    for number in range(RECORDS):
        at, user = START + timedelta(seconds=number // 20), f"u{number % 7}"
        records.append(Record(orjson.dumps({"user": user, "at": at.isoformat()})))
        counts[(START + timedelta(seconds=number // 200 * 10), user)] += 1
    # A last event far ahead moves the watermark past every window before it.
    records.append(Record(orjson.dumps({"user": "last", "at": (START + timedelta(days=1)).isoformat()})))
    return records, counts


def batches(folder: Path, log: str = "*") -> int:
    """How many batches have been begun (`offsets`), how many are done (`commits`), or both together."""
    written = folder / ".millrace" / "pipelines" / "killed" / "checkpoints" / "counts"
    return len([path for path in written.glob(f"{log}/*") if path.name.isdecimal()])


def written(folder: Path) -> list[dict[str, Any]]:
    """The rows of the files that Spark's own log of a folder lists: others may be of a batch that was cut off."""
    logs = {int(path.stem): path for path in sorted((folder / "_spark_metadata").iterdir()) if path.stem.isdecimal()}
    last = max((number for number, path in logs.items() if path.suffix == ".compact"), default=min(logs))
    lines = [line for number in sorted(logs) if number >= last for line in logs[number].read_text().splitlines()[1:]]
    files = [unquote(urlsplit(orjson.loads(line)["path"]).path) for line in lines]
    rows: list[dict[str, Any]] = pa.concat_tables([pq.read_table(file) for file in files]).to_pylist()
    return rows


def run_and_kill(start: Start, folder: Path, rng: random.Random) -> None:
    """Kill it at a random moment once it works: in a batch, or between two."""
    before = batches(folder)
    process = start("run", "pipeline.yaml", *QUICK)
    while batches(folder) == before and process.poll() is None:
        time.sleep(0.02)
    time.sleep(rng.random() / 2)
    assert process.poll() is None, process.communicate()[1].decode()
    process.kill()
    process.communicate(timeout=60)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_the_result_is_exact_however_often_the_run_is_killed(
    millrace: CommandLine, start: Start, cluster: Cluster, topic: str
) -> None:
    records, expected = events()
    producer = Producer(cluster, topic)
    producer.send([record._replace(partition=0) for record in records])
    producer.close()
    (millrace.folder / "pipeline.yaml").write_text(PIPELINE.replace("TOPIC", topic))
    rng = random.Random()
    for _ in range(10):
        run_and_kill(start, millrace.folder, rng)
    assert batches(millrace.folder, "commits") < RECORDS // PER_BATCH, "it was ready before the last kill"
    millrace("run", "pipeline.yaml", "--until-caught-up", *QUICK)
    rows = written(millrace.folder / "out")
    found = Counter({(row["window"]["start"].replace(tzinfo=UTC), row["user"]): row["count"] for row in rows})
    assert len(rows) == len(found)
    assert found == expected
