"""Records are decoded strictly from the first batch on: a bad one becomes a dead letter, and no query restarts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from conftest import committed
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.dead_letters.store import letters_in_topics
from millrace.errors import FunctionFailed
from millrace.telemetry.query_status import Phase, RunStatus

pytestmark = pytest.mark.usefixtures("either_source")
Run = Callable[..., RunStatus]


def send(cluster: Cluster, topic: str, *values: bytes, one_partition: bool = False) -> None:
    producer = Producer(cluster, topic)
    spread = 1 if one_partition else 3
    producer.send([Record(value, partition=number % spread) for number, value in enumerate(values)])
    producer.close()


def copy(topic: str, folder: Path, sinks: str) -> mr.Pipeline:
    pipeline = mr.Pipeline("strict")
    pipeline.source("lines", mr.kafka(topic, format="text", include=(), max_per_batch=4))
    if "files" in sinks:
        pipeline.sink("lines", mr.files(str(folder), format="text"))
    if "kafka" in sinks:
        pipeline.sink("lines", mr.kafka(f"{topic}-out", format="text"))
    return pipeline


@pytest.mark.parametrize(
    "sinks", ["files and kafka", *(pytest.param(one, marks=pytest.mark.chaos) for one in ("files", "kafka"))]
)
def test_a_bad_record_restarts_no_query(
    cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path, sinks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an earlier version left in the state folder, and whatever its setting says."""
    monkeypatch.setenv("MILLRACE_TRUST", "on")
    out, state, messages = tmp_path / "out", tmp_path / "state", list[str]()
    send(cluster, topic, *(b"%d" % number for number in range(12)))
    run_pipeline(copy(topic, out, sinks), state, say=messages.append)
    assert not (state / "careful").exists()
    send(cluster, topic, b"12", b"\xff", b"13", b"\xfe", b"14")
    run_status = run_pipeline(copy(topic, out, sinks), state, say=messages.append)
    assert not (state / "careful").exists()
    (state / "careful").mkdir()
    (state / "careful" / "lines").touch()
    send(cluster, topic, b"15", b"\xfd")
    run_pipeline(copy(topic, out, sinks), state, say=messages.append)
    if "files" in sinks:
        written = [line for file in out.glob("*.txt") for line in file.read_text().split()]
        assert sorted(map(int, written)) == list(range(16))
    if "kafka" in sinks:
        assert sorted(int(one.value() or b"-1") for one in committed(cluster, f"{topic}-out")) == list(range(16))
    letters = [found.letter.value for found in letters_in_topics(cluster, [f"{topic}.dead"])]
    assert sorted(letters, key=str) == [b"\xfd", b"\xfe", b"\xff"]
    assert [(one.phase, one.restarts, one.error) for one in run_status.queries()] == [(Phase.STOPPED, 0, None)]
    assert run_status.dead() == {"lines": 2}
    assert messages == ["starting 1 query"] * 3


def test_dead_letters_of_json_have_their_offsets(
    cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path
) -> None:
    send(cluster, topic, *(b'{"n": %d}' % number for number in range(6)))
    pipeline = mr.Pipeline("json")
    pipeline.source("rows", mr.kafka(topic, schema="n int", include=("partition",), max_per_batch=4))
    pipeline.sink("rows", mr.kafka(f"{topic}-out"))
    state = tmp_path / "state"
    run_pipeline(pipeline, state)
    send(cluster, topic, b'{"n": 6}', b"{", b'{"n": 7}')
    run_status = run_pipeline(pipeline, state)
    assert [one.restarts for one in run_status.queries()] == [0]
    written = [json.loads(one.value() or b"") for one in committed(cluster, f"{topic}-out")]
    assert sorted((one["n"], one["partition"]) for one in written) == [*((n, n % 3) for n in range(6)), (6, 0), (7, 2)]
    (found,) = letters_in_topics(cluster, [f"{topic}.dead"])
    assert (found.letter.value, found.letter.partition, found.letter.offset) == (b"{", 1, 2)
    assert run_status.dead() == {"rows": 1}


