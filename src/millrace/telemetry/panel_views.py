"""What a panel shows: rows of batches merged into one bounded view. Needs no Spark.

Each batch brings a panel at most some hundreds of rows, already chosen by Spark. In `complete` mode they are all that
there is; in `append` mode they are new; in `update` mode they are the rows that changed. The largest of the changed
rows are enough for a list of the largest when values only grow (counts, sums of what is not negative): a row that
belongs on the list either changed now, and then it is among the largest that changed, or it changed before, and then
it was taken in before. Where values shrink, a list is exact as long as no more rows change in a batch than are brought.

Lines over time, for a panel of the kind `series`: one point for each time and key, the newest ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any

Row = Sequence[Any]
Window = tuple[int, int]

MAX_LABELS = 2000
"""Labels of one window that are kept; the smallest go first, and come back when they grow."""
RECENT_BATCHES = 10
"""Batches whose newest window counts: one record from the future does not hold the view for ever."""
MAX_CELLS = 5000
MAX_TIME_COLUMNS = 120
MAX_NAMES = 40
"""Cells of a heat map that are kept, its columns when they are times, and its columns or rows otherwise."""


@dataclass(frozen=True)
class Frame:
    """The columns of a view, their types as the dashboard gets them, and the maximum number of rows."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    limit: int = 100
    key: tuple[int, ...] = ()
    """The places of the columns whose newest row replaces the one before."""
    order: int | None = None
    """The place of the column that rows are sorted by."""
    falling: bool = False


@dataclass
class View:
    """What the dashboard draws."""

    rows: list[Row]
    cut: int = 0
    window: Window | None = None
    note: str | None = None


class PanelView(ABC):
    """Takes rows in, and returns what is shown of them."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    @abstractmethod
    def take(self, rows: Sequence[Row], total: int, mode: str, /) -> None:
        """Take a batch: the rows that Spark chose of `total`, the first ones first."""

    @abstractmethod
    def view(self, now: int, /) -> View:
        """Return what is shown at a moment (milliseconds)."""


@dataclass
class WindowsView:
    """Values by window and label, and which window is open.

    In update mode every window that is not over changes. Of sliding ones the newest has only begun; what people mean
    by "the last minute" is the one that ends first of those that the newest event is in. A tumbling window is both.
    In append mode a window comes when it is over, and the newest is shown.
    """

    values: dict[Window | None, dict[Any, Any]] = field(default_factory=dict)
    newest: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT_BATCHES))
    shown: Window | None = None

    def take(self, rows: Sequence[Row], mode: str) -> None:
        """Rows of label, value, and the window's start and end (or None)."""
        if mode == "complete":
            self.values.clear()
            self.newest.clear()
        for label, value, start, end in reversed(rows):  # Spark gives the first ones first
            window = None if start is None or end is None else (start, end)
            self.values.setdefault(window, {})[label] = value
        starts = [row[2] for row in rows if row[2] is not None]
        if starts:
            self.newest.append(max(starts))
        self._choose(mode)
        for labels in self.values.values():
            _shorten(labels)

    def _choose(self, mode: str) -> None:
        windows = [window for window in self.values if window is not None]
        if not windows:
            self.shown = None
            return
        newest = max(self.newest)
        begun = [window for window in windows if window[0] <= newest] or windows
        open_windows = [window for window in begun if window[1] > newest] or begun
        self.shown = max(begun) if mode == "append" else min(open_windows, key=lambda window: (window[1], window[0]))
        for window in windows:
            if window[1] <= self.shown[0] or window[0] > newest:
                del self.values[window]

    def current(self) -> dict[Any, Any]:
        """The values of the window that is shown."""
        return self.values.get(self.shown, {})


