"""Output of commands: tables for people, JSON for programs, errors for both.

- Results go to standard output (`print_result`, `show_table`, `show_json`), everything else to standard error.
- Text that comes from records or files cannot control the terminal (`without_controls`).
- `progress_line`, `status_line` and `fetching` show progress, on a terminal in place.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from millrace.masking import without_passwords
from millrace.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console

    from millrace.errors import MillraceError
    from millrace.services.jars import Progress
    from millrace.telemetry.query_status import RunStatus

CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal or change the direction of text; tabs and line ends are not among them."""
_UPDATE_INTERVAL_S = 0.1
_COLUMNS_WITHOUT_TERMINAL = 250
"""Output to a file or a program is not cut."""


@cache
def out() -> Console:
    """Return the console for standard output."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _COLUMNS_WITHOUT_TERMINAL)


@cache
def err() -> Console:
    """Return the console for standard error: progress, summaries and errors."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else _COLUMNS_WITHOUT_TERMINAL)


def print_line(text: str) -> None:
    """Print a line for the user that is not part of the result."""
    err().print(without_controls(without_passwords(text)), markup=False, soft_wrap=True)


def print_summary(run_status: RunStatus) -> None:
    """Print what a run has done, and what of it needs attention."""
    for line in (run_status.summary(), *(f"warning: {warning}" for warning in run_status.warnings())):
        print_line(line)


def print_result(text: str, *, style: str | None = None, end: str = "\n") -> None:
    """Print text of the result as it is."""
    out().print(text, style=style, markup=False, highlight=False, soft_wrap=True, end=end)


def without_controls(text: str) -> str:
    """Return text that cannot control the terminal it is shown on."""
    return CONTROL_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def show_error(error: MillraceError) -> None:
    """Print an error, its first line in red."""
    first, *rest = map(without_controls, error.lines())
    console = err()
    console.print(first, style="bold red", markup=False, soft_wrap=True)
    for line in rest:
        console.print(line, markup=False, soft_wrap=True)


@contextmanager
def closed_output_allowed() -> Iterator[None]:
    """End the block without an error when the reader of standard output closes it (`| head`)."""
    try:
        yield
    except BrokenPipeError:
        sys.stdout = None  # nothing more can be printed, nor flushed at the end


def delivered_line(delivered: int, failed: int, seconds: float) -> str:
    """Return the result of a delivery in one line."""
    rate = delivered / seconds if seconds else 0.0
    return f"{delivered:,} delivered, {failed:,} failed, in {format_duration(seconds)} ({rate:,.0f} records/s)"


def show_json(value: object) -> None:
    """Print a value as JSON; dataclasses become objects."""
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    sys.stdout.buffer.write(orjson.dumps(value, default=str, option=options))
    sys.stdout.buffer.flush()


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """Print rows under headings, with numbers right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for number, column in enumerate(columns):
        numeric = bool(cells) and all(isinstance(row[number], int | float) or row[number] is None for row in cells)
        table.add_column(Text(without_controls(column)), justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(value if isinstance(value, Text) else Text(without_controls(_cell(value))) for value in row))
    out().print(table)


def show_rows(columns: Mapping[str, str], rows: Iterable[Sequence[Any]], *, as_json: bool) -> None:
    """Print rows as a table, or as JSON objects; `columns` gives the heading of each key."""
    if as_json:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        show_table(tuple(columns.values()), rows)


@contextmanager
def progress_line(*, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield what updates a line on the terminal, at most ten times a second; elsewhere nothing is shown."""
    console = err()
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    last = 0.0
    with console.status("") as status:

        def update(text: str) -> None:
            nonlocal last
            if time.monotonic() - last > _UPDATE_INTERVAL_S:
                last = time.monotonic()
                status.update(text)

        yield update


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Yield what prints the current step: in place on a terminal, one line after the other elsewhere."""
    console = err()
    if not console.is_terminal:
        yield print_line
        return
    with console.status("") as status:
        yield lambda text: status.update(f"{text} …")


@contextmanager
def fetching() -> Iterator[Progress]:
    """Yield what shows a progress bar for jars; nothing is shown unless jars are fetched."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("fetching jars"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[artifact]}"),
        console=err(),
    )
    task = bar.add_task("fetching", artifact="", start=False)

    def progress(arrived: int, total: int, artifact: str) -> None:
        if not bar.live.is_started:
            bar.start()
            bar.start_task(task)
        bar.update(task, completed=arrived, total=total, artifact=artifact)

    try:
        yield progress
    finally:
        if bar.live.is_started:
            bar.stop()


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return str(value)
