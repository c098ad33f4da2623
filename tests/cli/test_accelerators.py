"""A run without what is chosen for Spark gives the same results."""

from __future__ import annotations

import json
import sys

import pytest

from conftest import CommandLine
from engine.test_accelerators import BAD, COUNTS, SCHEMA, VIEWS, buried, expected, fill, found
from millrace.clients.kafka.cluster import Cluster

MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
OFF = (
    "spark.sql.execution.arrow.maxRecordsPerBatch=100",
    "spark.sql.shuffle.partitions=5",
    "spark.ui.enabled=true",
    f"spark.sql.streaming.checkpointFileManagerClass={MANAGER}",
)
"""What is chosen for Spark, chosen otherwise."""


@pytest.mark.chaos
def test_without_what_is_chosen_for_spark_and_the_archive(millrace: CommandLine, cluster: Cluster, topic: str) -> None:
    fill(cluster, topic)
    source = {"kafka": topic, "schema": SCHEMA}
    sink = {"from": "counts", "kafka": f"{topic}-out", "mode": "update"}
    text = {
        "name": "chosen",
        "sources": {"events": source},
        "tables": {"views": VIEWS, "counts": COUNTS},
        "sinks": [sink],
    }
    (millrace.folder / "p.yaml").write_text(json.dumps(text))
    (millrace.folder / "environment").symlink_to(sys.prefix)
    given = [part for one in OFF for part in ("--set", one)]
    millrace(
        "run",
        "p.yaml",
        "--until-caught-up",
        "--no-dashboard",
        *given,
        MILLRACE_ARCHIVE="off",
        PYSPARK_PYTHON=str(millrace.folder / "environment" / "bin" / "python"),
    )
    assert found(cluster, topic) == expected()
    assert buried(cluster, topic) == sorted(BAD, key=str)
