"""What Spark tells before a run that the file alone does not show."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

import millrace as mr
from millrace.engine.deep_check import deep_problems


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
