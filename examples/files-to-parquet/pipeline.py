"""Log lines from JSON files into Parquet files, in a folder for each level."""

import millrace as mr

archive = mr.Pipeline("files-to-parquet")

archive.source(
    "logs",
    mr.files(
        "examples/files-to-parquet/data",
        schema=(
            "application string, level string, time timestamp, message string, "
            "method string, path string, status int, latency double"
        ),
    ),
)


@archive.table
def requests(logs):
    return logs.select("application", "level", "time", "method", "path", "status", "latency")


archive.sink("requests", mr.files("examples/files-to-parquet/out", partition_by="level"))
