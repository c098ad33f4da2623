"""Words of a topic's lines, counted since the beginning."""

from pyspark.sql import functions as F

import millrace as mr

wordcount = mr.Pipeline("kafka-word-count")

wordcount.source("lines", mr.kafka("lines", format="text"))


@wordcount.table
def words(lines):
    return lines.select(F.explode(F.split("value", " ")).alias("word"))


@wordcount.table
def counts(words):
    return words.groupBy("word").count().orderBy(F.desc("count"), "word")


wordcount.sink("counts", mr.console(), mode="complete")
