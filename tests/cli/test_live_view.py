"""What the terminal shows of a run: a picture where there is one, plain lines elsewhere."""

from __future__ import annotations

import os
import re
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from millrace.cli import output
from millrace.cli.live_view import Figures, PlainReporter, dashboard_figures, live, picture, status_figures
from millrace.errors import QueryFailed
from millrace.telemetry.channels import Channels
from millrace.telemetry.measurements import Lag, Measurements
from millrace.telemetry.progress import BatchProgress, SourceProgress
from millrace.telemetry.publisher import StatusPublisher
from millrace.telemetry.query_status import Phase, RestartRecord, RunStatus
from millrace.telemetry.topology import ExpectedQuery, Topology
from terminal import at_a_terminal

AT = datetime(2026, 1, 1, tzinfo=UTC)


def batch(number: int) -> BatchProgress:
    source = SourceProgress("KafkaV2[Subscribe[posts]]", 10, lag=7)
    return BatchProgress(
        query="popular",
        run="run",
        batch=number,
        at=AT,
        input_rows=10,
        input_rate=1.0,
        rate=1234.0,
        durations={"addBatch": 3},
        milliseconds=345,
        watermark=AT,
        state_rows=6,
        state_bytes=100,
        late_rows=2,
        sources=(source,),
        sink="console",
        sink_rows=1,
    )


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each plain line."""
    lines: list[str] = []
    monkeypatch.setattr("millrace.cli.live_view.print_line", lines.append)
    return lines


def measured(*queries: dict[str, Any]) -> Figures:
    """Figures as the page has them."""
    return lambda: queries


POPULAR = {
    "name": "popular",
    "in_rate": 1234.0,
    "batch_ms": 345,
    "lag": 7,
    "lag_seconds": 1.25,
    "watermark": round(AT.timestamp() * 1000),
    "state_rows": 6,
    "late": 2,
}


def shown(run_status: RunStatus, figures: Figures | None = None) -> str:
    from rich.console import Console

    console = Console(width=160, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    with console.file:
        console.print(picture(run_status, figures or status_figures(run_status)))
        return console.export_text()


def test_the_picture_has_every_figure() -> None:
    run_status = RunStatus()
    assert shown(run_status).strip() == ""
    run_status.started("popular")
    run_status.update("popular", Phase.RUNNING)
    run_status.batch_done(batch(0))
    run_status.set_dead_letters("posts", 3)
    text = shown(run_status, measured(POPULAR))
    for figure in ("popular", "running", "1,234", "345", "7", "1.2 s", "2026-01-01 00:00:00", "6", "2"):
        assert figure in text
    assert "dead letters: posts 3" in text


def test_without_a_page_the_figures_are_sparks() -> None:
    run_status = RunStatus()
    run_status.started("popular")
    run_status.batch_done(batch(0))
    (told,) = status_figures(run_status)()
    assert (told["lag"], told["lag_seconds"], told["batch_ms"], told["late"]) == (7, None, 345, 2)
    assert " 7 " in shown(run_status)


def test_with_a_page_the_figures_are_the_pages() -> None:
    run_status, channels, measurements = RunStatus(), Channels(), Measurements()
    topology = Topology(
        (ExpectedQuery("popular", "popular", batches=False, sources=("posts",)),), (), {"posts": ("posts",)}
    )
    telling = StatusPublisher(run_status, measurements, topology, channels)
    assert dashboard_figures(channels)() == ()
    run_status.started("popular")  # in real-time mode no batch ends for minutes
    measurements.put_lag("popular", Lag(12, 3.5))
    measurements.put_rates({"posts": 8.0})
    telling.look()
    text = shown(run_status, dashboard_figures(channels))
    assert re.search(r"8\.0 +– +12 +3\.5 s", text), text


def test_the_picture_shows_why_a_query_failed() -> None:
    run_status = RunStatus()
    run_status.started("popular")
    run_status.ended("popular", QueryFailed("the sink refused"))
    assert "error[query.failed]: the sink refused" in shown(run_status)


def test_a_kafka_that_does_not_answer_is_said_once_and_that_it_is_back(said: list[str]) -> None:
    run_status = RunStatus()
    run_status.started("popular")
    reporter = PlainReporter(run_status, status_figures(run_status))
    reporter.report(0)
    run_status.kafka.asked("here:9092", time.monotonic() - 12)
    reporter.report(1)
    reporter.report(2)
    assert "Kafka at here:9092 has not answered for 12 s; the run waits for it" in shown(run_status)
    run_status.kafka.came()
    reporter.report(3)
    assert said[1:] == [
        "Kafka at here:9092 does not answer; the run waits for it",
        "Kafka at here:9092 answers again",
    ]


def test_a_restart_is_one_sentence(said: list[str]) -> None:
    run_status = RunStatus()
    reporter = PlainReporter(run_status, status_figures(run_status))
    run_status.started("popular")
    reporter.report(0)
    due = datetime.now(UTC) + timedelta(seconds=3.5)
    run_status.restarting(
        "popular", QueryFailed("no broker answers"), RestartRecord(2, 5, due, "Kafka does not answer")
    )
    reporter.report(1)
    assert "popular: restarting in 4 s (2 of 5): Kafka does not answer" in shown(run_status)
    reporter.report(2)
    run_status.started("popular")
    reporter.report(3)
    run_status.update("popular", Phase.WAITING)
    reporter.report(4)
    assert said == [
        "popular: started",
        "popular: restarting in 4 s (2 of 5): Kafka does not answer",
        "popular: started again",
        "popular: works again",
    ]


def test_lines_at_the_start_at_the_end_and_now_and_then(said: list[str]) -> None:
    run_status = RunStatus()
    reporter = PlainReporter(run_status, measured(POPULAR), interval_s=5)
    reporter.report(0)
    assert said == []
    run_status.started("popular")
    reporter.report(0)
    assert said == ["popular: started"]
    run_status.update("popular", Phase.RUNNING)
    run_status.batch_done(batch(0))
    reporter.report(1)
    assert len(said) == 1
    reporter.report(6)
    figures = "rows/s 1,234, batch ms 345, lag 7, behind 1.2 s, watermark 2026-01-01 00:00:00, state rows 6, late 2"
    assert said[1:] == [f"popular: running, 10 rows in 1 batch, {figures}"]
    reporter.report(20)
    assert len(said) == 2  # no news
    run_status.ended("popular")
    reporter.report(21)
    reporter.report(22)
    assert said[2:] == ["popular: stopped after 10 rows in 1 batch"]


def test_what_a_query_left_undone_is_told_with_its_end(said: list[str]) -> None:
    run_status = RunStatus()
    run_status.started("dstreams")
    run_status.ended("dstreams", None, "the batches in hand were cut off")
    PlainReporter(run_status, status_figures(run_status)).report(0)
    assert said[-1] == "dstreams: stopped after 0 rows in 0 batches; the batches in hand were cut off"


def test_a_query_that_ends_no_batch_has_news_too(said: list[str]) -> None:
    run_status = RunStatus()
    run_status.started("popular")
    run_status.update("popular", Phase.RUNNING)
    lag = {"name": "popular", "lag": 0, "lag_seconds": 0.0}
    reporter = PlainReporter(run_status, lambda: [lag], interval_s=5)
    for moment in (0, 6, 12):
        reporter.report(moment)
    assert said == ["popular: started"]
    lag |= {"lag": 5, "lag_seconds": 0.25}
    reporter.report(18)
    assert said[1:] == ["popular: running, 0 rows in 0 batches, lag 5, behind 250 ms"]


def test_a_query_that_is_over_before_it_was_seen(said: list[str]) -> None:
    run_status = RunStatus()
    run_status.started("popular")
    run_status.ended("popular", QueryFailed("no"))
    with live(run_status):
        pass
    assert said == ["popular: started", "popular: failed after 0 rows in 0 batches: no"]


def test_without_a_terminal_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    output.err.cache_clear()
    run_status = RunStatus()
    with live(run_status):
        run_status.started("popular")
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "popular: started\n")


PROGRAM = """
from millrace.cli.live_view import live
from millrace.telemetry.query_status import RunStatus
run_status = RunStatus()
with live(run_status):
    run_status.started("popular")
    for number in range(3):
        print(f"row {number}")
