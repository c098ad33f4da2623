"""What a query may do is Spark's to say, and the user's settings for Spark count."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

import millrace as mr
from checkpoint_files import commit_last_batch, write_checkpoint
from millrace.connectors.base.api import RunContext
from millrace.engine.checkpoints.last_batch import is_last_batch_done, plan_last_batch
from millrace.engine.queries.builder import QueryBuilder, QueryTables
from millrace.engine.queries.stateful_plans import require_supported
from millrace.pipeline.plan import make_plan
from millrace.telemetry.progress import BatchProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNSUPPORTED_CHECK = "spark.sql.streaming.unsupportedOperationCheck"


def test_what_a_stream_cannot_do_is_an_error_unless_a_setting_allows_it(spark: SparkSession) -> None:
    ordered = spark.readStream.format("rate").load().orderBy("value")
    with pytest.raises(AnalysisException):
        require_supported(ordered, "append")
    spark.conf.set(UNSUPPORTED_CHECK, "false")
    try:
        require_supported(ordered, "append")
    finally:
        spark.conf.unset(UNSUPPORTED_CHECK)


@pytest.mark.parametrize("started", [False, True])
def test_the_end_of_event_time_is_withdrawn_once_in_a_run(tmp_path: Path, started: bool) -> None:
    """A query that has written its last windows in this run, and is started again, must not read on."""
    pipeline = mr.Pipeline("p")
    pipeline.source("clicks", mr.files(str(tmp_path / "in"), schema="at timestamp"))
    pipeline.sink("clicks", mr.files(str(tmp_path / "out")))
    folder = write_checkpoint(tmp_path / "checkpoints" / "clicks")
    plan_last_batch(folder, watermarked=True)
    commit_last_batch(folder)
    no_cluster: Any = None
    context = RunContext(tmp_path, no_cluster, accept=("clicks",))
    builder = QueryBuilder(pipeline.model(), context, started_queries={"clicks"} if started else set())
    builder._clear(make_plan(pipeline.model()).queries[0])
    assert is_last_batch_done(folder) is started


@pytest.mark.parametrize("alignment", ["off", "arrival"])
def test_what_is_late_without_alignment_is_known(tmp_path: Path, alignment: str) -> None:
    pipeline = mr.Pipeline("p")
    pipeline.source(
        "clicks", mr.kafka("clicks", schema="at timestamp", alignment=alignment), watermark=("at", "5 seconds")
    )
    pipeline.sink("clicks", mr.files(str(tmp_path / "out")))
    no_cluster: Any = None
    builder = QueryBuilder(pipeline.model(), RunContext(tmp_path, no_cluster))
    QueryTables(builder, make_plan(pipeline.model()).queries[0])
    late = builder.late_records["clicks"]
    progress = BatchProgress("clicks", "run", 0, datetime.now(UTC), input_rows=1)
    assert late.counted(progress).alignment_off is (alignment == "off")
