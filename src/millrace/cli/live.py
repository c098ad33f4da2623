"""The terminal's view of a board: a table that is renewed in place, or plain lines where there is no terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from millrace.cli.output import err, say
from millrace.telemetry.board import Board, Phase, Standing
from millrace.telemetry.progress import Progress

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

EVERY = 5.0
"""Seconds between two plain lines of a query."""
_LOOK = 0.25
_COLOURS = {
    Phase.RUNNING: "green",
    Phase.WAITING: "cyan",
    Phase.RESTARTING: "bold yellow",
    Phase.FAILED: "bold red",
}
_NUMBERS = ("rows/s", "batch ms", "lag", "state rows", "late")


@contextmanager
def live(board: Board) -> Iterator[None]:
    """Show a board for the time of a block, on standard error."""
    with _picture(board) if err().is_terminal else _lines(board):
        yield


@contextmanager
def _picture(board: Board) -> Iterator[None]:
    from rich.live import Live

    # What is printed meanwhile goes above the picture, unless standard output is not this terminal.
    shown = Live(
        get_renderable=lambda: picture(board),
        console=err(),
        refresh_per_second=4,
        redirect_stdout=sys.stdout.isatty(),
        vertical_overflow="visible",
    )
    with shown:
        yield


def picture(board: Board) -> RenderableType:
    """The table, and below it the dead letters and the newest errors."""
    from rich.console import Group
    from rich.text import Text

    queries = board.queries()
    if not queries:
        return Text("")
    dead = ", ".join(f"{source} {count:,}" for source, count in board.dead().items() if count)
    below = [Text(f"dead letters: {dead}", style="yellow")] if dead else []
    now = datetime.now(UTC)
    below += [Text(f"{one.query}: {one.restart.sentence(now)}", style="yellow") for one in queries if one.restart]
    below += [Text(f"{one.query}: {one.error.lines()[0]}", style="red") for one in queries if one.error]
    return Group(_table(queries), *below)


def _table(queries: tuple[Standing, ...]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("query", "state", "rows/s", "batch ms", "lag", "watermark", "state rows", "late"):
        table.add_column(column, justify="right" if column in _NUMBERS else "left", no_wrap=True)
    for one in queries:
        cells = (Text(one.query), Text(one.phase, style=_COLOURS.get(one.phase, "")))
        table.add_row(*cells, *map(Text, _figures(one).values()))
    return table


def _figures(standing: Standing) -> dict[str, str]:
    """What the newest batch tells, as text."""
    last = standing.last
    if last is None:
        return dict.fromkeys(("rows/s", "batch ms", "lag", "watermark", "state rows", "late"), "–")
    return {
        "rows/s": f"{last.rate:,.0f}",
        "batch ms": f"{last.milliseconds:,}",
        "lag": "–" if last.lag is None else f"{last.lag:,}",
        "watermark": f"{last.watermark:%Y-%m-%d %H:%M:%S}" if last.watermark else "–",
        "state rows": f"{last.state_rows:,}" if last.state_rows else "–",
        "late": f"{standing.late_rows:,}",
    }


@contextmanager
def _lines(board: Board) -> Iterator[None]:
    teller, stop = Teller(board), threading.Event()

    def tell() -> None:
        while not stop.wait(_LOOK):
            teller.tell(time.monotonic())

    thread = threading.Thread(target=tell, name="live", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        teller.tell(time.monotonic())


class Teller:
    """Plain lines about a board: when a query starts or ends, and every few seconds while it has news."""

    def __init__(self, board: Board, every: float = EVERY) -> None:
        self._board = board
        self._every = every
        self._known: dict[str, Standing] = {}
        self._told: dict[str, tuple[float, Progress | None]] = {}

    def tell(self, now: float) -> None:
        """Say what is worth a line."""
        for one in self._board.queries():
            for line in self._lines(one, self._known.get(one.query), now):
                say(line)
            self._known[one.query] = one

    def _lines(self, one: Standing, before: Standing | None, now: float) -> Iterator[str]:
        anew = before is None or before.since != one.since
        if anew:
            self._told[one.query] = (now, one.last)
            yield f"{one.query}: started{' again' if one.restarts else ''}"
        if one.restart and (before is None or before.restarts != one.restarts):
            yield f"{one.query}: {one.restart.sentence(datetime.now(UTC))}"
        if before and before.restart and not one.restart and not one.phase.ended:
            yield f"{one.query}: works again"
        if one.phase.ended and (anew or (before and not before.phase.ended)):
            yield _ending(one)
        when, last = self._told[one.query]
        if not one.phase.idle and one.last is not last and now - when >= self._every:
            self._told[one.query] = (now, one.last)
            yield f"{one.query}: {one.phase}, {_done(one)}{_figures_told(one)}"


def _ending(one: Standing) -> str:
    if one.error is None:
        return f"{one.query}: stopped after {_done(one)}"
    return f"{one.query}: failed after {_done(one)}: {one.error.message}"


def _done(one: Standing) -> str:
    return f"{one.rows:,} rows in {one.batches:,} batch{'' if one.batches == 1 else 'es'}"


def _figures_told(one: Standing) -> str:
    return "".join(f", {name} {value}" for name, value in _figures(one).items() if value not in ("–", "0"))
