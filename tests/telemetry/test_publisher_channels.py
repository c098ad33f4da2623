"""The run_status as channels."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from millrace.errors import QueryFailed
from millrace.telemetry.channels import Channels, RowBuffer
from millrace.telemetry.measurements import Measurements
from millrace.telemetry.publisher import StatusPublisher
from millrace.telemetry.query_status import Phase, RunStatus

from .runs import OUTLINE, batch, running


def ring(channels: Channels, name: str) -> RowBuffer:
    found = channels.get(name)
    assert isinstance(found, RowBuffer)
    return found


def test_each_batch_is_one_row_once() -> None:
    run_status, channels = running(batch(0), batch(1)), Channels()
    telling = StatusPublisher(run_status, Measurements(), OUTLINE, channels)
    telling.look()
    telling.look()
    run_status.batch_done(batch(2, input_rows=0, durations={}))  # nothing was done
    run_status.batch_done(batch(3))
    telling.look()
    rows = ring(channels, "history:popular").newest()
    assert [row["batch"] for row in rows] == [0, 1, 3]
    assert (rows[0]["phase:addBatch"], rows[0]["phase:walCommit"], rows[0]["ms"]) == (400, 90, 500)
    assert "phase:triggerExecution" not in rows[0]


def test_two_who_look_at_once_tell_each_batch_once() -> None:
    run_status, channels = running(*map(batch, range(300))), Channels()
    telling = StatusPublisher(run_status, Measurements(), OUTLINE, channels)
    begin = threading.Barrier(4)

    def look() -> None:
        begin.wait(20)
        telling.look()

    with ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(look) for _ in range(4)]:
            one.result(20)
    assert [row["batch"] for row in ring(channels, "history:popular").newest()] == list(range(300))
    assert [row["text"] for row in ring(channels, "events").newest()] == ["started"]


def test_batches_that_the_board_has_forgotten_are_not_told_twice() -> None:
    run_status, channels = RunStatus(max_batches=2), Channels()
    run_status.started("popular")
    telling = StatusPublisher(run_status, Measurements(), OUTLINE, channels)
    for number in range(6):
        run_status.batch_done(batch(number))
        if number % 3 == 2:
            telling.look()
    assert [row["batch"] for row in ring(channels, "history:popular").newest()] == [1, 2, 4, 5]


def test_events() -> None:
    run_status, channels = running(phase=Phase.STARTING), Channels()
    telling = StatusPublisher(run_status, Measurements(), OUTLINE, channels)
    telling.look()
    run_status.batch_done(batch(0, late_rows=3))
    run_status.set_dead_letters("posts", 2)
    telling.look()
    run_status.set_dead_letters("posts", 9)
    run_status.ended("popular", QueryFailed("no", why="a reason"))
    telling.look()
    telling.look()
    told = [(row["level"], row["query"], row["text"]) for row in ring(channels, "events").newest()]
    assert told == [
        ("info", "popular", "started"),
        ("info", "popular", "the first batch is done"),
        ("warning", "popular", "the first late rows were dropped (3)"),
        ("warning", None, "source posts: the first dead letters (2)"),
        ("error", "popular", "failed: no; a reason"),
    ]
