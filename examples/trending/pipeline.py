from pyspark.sql import functions as F

import millrace as mr

trending = mr.Pipeline("trending")

trending.source("posts", mr.kafka("posts", schema="id string, author string, text string, at timestamp"))


@trending.table(watermark=("at", "10 seconds"))
def hashtags(posts):
    return posts.select("at", F.explode(F.regexp_extract_all("text", F.lit(r"#(\w+)"))).alias("tag"))


@trending.table
def popular(hashtags):
    return hashtags.groupBy(F.window("at", "1 minute", "10 seconds"), "tag").count()


trending.sink("popular", mr.kafka("popular", key="tag"), mode="update")
trending.panel("popular", mr.top(label="tag", value="count"))
