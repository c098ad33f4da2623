"""Why there is no output."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from millrace.errors import QueryFailed
from millrace.telemetry.idle_reason import IdleFacts, idle_reason
from millrace.telemetry.progress import BatchProgress
from millrace.telemetry.query_status import Phase

from .runs import NOW, OUTLINE, batch, running


def why(
    *batches: BatchProgress, phase: Phase = Phase.RUNNING, lag: int | None = None, dead: int = 0, mode: str = "append"
):
    status = running(*batches, phase=phase).query("popular")
    expected = replace(OUTLINE.queries[0], mode=mode)
    since = NOW - timedelta(seconds=20)
    return idle_reason(
        IdleFacts(replace(status, since=since), expected, batches[-1] if batches else None, lag, dead, NOW)
    )


def test_there_is_output() -> None:
    assert why(batch()) is None
    assert why(batch(sink_rows=None)) is None, "a sink that does not count is not accused"


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        (why(phase=Phase.STARTING), "starting"),
        (why(phase=Phase.WAITING), "Nothing has arrived yet: posts"),
        (why(phase=Phase.RUNNING, lag=500), "500 records wait"),
        (why(batch(ago=60), phase=Phase.WAITING), "Nothing new has arrived for 1 m 0 s"),
        (why(batch(ago=60), phase=Phase.RUNNING, lag=9), "at work for 1 m 0 s; 9 records wait"),
        (why(batch(), dead=100), "went to the dead letters"),
        (why(batch(sink_rows=0, late_rows=100)), "came after the watermark"),
        (why(batch(sink_rows=0, late_rows=98, late_counted=True)), "Nearly all (98) of the 100 rows"),
        (why(batch(sink_rows=0, late_rows=2, late_share=1.0)), "All of the 100 rows"),
        (why(batch(sink_rows=0, late_rows=2, late_counted=True, late_share=1.0)), "none of them came through"),
        (why(batch(sink_rows=0, state_rows=5)), "there is no watermark yet; it holds 5 rows of state"),
        (
            why(batch(sink_rows=0, state_rows=5, watermark=NOW - timedelta(seconds=35))),
            "it is at 2026-05-04 11:59:25 UTC, 35.0 s ago",
        ),
        (why(batch(sink_rows=0)), "none of them came through"),
        (why(batch(sink_rows=0, state_rows=5), mode="update"), "none of them came through"),
    ],
)
def test_sentences(sentence: str, words: str) -> None:
    assert words in sentence


def test_an_end() -> None:
    run_status = running(batch())
    run_status.ended("popular", QueryFailed("the disk is full"))
    case = IdleFacts(run_status.query("popular"), OUTLINE.queries[0], batch(), None, 0, NOW)
    assert idle_reason(case) == "The query has failed: the disk is full."


def test_real_time_mode_is_not_accused_of_silence() -> None:
    case = IdleFacts(running().query("popular"), replace(OUTLINE.queries[0], batches=False), None, None, 0, NOW)
    assert idle_reason(case) is None