def test_what_breaks_off_is_not_committed_as_whole(
    cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path, spark: SparkSession
) -> None:
    """A function ends the task when its sink has had some of the rows already, a few at a time."""
    many, alone, fixed = 20_000, f"{topic}-alone", tmp_path / "fixed"
    topics.create(cluster, alone, 1)
    good = (b'{"n": %d, "pad": "%s"}' % (number, b"x" * 60) for number in range(many))
    send(cluster, alone, *good, b"{", one_partition=True)

    def number(n):  # type: ignore[no-untyped-def]  # Spark would take the hints for those of a pandas function
        if n == many - 1 and not fixed.exists():
            raise ValueError(n)
        return n

    pipeline = mr.Pipeline("broken")
    pipeline.source("rows", mr.kafka(alone, schema="n int, pad string"))

    @pipeline.table
    def numbers(rows: DataFrame) -> DataFrame:
        return rows.select(F.udf(number, "int")("n").alias("n"), "pad")

    pipeline.sink("numbers", mr.kafka(f"{alone}-out"))
    size = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(size)
    spark.conf.set(size, "1000")
    try:
        with pytest.raises(FunctionFailed, match="ValueError"):
            run_pipeline(pipeline, tmp_path / "state")
        assert not list(committed(cluster, f"{alone}-out"))
        fixed.touch()
        run_pipeline(pipeline, tmp_path / "state")
    finally:
        spark.conf.set(size, before or "")
    written = [json.loads(one.value() or b"")["n"] for one in committed(cluster, f"{alone}-out")]
    assert sorted(written) == list(range(many))
    assert len(list(letters_in_topics(cluster, [f"{alone}.dead"]))) == 1


@pytest.mark.parametrize("sink", ["foreach", "at-least-once"])
def test_a_bad_record_repeats_no_batch(
    cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path, sink: str
) -> None:
    """The sinks would show rows that they were given twice."""
    send(cluster, topic, *(b"%d" % number for number in range(9)), b"\xff")
    pipeline = mr.Pipeline("once")
    pipeline.source("lines", mr.kafka(topic, format="text", include=()))
    out = tmp_path / "out"
    out.mkdir()
    if sink == "foreach":
        pipeline.sink("lines", mr.foreach(lambda row: (out / f"{row.value} {time.monotonic_ns()}").touch()))
    else:
        pipeline.sink("lines", mr.kafka(f"{topic}-out", format="text", guarantee="at-least-once"))
    run_pipeline(pipeline, tmp_path / "state")
    found = [path.name.split()[0] for path in out.iterdir()] or [
        str(one.value(), "utf-8") for one in committed(cluster, f"{topic}-out")
    ]
    assert sorted(map(int, found)) == list(range(9))
    letters = [found.letter.value for found in letters_in_topics(cluster, [f"{topic}.dead"])]
    assert letters == [b"\xff"]


def test_a_filter_of_the_user_does_not_hide_bad_records(
    cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path, spark: SparkSession
) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(value) for value in (b"one", None, b"\xff two", b"two")])
    producer.close()
    pipeline = mr.Pipeline("filtered")
    pipeline.source("lines", mr.kafka(topic, format="text", include=()))
    pipeline.sql("twos", "SELECT value FROM lines WHERE value LIKE '%two'")
    pipeline.sink("twos", mr.files(str(tmp_path / "out"), format="text"))
    run_pipeline(pipeline)
    assert [row.value for row in spark.read.text(str(tmp_path / "out")).collect()] == ["two"]  # committed files only
    letters = [found.letter.value for found in letters_in_topics(cluster, [f"{topic}.dead"])]
    assert sorted(letters, key=str) == sorted([None, b"\xff two"], key=str)
