"""First posts joined with the replies that come within five minutes, and those that get none."""

from pyspark.sql import functions as F

import millrace as mr

talk = mr.Pipeline("posts-and-replies")

talk.source(
    "posts",
    mr.kafka("posts", schema="id string, author string, text string, reply_to string, at timestamp"),
    watermark=("at", "1 minute"),
)

IN_TIME = "reply_to = id AND replied_at BETWEEN at AND at + INTERVAL 5 MINUTES"


@talk.table
def first_posts(posts):
    return posts.where("reply_to IS NULL").select("id", "author", "text", "at")


@talk.table
def replies(posts):
    return posts.where("reply_to IS NOT NULL").selectExpr("reply_to", "author AS replier", "at AS replied_at")


@talk.table
def answered(first_posts, replies):
    return first_posts.join(replies, F.expr(IN_TIME)).select("id", "author", "at", "replier", "replied_at")


@talk.table
def unanswered(first_posts, replies):
    return first_posts.join(replies, F.expr(IN_TIME), "left").where("reply_to IS NULL").select("id", "author", "at")


talk.sink("answered", mr.console())
talk.sink("unanswered", mr.console())