def _shorten(labels: dict[Any, Any]) -> None:
    if len(labels) <= MAX_LABELS:
        return
    kept = nlargest(MAX_LABELS // 2, labels.items(), key=lambda item: number(item[1]))
    labels.clear()
    labels.update(kept)


def number(value: Any) -> float:
    """A value to sort by; what is no number comes last."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else float("-inf")


class _WindowedView(PanelView):
    """A view of the open window."""

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame)
        self._windows = WindowsView()


class TopView(_WindowedView):
    """The largest values by label, of the open window."""

    def take(self, rows: Sequence[Row], _total: int, mode: str) -> None:
        self._windows.take(rows, mode)

    def view(self, _now: int) -> View:
        ranked = sorted(self._windows.current().items(), key=lambda pair: (-number(pair[1]), str(pair[0])))
        rows: list[Row] = [list(pair) for pair in ranked[: self.frame.limit]]
        return View(rows, len(ranked) - len(rows), self._windows.shown)


class NumberView(_WindowedView):
    """The value of the open window, or the newest; rows are of value, start and end."""

    def take(self, rows: Sequence[Row], _total: int, mode: str) -> None:
        self._windows.take([("", *row) for row in rows], mode)

    def view(self, _now: int) -> View:
        return View([[value] for value in self._windows.current().values()], 0, self._windows.shown)


class TableView(PanelView):
    """Rows, the newest first or in their order."""

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame)
        self._rows: deque[Row] = deque(maxlen=frame.limit)
        self._keyed: dict[str, Row] = {}
        self._total = 0

    def take(self, rows: Sequence[Row], total: int, mode: str) -> None:
        """Add rows, or replace those of the same key."""
        if mode == "complete":
            self._rows.clear()
            self._keyed.clear()
            self._total = 0
        self._total += total
        if not self.frame.key:
            self._rows.extendleft(reversed(rows))
            return
        for row in reversed(rows):
            name = repr([row[index] for index in self.frame.key])
            self._keyed.pop(name, None)
            self._keyed[name] = row
        while len(self._keyed) > max(MAX_LABELS, self.frame.limit):
            del self._keyed[next(iter(self._keyed))]

    def view(self, _now: int) -> View:
        rows = list(reversed(self._keyed.values())) if self.frame.key else list(self._rows)
        order = self.frame.order
        if order is not None:
            rows.sort(key=lambda row: _sortable(row[order]), reverse=self.frame.falling)
        kept = rows[: self.frame.limit]
        return View(kept, max(0, (len(rows) if self.frame.key else self._total) - len(kept)))


def _sortable(value: Any) -> tuple[int, float, str]:
    """Numbers before text, and nothing before both."""
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, int | float):
        return (1, float(value), "")
    return (2, 0.0, str(value))


class HeatView(PanelView):
    """A grid of values."""

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame)
        self._cells: dict[tuple[Any, Any], Any] = {}
        self._dropped = 0

    def take(self, rows: Sequence[Row], _total: int, mode: str) -> None:
        """Keep the newest value of each cell, and the newest cells."""
        if mode == "complete":
            self._cells.clear()
        for x, y, value in reversed(rows):
            self._cells.pop((x, y), None)
            self._cells[(x, y)] = value
        if self.frame.types[0] == "time":
            kept = set(sorted({x for x, _ in self._cells if x is not None})[-MAX_TIME_COLUMNS:])
            self._cells = {cell: value for cell, value in self._cells.items() if cell[0] in kept}
        self._dropped = max(0, len(self._cells) - MAX_CELLS)
        for cell in list(self._cells)[: self._dropped]:
            del self._cells[cell]

    def view(self, _now: int) -> View:
        """The cells, by column and row; of too many names those with the largest sums."""
        columns = {x for x, _ in self._cells} if self.frame.types[0] == "time" else _largest(self._cells, 0)
        names = _largest(self._cells, 1)
        chosen = [(cell, value) for cell, value in self._cells.items() if cell[0] in columns and cell[1] in names]
        chosen.sort(key=lambda item: (_sortable(item[0][0]), _sortable(item[0][1])))
        return View([[x, y, value] for (x, y), value in chosen], self._dropped + len(self._cells) - len(chosen))


def _largest(cells: Mapping[tuple[Any, Any], Any], axis: int) -> set[Any]:
    sums: defaultdict[Any, float] = defaultdict(float)
    for cell, value in cells.items():
        sums[cell[axis]] += max(number(value), 0.0)
    return set(nlargest(MAX_NAMES, sums, key=sums.__getitem__))


MAX_POINTS = 600
"""Points of one line."""
MAX_LINES = 20
MAX_LINE_ROWS = 6000
"""Lines, and points of all of them, that a page gets."""
_MAX_KEPT_LINES = 3 * MAX_LINES
_SHORT_WINDOW_MS = 10_000
_IDLE_MS = 5_000
"""Short windows are drawn when they are over, or when nothing newer has come for this long."""
_MAX_FUTURE_MS = 3_600_000
"""A point further ahead of the clock is left out when others are not: it would squeeze them together."""
_MAX_COUNTED_LINES = 10_000
"""Lines that are counted, of those that are not kept."""

Point = tuple[float, int]
"""A value, and when the window that it belongs to is over; 0 when it belongs to none."""


class SeriesView(PanelView):
    """Lines over time.

    A short window that has only begun holds less than it will, so a line would always fall at its end. Its point is
    drawn when a window after it has begun, since events come roughly in order, or when nothing newer comes. A long
    window is drawn from its beginning.
    """

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame)
        self._lines: dict[Any, dict[int, Point]] = {}
        self._newest = 0
        self._dropped: set[int] = set()
        self._due: int | None = None

    def take(self, rows: Sequence[Row], _total: int, mode: str) -> None:
        """Rows of time, the window's end (or None), key and value; the newest come first."""
        if mode == "complete":
            self._lines.clear()
            self._dropped.clear()
            self._newest = 0
        for time, end, key, value in reversed(rows):
            if time is not None:
                self._lines.setdefault("" if key is None else key, {})[time] = (value, end or 0)
                self._newest = max(self._newest, time)
        for line in self._lines.values():
            for time in sorted(line)[:-MAX_POINTS]:
                del line[time]
        self._drop_small_lines()

    def view(self, now: int) -> View:
        """The largest lines, in order of time."""
        drawn = {key: _drawn(line, self._newest, now) for key, line in self._lines.items()}
        kept_back = (
            end + _IDLE_MS
            for line in self._lines.values()
            for time, (_, end) in line.items()
            if _open(time, end, self._newest) and now <= end + _IDLE_MS
        )
        self._due = min(kept_back, default=None)
        if any(points and points[0][0] <= now + _MAX_FUTURE_MS for points in drawn.values()):
            drawn = {
                key: [point for point in points if point[0] <= now + _MAX_FUTURE_MS] for key, points in drawn.items()
            }
        ranked = sorted(drawn, key=lambda key: _weight(drawn[key]), reverse=True)[:MAX_LINES]
        each = max(1, min(MAX_POINTS, MAX_LINE_ROWS // max(1, len(ranked))))
        rows: list[Row] = [[time, key, value] for key in ranked for time, value in drawn[key][-each:]]
        rows.sort(key=lambda row: (row[0], str(row[1])))
        return View(rows, len(self._dropped) + len(drawn) - len(ranked))

    def due(self, now: int) -> bool:
        """Whether a point that was kept back is drawn by now, though nothing came."""
        return self._due is not None and now > self._due

    def _drop_small_lines(self) -> None:
        if len(self._lines) <= _MAX_KEPT_LINES:
            return
        ranked = sorted(self._lines, key=lambda key: _weight(_values(self._lines[key])), reverse=True)
        for key in ranked[_MAX_KEPT_LINES:]:
            del self._lines[key]
            if len(self._dropped) < _MAX_COUNTED_LINES:
                self._dropped.add(hash(key))
        self._dropped.difference_update(map(hash, self._lines))


def _open(time: int, end: int, newest: int) -> bool:
    return bool(end) and end - time <= _SHORT_WINDOW_MS and newest < end


def _drawn(line: dict[int, Point], newest: int, now: int) -> list[tuple[int, Any]]:
    return [
        (time, value)
        for time, (value, end) in sorted(line.items())
        if not _open(time, end, newest) or now > end + _IDLE_MS
    ]


def _values(line: dict[int, Point]) -> list[tuple[int, Any]]:
    return [(time, value) for time, (value, _) in line.items()]


def _weight(points: list[tuple[int, Any]]) -> float:
    """How much a line matters when not all can be drawn: the sum of its newest points."""
    return sum(abs(number(value)) for _, value in points[-60:] if value is not None)
