"""The windows of event time of a query, and which records are late for them.

- `EventTimeWindow` is one: of a fixed length, sliding, or a session.
- `event_time_windows` finds those of a query in its SQL and its Python.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from millrace.errors import InputError
from millrace.pipeline.analysis.pipeline import analyse
from millrace.pipeline.model import PipelineDef, TableDef
from millrace.pipeline.python_source import called_name, function_tree
from millrace.pipeline.spark_intervals import duration_us
from millrace.pipeline.sql import call_of, parsed

_WINDOWS = ("window", "session_window")


@dataclass(frozen=True)
class EventTimeWindow:
    """A window that is dropped when the watermark reaches its end; all in microseconds."""

    length_us: int
    slide_us: int = 0
    """From one window to the next; 0 for a session, which begins with its record."""
    start_us: int = 0

    def late_before(self, watermark_us: int) -> int:
        """Return the event time from which on a record is in time: an older one has a window that is over."""
        if not self.slide_us:
            return watermark_us - self.length_us + 1
        origin = self.start_us + self.length_us
        return (watermark_us - origin) // self.slide_us * self.slide_us + origin


def late_before(windows: Collection[EventTimeWindow], watermark_us: int) -> int:
    """Return the event time before which records are late for one of the windows, or without any for the watermark."""
    return max((window.late_before(watermark_us) for window in windows), default=watermark_us + 1)


def event_time_windows(pipeline: PipelineDef, table: str) -> tuple[EventTimeWindow, ...] | None:
    """Return the windows of the query of a table; None if there may be others than those that can be read."""
    if pipeline.source(table):
        return ()
    windows: list[EventTimeWindow] = []
    try:
        if analyse(pipeline)[table.lower()].opaque:
            return None
        for upstream in pipeline.upstream(table):
            if found := pipeline.table(upstream):
                windows += [_window(name, texts) for name, texts in _calls(found)]
    except (InputError, _UnreadError):
        return None
    return tuple(dict.fromkeys(windows))


class _UnreadError(Exception):
    """A window whose durations are not written as texts."""


def _window(name: str, texts: list[str]) -> EventTimeWindow:
    length, *others = map(duration_us, texts)
    if name == "session_window":
        return EventTimeWindow(length)
    return EventTimeWindow(length, *(others or [length]))


def _calls(table: TableDef) -> Iterator[tuple[str, list[str]]]:
    """Yield the calls that make windows, with their durations."""
    if table.sql is not None:
        from sqlglot import exp

        for node in parsed(table.sql).walk():
            if (call := call_of(node)) and call.name.lower() in _WINDOWS:
                durations = node.expressions[1:]
                if not durations or not all(isinstance(part, exp.Literal) and part.is_string for part in durations):
                    raise _UnreadError
                yield call.name.lower(), [part.name for part in durations]
    elif table.function is not None:
        tree = function_tree(table.function)
        if tree is None:
            raise _UnreadError
        for called in ast.walk(tree):
            if isinstance(called, ast.Call) and (name := called_name(called)) in _WINDOWS:
                texts = [part.value for part in called.args[1:] if isinstance(part, ast.Constant)]
                if not texts or called.keywords or len(texts) + 1 != len(called.args):
                    raise _UnreadError
                yield name, [str(text) for text in texts]
