"""Lines over time, for a panel of the kind `series`: one point for each time and key, the newest ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millrace.telemetry.pictures import Frame, Picture, Row, View, number

POINTS = 600
"""Points of one line."""
LINES = 20
ROWS = 6000
"""Lines, and points of all of them, that a page gets."""
_REMEMBERED = 3 * LINES
_SHORT = 10_000
_PATIENCE = 5_000
"""Windows up to so many milliseconds are drawn when they are over, or when nothing newer has come for so long."""
_FUTURE = 3_600_000
"""A point so many milliseconds ahead of the clock is left out when others are not: it would squeeze them together."""
_COUNTED = 10_000
"""Lines that are counted, of those that are not remembered."""

Point = tuple[float, int]
"""A value, and when the window that it belongs to is over; 0 when it belongs to none."""


class Series(Picture):
    """Lines over time.

    A short window that has only begun holds less than it will, so a line would always fall at its end. Its point is
    drawn when a window after it has begun, since events come roughly in order, or when nothing newer comes. A long
    window is drawn from its beginning: nobody wants to wait for it.
    """

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame)
        self._lines: dict[Any, dict[int, Point]] = {}
        self._newest = 0
        self._gone: set[int] = set()
        self._due: int | None = None

    def take(self, rows: Sequence[Row], total: int, mode: str) -> None:
        """Rows of time, the window's end (or None), key and value; the newest come first."""
        del total
        if mode == "complete":
            self._lines.clear()
            self._gone.clear()
            self._newest = 0
        for time, end, key, value in reversed(rows):
            if time is not None:
                self._lines.setdefault("" if key is None else key, {})[time] = (value, end or 0)
                self._newest = max(self._newest, time)
        for line in self._lines.values():
            _keep_newest(line)
        self._forget_small_lines()

    def view(self, now: int) -> View:
        """The largest lines, in order of time."""
        drawn = {key: _drawn(line, self._newest, now) for key, line in self._lines.items()}
        self._due = self._next(now)
        if any(points and points[0][0] <= now + _FUTURE for points in drawn.values()):
            drawn = {key: [one for one in points if one[0] <= now + _FUTURE] for key, points in drawn.items()}
        ranked = sorted(drawn, key=lambda key: _weight(drawn[key]), reverse=True)[:LINES]
        each = max(1, min(POINTS, ROWS // max(1, len(ranked))))
        rows: list[Row] = [[time, key, value] for key in ranked for time, value in drawn[key][-each:]]
        rows.sort(key=lambda row: (row[0], str(row[1])))
        return View(rows, len(self._gone) + len(drawn) - len(ranked))

    def due(self, now: int) -> bool:
        """Whether a point that was kept back is drawn by now, though nothing came."""
        return self._due is not None and now > self._due

    def _next(self, now: int) -> int | None:
        kept_back = (
            end + _PATIENCE
            for line in self._lines.values()
            for time, (_, end) in line.items()
            if _open(time, end, self._newest) and now <= end + _PATIENCE
        )
        return min(kept_back, default=None)

    def _forget_small_lines(self) -> None:
        if len(self._lines) <= _REMEMBERED:
            return
        ranked = sorted(self._lines, key=lambda key: _weight(list(_values(self._lines[key]))), reverse=True)
        for key in ranked[_REMEMBERED:]:
            del self._lines[key]
            if len(self._gone) < _COUNTED:
                self._gone.add(hash(key))
        self._gone.difference_update(map(hash, self._lines))


def _open(time: int, end: int, newest: int) -> bool:
    return bool(end) and end - time <= _SHORT and newest < end


def _drawn(line: dict[int, Point], newest: int, now: int) -> list[tuple[int, Any]]:
    return [
        (time, value)
        for time, (value, end) in sorted(line.items())
        if not _open(time, end, newest) or now > end + _PATIENCE
    ]


def _values(line: dict[int, Point]) -> list[tuple[int, Any]]:
    return [(time, value) for time, (value, _) in line.items()]


def _weight(points: list[tuple[int, Any]]) -> float:
    """How much a line matters when not all can be drawn: the sum of its newest points."""
    return sum(abs(number(value)) for _, value in points[-60:] if value is not None)


def _keep_newest(line: dict[int, Point]) -> None:
    if len(line) > POINTS:
        for time in sorted(line)[:-POINTS]:
            del line[time]
