"""The policy alone: pauses, limits, and what makes a row of failures end."""

from __future__ import annotations

from millrace.engine.failures.classify import Classification, FailureKind
from millrace.engine.supervision.restart_policy import MAX_UNKNOWN_RESTARTS, GiveUp, Policy, Restart, RestartState

AWAY = Classification(FailureKind.TRANSIENT, "Kafka does not answer")
STRANGE = Classification(FailureKind.UNKNOWN, "nobody knows")
WRONG = Classification(FailureKind.TERMINAL, "bad SQL")


def test_pauses_double_up_to_a_limit() -> None:
    policy = Policy(first_delay_s=1.0, max_delay_s=10.0)
    assert [policy.delay_s(number) for number in range(1, 7)] == [1, 2, 4, 8, 10, 10]
    assert policy.delay_s(100_000) == 10


def test_what_passes_is_tried_so_often_in_a_row() -> None:
    state = RestartState(Policy(restarts=3))
    assert [state.failed(AWAY) for _ in range(4)] == [Restart(1, 1, 3), Restart(2, 2, 3), Restart(4, 3, 3), GiveUp(3)]


def test_what_does_not_pass_is_not_tried() -> None:
    state = RestartState(Policy())
    assert state.failed(WRONG, batch=3) == GiveUp(0)
    assert RestartState(Policy(restarts=0)).failed(AWAY) == GiveUp(0)


def test_what_nobody_understands_is_tried_a_few_times() -> None:
    state = RestartState(Policy(restarts=9))
    assert [type(state.failed(STRANGE)) for _ in range(MAX_UNKNOWN_RESTARTS + 1)] == [
        Restart
    ] * MAX_UNKNOWN_RESTARTS + [GiveUp]
    assert RestartState(Policy(restarts=1)).failed(STRANGE) == Restart(1, 1, 1)


def test_a_strange_failure_among_others_is_still_worth_a_few() -> None:
    state = RestartState(Policy(restarts=5))
    for _ in range(3):
        state.failed(AWAY)
    assert state.failed(STRANGE) == Restart(8, 4, 5)
    assert state.failed(STRANGE) == Restart(16, 5, 5)
    assert state.failed(STRANGE) == GiveUp(5)


def test_a_batch_that_is_done_begins_a_new_row() -> None:
    state = RestartState(Policy(restarts=2))
    state.failed(AWAY, committed_batch=7, batch=8)
    state.failed(AWAY, committed_batch=7, batch=8)
    assert state.failed(AWAY, committed_batch=8, batch=9) == Restart(1, 1, 2)


def test_minutes_of_health_begin_a_new_row() -> None:
    state = RestartState(Policy(restarts=2, healthy_after_s=120))
    assert not state.is_healthy(1e9), "it has not failed"
    state.failed(AWAY)
    state.started(100)
    assert not state.is_healthy(219)
    assert state.is_healthy(220)
    state.reset()
    assert state.failed(AWAY) == Restart(1, 1, 2)


def test_a_poisoned_batch_is_told_as_such() -> None:
    state = RestartState(Policy())
    for _ in range(MAX_UNKNOWN_RESTARTS):
        state.failed(STRANGE, committed_batch=4, batch=5)
    assert state.failed(STRANGE, committed_batch=4, batch=5) == GiveUp(MAX_UNKNOWN_RESTARTS, MAX_UNKNOWN_RESTARTS + 1)


def test_different_failures_are_no_poison() -> None:
    state = RestartState(Policy(restarts=1))
    state.failed(AWAY, batch=5)
    assert state.failed(Classification(FailureKind.TRANSIENT, "a connection was lost"), batch=5) == GiveUp(1)
    state = RestartState(Policy(restarts=1))
    state.failed(AWAY)
    assert state.failed(AWAY) == GiveUp(1), "no batch was at work"
