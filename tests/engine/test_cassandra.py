"""Pipelines into Cassandra and out of it, on a real Spark."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import millrace as mr
from conftest import RunPipeline
from millrace.clients.cassandra import Cassandra
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.base.api import RunContext
from millrace.connectors.cassandra import CassandraSink, CassandraSource, read_table
from millrace.connectors.memory import MEMORY
from millrace.errors import MillraceError


def send(cluster: Cluster, topic: str, *rows: dict[str, Any]) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(json.dumps(row).encode(), partition=0) for row in rows])
    producer.close()


def written(topic: str, table: str, sql: str = "SELECT * FROM source", **more: Any) -> mr.Pipeline:
    """A pipeline from a topic of keys and numbers into a table."""
    pipeline = mr.Pipeline("writes")
    pipeline.source("source", mr.kafka(topic, schema="k string, n int"))
    pipeline.sql("result", sql)
    mode = more.pop("mode", "append")
    pipeline.sink("result", mr.cassandra(table, **more), mode=mode)
    return pipeline


def test_counts_are_upserted_by_key_and_a_repeated_batch_changes_nothing(
    cluster: Cluster, topic: str, cassandra: Cassandra, keyspace: str, run_pipeline: RunPipeline, tmp_path: Path
) -> None:
    table, state = f"{keyspace}.counts", tmp_path / "state"
    query = "SELECT k, count(*) AS count, struct(max(n) AS most) AS more FROM source GROUP BY k"
    pipeline = written(topic, table, query, create=True, key="k", mode="update")
    send(cluster, topic, {"k": "a", "n": 1}, {"k": "b", "n": 2})
    run_pipeline(pipeline, state)
    assert rows(cassandra, f"SELECT k, count, more FROM {table}") == [("a", 1, '{"most":1}'), ("b", 1, '{"most":2}')]  # noqa: S608
    stamps = rows(cassandra, f"SELECT k, writetime(count) FROM {table}")  # noqa: S608
    forget_last_commit(state)
    run_pipeline(pipeline, state)
    assert rows(cassandra, f"SELECT k, writetime(count) FROM {table}") == stamps  # noqa: S608
    send(cluster, topic, {"k": "a", "n": 5})
    run_pipeline(pipeline, state)
    assert rows(cassandra, f"SELECT k, count, more FROM {table}") == [("a", 2, '{"most":5}'), ("b", 1, '{"most":2}')]  # noqa: S608


def rows(cassandra: Cassandra, statement: str) -> list[tuple[Any, ...]]:
    return sorted(cassandra.execute(statement))


def forget_last_commit(state: Path) -> None:
    """As if the run had been killed between its last write and Spark's note of it."""
    (checkpoint,) = (state / "checkpoints").iterdir()
    commits = [file for file in (checkpoint / "commits").iterdir() if file.name.isdigit()]
    newest = max(commits, key=lambda file: int(file.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        ({}, "cassandra.table-unknown"),
        ({"create": True, "key": "nothing"}, "pipeline.invalid"),
    ],
)
def test_a_table_that_cannot_be_written_is_told_before_the_first_batch(
    topic: str, keyspace: str, run_pipeline: RunPipeline, options: dict[str, Any], condition: str
) -> None:
    with pytest.raises(MillraceError) as caught:
        run_pipeline(written(topic, f"{keyspace}.none", **options))
    assert caught.value.condition == condition
    assert caught.value.hint


def test_rows_that_do_not_fit_are_told_with_what_fits(
    topic: str, cassandra: Cassandra, keyspace: str, run_pipeline: RunPipeline
) -> None:
    cassandra.execute(f"CREATE TABLE {keyspace}.t (k text PRIMARY KEY, n text)")
    with pytest.raises(MillraceError) as caught:
        run_pipeline(written(topic, f"{keyspace}.t"))
    assert caught.value.condition == "cassandra.table-invalid"
    assert "int or bigint" in str(caught.value.why)


def test_a_row_that_is_refused_stops_the_query_with_its_reason(
    cluster: Cluster, topic: str, keyspace: str, run_pipeline: RunPipeline
) -> None:
    send(cluster, topic, {"k": None, "n": 1})
    with pytest.raises(MillraceError) as caught:
        run_pipeline(written(topic, f"{keyspace}.t", create=True, key="k"))
    assert caught.value.condition == "cassandra.row-refused"
    assert "IS NOT NULL" in str(caught.value.hint)


