"""Posts of each author in sessions: one ends when nothing was written for half a minute."""

from pyspark.sql import functions as F

import millrace as mr

visits = mr.Pipeline("user-sessions")

visits.source(
    "posts",
    mr.kafka("posts", schema="id string, author string, text string, at timestamp"),
    watermark=("at", "10 seconds"),
)


@visits.table
def sessions(posts):
    counted = posts.groupBy(F.session_window("at", "30 seconds").alias("session"), "author").agg(
        F.count("*").alias("posts"), F.max("at").alias("last")
    )
    return counted.select("author", F.col("session.start").alias("first"), "last", "posts")


visits.sink("sessions", mr.console())