"""


@pytest.mark.parametrize("piped", [False, True])
def test_on_a_terminal_rows_stay_whole_and_results_go_where_they_are_sent(piped: bool) -> None:
    command = [sys.executable, "-c", PROGRAM]
    screen, result = at_a_terminal(command, os.environ | {"COLUMNS": "100"}, piped=piped)
    plain = re.sub(rb"\x1b\[[\d;?]*[A-Za-z]|\r", b"", result)
    assert re.findall(rb"^row \d$", plain, re.MULTILINE) == [b"row 0", b"row 1", b"row 2"]
    assert b"popular" in screen
    assert not piped or b"row" not in screen.replace(b"rows/s", b"").replace(b"state rows", b"")


def test_delays_are_shown_where_there_are_dstreams(said: list[str]) -> None:
    run_status = RunStatus()
    run_status.started("dstreams")
    run_status.update("dstreams", Phase.RUNNING)
    assert "delay" not in shown(run_status, measured({"name": "dstreams", "batch_ms": 345}))
    delayed = measured({"name": "dstreams", "batch_ms": 345, "delay_ms": 1678})
    assert "delay ms" in shown(run_status, delayed)
    assert "1,678" in shown(run_status, delayed)
    reporter = PlainReporter(run_status, delayed, interval_s=5)
    reporter.report(0)
    run_status.batch_failed("dstreams", QueryFailed("no"))
    reporter.report(6)
    reporter.report(7)
    assert said[1:] == [
        "dstreams: a batch failed: no",
        "dstreams: running, 0 rows in 0 batches, batch ms 345, delay ms 1,678",
    ]
