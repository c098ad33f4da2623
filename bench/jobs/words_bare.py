"""The word count as a PySpark program."""

import os

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
lines = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", os.environ["MILLRACE_KAFKA"])
    .option("kafka.isolation.level", "read_committed")
    .option("kafka.max.partition.fetch.bytes", str(8 * 1024 * 1024))
    .option("subscribe", os.environ["TOPIC"])
    .option("startingOffsets", "earliest")
    .load()
)
words = lines.select(F.explode(F.split(F.col("value").cast("string"), " ")).alias("word"))
counts = words.groupBy("word").count()
query = (
    counts.writeStream.format("noop")
    .outputMode("update")
    .option("checkpointLocation", os.environ["CHECKPOINT"])
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
