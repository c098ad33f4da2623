"""Readings from JSON files; the average of each room is kept in memory, to be asked for with SQL."""

from pyspark.sql import functions as F

import millrace as mr

climate = mr.Pipeline("files-to-memory")

climate.source(
    "readings",
    mr.files(
        "examples/files-to-memory/data",
        schema="sensor string, room string, kind string, value double, unit string, battery int, at timestamp",
    ),
)


@climate.table
def rooms(readings):
    warm = readings.where("kind = 'temperature'")
    return warm.groupBy("room").agg(F.round(F.avg("value"), 2).alias("average"), F.count("*").alias("readings"))


climate.sink("rooms", mr.memory(), mode="complete")
