"""examples/logs-to-cassandra."""

from __future__ import annotations

import json
import runpy
import sys
from datetime import datetime

import pytest
from pyspark.sql import SparkSession

from millrace.clients.cassandra import Cassandra

from .conftest import EXAMPLES, Stage, readme_rows, rows

FOLDER = EXAMPLES / "logs-to-cassandra"


def test_every_line_is_one_row_and_is_read_back(
    stage: Stage,
    cassandra: Cassandra,
    keyspace: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    weblogs, table = stage.sample("logs-to-cassandra/data/weblogs.jsonl"), f"{keyspace}.logs"
    stage.run("logs-to-cassandra", {"weblogs": weblogs, "shop.logs": table})
    found = cassandra.session().execute(f"SELECT application, time, message, level FROM {table}")  # noqa: S608
    lines = [json.loads(line) for line in (FOLDER / "data" / "weblogs.jsonl").read_bytes().splitlines()]
    sent = {(one["application"], moment(one["time"]), one["message"], one["level"]) for one in lines}
    assert sorted(found) == sorted(sent)
    monkeypatch.setattr(sys, "argv", ["read_back.py", cassandra.address, table])
    runpy.run_path(str(FOLDER / "read_back.py"), run_name="__main__")
    assert set(rows(capsys.readouterr().out)) == readme_rows("logs-to-cassandra")


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)
