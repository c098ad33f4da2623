"""What Spark tells before a run that the file alone does not show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

import millrace as mr
from millrace.engine.deep_check import deep_problems, query_states
from millrace.pipeline.plan import make_plan


def functions(trigger: str) -> mr.Pipeline:
    pipeline = mr.Pipeline("functions", trigger=trigger)
    pipeline.source("source", mr.kafka("lines", format="text"))
    pipeline.sql("lines", "SELECT value FROM source")

    @pipeline.table
    def loud(lines: DataFrame) -> DataFrame:
        shout = F.udf(lambda text: text.upper(), StringType())
        return lines.select(shout("value").alias("value"))

    pipeline.sql("both", "SELECT value FROM loud UNION ALL SELECT value FROM lines")
    pipeline.sink("both", mr.kafka("out", format="text"), mode="update")
    return pipeline


@pytest.mark.parametrize(("trigger", "expected"), [("realtime", ["realtime.operator"]), ("fastest", [])])
def test_a_function_in_python_prevents_real_time_mode(spark: SparkSession, trigger: str, expected: list[str]) -> None:
    found = deep_problems(functions(trigger).model(), spark)
    assert [problem.condition for problem in found] == expected
    assert all("a Python function in 'loud'" in problem.message and problem.place for problem in found)


def stateful(mode: str, *tables: Callable[..., DataFrame]) -> mr.Pipeline:
    """A pipeline of tables in Python, which the file alone does not explain: each calls a helper."""
    pipeline = mr.Pipeline("stateful")
    for name in ("a", "b"):
        pipeline.source(name, mr.kafka(name, schema="id int, at timestamp"))
        pipeline.source(f"{name}_w", mr.kafka(f"{name}_w", schema="id int, at timestamp"), watermark=("at", "1 minute"))
    for table in tables:
        pipeline.table(table)
    pipeline.sink(tables[-1].__name__, mr.console(), mode=mode)
    return pipeline


def helped(work: Callable[..., DataFrame], *frames: DataFrame) -> DataFrame:
    return work(*frames)


def counted(a: DataFrame) -> DataFrame:
    return helped(lambda rows: rows.groupBy("id").count(), a)


def counted_in_time(a_w: DataFrame) -> DataFrame:
    return helped(lambda rows: rows.groupBy(F.window("at", "1 minute"), "id").count(), a_w)


def deduplicated(a_w: DataFrame) -> DataFrame:
    return helped(lambda rows: rows.dropDuplicates(["id"]), a_w)


def deduplicated_in_time(a_w: DataFrame) -> DataFrame:
    return helped(lambda rows: rows.dropDuplicates(["id", "at"]), a_w)


def deduplicated_within(a_w: DataFrame) -> DataFrame:
    return helped(lambda rows: rows.dropDuplicatesWithinWatermark(["id"]), a_w)


def joined(a_w: DataFrame, b_w: DataFrame) -> DataFrame:
    return helped(lambda x, y: x.join(y, "id").select("id"), a_w, b_w)


def _bounded(x: DataFrame, y: DataFrame) -> DataFrame:
    x, y = x.alias("x"), y.alias("y")
    return x.join(y, F.expr("x.id = y.id AND y.at BETWEEN x.at AND x.at + INTERVAL 1 MINUTE")).select("x.id")


def joined_in_time(a_w: DataFrame, b_w: DataFrame) -> DataFrame:
    return helped(_bounded, a_w, b_w)


def joined_and_filtered(a_w: DataFrame, b_w: DataFrame) -> DataFrame:
    def work(x: DataFrame, y: DataFrame) -> DataFrame:
        both = x.alias("x").join(y.alias("y"), F.expr("x.id = y.id"))
        return both.where("y.at BETWEEN x.at AND x.at + INTERVAL 1 MINUTE").select("x.id")

    return helped(work, a_w, b_w)


def joined_by_time(a_w: DataFrame, b_w: DataFrame) -> DataFrame:
    return helped(lambda x, y: x.join(y, ["id", "at"]), a_w, b_w)


@pytest.mark.parametrize(
    ("table", "mode", "expected"),
    [
        (counted, "update", ["state.aggregation"]),
        (counted_in_time, "update", []),
        (deduplicated, "append", ["state.deduplication"]),
        (deduplicated_in_time, "append", []),
        (deduplicated_within, "append", []),
        (joined, "append", ["state.join"]),
        (joined_in_time, "append", []),
        (joined_and_filtered, "append", []),
        (joined_by_time, "append", []),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_state_that_only_spark_sees(
    spark: SparkSession, table: Callable[..., DataFrame], mode: str, expected: list[str]
) -> None:
    found = deep_problems(stateful(mode, table).model(), spark)
    assert [(problem.condition, problem.severity) for problem in found] == [(name, "warning") for name in expected]
    assert all(f"in {table.__name__!r}" in problem.message and problem.place for problem in found)


def test_state_is_that_of_the_table_that_has_it(spark: SparkSession) -> None:
    def last(deduplicated: DataFrame) -> DataFrame:
        return helped(lambda rows: rows.where("id > 1"), deduplicated)

    (problem,) = deep_problems(stateful("append", deduplicated, last).model(), spark)
    assert "in 'deduplicated'" in problem.message


def test_what_the_file_shows_is_not_said_twice(spark: SparkSession) -> None:
    pipeline = stateful("update", counted)
    pipeline.sql("plain", "SELECT id, count(*) AS n FROM a GROUP BY id")
    pipeline.sink("plain", mr.console(), mode="update")
    assert [problem.message for problem in deep_problems(pipeline.model(), spark)] == [
        "the state of the aggregation in 'counted' can grow for ever"
    ]


def test_a_plan_has_the_state_that_spark_sees(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = stateful("update", counted).model()
    _, operators = query_states(make_plan(pipeline), spark, tmp_path)
    assert [(one.kind, one.table, one.keys, one.bounded) for one in operators["counted-update"]] == [
        ("aggregate", "counted", ("id",), False)
    ]


@pytest.mark.parametrize(
    ("bound", "expected"), [("", ["pipeline.invalid"]), (" AND y.at <= x.at + INTERVAL 1 MINUTE", [])]
)
def test_a_full_join_is_bounded_in_both_directions(spark: SparkSession, bound: str, expected: list[str]) -> None:
    pipeline = mr.Pipeline("joined")
    for name in ("a", "b"):
        pipeline.source(name, mr.kafka(name, schema="id bigint, at timestamp"), watermark=("at", "10 seconds"))

    @pipeline.table
    def joined(a: DataFrame, b: DataFrame) -> DataFrame:
        on = F.expr(f"x.id = y.id AND y.at >= x.at{bound}")
        return a.alias("x").join(b.alias("y"), on, "full").select("x.id")

    pipeline.sink("joined", mr.console())
    found = deep_problems(pipeline.model(), spark)
    assert [problem.condition for problem in found] == expected
    assert all("both directions" in problem.message for problem in found)
