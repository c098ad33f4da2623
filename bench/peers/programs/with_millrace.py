"""The jobs as pipelines."""

import os

from pyspark.sql import functions as F

import millrace as mr

JOB, SOURCE, TARGET = os.environ["JOB"], os.environ["SOURCE"], os.environ["TARGET"]
ON_BAD, GUARANTEE = os.environ.get("ON_BAD", "dead"), os.environ.get("GUARANTEE", "exactly-once")
EVENT = (
    "user_id string, page_id string, ad_id string, ad_type string, event_type string, event_time bigint, "
    "ip_address string"
)
live = JOB in ("stateless", "keyed")
pipeline = mr.Pipeline(JOB, trigger="realtime" if live else "fastest")

if JOB == "words":
    pipeline.source("lines", mr.kafka(SOURCE, format="text", on_bad=ON_BAD))

    @pipeline.table
    def results(lines):
        return lines.select(F.explode(F.split("value", " ")).alias("word")).groupBy("word").count()


if JOB == "ads":
    pipeline.source("events", mr.kafka(SOURCE, schema=EVENT, on_bad=ON_BAD))
    pipeline.source(
        "campaigns", mr.files(os.environ["CAMPAIGNS"], schema="ad_id string, campaign_id string"), static=True
    )

    seen = "SELECT ad_id, timestamp_millis(event_time) AS at FROM events WHERE event_type = 'view'"
    pipeline.sql("views", seen, watermark=("at", "10 seconds"))
    pipeline.sql(
        "results",
        """
        SELECT campaign_id AS campaign, unix_millis(window(at, '10 seconds').start) AS window, count(*) AS count
        FROM views JOIN campaigns USING (ad_id) GROUP BY campaign_id, window(at, '10 seconds')
        """,
    )

if JOB == "once":
    pipeline.source("results", mr.kafka(SOURCE, format="raw", on_bad=ON_BAD))

if JOB == "state":
    pipeline.source("records", mr.kafka(SOURCE, schema="key bigint, at bigint", on_bad=ON_BAD))
    pipeline.sql("results", "SELECT key, count(*) AS count FROM records GROUP BY key")

if JOB == "windowed":
    pipeline.source("records", mr.kafka(SOURCE, schema="key bigint, at bigint", on_bad=ON_BAD))
    pipeline.sql("seen", "SELECT key, timestamp_millis(at) AS at FROM records", watermark=("at", "5 seconds"))
    pipeline.sql(
        "results",
        """
        SELECT key, unix_millis(window(at, '10 seconds').start) AS window, count(*) AS count
        FROM seen GROUP BY key, window(at, '10 seconds')
        """,
    )

if JOB in ("stateless", "filtered"):
    pipeline.source("records", mr.kafka(SOURCE, schema="key bigint, at bigint", on_bad="drop" if live else ON_BAD))
    pipeline.sql("results", "SELECT key, at, key % 2 = 0 AS even FROM records WHERE key >= 0")

if JOB == "keyed":
    pipeline.source("records", mr.kafka(SOURCE, schema="key bigint, at bigint", on_bad="drop"))
    pipeline.sql("results", "SELECT key, count(*) AS count FROM records GROUP BY key")

if live:
    pipeline.sink("results", mr.kafka(TARGET, guarantee="at-least-once"), mode="update")
elif JOB == "filtered":
    pipeline.sink("results", mr.kafka(TARGET, guarantee=GUARANTEE))
elif JOB == "once":
    pipeline.sink("results", mr.kafka(TARGET, format="raw", value="value", guarantee=GUARANTEE))
else:
    pipeline.sink("results", mr.kafka(TARGET, guarantee=GUARANTEE), mode="update")
