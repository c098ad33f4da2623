"""That names of settings that Spark does not know are told."""

from __future__ import annotations

from pyspark.sql import SparkSession

from millrace.engine.unread import unread


def test_names_that_spark_does_not_know(spark: SparkSession) -> None:
    known = ["spark.sql.shuffle.partitions", "spark.sql.warehouse.dir", "spark.sql.catalog.mine.uri", "spark.mine", "a"]
    assert unread(spark, known) == []
    wrong, strange = unread(spark, [*known, "spark.sql.shufle.partitions", "spark.sql.qqqqqqqqqq"])
    assert "no setting spark.sql.shufle.partitions," in wrong
    assert wrong.endswith("; is spark.sql.shuffle.partitions meant?")
    assert strange.endswith("leaves it unread")
