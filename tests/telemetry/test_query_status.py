"""The run_status keeps what happened, for many readers and writers at once."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.errors import QueryFailed
from millrace.telemetry.progress import BatchProgress
from millrace.telemetry.query_status import Phase, RestartRecord, RunStatus


def batch(
    number: int, query: str = "popular", rows: int = 10, late: int = 0, *, counted: bool = True, **more: Any
) -> BatchProgress:
    at = datetime(2026, 1, 1, 0, 0, number % 60, tzinfo=UTC)
    return BatchProgress(query, "run", number, at, input_rows=rows, late_rows=late, late_counted=counted, **more)


def test_totals_and_history() -> None:
    run_status = RunStatus(max_batches=2)
    run_status.started("popular")
    for number in range(3):
        run_status.batch_done(batch(number, late=number))
    run_status.batch_done(batch(3, rows=0))  # nothing to do
    (standing,) = run_status.queries()
    assert (standing.batches, standing.rows, standing.late_rows) == (3, 30, 3)
    assert [one.batch for one in run_status.history("popular")] == [2, 3]
    assert run_status.history("unknown") == ()


def test_phases() -> None:
    run_status = RunStatus()
    run_status.started("popular")
    assert run_status.queries()[0].phase is Phase.STARTING
    run_status.update("popular", Phase.WAITING, "Waiting for data to arrive")
    assert (run_status.queries()[0].phase, run_status.queries()[0].doing) == (
        Phase.WAITING,
        "Waiting for data to arrive",
    )
    run_status.ended("popular")
    assert run_status.queries()[0].phase.ended


def test_a_failed_query_that_starts_again_keeps_its_totals() -> None:
    run_status = RunStatus()
    run_status.started("popular")
    run_status.batch_done(batch(0))
    run_status.ended("popular", QueryFailed("no"))
    assert run_status.queries()[0].phase is Phase.FAILED
    run_status.started("popular")
    standing = run_status.queries()[0]
    assert (standing.phase, standing.error, standing.rows) == (Phase.STARTING, None, 10)


def restarting(run_status: RunStatus, number: int = 2) -> None:
    due = datetime.now(UTC) + timedelta(seconds=3.5)
    run_status.restarting("popular", QueryFailed("no"), RestartRecord(number, 5, due, "Kafka does not answer"))


def test_a_query_that_is_restarted_is_so_until_it_works() -> None:
    run_status = RunStatus()
    run_status.started("popular")
    restarting(run_status)
    run_status.update("popular", Phase.RUNNING)  # old news of the run that has failed
    run_status.batch_done(batch(0))
    standing = run_status.query("popular")
    assert (standing.phase, standing.restarts) == (Phase.RESTARTING, 1)
    assert standing.restart
    now = datetime.now(UTC)
    assert standing.restart.sentence(now) == "restarting in 4 s (2 of 5): Kafka does not answer"
    run_status.started("popular")
    run_status.update("popular", Phase.RUNNING)
    assert run_status.query("popular").restart, "nothing is done yet"
    assert "no batch done yet (2 of 5)" in standing.restart.sentence(now + timedelta(seconds=9))
    run_status.batch_done(batch(1))
    standing = run_status.query("popular")
    assert (standing.restart, standing.restarts, standing.error) == (None, 1, None)


def test_one_that_waits_for_records_works() -> None:
    run_status = RunStatus()
    run_status.started("popular")
    restarting(run_status)
    run_status.started("popular")
    run_status.update("popular", Phase.WAITING)
    assert run_status.query("popular").restart is None


def test_dead_letters_and_the_summary() -> None:
    run_status = RunStatus()
    run_status.started("popular")
    run_status.batch_done(batch(0, late=2))
    assert run_status.summary() == "10 rows in 1 batch, 2 late"
    run_status.set_dead_letters("posts", 3)
    run_status.set_dead_letters("posts", 5)
    assert run_status.dead() == {"posts": 5}
    assert run_status.summary() == "10 rows in 1 batch, 2 late, 5 dead letters"


def test_what_figures_leave_out_is_said_once_at_the_end() -> None:
    run_status = RunStatus()
    for query in ("popular", "quick", "quicker"):
        run_status.started(query)
        run_status.update(query, Phase.RUNNING, "Spark works")
    run_status.batch_done(batch(0))
    run_status.ended("popular")
    run_status.ended("quick", left="the rest is not counted")
    run_status.ended("quicker", left="the rest is not counted")
    assert run_status.summary() == "10 rows in 1 batch; the rest is not counted"


def test_many_threads() -> None:
    run_status = RunStatus()
    run_status.started("popular")

    def work() -> None:
        for number in range(200):
            run_status.batch_done(batch(number))
            run_status.queries()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run_status.queries()[0].rows == 8 * 200 * 10


def test_many_late_rows_are_a_warning() -> None:
    run_status = RunStatus()
    run_status.started("popular")
    run_status.batch_done(batch(0, rows=1000, late=10))
    assert run_status.warnings() == []
    run_status.batch_done(batch(1, rows=0, late=1))
    assert "older than" not in run_status.warnings()[0], "it is not known how late they were"
    run_status.batch_done(batch(2, rows=0, late=4, late_by_ms=90_000))
    (warning,) = run_status.warnings()
    assert warning.startswith("query 'popular': 15 of 1,000 rows came too late, up to 1 m 30 s older than")


def test_late_rows_without_alignment() -> None:
    run_status = RunStatus()
    run_status.started("popular")
    run_status.batch_done(batch(0, late=5))
    assert "alignment" not in run_status.warnings()[0]
    run_status.batch_done(batch(1, late=5, alignment_off=True))
    run_status.batch_done(batch(2, rows=0))
    assert "alignment" in run_status.warnings()[0]


def test_late_rows_that_spark_has_grouped_are_compared_by_their_share() -> None:
    run_status = RunStatus()
    run_status.started("popular")
    run_status.batch_done(batch(0, rows=100_000, late=4, counted=False, late_share=0.001))
    assert run_status.warnings() == []
    run_status.batch_done(batch(1, rows=100_000, late=4, counted=False, late_share=0.9))
    assert "about 90,100 of 200,000 rows" in run_status.warnings()[0]
    assert "8 late (grouped)" in run_status.summary()
