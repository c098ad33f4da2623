"""Log lines of a topic into a table of Cassandra: one partition an application, the newest line first."""

import millrace as mr

logs = mr.Pipeline("logs-to-cassandra")

logs.source(
    "weblogs",
    mr.kafka(
        "weblogs", schema="application string NOT NULL, level string, time timestamp NOT NULL, message string NOT NULL"
    ),
)


@logs.table
def lines(weblogs):
    return weblogs.select("application", "time", "message", "level")


logs.sink("lines", mr.cassandra("shop.logs", create=True, key="application", clustering=["time desc", "message"]))
