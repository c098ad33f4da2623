"""Rows from Kafka to Kafka on a real Spark, once each, whatever fails on the way."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value, unregister_pickle_by_value
from pyspark.sql import SparkSession

import millrace as mr
from conftest import committed
from millrace.clients.kafka import offsets, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.base.batch_tasks import with_deterministic_tasks
from millrace.connectors.base.rdd_lineage import task_inputs
from millrace.connectors.kafka import exactly_once
from millrace.connectors.kafka.sink import KafkaSink
from millrace.engine.checkpoints.run_lease import RunLease
from millrace.errors import InvalidOption, MillraceError, StateMismatch
from millrace.errors.transport import to_transport
from millrace.telemetry.query_status import RunStatus

pytestmark = pytest.mark.usefixtures("either_source")
in_bulk_first = pytest.mark.parametrize(
    "either_source", ["bulk", pytest.param("spark", marks=pytest.mark.chaos)], indirect=True
)
"""In `make chaos` by Spark's own source too: what they look at, the sink and its names, does not ask who has read."""
Run = Callable[..., RunStatus]


def send(cluster: Cluster, topic: str, numbers: range) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(b"%d" % number) for number in numbers])
    producer.close()


def copy(topic: str, *, name: str = "copy", **sink: Any) -> mr.Pipeline:
    pipeline = mr.Pipeline(name)
    # A little more than a hundred: Spark divides the number among partitions and rounds down.
    pipeline.source("events", mr.kafka(topic, format="text", max_per_batch=120))
    pipeline.sql("copied", "SELECT value, value AS id FROM events")
    pipeline.sink("copied", mr.kafka(f"{topic}-out", format="text", value="value", key="id", **sink))
    return pipeline


def numbers(cluster: Cluster, topic: str) -> Counter[int]:
    return Counter(int(one.value() or b"-1") for one in committed(cluster, f"{topic}-out"))


@in_bulk_first
def test_two_runs_go_on_from_each_other(cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path) -> None:
    send(cluster, topic, range(250))
    run_pipeline(copy(topic), tmp_path)
    send(cluster, topic, range(250, 400))
    run_pipeline(copy(topic), tmp_path)
    assert numbers(cluster, topic) == Counter(range(400))
    keys = {one.key() == one.value() for one in committed(cluster, f"{topic}-out")}
    assert keys == {True}


class Failing(exactly_once.TransactionalWriter):
    """Fails in the last task, when the others have written; not in a batch without rows."""

    def write(self, number: int, batches: Iterator[Any], *, repeated: bool) -> int:
        first = next((batch for batch in batches if batch.num_rows), None)
        if number != 2 or first is None:
            return super().write(number, batches if first is None else chain([first], batches), repeated=repeated)
        waiting = threading.Event()
        while not all(self.ledger.committed_batch(other).includes(self.query, self.batch) for other in (0, 1)):
            waiting.wait(0.01)
        raise ValueError("not this time")


class Breaking(exactly_once.TransactionalWriter):
    """The first task has sent its rows and waits for more when another one fails: Spark kills it as it is."""

    def write(self, number: int, batches: Iterator[Any], *, repeated: bool) -> int:
        if number == 0:
            return super().write(number, chain(batches, self._no_end()), repeated=repeated)
        first = next(batches, None)
        while first is not None and not undecided(self.ledger.cluster, self.ledger.topic or ""):
            threading.Event().wait(0.1)
        raise to_transport(StateMismatch("not this time"))  # which no restart would mend

    def _no_end(self) -> Iterator[Any]:
        threading.Event().wait()
        yield


def undecided(cluster: Cluster, topic: str) -> bool:
    """Whether readers of committed records wait for the end of a transaction."""
    from confluent_kafka import TopicPartition  # here: of this file's own names, workers get copies
    from confluent_kafka.admin import OffsetSpec

    places = [TopicPartition(topic, number) for number in cluster.connect().topics[topic].partitions]
    ends = (offsets.list_offsets(cluster, places, OffsetSpec.latest(), committed=decided) for decided in (True, False))
    return next(ends) != next(ends)


@pytest.fixture
def by_value() -> Iterator[None]:
    """Workers get the classes of this file by value: they cannot import it."""
    module = sys.modules[__name__]
    register_pickle_by_value(module)
    yield
    unregister_pickle_by_value(module)


