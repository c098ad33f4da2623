"""What is worth an alert, and that each thing is told once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from millrace.errors import KafkaUnreachable, SparkFailed
from millrace.telemetry.alerts import _CALM_S, Alert, AlertMonitor, Limits
from millrace.telemetry.measurements import Lag, Measurements
from millrace.telemetry.query_status import Phase, RestartRecord, RunStatus
from millrace.telemetry.topology import ExpectedQuery, Topology
from millrace.units import parse_backlog, parse_rate

from .runs import OUTLINE, batch, running


@pytest.fixture
def told() -> list[Alert]:
    return []


def alarm(run_status: RunStatus, told: list[Alert], topology: Topology = OUTLINE, **limits: object) -> AlertMonitor:
    return AlertMonitor("trending", run_status, Measurements(), topology, Limits(**limits), told.append)  # type: ignore[arg-type]


def restart(run_status: RunStatus, number: int, query: str = "popular", why: str = "Kafka does not answer") -> None:
    due = datetime.now(UTC) + timedelta(seconds=4)
    run_status.restarting(query, KafkaUnreachable("no broker answers"), RestartRecord(number, 5, due, why))


def test_a_failure_and_its_recovery(told: list[Alert]) -> None:
    run_status = running(batch(0))
    looking = alarm(run_status, told)
    looking.look(0)
    assert told == []
    restart(run_status, 1)
    looking.look(1)
    run_status.started("popular")
    looking.look(2)
    restart(run_status, 2)
    looking.look(3)
    (failed,) = told
    assert (failed.pipeline, failed.query, failed.what) == ("trending", "popular", "failed")
    assert "(1 of 5): Kafka does not answer" in failed.why
    run_status.started("popular")
    run_status.update("popular", Phase.RUNNING)
    looking.look(4)
    run_status.batch_done(batch(1))
    looking.look(5)
    looking.look(6)
    assert [one.what for one in told] == ["failed", "recovered"]


def test_giving_up_is_told_once(told: list[Alert]) -> None:
    run_status = running(batch(0))
    looking = alarm(run_status, told)
    run_status.ended("popular", KafkaUnreachable("no broker answers (given up after 5 restarts)"))
    looking.look(0)
    looking.look(1)
    looking.ended(KafkaUnreachable("query 'popular' failed"))
    assert [(one.what, one.why) for one in told] == [("gave-up", "no broker answers (given up after 5 restarts)")]


def test_a_run_that_fails_without_a_query(told: list[Alert]) -> None:
    alarm(RunStatus(), told).ended(SparkFailed("Spark could not be started"))
    assert [(one.query, one.what, one.why) for one in told] == [(None, "gave-up", "Spark could not be started")]


def test_a_run_that_fails_by_a_mistake_of_ours(told: list[Alert]) -> None:
    alarm(RunStatus(), told).ended(KeyError("left"))
    assert [(one.query, one.what, one.why) for one in told] == [(None, "gave-up", "KeyError: 'left'")]


def test_a_query_that_only_draws_alerts_nobody(told: list[Alert]) -> None:
    run_status = running(batch(0, query="panels.x"), query="panels.x")
    restart(run_status, 1, "panels.x")
    alarm(run_status, told, Topology((ExpectedQuery("panels.x", "x", writes=False),))).look(0)
    assert told == []


@pytest.mark.parametrize(("limit", "lag"), [("1000", Lag(1001, 2.0)), ("30s", Lag(5, 31.0))])
def test_lag_over_a_limit(told: list[Alert], limit: str, lag: Lag) -> None:
    looking = alarm(running(batch(0)), told, lag=parse_backlog(limit))
    looking.measurements.put_lag("popular", Lag(1, 1.0))
    looking.look(0)
    assert told == []
    looking.measurements.put_lag("popular", lag)
    looking.look(1)
    looking.look(2)
    looking.measurements.put_lag("popular", Lag(1, 1.0))
    looking.look(3)  # for a moment
    looking.measurements.put_lag("popular", lag)
    looking.look(4)
    assert [one.what for one in told] == ["lag"]
    looking.measurements.put_lag("popular", Lag(why="no broker answers"))
    looking.look(5)
    looking.measurements.put_lag("popular", Lag(1, 1.0))
    looking.look(6)
    looking.look(6 + _CALM_S)
    assert [one.what for one in told] == ["lag", "lag-recovered"]


def test_dead_letters_over_a_rate(told: list[Alert]) -> None:
    run_status = running(batch(0))
    looking = alarm(run_status, told, dead=parse_rate("10/m"))
    run_status.set_dead_letters("posts", 10)
    looking.look(0)
    assert told == []
    run_status.set_dead_letters("posts", 11)
    looking.look(1)
    looking.look(2)
    assert [(one.what, "11 in the last minute" in one.why) for one in told] == [("dead-letters", True)]
    looking.look(62)
    looking.look(62 + _CALM_S)
    assert told[-1].what == "dead-letters-recovered"


def test_secrets_are_masked(told: list[Alert]) -> None:
    said = "https://me:hunter2@host answers 500; sasl.password=hunter2, token: 'hunter2' user=me"
    alarm(RunStatus(), told).ended(SparkFailed(said))
    assert "hunter2" not in told[0].sentence
    assert "user=me" in told[0].why
