"""`millrace run`, `query` and `schema` as a user meets them."""

from __future__ import annotations

import json
import signal

import pytest

from cli.conftest import Start
from conftest import CommandLine

PIPELINE = """
name: counted
sources: {lines: {kafka: TOPIC, format: text}}
tables: {counts: "SELECT value, count(*) AS count FROM lines GROUP BY value"}
sinks:
  - {from: counts, console: , mode: complete}
  - {from: counts, memory: , mode: complete}
"""


@pytest.mark.long
def test_results_on_standard_output_and_questions_meanwhile(millrace: CommandLine, start: Start, topic: str) -> None:
    (millrace.folder / "p.yaml").write_text(PIPELINE.replace("TOPIC", topic))
    millrace("kafka", "produce", topic, stdin="hello\nworld\nhello\n")
    process = start("run", "p.yaml")
    assert process.stdout is not None
    assert any(b"|hello|2" in line for line in process.stdout)
    while not (told := millrace("query", "SELECT * FROM counts ORDER BY value", "--json", code=None)).stdout:
        assert "no table is in memory yet" in told.stderr  # the other sink was quicker
    assert json.loads(told.stdout) == [{"value": "hello", "count": 2}, {"value": "world", "count": 1}]
    unknown = millrace("query", "SELECT * FROM conuts", code=2)
    assert "counts" in unknown.stderr
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 0, said
    assert b"Traceback" not in said
    assert "no pipeline runs here" in millrace("query", "SELECT 1", code=2).stderr


def test_what_is_wrong_is_told_before_anything_starts(millrace: CommandLine) -> None:
    (millrace.folder / "p.yaml").write_text(PIPELINE.replace("FROM lines", "FROM line"))
    said = millrace("run", "p.yaml", code=2).stderr
    assert "p.yaml:4" in said
    assert "did you mean 'lines'" in said
    assert not (millrace.folder / ".millrace" / "pipelines").exists()


def test_a_file_that_is_not_there(millrace: CommandLine) -> None:
    assert "file.unusable" in millrace("run", "nothing.yaml", code=2).stderr


def test_a_schema_from_a_topics_records(millrace: CommandLine, topic: str) -> None:
    millrace("kafka", "produce", topic, stdin='{"id": "a", "n": 1, "at": "2026-01-01T00:00:00Z"}\n{"n": 1.5}\n')
    # Which record is read first is for Kafka to say: they may be in two partitions.
    assert set(millrace("schema", topic).stdout.strip().split(", ")) == {"id string", "n double", "at timestamp"}
