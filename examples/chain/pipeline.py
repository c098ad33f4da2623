"""Readings from topic to topic to Cassandra: first all in one unit, then the average of each room and minute."""

from pyspark.sql import functions as F

import millrace as mr

chain = mr.Pipeline("chain")

chain.source(
    "readings", mr.kafka("readings", schema="room string, kind string, value double, unit string, at timestamp")
)
chain.source("measured", mr.kafka("celsius", schema="room string, celsius double, at timestamp"))


@chain.table
def celsius(readings):
    fahrenheit = F.col("unit") == "°F"
    value = F.when(fahrenheit, (F.col("value") - 32) * 5 / 9).otherwise(F.col("value"))
    return readings.where("kind = 'temperature'").select("room", F.round(value, 1).alias("celsius"), "at")


@chain.table
def rooms(measured):
    minutes = measured.withWatermark("at", "10 minutes").groupBy(F.window("at", "1 minute"), "room")
    found = minutes.agg(F.round(F.avg("celsius"), 2).alias("average"), F.count("*").alias("readings"))
    return found.select("room", F.col("window.start").alias("minute"), "average", "readings")


chain.sink("celsius", mr.kafka("celsius", key="room"))
chain.sink("rooms", mr.cassandra("home.rooms", create=True, key="room", clustering="minute desc"), mode="update")
chain.panel("rooms", mr.series(time="minute", value="average", key="room", title="How warm the rooms are"))
