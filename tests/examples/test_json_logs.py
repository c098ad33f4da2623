"""examples/json-logs: one query, as a batch and as a stream."""

from __future__ import annotations

import runpy
import sys
from collections import Counter

import orjson
import pytest
from pyspark.sql import SparkSession

from .conftest import EXAMPLES, Stage, readme_rows, rows

FOLDER = EXAMPLES / "json-logs"


def counted() -> list[tuple[str, ...]]:
    """The result as plain Python makes it."""
    lines = [orjson.loads(line) for file in FOLDER.glob("data/*.json") for line in file.read_bytes().splitlines()]
    counts = Counter((f"{line['time'][:10]} {line['time'][11:16]}:00", line["level"]) for line in lines)
    assert counts.total() == 300
    return [(minute, level, str(count)) for (minute, level), count in sorted(counts.items())]


def test_as_a_stream(stage: Stage) -> None:
    stage.run("json-logs", {"examples/json-logs/data": str(FOLDER / "data")})
    assert stage.shown("levels") == counted()
    assert stage.shown("levels")[0] == ("2026-05-04 07:30:00", "ERROR", "2")
    assert readme_rows("json-logs") == set(stage.shown("levels"))


def test_as_a_batch(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", ["batch.py", str(FOLDER / "data")])
    runpy.run_path(str(FOLDER / "batch.py"), run_name="__main__")
    assert rows(capsys.readouterr().out) == counted()
