"""Spark's words after a batch as a record."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from millrace.telemetry.progress import Alignment, BatchProgress, alignment_report

TOLD: dict[str, Any] = {
    "id": "ad547f4b-1102-4755-bcdb-1f02dec6d829",
    "runId": "1a95e4af-3c13-4ec3-922c-33bf1953ed32",
    "name": "popular",
    "timestamp": "2026-11-16T01:51:35.189Z",
    "batchId": 1,
    "batchDuration": 1869,
    "numInputRows": 19,
    "inputRowsPerSecond": 1.3,
    "processedRowsPerSecond": 10.2,
    "durationMs": {"addBatch": 1263, "triggerExecution": 1864, "walCommit": 90},
    "eventTime": {"watermark": "2026-11-16T01:51:14.286Z"},
    "stateOperators": [
        {"numRowsTotal": 3, "memoryUsedBytes": 1328, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 4, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 1},
    ],
    "sources": [
        {
            "description": "KafkaV2[Subscribe[t9]]",
            "startOffset": {"t9": {"0": 8, "1": 11}},
            "endOffset": {"t9": {"0": 16, "1": 22}},
            "latestOffset": {"t9": {"0": 21, "1": 29}, "t8": {"0": 2}},
            "numInputRows": 19,
        },
        {"description": "RateStream", "startOffset": 1, "endOffset": 2, "latestOffset": 3, "numInputRows": 0},
    ],
    "sink": {"description": "ConsoleTable", "numOutputRows": 1},
}


def told(**changes: Any) -> BatchProgress:
    return BatchProgress.of(json.dumps(TOLD | changes), "popular")


def test_a_batch() -> None:
    progress = told()
    assert (progress.query, progress.batch, progress.input_rows) == ("popular", 1, 19)
    assert progress.at == datetime(2026, 11, 16, 1, 51, 35, 189000, UTC)
    assert (progress.input_rate, progress.rate) == (1.3, 10.2)
    assert (progress.milliseconds, progress.durations["walCommit"]) == (1864, 90)
    assert progress.watermark == datetime(2026, 11, 16, 1, 51, 14, 286000, UTC)
    assert (progress.state_rows, progress.state_bytes, progress.late_rows) == (7, 2328, 3)
    assert (progress.sink, progress.sink_rows) == ("ConsoleTable", 1)
    assert progress.executed


def test_what_a_replay_leaves_out_is_not_counted() -> None:
    """Spark has read it; and beside the topic there is another source, which has no end of ours."""
    kafka, rate = TOLD["sources"]
    metrics = {"millrace.within.posts": {"rows": 7}, "millrace.within.likes": {"rows": None}, "millrace.whole": {}}
    found = told(numInputRows=22, sources=[kafka, rate | {"numInputRows": 3}], observedMetrics=metrics)
    assert found.input_rows == 7 + 3


def test_lag_is_summed_over_partitions_and_known_for_kafka_only() -> None:
    kafka, rate = told().sources
    assert kafka.lag == 5 + 7 + 2
    assert kafka.end == {"t9": {"0": 16, "1": 22}}
    assert rate.lag is None
    assert told().lag == 14
    assert told(sources=[]).lag is None


def test_what_spark_leaves_out() -> None:
    progress = told(
        name=None,
        durationMs={"triggerExecution": 3},
        numInputRows=0,
        inputRowsPerSecond=None,
        eventTime={"watermark": "1970-01-01T00:00:00.000Z"},
        stateOperators=[],
        sources=[{"description": "KafkaV2[Subscribe[t9]]", "endOffset": None, "latestOffset": None}],
        sink={"description": "noop", "numOutputRows": -1},
    )
    assert progress.query == "popular"
    assert progress.input_rate == 0.0
    assert progress.watermark is None
    assert progress.lag is None
    assert progress.sink_rows is None
    assert not progress.executed


def test_how_a_backlog_was_cut_by_event_time() -> None:
    kafka = TOLD["sources"][0]
    latest = kafka["latestOffset"] | alignment_report("at", 1_700_000_000_000_000, ["t9[1]"])
    (source,) = told(sources=[kafka | {"latestOffset": latest}]).sources
    assert source.alignment == Alignment("at", 1_700_000_000_000, ("t9[1]",))
    assert (source.latest, source.lag) == (kafka["latestOffset"], 14)
    (shards,) = told(sources=[{"latestOffset": alignment_report("at", 0, [])}]).sources
    assert (shards.latest, shards.lag) == (None, None)
    assert told().sources[0].alignment is None


def test_how_late_the_oldest_row_was() -> None:
    watermark = TOLD["eventTime"]
    assert told().late_by_ms == 0
    assert told(eventTime=watermark | {"min": "2026-11-16T01:51:04.086Z"}).late_by_ms == 10_200
    assert told(eventTime=watermark | {"min": "2026-11-16T01:52:04.086Z"}).late_by_ms == 0


def test_the_beginning_of_1970_stands_for_rows_without_event_time() -> None:
    moments = {"watermark": "2026-11-16T02:00:00.000Z", "min": "1970-01-01T00:00:00.000Z"}
    progress = told(eventTime=moments | {"avg": "2000-11-16T00:00:00.000Z"})
    assert (progress.late_by_ms, progress.late_share) == (0, 0)


def test_the_share_of_late_rows_that_the_mean_of_their_event_times_proves() -> None:
    moments = {"watermark": "2026-11-16T02:00:00.000Z", "min": "2026-11-16T00:00:00.000Z"}
    assert told(eventTime=moments | {"avg": "2026-11-16T00:12:00.000Z"}).late_share == 0.9
    assert told(eventTime=moments | {"avg": "2026-11-16T02:12:00.000Z"}).late_share == 0
    assert told(eventTime={}).late_share == 0
    assert told(stateOperators=[], eventTime=moments | {"avg": moments["min"]}).late_share == 0


def test_the_end_of_event_time_is_no_watermark_to_show() -> None:
    assert told(eventTime={"watermark": "9999-12-31T23:59:59.999Z"}).watermark is None
    assert told(eventTime={"watermark": "9999-12-31T23:59:59.998Z"}).watermark is not None
