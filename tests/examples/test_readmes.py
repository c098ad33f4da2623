"""A README is followed word for word in a folder of its own, as a new user would, and shows what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from millrace.services import cassandra, kafka
from millrace.services.process import free_port

from .conftest import EXAMPLES, commands

Row = tuple[Any, ...]
Follow = Callable[..., dict[str, str]]


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follow]:
    """Runs the commands of an example's README; what it printed by command."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    for name in ("MILLRACE_KAFKA", "MILLRACE_CASSANDRA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    port = str(free_port())

    def run(name: str, before: dict[str, Callable[[], None]] | None = None) -> dict[str, str]:
        told = {}
        for line in commands(EXAMPLES / name / "README.md"):
            if before and line in before:
                before[line]()
            # The port of every Cassandra may be in use on the machine of a test.
            command = ["bash", "-o", "pipefail", "-c", line.replace("9042", port)]
            ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
            told[line] = ran.stdout
        assert not (tmp_path / ".millrace").exists()
        return told

    yield run
    if kafka.running(tmp_path / ".millrace/kafka"):
        kafka.stop(tmp_path / ".millrace/kafka")
    if cassandra.running(tmp_path / ".millrace/cassandra"):
        cassandra.stop(tmp_path / ".millrace/cassandra")


def seen(name: str) -> str:
    """What a README says that one sees."""
    text = (EXAMPLES / name / "README.md").read_text("utf-8")
    (found,) = re.findall(r"## What you see\n.*?```text\n(.*?)```", text, re.DOTALL)
    return str(found)


def in_cassandra(folder: Path, statement: str) -> list[Row]:
    """Rows as Cassandra's own driver gives them."""
    from cassandra.cluster import Cluster

    ring = cassandra.running(folder / ".millrace/cassandra")
    assert ring is not None
    cluster = Cluster(["127.0.0.1"], port=ring.port, protocol_version=4)
    try:
        return [tuple(row) for row in cluster.connect().execute(statement)]
    finally:
        cluster.shutdown()


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_kafka_to_kafka(follow: Follow) -> None:
    told = follow("kafka-to-kafka")
    assert told["millrace kafka consume failures --from-beginning --max 3 --keys"] == seen("kafka-to-kafka")
    assert "application" in told["millrace dead show weblogs"]


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_logs_to_cassandra(follow: Follow, tmp_path: Path) -> None:
    rows: list[Row] = []

    def read() -> None:
        rows.extend(in_cassandra(tmp_path, "SELECT application, time, message, level FROM shop.logs"))

    told = follow("logs-to-cassandra", {"millrace cassandra down": read})
    lines = (EXAMPLES / "logs-to-cassandra/data/weblogs.jsonl").read_bytes().splitlines()
    sent = {(one["application"], moment(one["time"]), one["message"], one["level"]) for one in map(json.loads, lines)}
    assert (len(lines), len(rows)) == (7, 6)
    assert sorted(rows) == sorted(sent)
    assert seen("logs-to-cassandra") in told["millrace exec examples/logs-to-cassandra/read_back.py 127.0.0.1:9042"]


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_chain(follow: Follow, tmp_path: Path) -> None:
    rows: list[Row] = []

    def read() -> None:
        rows.extend(in_cassandra(tmp_path, "SELECT room, minute, average, readings FROM home.rooms"))

    told = follow("chain", {"millrace cassandra down": read})
    assert rows == [
        (room, moment(minute), float(average), int(readings))
        for room, minute, average, readings in (line.split() for line in seen("chain").splitlines()[2:])
    ]
    shown = told['millrace cassandra cql "SELECT room, minute, average, readings FROM home.rooms"']
    assert shown.split() == seen("chain").split()
    assert "readings.dead" in told["millrace dead show readings"]


def moment(text: str) -> datetime:
    """A time as the driver gives it: without its zone, in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=None)
