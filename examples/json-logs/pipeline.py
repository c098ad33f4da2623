"""Log lines from JSON files, counted by minute and level: as a stream here, as a batch in batch.py."""

from pyspark.sql import functions as F

import millrace as mr

SCHEMA = (
    "application string, level string, time timestamp, message string, "
    "method string, path string, status int, latency double"
)

logs_by_level = mr.Pipeline("json-logs")

logs_by_level.source("logs", mr.files("examples/json-logs/data", schema=SCHEMA))


@logs_by_level.table
def levels(logs):
    counted = logs.groupBy(F.window("time", "1 minute"), "level").count()
    return counted.select(F.col("window.start").alias("minute"), "level", "count").orderBy("minute", "level")


logs_by_level.sink("levels", mr.console(), mode="complete")
