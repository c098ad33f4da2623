"""The three hashtags that were used most in each minute, anew every ten seconds."""

from pyspark.sql import functions as F

import millrace as mr

top = mr.Pipeline("top-hashtags")

top.source(
    "posts",
    mr.kafka("posts", schema="id string, author string, text string, tags array<string>, at timestamp"),
    watermark=("at", "10 seconds"),
)


@top.table
def counts(posts):
    hashtags = posts.select("at", F.explode("tags").alias("tag"))
    return hashtags.groupBy(F.window("at", "1 minute", "10 seconds"), "tag").count()


@top.table
def charts(counts):
    ranked = F.sort_array(F.collect_list(F.struct("count", "tag")), asc=False)
    return counts.groupBy("window").agg(F.slice(ranked, 1, 3).alias("best"))


@top.table
def top_three(charts):
    places = charts.select("window", F.posexplode("best").alias("above", "hashtag"))
    return places.selectExpr("window.end AS until", "above + 1 AS place", "hashtag.tag", "hashtag.count")


top.sink("top_three", mr.console(rows=50))
