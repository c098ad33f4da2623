"""The word count as a pipeline."""

import os

from pyspark.sql import functions as F

import millrace as mr

words = mr.Pipeline("words")
words.source("lines", mr.kafka(os.environ["TOPIC"], format="text"))


@words.table
def counts(lines):
    return lines.select(F.explode(F.split("value", " ")).alias("word")).groupBy("word").count()


words.sink("counts", mr.spark("noop"), mode="update")
