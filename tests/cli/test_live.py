"""What the terminal shows of a board: a picture where there is one, plain lines elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from millrace.cli import output
from millrace.cli.live import Teller, live, picture
from millrace.errors import QueryFailed
from millrace.telemetry.board import Board, Phase, Restart
from millrace.telemetry.progress import Progress, SourceProgress

AT = datetime(2026, 1, 1, tzinfo=UTC)


def batch(number: int) -> Progress:
    source = SourceProgress("KafkaV2[Subscribe[posts]]", 10, lag=7)
    return Progress(
        "popular", "run", number, AT, 10, 1.0, 1234.0, {"addBatch": 3}, 345, AT, 6, 100, 2, (source,), "console", 1
    )


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each plain line."""
    lines: list[str] = []
    monkeypatch.setattr("millrace.cli.live.say", lines.append)
    return lines


def shown(board: Board) -> str:
    from rich.console import Console

    console = Console(width=160, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    with console.file:
        console.print(picture(board))
        return console.export_text()


def test_the_picture_has_every_figure() -> None:
    board = Board()
    assert shown(board).strip() == ""
    board.started("popular")
    board.told("popular", Phase.RUNNING)
    board.progressed(batch(0))
    board.buried("posts", 3)
    text = shown(board)
    for figure in ("popular", "running", "1,234", "345", "7", "2026-01-01 00:00:00", "6", "2", "dead letters: posts 3"):
        assert figure in text


def test_the_picture_shows_why_a_query_failed() -> None:
    board = Board()
    board.started("popular")
    board.ended("popular", QueryFailed("the sink refused"))
    assert "error[query.failed]: the sink refused" in shown(board)


def test_a_restart_is_one_sentence(said: list[str]) -> None:
    board = Board()
    teller = Teller(board)
    board.started("popular")
    teller.tell(0)
    due = datetime.now(UTC) + timedelta(seconds=3.5)
    board.restarting("popular", QueryFailed("no broker answers"), Restart(2, 5, due, "Kafka does not answer"))
    teller.tell(1)
    assert "popular: restarting in 4 s (2 of 5): Kafka does not answer" in shown(board)
    teller.tell(2)
    board.started("popular")
    teller.tell(3)
    board.told("popular", Phase.WAITING)
    teller.tell(4)
    assert said == [
        "popular: started",
        "popular: restarting in 4 s (2 of 5): Kafka does not answer",
        "popular: started again",
        "popular: works again",
    ]


def test_lines_at_the_start_at_the_end_and_now_and_then(said: list[str]) -> None:
    board = Board()
    teller = Teller(board, every=5)
    teller.tell(0)
    assert said == []
    board.started("popular")
    teller.tell(0)
    assert said == ["popular: started"]
    board.told("popular", Phase.RUNNING)
    board.progressed(batch(0))
    teller.tell(1)
    assert len(said) == 1
    teller.tell(6)
    figures = "rows/s 1,234, batch ms 345, lag 7, watermark 2026-01-01 00:00:00, state rows 6, late 2"
    assert said[1:] == [f"popular: running, 10 rows in 1 batch, {figures}"]
    teller.tell(20)
    assert len(said) == 2  # no news
    board.ended("popular")
    teller.tell(21)
    teller.tell(22)
    assert said[2:] == ["popular: stopped after 10 rows in 1 batch"]


def test_a_query_that_is_over_before_it_was_seen(said: list[str]) -> None:
    board = Board()
    board.started("popular")
    board.ended("popular", QueryFailed("no"))
    with live(board):
        pass
    assert said == ["popular: started", "popular: failed after 0 rows in 0 batches: no"]


def test_without_a_terminal_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    output.err.cache_clear()
    board = Board()
    with live(board):
        board.started("popular")
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "popular: started\n")


PROGRAM = """
from millrace.cli.live import live
from millrace.telemetry.board import Board
board = Board()
with live(board):
    board.started("popular")
    for number in range(3):
        print(f"row {number}")
"""


@pytest.mark.parametrize("piped", [False, True])
def test_on_a_terminal_rows_stay_whole_and_results_go_where_they_are_sent(piped: bool) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=theirs,
        stdout=subprocess.PIPE if piped else theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    ) as program:
        os.close(theirs)
        screen = b""
        try:
            while data := os.read(ours, 65536):
                screen += data
        except OSError:
            pass  # Linux tells the end of a terminal so
        result = program.stdout.read() if program.stdout else screen
        assert program.wait() == 0
    os.close(ours)
    plain = re.sub(rb"\x1b\[[\d;?]*[A-Za-z]|\r", b"", result)
    assert re.findall(rb"^row \d$", plain, re.MULTILINE) == [b"row 0", b"row 1", b"row 2"]
    assert b"popular" in screen
    assert not piped or b"row" not in screen.replace(b"rows/s", b"").replace(b"state rows", b"")
