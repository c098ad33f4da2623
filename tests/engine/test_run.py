"""Runs from start to end: what is resumed, what is refused, and what failures say."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.base.api import RunContext
from millrace.connectors.memory import MEMORY
from millrace.dead_letters.store import letters_in_topics
from millrace.engine.checkpoints.state_dir import StateDir
from millrace.engine.run import RunSettings, run
from millrace.errors import InvalidDefinition, MillraceError
from millrace.pipeline.plan import make_plan
from millrace.telemetry.query_status import RunStatus

Run = Callable[..., RunStatus]


def send(cluster: Cluster, topic: str, *values: bytes | None) -> None:
    """Put records into the first partition of a topic."""
    producer = Producer(cluster, topic)
    producer.send([Record(value, b"k", partition=0) for value in values])
    producer.close()


def lines_to(sink: Any, topic: str, name: str = "lines", **options: Any) -> mr.Pipeline:
    """A pipeline that copies lines of text."""
    pipeline = mr.Pipeline(name)
    pipeline.source("lines", mr.kafka(topic, format="text", **options))
    pipeline.sql("copied", "SELECT value FROM lines")
    pipeline.sink("copied", sink)
    return pipeline


def values(table: str = "copied") -> list[str]:
    """What a table in memory holds."""
    return sorted(row["value"] for row in MEMORY.tables()[table].to_pylist())


def read_files(spark: SparkSession, folder: Path) -> list[str]:
    return sorted(row.value for row in spark.read.text(str(folder)).collect())


def test_the_next_run_goes_on(
    tmp_path: Path, cluster: Cluster, topic: str, run_pipeline: Run, spark: SparkSession
) -> None:
    pipeline = lines_to(mr.files(str(tmp_path / "out"), format="text"), topic)
    send(cluster, topic, b"one", b"two")
    run_pipeline(pipeline, state=tmp_path / "state")
    send(cluster, topic, b"three")
    run_status = run_pipeline(pipeline, state=tmp_path / "state")
    assert run_status.query("copied").rows == 1
    assert read_files(spark, tmp_path / "out") == ["one", "three", "two"]


def test_several_sinks_read_the_source_once(
    tmp_path: Path, cluster: Cluster, topic: str, run_pipeline: Run, spark: SparkSession
) -> None:
    send(cluster, topic, b"one", b"two", b"three")
    pipeline = lines_to(mr.files(str(tmp_path / "out"), format="text"), topic)
    pipeline.sink("copied", mr.memory())
    pipeline.sink("copied", mr.console())
    run_status = run_pipeline(pipeline, state=tmp_path / "state")
    assert [standing.rows for standing in run_status.queries()] == [3]
    assert values() == read_files(spark, tmp_path / "out") == ["one", "three", "two"]


def test_start_at_the_end_is_the_same_for_every_query(
    tmp_path: Path, cluster: Cluster, topic: str, run_pipeline: Run
) -> None:
    send(cluster, topic, b"before")
    pipeline = lines_to(mr.memory(), topic, start="latest")
    run_pipeline(pipeline, state=tmp_path / "state")
    send(cluster, topic, b"after")
    pipeline.sql("again", "SELECT value FROM lines")
    pipeline.sink("again", mr.memory())
    run_pipeline(pipeline, state=tmp_path / "state")
    assert values() == values("again") == ["after"]


def test_a_state_folder_of_another_pipeline_is_refused(tmp_path: Path, topic: str, run_pipeline: Run) -> None:
    run_pipeline(lines_to(mr.memory(), topic), state=tmp_path / "state")
    with pytest.raises(MillraceError) as raised:
        run_pipeline(lines_to(mr.memory(), topic, name="other"), state=tmp_path / "state")
    assert raised.value.condition == "state.mismatch"


def test_a_checkpoint_made_for_another_topic_is_refused(
    tmp_path: Path, cluster: Cluster, topic: str, run_pipeline: Run
) -> None:
    sink = mr.files(str(tmp_path / "out"), format="text")
    send(cluster, topic, b"one")
    run_pipeline(lines_to(sink, topic), state=tmp_path / "state")
    with pytest.raises(MillraceError) as raised:
        run_pipeline(lines_to(sink, f"{topic}-other"), state=tmp_path / "state")
    assert raised.value.condition == "state.mismatch"
    assert topic in str(raised.value.why)


def test_two_runs_do_not_share_a_state_folder(tmp_path: Path, topic: str) -> None:
    pipeline = lines_to(mr.memory(), topic).model()
    with (
        StateDir(tmp_path, pipeline),
        pytest.raises(MillraceError) as raised,
        StateDir(tmp_path, pipeline, patience=0.0),
    ):
        pass
    assert raised.value.condition == "state.mismatch"


def test_a_missing_topic_with_creation_off(tmp_path: Path, cluster: Cluster, spark: SparkSession) -> None:
    plan = make_plan(lines_to(mr.memory(), "nobody-made-this").model(), once=True)
    settings = RunSettings(RunContext(tmp_path / "state", lambda: cluster, create_topics=False, session=spark))
    with pytest.raises(MillraceError) as raised:
        run(plan, settings, RunStatus(), threading.Event())
    assert raised.value.condition == "kafka.topic-unknown"


def test_a_function_that_raises_is_shown_with_its_line(
    tmp_path: Path, cluster: Cluster, topic: str, run_pipeline: Run
) -> None:
    send(cluster, topic, b"1", b"x")

    def number(text):  # type: ignore[no-untyped-def]  # with types Spark would warn that it cannot use them
        return int(text)

    pipeline = mr.Pipeline("failing")
    pipeline.source("lines", mr.kafka(topic, format="text"))

    @pipeline.table
    def numbers(lines: Any) -> Any:
        return lines.select(F.udf(number, "int")("value").alias("n"))

    pipeline.sink("numbers", mr.memory())
    with pytest.raises(MillraceError) as raised:
        run_pipeline(pipeline)
    assert raised.value.condition == "function.failed"
    assert raised.value.place is not None
    assert raised.value.place.file == __file__
    assert topic in str(raised.value.why)


def test_a_sink_that_refuses_ends_the_run_and_nothing_is_lost(
    tmp_path: Path, cluster: Cluster, topic: str, run_pipeline: Run
) -> None:
    send(cluster, topic, b"fine", b"x" * 900_000)
    refused = lines_to(mr.kafka(f"{topic}-out", format="text", config={"max.request.size": "100000"}), topic)
    with pytest.raises(MillraceError) as raised:
        run_pipeline(refused, state=tmp_path / "state")
    assert raised.value.exit_code == 1
    taken = lines_to(mr.kafka(f"{topic}-out", format="text"), topic)
    run_status = run_pipeline(taken, state=tmp_path / "state")
    assert run_status.query("copied").rows == 2


def test_a_column_that_is_not_there_names_the_table(topic: str, run_pipeline: Run) -> None:
    pipeline = lines_to(mr.memory(), topic)
    pipeline.sql("wrong", "SELECT valeu FROM lines")
    pipeline.sink("wrong", mr.memory())
    with pytest.raises(MillraceError) as raised:
        run_pipeline(pipeline)
    assert raised.value.condition == "spark.analysis"
    assert raised.value.place is not None
    assert raised.value.place.file == __file__


def test_all_problems_are_reported_before_the_first_query_starts(topic: str, run_pipeline: Run) -> None:
    pipeline = lines_to(mr.memory(), topic)
    pipeline.sql("wrong", "SELECT nothing FROM lines")
    pipeline.sink("wrong", mr.console())

    @pipeline.table
    def sorted_lines(lines: Any) -> Any:
        return lines.orderBy("value")

    pipeline.sink("sorted_lines", mr.console())
    with pytest.raises(InvalidDefinition) as raised:
        run_pipeline(pipeline)
    text = "\n".join(raised.value.lines())
    assert "nothing" in text
    assert "orderBy" in text or "Sorting" in text
    assert text.count("error[") == 3  # the list, and two in it
    assert "copied" not in MEMORY.tables()


def test_a_folder_with_the_output_of_an_earlier_start_is_refused(
    tmp_path: Path, cluster: Cluster, topic: str, run_pipeline: Run
) -> None:
    send(cluster, topic, b"one")
    pipeline = lines_to(mr.files(str(tmp_path / "out"), format="text"), topic)
    run_pipeline(pipeline, state=tmp_path / "state")
    with pytest.raises(MillraceError) as raised:
        run_pipeline(pipeline, state=tmp_path / "other")
    assert raised.value.condition == "state.mismatch"


def test_a_console_shows_a_few_rows_and_decodes_all(cluster: Cluster, topic: str, run_pipeline: Run) -> None:
    send(cluster, topic, *(b"%d" % number for number in range(500)), b"\xff")
    pipeline = mr.Pipeline("shown")
    pipeline.source("lines", mr.kafka(topic, format="text"))
    pipeline.sink("lines", mr.console(rows=5))
    run_pipeline(pipeline)
    assert [found.letter.value for found in letters_in_topics(cluster, [f"{topic}.dead"])] == [b"\xff"]


def test_a_pattern_leaves_dead_letters_out(cluster: Cluster, topic: str, run_pipeline: Run) -> None:
    send(cluster, topic, b"one", b"\xff")
    for _ in range(2):
        pipeline = mr.Pipeline("matched")
        pipeline.source("lines", mr.kafka(pattern=f"{topic}.*", format="text", include=("topic",)))
        pipeline.sink("lines", mr.memory("copied"))
        run_pipeline(pipeline)
        assert values() == ["one"]
    assert f"{topic}.dead.dead" not in cluster.connect().topics
