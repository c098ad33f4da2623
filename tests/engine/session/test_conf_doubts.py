"""That names of settings that Spark does not know are told."""

from __future__ import annotations

from pyspark.sql import SparkSession

from millrace.engine.session.spark_conf import (
    ON_A_STORE,
    ON_DISK,
    ROCKSDB,
    ROCKSDB_OPTIONS,
    conf_doubts,
    spark_choices,
)


def test_names_that_are_almost_those_of_spark(spark: SparkSession) -> None:
    (told,) = conf_doubts(spark, ["spark.sql.shuffle.partitions", "spark.sql.shufle.partitions"])
    assert "no setting spark.sql.shufle.partitions," in told
    assert told.endswith("; did you mean spark.sql.shuffle.partitions?")


def test_what_spark_or_others_read_is_not_doubted(spark: SparkSession) -> None:
    ours = [
        one.key
        for one in (*spark_choices(), *spark_choices(realtime=True), ROCKSDB, *ROCKSDB_OPTIONS, ON_DISK, ON_A_STORE)
    ]
    others = [
        "spark.sql.catalog.mine.uri",
        "spark.sql.hive.metastore.version",
        "spark.sql.iceberg.x",
        "spark.mine",
        "a",
    ]
    assert conf_doubts(spark, [*ours, *others]) == []
