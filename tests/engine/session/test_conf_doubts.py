"""That names of settings that Spark does not know are told."""

from __future__ import annotations

from pyspark.sql import SparkSession

from millrace.engine.tuning import IN_ROCKSDB, ON_A_STORE, ON_DISK, ROCKSDB, choices
from millrace.engine.unread import doubts


def test_names_that_are_almost_those_of_spark(spark: SparkSession) -> None:
    (told,) = doubts(spark, ["spark.sql.shuffle.partitions", "spark.sql.shufle.partitions"])
    assert "no setting spark.sql.shufle.partitions," in told
    assert told.endswith("; is spark.sql.shuffle.partitions meant?")


def test_what_spark_or_others_read_is_not_doubted(spark: SparkSession) -> None:
    ours = [one.key for one in (*choices(), *choices(realtime=True), ROCKSDB, *IN_ROCKSDB, ON_DISK, ON_A_STORE)]
    others = [
        "spark.sql.catalog.mine.uri",
        "spark.sql.hive.metastore.version",
        "spark.sql.iceberg.x",
        "spark.mine",
        "a",
    ]
    assert doubts(spark, [*ours, *others]) == []
