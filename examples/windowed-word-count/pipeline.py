"""Words counted in windows of the time that Kafka keeps with each record."""

from pyspark.sql import functions as F

import millrace as mr

windowed = mr.Pipeline("windowed-word-count")

windowed.source("lines", mr.kafka("timed-lines", format="text"), watermark=("timestamp", "10 minutes"))


@windowed.table
def words(lines):
    return lines.select("timestamp", F.explode(F.split("value", " ")).alias("word"))


@windowed.table
def counts(words):
    window = F.window("timestamp", "5 seconds", "2 seconds")
    return words.groupBy(window, "word").count().select("window.start", "window.end", "word", "count")


windowed.sink("counts", mr.console(), mode="update")
