"""Health tells the truth."""

from __future__ import annotations

from dataclasses import replace

from millrace.errors import QueryFailed
from millrace.telemetry.measurements import Measurements
from millrace.telemetry.metrics import UNHEALTHY_AFTER_S, health
from millrace.telemetry.query_status import Phase, RunStatus
from millrace.telemetry.topology import UNPLANNED, ExpectedQuery, Topology

from .runs import OUTLINE, batch, restarting, running


def test_a_run_that_starts_is_well_and_not_ready() -> None:
    found = health(RunStatus(), Measurements(), OUTLINE)
    assert (found.healthy, found.ready, found.reasons) == (True, False, ("query popular has not begun",))
    assert not health(running(phase=Phase.STARTING), Measurements(), OUTLINE).ready


def test_a_run_that_runs() -> None:
    found = health(running(batch()), Measurements(), OUTLINE)
    assert (found.healthy, found.ready, found.reasons) == (True, True, ())


def test_a_query_that_has_failed() -> None:
    run_status = running(batch())
    run_status.ended("popular", QueryFailed("no"))
    found = health(run_status, Measurements(), OUTLINE)
    assert (found.healthy, found.ready, found.reasons) == (False, False, ("query popular failed: no",))


def test_a_query_that_is_being_restarted() -> None:
    run_status = running(batch())
    restarting(run_status)
    sentence = "query popular: restarting in 4 s (2 of 5): Kafka does not answer"
    assert health(run_status, Measurements(), OUTLINE).reasons == (sentence,)
    run_status.started("popular")
    run_status.update("popular", Phase.RUNNING)
    assert not health(run_status, Measurements(), OUTLINE).healthy, "it has not worked yet"
    run_status.batch_done(batch(1))
    assert health(run_status, Measurements(), OUTLINE).healthy


def test_one_of_two_queries_that_ended_by_itself() -> None:
    topology = Topology((ExpectedQuery("popular", "popular"), ExpectedQuery("other", "other")))
    run_status = running(batch())
    run_status.started("other")
    run_status.update("other", Phase.RUNNING)
    run_status.ended("popular")
    assert health(run_status, Measurements(), topology).reasons == ("query popular has ended",)
    once = replace(topology, queries=(ExpectedQuery("popular", "popular", lasting=False), topology.queries[1]))
    assert health(run_status, Measurements(), once).healthy


def test_spark_that_does_not_answer() -> None:
    run_status = running(batch())
    run_status.seen()
    assert run_status.looked is not None
    assert health(run_status, Measurements(), OUTLINE, run_status.looked + 1).healthy
    assert not health(run_status, Measurements(), OUTLINE, run_status.looked + UNHEALTHY_AFTER_S + 1).healthy


def test_kafka_that_does_not_answer() -> None:
    run_status = running(batch())
    run_status.kafka.asked("here:9092", 100.0)
    run_status.kafka.asked("here:9092", 108.0)
    assert health(run_status, Measurements(), OUTLINE, 109.0).healthy, "it may only be slow"
    assert health(run_status, Measurements(), OUTLINE, 112.0).reasons == (
        "Kafka at here:9092 has not answered for 12 s",
    )
    run_status.kafka.came()
    assert health(run_status, Measurements(), OUTLINE, 113.0).healthy
    run_status.kafka.asked("here:9092", 113.0)
    run_status.ended("popular")
    once = replace(OUTLINE, queries=(replace(OUTLINE.queries[0], lasting=False),))
    assert health(run_status, Measurements(), once, 130.0).healthy, "nobody waits for it any more"


def test_a_program_that_is_not_ours() -> None:
    assert health(RunStatus(), Measurements(), UNPLANNED).ready, "it has promised no query"
    failed = Measurements()
    failed.failure = "it broke"
    assert health(RunStatus(), failed, UNPLANNED).reasons == ("it broke",)
