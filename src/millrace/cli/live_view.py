"""The terminal's view of a run status: a table that is renewed in place, or plain lines where there is no terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from millrace.cli.output import err, say
from millrace.telemetry.measurements import OverdueAnswer, answer_change
from millrace.telemetry.query_status import Phase, QueryStatus, RunStatus
from millrace.units import format_count, format_duration

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from millrace.telemetry.channels import Channels

Figures = Callable[[], Sequence[Mapping[str, Any]]]
"""What is known of each query, as `/api/state` has it."""
EVERY = 5.0
"""Seconds between two plain lines of a query."""
_LOOK = 0.25
_COLOURS = {
    Phase.RUNNING: "green",
    Phase.WAITING: "cyan",
    Phase.RESTARTING: "bold yellow",
    Phase.FAILED: "bold red",
}
_LEFT = ("query", "state", "watermark")
_COLUMNS = ("rows/s", "batch ms", "delay ms", "lag", "behind", "watermark", "state rows", "late")
_CLASSIC = "delay ms"
"""Only DStreams have one."""
_UNKNOWN = "–"
_NOTHING = (_UNKNOWN, "0", "0 ms")


def of_page(channels: Channels) -> Figures:
    """The figures that the page shows: lag and rates as Kafka tells them, where it does."""
    return lambda: (channels.slot("state").value or {}).get("queries", ())


def of_board(run_status: RunStatus) -> Figures:
    """The figures of a run without a page: what Spark tells."""
    from millrace.telemetry.measurements import Measurements
    from millrace.telemetry.metrics import run_state
    from millrace.telemetry.topology import UNPLANNED

    nothing = Measurements()

    def figures() -> Sequence[Mapping[str, Any]]:
        found: list[dict[str, Any]] = run_state(run_status, nothing, UNPLANNED)["queries"]
        return found

    return figures


@contextmanager
def live(run_status: RunStatus, figures: Figures | None = None) -> Iterator[None]:
    """Show a run status for the time of a block, on standard error."""
    known = figures or of_board(run_status)
    with _picture(run_status, known) if err().is_terminal else _lines(run_status, known):
        yield


@contextmanager
def _picture(run_status: RunStatus, figures: Figures) -> Iterator[None]:
    from rich.live import Live

    # What is printed meanwhile goes above the picture, unless standard output is not this terminal.
    shown = Live(
        get_renderable=lambda: picture(run_status, figures),
        console=err(),
        refresh_per_second=4,
        redirect_stdout=sys.stdout.isatty(),
        vertical_overflow="visible",
    )
    with shown:
        yield


def picture(run_status: RunStatus, figures: Figures) -> RenderableType:
    """The table, and below it the dead letters and the newest errors."""
    from rich.console import Group
    from rich.text import Text

    queries = run_status.queries()
    if not queries:
        return Text("")
    dead = ", ".join(f"{source} {count:,}" for source, count in run_status.dead().items() if count)
    below = [Text(f"dead letters: {dead}", style="yellow")] if dead else []
    missing = run_status.kafka.missing()
    below += [Text(f"{missing}; the run waits for it", style="yellow")] if missing else []
    now = datetime.now(UTC)
    below += [Text(f"{one.query}: {one.restart.sentence(now)}", style="yellow") for one in queries if one.restart]
    below += [Text(f"{one.query}: {one.error.lines()[0]}", style="red") for one in queries if one.error]
    return Group(_table(queries, _by_name(figures)), *below)


def _table(queries: tuple[QueryStatus, ...], figures: Mapping[str, Mapping[str, Any]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    delayed = any(one.get("delay_ms") is not None for one in figures.values())
    columns = [column for column in _COLUMNS if delayed or column != _CLASSIC]
    for column in ("query", "state", *columns):
        table.add_column(column, justify="left" if column in _LEFT else "right", no_wrap=True)
    for one in queries:
        cells = (Text(one.query), Text(one.phase, style=_COLOURS.get(one.phase, "")))
        texts = _texts(figures.get(one.query, {}))
        table.add_row(*cells, *(Text(texts[column]) for column in columns))
    return table


def _by_name(figures: Figures) -> dict[str, Mapping[str, Any]]:
    return {one["name"]: one for one in figures()}


def _texts(known: Mapping[str, Any]) -> dict[str, str]:
    """What is known of a query, as text."""
    rate, seconds, watermark = known.get("in_rate"), known.get("lag_seconds"), known.get("watermark")
    moment = None if watermark is None else datetime.fromtimestamp(watermark / 1000, UTC)
    return {
        "rows/s": _UNKNOWN if rate is None else f"{rate:,.1f}" if 0 < rate < 10 else f"{rate:,.0f}",
        "batch ms": _count(known.get("batch_ms")),
        "delay ms": _count(known.get("delay_ms")),
        "lag": _count(known.get("lag")),
        "behind": _UNKNOWN if seconds is None else format_duration(seconds),
        "watermark": f"{moment:%Y-%m-%d %H:%M:%S}" if moment else _UNKNOWN,
        "state rows": _count(known.get("state_rows") or None),
        "late": _count(known.get("late")),
    }


def _count(number: int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}"


@contextmanager
def _lines(run_status: RunStatus, figures: Figures) -> Iterator[None]:
    teller, stop = PlainReporter(run_status, figures), threading.Event()

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


class PlainReporter:
    """Plain lines about a run status: when a query starts or ends, and every few seconds while it has news."""

    def __init__(self, run_status: RunStatus, figures: Figures, every: float = EVERY) -> None:
        self._run_status = run_status
        self._figures = figures
        self._every = every
        self._known: dict[str, QueryStatus] = {}
        self._told: dict[str, tuple[float, str]] = {}
        self._missing: OverdueAnswer | None = None

    def tell(self, now: float) -> None:
        """Say what is worth a line."""
        for one in self._run_status.queries():
            for line in self._lines(one, self._known.get(one.query), now):
                say(line)
            self._known[one.query] = one
        missing = self._run_status.kafka.missing()
        if news := answer_change(self._missing, missing):
            say(news)
        self._missing = missing

    def _lines(self, one: QueryStatus, before: QueryStatus | None, now: float) -> Iterator[str]:
        anew = before is None or before.since != one.since
        if anew:
            self._told[one.query] = (now, _said(one, {}))
            yield f"{one.query}: started{' again' if one.restarts else ''}"
        if one.restart and (before is None or before.restarts != one.restarts):
            yield f"{one.query}: {one.restart.sentence(datetime.now(UTC))}"
        if before and before.restart and not one.restart and not one.phase.ended:
            yield f"{one.query}: works again"
        if one.error and not one.phase.idle and not (before and one.error is before.error):
            yield f"{one.query}: a batch failed: {one.error.message}"
        if one.phase.ended and (anew or (before and not before.phase.ended)):
            yield _ending(one)
        when, last = self._told[one.query]
        if one.phase.idle or now - when < self._every:
            return
        said = _said(one, _by_name(self._figures).get(one.query, {}))
        # A query in real-time mode seldom ends a batch; its rate and lag are news.
        if said != last:
            self._told[one.query] = (now, said)
            yield f"{one.query}: {one.phase}, {said}"


def _ending(one: QueryStatus) -> str:
    if one.error is None:
        left = f"; {one.doing}" if one.doing else ""
        return f"{one.query}: stopped after {_done(one)}{left}"
    return f"{one.query}: failed after {_done(one)}: {one.error.message}"


def _done(one: QueryStatus) -> str:
    return f"{format_count(one.rows, 'row')} in {format_count(one.batches, 'batch')}"


def _said(one: QueryStatus, known: Mapping[str, Any]) -> str:
    figures = "".join(f", {name} {value}" for name, value in _texts(known).items() if value not in _NOTHING)
    return f"{_done(one)}{figures}"
