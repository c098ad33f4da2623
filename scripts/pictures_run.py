"""What the pictures show, from real runs: a pipeline in every output mode, and a cluster that loses a broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

BATCHES = (
    ("12:00:10", "12:00:35", "12:00:50"),
    ("12:01:05", "12:00:55", "12:01:20"),
    ("12:01:50", "12:00:40", "12:01:45"),
    ("12:02:10", "12:00:58", "12:02:20"),
    ("12:02:40", "12:00:45", "12:03:05"),
)
"""When the clicks of each batch happened."""
DAY = "2026-05-04T"
MODES = ("append", "update", "complete")

_PIPELINE = """
name: pictures
sources:
  clicks: {files: in, schema: "at timestamp", watermark: [at, 30 seconds], max_files: 1}
tables:
  minutes: SELECT window.start AS minute, count(*) AS clicks FROM clicks GROUP BY window(at, '1 minute')
sinks:
  - {from: minutes, foreach: './keep.py:append', batch: true, mode: append}
  - {from: minutes, foreach: './keep.py:update', batch: true, mode: update}
  - {from: minutes, foreach: './keep.py:complete', batch: true, mode: complete}
"""

_KEEP = """
import json
from pathlib import Path


def kept(mode):
    def keep(frame, batch):
        rows = sorted((f"{row.minute:%H:%M}", row.clicks) for row in frame.collect())
        Path(f"{mode}-{batch}.json").write_text(json.dumps(rows))

    return keep


append, update, complete = (kept(mode) for mode in ("append", "update", "complete"))
"""


def run_batches(folder: Path) -> dict[str, Any]:
    """Run the pipeline; what each mode wrote in each batch, and the watermark that held in it."""
    (folder / "in").mkdir()
    (folder / "pictures.yaml").write_text(_PIPELINE)
    (folder / "keep.py").write_text(_KEEP)
    for number, times in enumerate(BATCHES):
        file = folder / f"in/{number}.json"
        file.write_text("".join(json.dumps({"at": f"{DAY}{one}Z"}) + "\n" for one in times))
        os.utime(file, (number, 1_700_000_000 + number))  # Spark takes the oldest file first
    _millrace(folder, "run", "pictures.yaml", "--until-caught-up", "--no-dashboard", "--state", "state")
    return {
        "batches": [list(times) for times in BATCHES],
        "watermarks": _watermarks(folder / "state/checkpoints/minutes/offsets"),
        **{mode: _written(folder, mode) for mode in MODES},
    }


def _written(folder: Path, mode: str) -> list[list[list[Any]]]:
    found = {int(one.stem.partition("-")[2]): json.loads(one.read_text()) for one in folder.glob(f"{mode}-*.json")}
    return [found.get(batch, []) for batch in range(max(found) + 1)]


def _watermarks(offsets: Path) -> list[str | None]:
    """The watermark of each batch, as Spark noted it when it planned the batch."""
    noted = {int(one.name): json.loads(one.read_text().splitlines()[1]) for one in offsets.glob("[0-9]*")}
    marks = [noted[batch]["batchWatermarkMs"] for batch in sorted(noted)]
    return [f"{datetime.fromtimestamp(mark / 1000, UTC):%H:%M:%S}" if mark else None for mark in marks]


def run_cluster(folder: Path) -> dict[str, Any]:
    """Three brokers and a topic with three copies, before and after a broker is killed."""
    where = ("--data", "three")
    _millrace(folder, "kafka", "up", "--brokers", "3", "--detach", *where)
    try:
        _millrace(folder, "kafka", "topics", "create", "ledger", "--partitions", "6", "--replication", "3", *where)
        before = _partitions(folder, where)
        _kill_broker(folder, 2)
        return {"killed": 2, "before": before, "after": _until_moved(folder, where)}
    finally:
        _millrace(folder, "kafka", "down", *where)


def _partitions(folder: Path, where: tuple[str, ...]) -> list[dict[str, Any]]:
    told = json.loads(_millrace(folder, "kafka", "topics", "describe", "ledger", "--json", *where))
    return [{name: one[name] for name in ("id", "leader", "replicas", "in_sync")} for one in told[0]["partitions"]]


def _until_moved(folder: Path, where: tuple[str, ...]) -> list[dict[str, Any]]:
    for _ in range(60):  # each look takes a second
        found = _partitions(folder, where)
        if all(2 not in one["in_sync"] and one["leader"] != 2 for one in found):
            return found
    raise SystemExit("the broker's partitions did not move")


def _kill_broker(folder: Path, number: int) -> None:
    told = json.loads((folder / "three/cluster.json").read_text())
    node = next(one for one in told["nodes"] if one["id"] == number)
    os.kill(node["process"]["pid"], signal.SIGKILL)


def _millrace(folder: Path, *arguments: str) -> str:
    command = [str(Path(sys.executable).parent / "millrace"), *arguments]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
