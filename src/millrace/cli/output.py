"""What the terminal shows: tables for people, JSON for programs, errors for both."""

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

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that steer a terminal or turn the direction of writing; tabs and ends of lines are none."""
WIDE = 250
"""Columns when the output goes to a file or a program: nothing is cut."""


@cache
def out() -> Console:
    """Standard output."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)


@cache
def err() -> Console:
    """Standard error: progress, summaries and errors, so that standard output holds only results."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else WIDE)


def say(text: str) -> None:
    """One line for the user, not part of the result."""
    err().print(without_controls(without_passwords(text)), markup=False, soft_wrap=True)


def without_controls(text: str) -> str:
    """Text that cannot steer the terminal it is shown on: it may come from a record that anybody wrote."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def show_error(error: MillraceError) -> None:
    """An error, its first line in red."""
    first, *rest = map(without_controls, error.lines())
    console = err()
    console.print(first, style="bold red", markup=False, soft_wrap=True)
    for line in rest:
        console.print(line, markup=False, soft_wrap=True)


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """A time in which whoever reads standard output may have had enough (`| head`): an end, not a failure."""
    try:
        yield
    except BrokenPipeError:
        sys.stdout = None  # nothing more can be printed, nor flushed at the end


def delivered_line(delivered: int, failed: int, seconds: float) -> str:
    """What became of records, in one line."""
    rate = delivered / seconds if seconds else 0.0
    return f"{delivered:,} delivered, {failed:,} failed, in {format_duration(seconds)} ({rate:,.0f} records/s)"


def show_json(value: object) -> None:
    """A value as JSON; dataclasses become objects."""
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    sys.stdout.buffer.write(orjson.dumps(value, default=str, option=options))
    sys.stdout.buffer.flush()


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """Rows under headings; numbers stand at the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    kept = [list(row) for row in rows]
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for number, column in enumerate(columns):
        numeric = bool(kept) and all(isinstance(row[number], int | float) or row[number] is None for row in kept)
        table.add_column(Text(without_controls(column)), justify="right" if numeric else "left", overflow="fold")
    for row in kept:
        table.add_row(*(value if isinstance(value, Text) else Text(without_controls(_cell(value))) for value in row))
    out().print(table)


def show_rows(columns: Mapping[str, str], rows: Iterable[Sequence[Any]], *, as_json: bool) -> None:
    """Rows as a table, or as JSON objects; `columns` gives the heading of each key."""
    if as_json:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        show_table(tuple(columns.values()), rows)


@contextmanager
def progress_line(*, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A figure that is renewed a few times a second on a terminal, and not shown elsewhere."""
    console = err()
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    last = 0.0
    with console.status("") as status:

        def renew(text: str) -> None:
            nonlocal last
            if time.monotonic() - last > 0.1:
                last = time.monotonic()
                status.update(text)

        yield renew


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """A line that says what is being waited for: replaced on a terminal, one after the other elsewhere."""
    console = err()
    if not console.is_terminal:
        yield say
        return
    with console.status("") as status:
        yield lambda text: status.update(f"{text} …")


@contextmanager
def fetching() -> Iterator[Progress]:
    """A progress bar that appears when jars are being fetched, and only then."""
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
        return ",".join(str(one) for one in value)
    return str(value)