@pytest.mark.usefixtures("by_value")
def test_a_task_that_fails_between_the_others(
    cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(b"%d" % number, partition=number % 3) for number in range(300)])
    producer.close()
    with monkeypatch.context() as patched:
        patched.setattr(exactly_once, "TransactionalWriter", Failing)
        with pytest.raises(MillraceError):
            run_pipeline(copy(topic), tmp_path)
    assert numbers(cluster, topic).total() > 0
    run_pipeline(copy(topic), tmp_path)
    assert numbers(cluster, topic) == Counter(range(300))


@pytest.mark.long
@pytest.mark.usefixtures("by_value")
def test_a_run_that_gives_up_leaves_no_transaction_open(
    cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(b"%d" % number, partition=number % 2) for number in range(100)])
    producer.close()
    with monkeypatch.context() as patched:
        patched.setattr(exactly_once, "TransactionalWriter", Breaking)
        with pytest.raises(StateMismatch, match="not this time"):
            run_pipeline(copy(topic), tmp_path)
    assert not undecided(cluster, f"{topic}-out")
    run_pipeline(copy(topic), tmp_path)
    assert numbers(cluster, topic) == Counter(range(100))


def test_a_failure_after_all_is_written(
    cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(cluster, topic, range(100))
    write = KafkaSink.write

    def fail(*given: Any) -> None:
        write(*given)
        raise ValueError("too late")

    with monkeypatch.context() as patched:
        patched.setattr(KafkaSink, "write", fail)
        with pytest.raises(MillraceError):
            run_pipeline(copy(topic), tmp_path)
    assert numbers(cluster, topic) == Counter(range(100))
    run_pipeline(copy(topic), tmp_path)
    assert numbers(cluster, topic) == Counter(range(100))


@pytest.mark.long
@in_bulk_first
@pytest.mark.parametrize("mode", ["update", "complete"])
def test_state_behind_the_sink(cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path, mode: str) -> None:
    """Counts of two batches, all of which change."""
    send(cluster, topic, range(100))
    pipeline = mr.Pipeline("counted")
    pipeline.source("events", mr.kafka(topic, format="text"))
    pipeline.sql("counts", "SELECT value % 10 AS digit, count(*) AS count FROM events GROUP BY 1")
    pipeline.sink("counts", mr.kafka(f"{topic}-out", key="digit"), mode=mode)
    run_pipeline(pipeline, tmp_path)
    send(cluster, topic, range(100))
    run_pipeline(pipeline, tmp_path)
    found = [one.value() for one in committed(cluster, f"{topic}-out")]
    assert len(found) == 20
    assert sum(b'"count":20' in (value or b"") for value in found) == 10


@pytest.fixture
def three_parts(spark: SparkSession) -> Iterator[None]:
    """What is grouped is in three tasks, however many cores there are."""
    key = "spark.sql.shuffle.partitions"
    before = spark.conf.get(key)
    spark.conf.set(key, "3")
    yield
    spark.conf.set(key, before or "2")


def happen(cluster: Cluster, topic: str, halves: range) -> None:
    """Two events at each of these halves of seconds."""
    producer = Producer(cluster, topic)
    producer.send([Record(b"x", None, 1_700_000_000_000 + 500 * half) for half in halves for _ in range(2)])
    producer.close()


def windows(topic: str) -> mr.Pipeline:
    """The events of each second, counted when it is over."""
    pipeline = mr.Pipeline(f"windows-{topic}")
    pipeline.source("events", mr.kafka(topic, format="text"), watermark=("timestamp", "0 seconds"))
    pipeline.sql("seconds", "SELECT window.start, count(*) AS n FROM events GROUP BY window(timestamp, '1 second')")
    pipeline.sql("told", "SELECT concat(unix_seconds(start) - 1700000000, ' ', n) AS second FROM seconds")
    pipeline.sink("told", mr.kafka(f"{topic}-out", format="text", value="second"))
    return pipeline


@pytest.mark.long
@pytest.mark.usefixtures("by_value", "three_parts")
@pytest.mark.parametrize("between", ["tasks", pytest.param("logs", marks=pytest.mark.chaos)])
def test_windows_that_a_watermark_closes_come_out_once(
    cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    """A failure between the commits of two tasks, or between the last of them and Spark's own."""
    write = KafkaSink.write

    def closed() -> Counter[str]:
        return Counter((one.value() or b"").decode() for one in committed(cluster, f"{topic}-out"))

    def fail(*given: Any) -> None:
        write(*given)
        if closed():
            raise ValueError("too late")

    happen(cluster, topic, range(61))  # the last of them closes thirty seconds
    with monkeypatch.context() as patched:
        if between == "tasks":
            patched.setattr(exactly_once, "TransactionalWriter", Failing)
        else:
            patched.setattr(KafkaSink, "write", fail)
        with pytest.raises(MillraceError):
            run_pipeline(windows(topic), tmp_path)
    found = closed().total()
    assert 0 < found < 30 if between == "tasks" else found == 30
    run_pipeline(windows(topic), tmp_path)
    assert closed() == Counter(f"{second} 4" for second in range(30))
    happen(cluster, topic, range(61, 81))
    run_pipeline(windows(topic), tmp_path)
    assert closed() == Counter(f"{second} 4" for second in range(40))


def test_tasks_tell_what_they_read(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("x" * 100)
    files = spark.read.text(str(tmp_path)).repartition(2)
    assert task_inputs(files) == ("[part 0]", "[part 1]")
    assert "0.txt" in "".join(task_inputs(spark.read.text(str(tmp_path))))
    both = spark.range(0, 10, 1, 2).union(spark.range(0, 10, 1, 1))
    assert len(task_inputs(both.coalesce(1))) == 1
    assert len(task_inputs(both)) == 3


@pytest.mark.long
def test_several_sinks_of_one_table(
    cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(cluster, topic, range(100))
    pipeline = copy(topic)
    pipeline.sink("copied", mr.memory())
    pipeline.sink("copied", mr.kafka(f"{topic}-more", format="text", value="value"))
    write = KafkaSink.write

    def fail(self: KafkaSink, *given: Any) -> None:
        write(self, *given)
        if self.topic.endswith("-more"):
            raise ValueError("too late")

    with monkeypatch.context() as patched:
        patched.setattr(KafkaSink, "write", fail)
        with pytest.raises(MillraceError):
            run_pipeline(pipeline, tmp_path)
    run_pipeline(pipeline, tmp_path)
    assert numbers(cluster, topic) == Counter(range(100))
    assert len(committed(cluster, f"{topic}-more")) == 100


@pytest.mark.long
def test_two_sinks_into_one_topic(cluster: Cluster, topic: str, run_pipeline: Run) -> None:
    send(cluster, topic, range(20))
    pipeline = copy(topic)
    pipeline.sink("copied", mr.kafka(f"{topic}-out", format="text", value="id"))
    run_pipeline(pipeline)
    assert numbers(cluster, topic) == Counter(dict.fromkeys(range(20), 2))


def test_rows_that_are_dealt_out_by_turns_are_dealt_out_anew_by_what_is_in_them(spark: SparkSession) -> None:
    rows = spark.range(0, 100, 1, 3).selectExpr("id", "map(id, id) AS more")
    assert with_deterministic_tasks(rows) is rows
    assert with_deterministic_tasks(rows.repartition(4, "id")).schema == rows.schema
    for turned in (rows.repartition(4), rows.coalesce(2), rows.orderBy("id"), rows.repartitionByRange(4, "id")):
        plan = with_deterministic_tasks(turned)._jdf.queryExecution().analyzed().toString()
        assert "RepartitionByExpression [id" in plan.splitlines()[0]


def test_tasks_that_are_cut_otherwise_each_time_are_refused(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.adaptive.streaming.stateless.enabled", "true")
    with pytest.raises(InvalidOption, match="cannot write each row once"):
        with_deterministic_tasks(other.range(3))


def test_sparks_own_sink_for_who_wants_it(cluster: Cluster, topic: str, run_pipeline: Run) -> None:
    send(cluster, topic, range(50))
    run_pipeline(copy(topic, guarantee="at-least-once"))
    assert numbers(cluster, topic) == Counter(range(50))


@in_bulk_first
def test_a_second_copy_is_refused(cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path) -> None:
    send(cluster, topic, range(10))
    topics.ensure(cluster, "millrace.ledger", 50)
    with RunLease(cluster, "twice", "another-folder", "millrace.ledger") as first:
        first.join()
        with pytest.raises(StateMismatch, match="runs already"):
            run_pipeline(copy(topic, name="twice"), tmp_path)
    run_pipeline(copy(topic, name="twice"), tmp_path)
    assert numbers(cluster, topic) == Counter(range(10))
