"""The run at one moment."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from millrace.errors import QueryFailed, SourceLocation
from millrace.telemetry.channels import milliseconds
from millrace.telemetry.measurements import Lag, Measurements, Usage
from millrace.telemetry.metrics import run_state
from millrace.telemetry.progress import Alignment, SourceProgress
from millrace.telemetry.query_status import Phase, RunStatus
from millrace.telemetry.topology import UNPLANNED, ExpectedQuery, Topology

from .runs import NOW, OUTLINE, batch, restarting, running


def test_figures_of_a_query_are_those_of_sparks_own_progress() -> None:
    last = batch(3, state_rows=7, state_bytes=70, late_rows=2, watermark=NOW - timedelta(seconds=30))
    told = run_state(running(last), Measurements(), OUTLINE, NOW)
    (query,) = told["queries"]
    assert (query["rows"], query["rate"], query["batch_ms"]) == (last.input_rows, last.rate, last.milliseconds)
    assert (query["state_rows"], query["state_bytes"], query["late"]) == (7, 70, 2)
    assert query["watermark_gap_ms"] == told["figures"]["watermark_gap_ms"] == 30_000
    assert query["in_rate"] == pytest.approx(100 / 1.5)
    assert query["out_rate"] == pytest.approx(10 / 1.5)
    assert told["time"] == 1777896000000
    assert (told["phase"], told["reasons"]) == ("running", [])


def test_before_anything_has_happened() -> None:
    measurements = Measurements()
    measurements.doing = "Spark is starting"
    told = run_state(RunStatus(), measurements, OUTLINE, NOW)
    assert (told["phase"], told["reasons"]) == ("starting", ["Spark is starting"])
    assert told["figures"]["lag"] is None
    assert told["edges"][0] == {"from": "posts", "to": "hashtags", "rate": None}
    assert run_state(RunStatus(), Measurements(), UNPLANNED, NOW)["phase"] == "starting"


def test_phases_of_the_run() -> None:
    run_status = running(batch())
    run_status.ended("popular", QueryFailed("no", why="because", hint="do", place=SourceLocation("p.py", 3)))
    told = run_state(run_status, Measurements(), OUTLINE, NOW)
    assert (told["phase"], told["reasons"]) == ("failed", ["query popular failed: no"])
    assert told["queries"][0]["error"] == {"message": "no", "why": "because", "hint": "do", "where": "p.py:3"}
    assert told["figures"]["errors"] == 1
    run_status = running(batch())
    run_status.ended("popular")
    assert run_state(run_status, Measurements(), OUTLINE, NOW)["phase"] == "stopped"
    assert run_state(run_status, Measurements(), OUTLINE, NOW)["queries"][0]["in_rate"] == 0
    failed = Measurements()
    failed.failure = "the broker is gone"
    assert run_state(RunStatus(), failed, OUTLINE, NOW)["reasons"] == ["the broker is gone"]


def test_a_run_one_of_whose_queries_is_restarted() -> None:
    run_status = running(batch())
    restarting(run_status)
    told = run_state(run_status, Measurements(), OUTLINE)
    assert told["phase"] == "restarting"
    assert told["reasons"] == ["query popular: restarting in 4 s (2 of 5): Kafka does not answer"]
    (query,) = told["queries"]
    assert (query["phase"], query["restarts"], query["in_rate"]) == ("restarting", 1, 0)
    assert query["restart"] == "restarting in 4 s (2 of 5): Kafka does not answer"
    assert query["silence"] == f"The query has failed; {query['restart']}."
    assert query["error"]["message"] == "no broker answers"


def test_a_query_that_only_draws_does_not_fail_the_run() -> None:
    topology = replace(OUTLINE, queries=(*OUTLINE.queries, ExpectedQuery("panels.x", "x", writes=False)))
    run_status = running(batch())
    run_status.started("panels.x")
    run_status.ended("panels.x", QueryFailed("no"))
    assert run_state(run_status, Measurements(), topology, NOW)["phase"] == "running"


def test_edges_have_the_rates_of_what_is_read_and_written() -> None:
    edges = {
        (one["from"], one["to"]): one["rate"]
        for one in run_state(running(batch()), Measurements(), OUTLINE, NOW)["edges"]
    }
    assert edges == {
        ("posts", "hashtags"): pytest.approx(100 / 1.5),
        ("hashtags", "popular"): None,
        ("popular", "sink:0"): pytest.approx(10 / 1.5),
    }


def test_two_sources_of_one_query_are_told_apart_by_their_topics() -> None:
    topology = Topology(
        (ExpectedQuery("popular", "popular", sources=("posts", "likes")),),
        (),
        {"posts": ("posts",), "likes": ("likes",)},
    )
    sources = (
        SourceProgress("a", 75, end={"posts": {"0": 1}}),
        SourceProgress("b", 25, end={"likes": {"0": 1}}),
    )
    told = run_state(running(batch(sources=sources)), Measurements(), topology, NOW)
    assert told["figures"]["in_rate"] == pytest.approx(100 / 1.5)


def test_two_queries_that_read_one_source_count_it_once() -> None:
    topology = Topology(
        (ExpectedQuery("popular", "p", sources=("posts",)), ExpectedQuery("other", "o", sources=("posts",)))
    )
    run_status = running(batch())
    run_status.started("other")
    run_status.batch_done(batch(query="other", input_rows=120))
    assert run_state(run_status, Measurements(), topology, NOW)["figures"]["in_rate"] == pytest.approx(120 / 1.5)


def test_where_spark_seldom_tells_kafka_does() -> None:
    topology = replace(OUTLINE, queries=(replace(OUTLINE.queries[0], batches=False),))
    measurements = Measurements()
    measurements.put_rates({"posts": 120.0, "out": 12.0})
    measurements.put_lag("popular", Lag(5, 0.5))
    measurements.usage = Usage(1.5, 100, 200, 9)
    told = run_state(running(), measurements, topology, NOW)
    (query,) = told["queries"]
    assert (query["in_rate"], query["out_rate"], query["busy"]) == (120.0, 12.0, None)
    assert (query["lag"], told["figures"]["lag_seconds"]) == (5, 0.5)
    assert told["process"] == {"cpu": 1.5, "memory": 100, "jvm_memory": 200, "threads": 9}


def test_a_sink_that_does_not_count_is_counted_in_its_topic() -> None:
    measurements = Measurements()
    measurements.put_rates({"out": 12.0})
    told = run_state(running(batch(sink_rows=None)), measurements, OUTLINE, NOW)
    assert told["figures"]["out_rate"] == 12.0


def test_how_busy_a_query_is() -> None:
    run_status = running(batch(0, ago=2), batch(1, ago=1), phase=Phase.WAITING)
    assert run_state(run_status, Measurements(), OUTLINE, NOW)["queries"][0]["busy"] == pytest.approx(0.1)
    run_status.update("popular", Phase.RUNNING)  # a batch is at work since the last one ended
    later = NOW + timedelta(seconds=60)
    assert run_state(run_status, Measurements(), OUTLINE, later)["queries"][0]["busy"] <= 1.0


def test_how_far_a_backlog_is_read_and_who_waits() -> None:
    cut = Alignment("at", milliseconds(NOW), ("posts[1]", "posts[2]"))
    last = batch(3, sources=(SourceProgress("", 5, alignment=cut), SourceProgress("", 5)))
    (query,) = run_state(running(last), Measurements(), OUTLINE, NOW)["queries"]
    waits = "posts[1], posts[2] wait for partitions that are behind"
    assert query["alignment"] == f"The backlog is read by at, up to {NOW:%Y-%m-%d %H:%M:%S} UTC; {waits}."
    (query,) = run_state(running(batch(3)), Measurements(), OUTLINE, NOW)["queries"]
    assert query["alignment"] is None


def test_a_backlog_whose_event_times_are_in_no_calendar() -> None:
    cut = Alignment("at", 1_700_000_000_000_000)
    last = batch(3, sources=(SourceProgress("", 5, alignment=cut),))
    (query,) = run_state(running(last), Measurements(), OUTLINE, NOW)["queries"]
    assert query["alignment"] == "The backlog is read by at, up to 1,700,000,000,000,000 ms after 1970."
