"""Log lines of one topic; those that tell of an error go to another, by application."""

import millrace as mr

watch = mr.Pipeline("kafka-to-kafka")

watch.source(
    "weblogs",
    mr.kafka(
        "weblogs",
        schema=(
            "application string NOT NULL, level string, time timestamp, message string, "
            "method string, path string, status int, latency double"
        ),
    ),
)


@watch.table
def failures(weblogs):
    return weblogs.where("status >= 500").select("application", "time", "path", "status", "latency")


watch.sink("failures", mr.kafka("failures", key="application"))
