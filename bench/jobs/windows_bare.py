"""Events counted by kind in windows, as a PySpark program."""

import os

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

SCHEMA = "id string, user string, page string, kind string, ip string, at timestamp"
spark = SparkSession.builder.getOrCreate()
messages = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", os.environ["MILLRACE_KAFKA"])
    .option("kafka.isolation.level", "read_committed")
    .option("kafka.max.partition.fetch.bytes", str(8 * 1024 * 1024))
    .option("subscribe", os.environ["TOPIC"])
    .option("startingOffsets", "earliest")
    .load()
)
events = messages.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("event")).select("event.*")
counts = events.withWatermark("at", "10 seconds").groupBy(F.window("at", "10 seconds"), "kind").count()
query = (
    counts.writeStream.format("noop")
    .outputMode("update")
    .option("checkpointLocation", os.environ["CHECKPOINT"])
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
