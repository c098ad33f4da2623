"""The events tells a failure, its restart and its end."""

from __future__ import annotations

import time

from millrace.errors import QueryFailed
from millrace.telemetry.channels import Channels
from millrace.telemetry.measurements import ANSWER_TIMEOUT_S
from millrace.telemetry.publisher import EventLog
from millrace.telemetry.query_status import Phase, RunStatus

from .runs import batch, restarting, running


def test_a_kafka_that_is_away_and_comes_back_is_told_once_each() -> None:
    channels = Channels()
    events, run_status = EventLog(channels), RunStatus()
    run_status.kafka.asked("here:9092", time.monotonic() - ANSWER_TIMEOUT_S - 1)
    events.look(run_status)
    events.look(run_status)
    run_status.kafka.came()
    events.look(run_status)
    events.look(run_status)
    told = [(row["level"], row["text"]) for row in channels.row_buffer("events", 1, ()).newest()]
    assert told == [
        ("warning", "Kafka at here:9092 does not answer; the run waits for it"),
        ("info", "Kafka at here:9092 answers again"),
    ]


def test_a_restart_from_failure_to_recovery() -> None:
    channels = Channels()
    events, run_status = EventLog(channels), running(batch(0))
    events.look(run_status)
    restarting(run_status, 1)
    events.look(run_status)
    events.look(run_status)
    run_status.started("popular")
    events.look(run_status)
    run_status.update("popular", Phase.RUNNING)
    run_status.batch_done(batch(1))
    events.look(run_status)
    told = [(row["level"], row["text"]) for row in channels.row_buffer("events", 1, ()).newest()]
    assert told[-4:] == [
        ("warning", "failed: no broker answers"),
        ("warning", "restarting in 4 s (1 of 5): Kafka does not answer"),
        ("info", "started again"),
        ("info", "works again (restart 1 of 5)"),
    ]


def test_a_batch_that_fails_while_the_others_go_on() -> None:
    channels = Channels()
    events, run_status = EventLog(channels), running(batch(0))
    run_status.batch_failed("popular", QueryFailed("no"))
    for _ in range(2):
        events.look(run_status)
    told = [(row["level"], row["text"]) for row in channels.row_buffer("events", 1, ()).newest()]
    assert told.count(("error", "a batch failed, the next ones continue: no")) == 1
