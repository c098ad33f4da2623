"""Events counted by kind in windows, as a pipeline."""

import os

from pyspark.sql import functions as F

import millrace as mr

windows = mr.Pipeline("windows")
SCHEMA = "id string, user string, page string, kind string, ip string, at timestamp"
windows.source("events", mr.kafka(os.environ["TOPIC"], schema=SCHEMA), watermark=("at", "10 seconds"))


@windows.table
def counts(events):
    return events.groupBy(F.window("at", "10 seconds"), "kind").count()


windows.sink("counts", mr.spark("noop"), mode="update")
