"""Bike trips from CSV files, counted by where they start."""

from pyspark.sql import functions as F

import millrace as mr

bikes = mr.Pipeline("bike-trips")

bikes.source(
    "trips",
    mr.files(
        "examples/bike-trips/data",
        format="csv",
        schema=(
            "TripID bigint, Duration int, StartDate timestamp, StartStation string, StartTerminal int, "
            "EndDate timestamp, EndStation string, EndTerminal int, BikeNo int, SubscriberType string, ZipCode string"
        ),
    ),
)


@bikes.table
def starts(trips):
    return trips.groupBy("StartTerminal", "StartStation").count().orderBy(F.desc("count"), "StartTerminal")


bikes.sink("starts", mr.console(rows=10), mode="complete")
