"""Lines of a log that agents of Flume send, counted by application and level."""

from pyspark.sql import functions as F

import millrace as mr

pipeline = mr.Pipeline("flume")
pipeline.source("lines", mr.flume("app-logs", listen="127.0.0.1:4141", format="text"))


@pipeline.table
def levels(lines):
    level = F.split("value", " ")[1].alias("level")
    return lines.groupBy(F.col("key").alias("application"), level).count().orderBy("application", "level")


pipeline.sink("levels", mr.console(), mode="complete")
