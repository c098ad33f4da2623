"""A run_status fed by hand, for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.errors import QueryFailed
from millrace.telemetry.progress import BatchProgress, SourceProgress
from millrace.telemetry.query_status import Phase, RestartRecord, RunStatus
from millrace.telemetry.topology import Edge, ExpectedQuery, Topology

NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
OUTLINE = Topology(
    (ExpectedQuery("popular", "popular", "append", watermarked=True, sources=("posts",)),),
    (Edge("posts", "hashtags"), Edge("hashtags", "popular"), Edge("popular", "sink:0", "popular", "out")),
    {"posts": ("posts",)},
)


def batch(number: int = 0, query: str = "popular", ago: float = 1.0, **more: Any) -> BatchProgress:
    """A batch that ended so many seconds ago."""
    given: dict[str, Any] = {
        "input_rows": 100,
        "input_rate": 50.0,
        "rate": 200.0,
        "milliseconds": 500,
        "durations": {"addBatch": 400, "walCommit": 90, "triggerExecution": 500},
        "sources": (SourceProgress("KafkaV2[Subscribe[posts]]", 100, end={"posts": {"0": 10}}),),
        "sink_rows": 10,
    }
    at = NOW - timedelta(seconds=ago, milliseconds=500)
    return BatchProgress(query, "run", number, at, **(given | more))


def restarting(run_status: RunStatus, number: int = 2, query: str = "popular") -> None:
    """A query has failed, and is started again in four seconds."""
    due = datetime.now(UTC) + timedelta(seconds=3.5)
    run_status.restarting(
        query, QueryFailed("no broker answers"), RestartRecord(number, 5, due, "Kafka does not answer")
    )


def running(*batches: BatchProgress, phase: Phase = Phase.RUNNING, query: str = "popular") -> RunStatus:
    """A run_status with one query that has done these batches."""
    run_status = RunStatus()
    run_status.started(query)
    for one in batches:
        run_status.batch_done(one)
    if phase is not Phase.STARTING:
        run_status.update(query, phase)
    return run_status
