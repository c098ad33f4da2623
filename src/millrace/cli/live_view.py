"""The status of a run on the terminal.

- `live` shows a table that is updated in place, or plain lines where there is no terminal (`PlainReporter`).
- Figures come from the dashboard (`dashboard_figures`) or, without one, from Spark alone (`status_figures`).
- `drawn` and `repeating` do it for any picture and any action.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from millrace.cli.output import err, print_line
from millrace.telemetry.measurements import OverdueAnswer, answer_change
from millrace.telemetry.query_status import Phase, QueryStatus, RunStatus
from millrace.units import format_count, format_duration

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from millrace.telemetry.channels import Channels

Figures = Callable[[], Sequence[Mapping[str, Any]]]
"""The figures of each query, as in `/api/state`."""
PRINT_INTERVAL_S = 5.0
"""Between two plain lines of a query."""
_POLL_INTERVAL_S = 0.25
_COLOURS = {Phase.RUNNING: "green", Phase.WAITING: "cyan", Phase.RESTARTING: "bold yellow", Phase.FAILED: "bold red"}
_LEFT_ALIGNED = ("query", "state", "watermark")
_COLUMNS = ("rows/s", "batch ms", "delay ms", "lag", "behind", "watermark", "state rows", "late")
_DSTREAMS_COLUMN = "delay ms"
_UNKNOWN = "–"
_OMITTED = (_UNKNOWN, "0", "0 ms")


def dashboard_figures(channels: Channels) -> Figures:
    """Return the figures of the dashboard, with lag and rates from Kafka."""
    return lambda: (channels.slot("state").value or {}).get("queries", ())


def status_figures(run_status: RunStatus) -> Figures:
    """Return the figures of a run without a dashboard, which come from Spark alone."""
    from millrace.telemetry.measurements import Measurements
    from millrace.telemetry.metrics import run_state
    from millrace.telemetry.topology import UNPLANNED

    no_measurements = Measurements()
    return lambda: run_state(run_status, no_measurements, UNPLANNED)["queries"]


@contextmanager
def live(run_status: RunStatus, figures: Figures | None = None) -> Iterator[None]:
    """Show the status of a run on standard error while the block runs."""
    figures = figures or status_figures(run_status)
    if err().is_terminal:
        with drawn(lambda: picture(run_status, figures), updates_per_second=4):
            yield
    else:
        reporter = PlainReporter(run_status, figures)
        with repeating(lambda: reporter.report(time.monotonic()), _POLL_INTERVAL_S, "live"):
            yield


def drawn(draw: Callable[[], RenderableType], updates_per_second: float) -> AbstractContextManager[Any]:
    """Draw a picture in place on the terminal while the block runs."""
    from rich.live import Live

    # Other output is printed above the picture, unless standard output is not this terminal.
    return Live(
        get_renderable=draw,
        console=err(),
        refresh_per_second=updates_per_second,
        redirect_stdout=sys.stdout.isatty(),
        vertical_overflow="visible",
    )


@contextmanager
def repeating(action: Callable[[], None], interval_s: float, thread_name: str) -> Iterator[None]:
    """Repeat an action in a thread while the block runs, and call it once more at the end."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.wait(interval_s):
            action()

    thread = threading.Thread(target=repeat, name=thread_name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        action()


def picture(run_status: RunStatus, figures: Figures) -> RenderableType:
    """Return a table, and below it the dead letters and the newest errors."""
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
    restarts = [(query.query, query.restart) for query in queries if query.restart]
    below += [Text(f"{name}: {restart.sentence(now)}", style="yellow") for name, restart in restarts]
    below += [Text(f"{query.query}: {query.error.lines()[0]}", style="red") for query in queries if query.error]
    return Group(_table(queries, _by_name(figures)), *below)


def _table(queries: tuple[QueryStatus, ...], figures: Mapping[str, Mapping[str, Any]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    delayed = any(query.get("delay_ms") is not None for query in figures.values())
    columns = [column for column in _COLUMNS if delayed or column != _DSTREAMS_COLUMN]
    for column in ("query", "state", *columns):
        table.add_column(column, justify="left" if column in _LEFT_ALIGNED else "right", no_wrap=True)
    for query in queries:
        cells = (Text(query.query), Text(query.phase, style=_COLOURS.get(query.phase, "")))
        texts = _texts(figures.get(query.query, {}))
        table.add_row(*cells, *(Text(texts[column]) for column in columns))
    return table


def _by_name(figures: Figures) -> dict[str, Mapping[str, Any]]:
    return {query["name"]: query for query in figures()}


def _texts(figures: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures of a query as text, by column."""
    rate, seconds, watermark = figures.get("in_rate"), figures.get("lag_seconds"), figures.get("watermark")
    moment = None if watermark is None else datetime.fromtimestamp(watermark / 1000, UTC)
    return {
        "rows/s": _UNKNOWN if rate is None else f"{rate:,.1f}" if 0 < rate < 10 else f"{rate:,.0f}",
        "batch ms": _count(figures.get("batch_ms")),
        "delay ms": _count(figures.get("delay_ms")),
        "lag": _count(figures.get("lag")),
        "behind": _UNKNOWN if seconds is None else format_duration(seconds),
        "watermark": f"{moment:%Y-%m-%d %H:%M:%S}" if moment else _UNKNOWN,
        "state rows": _count(figures.get("state_rows") or None),
        "late": _count(figures.get("late")),
    }


def _count(number: int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}"


class PlainReporter:
    """Print plain lines about a run: when a query starts or ends, and every few seconds when its figures change."""

    def __init__(self, run_status: RunStatus, figures: Figures, interval_s: float = PRINT_INTERVAL_S) -> None:
        self._run_status = run_status
        self._figures = figures
        self._interval_s = interval_s
        self._before: dict[str, QueryStatus] = {}
        self._printed: dict[str, tuple[float, str]] = {}
        self._missing: OverdueAnswer | None = None

    def report(self, now: float) -> None:
        """Print what has changed."""
        for query in self._run_status.queries():
            for line in self._lines(query, self._before.get(query.query), now):
                print_line(line)
            self._before[query.query] = query
        missing = self._run_status.kafka.missing()
        if news := answer_change(self._missing, missing):
            print_line(news)
        self._missing = missing

    def _lines(self, query: QueryStatus, before: QueryStatus | None, now: float) -> Iterator[str]:
        name = query.query
        is_new = before is None or before.since != query.since
        if is_new:
            self._printed[name] = (now, _summary(query, {}))
            yield f"{name}: started{' again' if query.restarts else ''}"
        if query.restart and (before is None or before.restarts != query.restarts):
            yield f"{name}: {query.restart.sentence(datetime.now(UTC))}"
        if before and before.restart and not query.restart and not query.phase.ended:
            yield f"{name}: works again"
        if query.error and not query.phase.idle and not (before and query.error is before.error):
            yield f"{name}: a batch failed: {query.error.message}"
        if query.phase.ended and (is_new or (before and not before.phase.ended)):
            yield _end(query)
        when, last = self._printed[name]
        if query.phase.idle or now - when < self._interval_s:
            return
        summary = _summary(query, _by_name(self._figures).get(name, {}))
        # A query in real-time mode seldom ends a batch; its rate and lag are news.
        if summary != last:
            self._printed[name] = (now, summary)
            yield f"{name}: {query.phase}, {summary}"


def _end(query: QueryStatus) -> str:
    if query.error is None:
        left = f"; {query.doing}" if query.doing else ""
        return f"{query.query}: stopped after {_done(query)}{left}"
    return f"{query.query}: failed after {_done(query)}: {query.error.message}"


def _done(query: QueryStatus) -> str:
    return f"{format_count(query.rows, 'row')} in {format_count(query.batches, 'batch')}"


def _summary(query: QueryStatus, figures: Mapping[str, Any]) -> str:
    shown = "".join(f", {name} {value}" for name, value in _texts(figures).items() if value not in _OMITTED)
    return f"{_done(query)}{shown}"
