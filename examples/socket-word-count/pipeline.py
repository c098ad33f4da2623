"""Words that come over a TCP socket, counted."""

from pyspark.sql import functions as F

import millrace as mr

wordcount = mr.Pipeline("socket-word-count")

wordcount.source("lines", mr.socket("localhost:9999"))


@wordcount.table
def words(lines):
    return lines.select(F.explode(F.split("value", " ")).alias("word"))


@wordcount.table
def counts(words):
    return words.groupBy("word").count().orderBy(F.desc("count"), "word")


wordcount.sink("counts", mr.console(), mode="complete")