def test_a_table_joined_with_a_stream(
    cluster: Cluster, topic: str, cassandra: Cassandra, keyspace: str, run_pipeline: RunPipeline
) -> None:
    cassandra.execute(f"CREATE TABLE {keyspace}.names (k text PRIMARY KEY, name text)")
    cassandra.execute(f"INSERT INTO {keyspace}.names (k, name) VALUES ('a', 'Ada')")  # noqa: S608
    send(cluster, topic, {"k": "a", "n": 1}, {"k": "b", "n": 2})
    pipeline = mr.Pipeline("joins")
    pipeline.source("source", mr.kafka(topic, schema="k string, n int"))
    pipeline.source("names", mr.cassandra(f"{keyspace}.names"), static=True)
    pipeline.sql("result", "SELECT n, name FROM source JOIN names USING (k)")
    pipeline.sink("result", mr.memory())
    run_pipeline(pipeline)
    assert MEMORY.tables()["result"].to_pylist() == [{"n": 1, "name": "Ada"}]


@pytest.fixture
def logs(cassandra: Cassandra, keyspace: str) -> str:
    """Log lines of three applications; one has a time that nobody has."""
    table = f"{keyspace}.logs"
    cassandra.execute(
        f"CREATE TABLE {table} (application text, time timestamp, day date, tags set<text>, size varint, "
        "PRIMARY KEY (application, time))"
    )
    insert = f"INSERT INTO {table} (application, time, day, tags, size) VALUES (?, ?, ?, ?, ?)"  # noqa: S608
    for number in range(300):
        moment = dt.datetime(2026, 5, 4, tzinfo=dt.UTC) + dt.timedelta(minutes=number)
        values = (f"app{number % 3}", moment, moment.date(), {"x", "y"}, 10**20 + number)
        cassandra.execute(insert, values)
    cassandra.execute(f"INSERT INTO {table} (application, time) VALUES ('app0', 253402300800000)")  # noqa: S608
    return table


def test_a_table_is_read_whole_or_by_key(spark: SparkSession, cassandra: Cassandra, logs: str) -> None:
    frame = read_table(spark, logs, cassandra)
    assert frame.columns == ["application", "time", "day", "size", "tags"]
    assert frame.count() == 301
    assert frame.where("time IS NULL").count() == 1  # the year 10000
    recent = frame.where("application = 'app1' AND time >= timestamp'2026-05-04 04:00:00'")
    assert recent.count() == 20
    assert recent.rdd.getNumPartitions() == 1  # one partition of Cassandra, not every token range
    row = recent.orderBy("time").first()
    assert row is not None
    assert (row.day, row.tags, int(row["size"])) == (dt.date(2026, 5, 4), ["x", "y"], 10**20 + 241)
    assert read_table(spark, logs, cassandra, "application").distinct().count() == 3


def test_a_value_that_spark_cannot_hold_may_fail_the_read(spark: SparkSession, cassandra: Cassandra, logs: str) -> None:
    reader = CassandraSource(table=logs, on_bad="fail")
    with pytest.raises(Exception, match=r"millrace-error:.*cannot hold"):
        reader.rows(spark, cassandra).count()


def test_rows_of_a_batch_by_the_writer_alone(
    spark: SparkSession, cassandra: Cassandra, cluster: Cluster, keyspace: str, tmp_path: Path
) -> None:
    writer = CassandraSink(table=f"{keyspace}.t", create=True, key=("k",), clustering=("n desc",))
    context = RunContext(
        tmp_path, lambda: cluster, pipeline="p", name="result", session=spark, cassandra=lambda: cassandra
    )
    frame = spark.range(1000).selectExpr("id % 7 AS k", "id AS n", "map('a', id) AS m").repartition(4)
    for batch in (0, 0, 1):
        writer.write(writer.shape(frame), batch, context)
    found = rows(cassandra, f"SELECT k, n, m FROM {keyspace}.t")  # noqa: S608
    assert [(k, n, dict(m)) for k, n, m in found] == sorted(
        ((n % 7, n, {"a": n}) for n in range(1000)), key=lambda r: r[:2]
    )


def test_two_queries_of_one_table_have_timestamps_of_their_own(
    cluster: Cluster, topic: str, keyspace: str, run_pipeline: RunPipeline, tmp_path: Path
) -> None:
    send(cluster, topic, {"k": "a", "n": 1})
    pipeline = written(topic, f"{keyspace}.t", create=True, key="k")
    pipeline.sink("result", mr.cassandra(f"{keyspace}.t", create=True, key="k"), mode="update")
    run_pipeline(pipeline, tmp_path)
    notes = {file.name: json.loads(file.read_text()) for file in (tmp_path / "cassandra").glob("*.json")}
    assert set(notes) == {f"result@{keyspace}.t.json", f"result-update@{keyspace}.t.json"}
    assert len({one["query"] for one in notes.values()}) == 2
