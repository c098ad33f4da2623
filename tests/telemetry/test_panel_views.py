"""Rows of batches become bounded pictures: the right window, the newest values, whatever comes."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.telemetry.panel_views import (
    MAX_CELLS,
    MAX_LABELS,
    MAX_LINES,
    MAX_NAMES,
    MAX_POINTS,
    Frame,
    HeatView,
    NumberView,
    PanelView,
    SeriesView,
    TableView,
    TopView,
)

LABELLED = Frame(("label", "value"), ("text", "number"), limit=3)
TIMED = Frame(("time", "key", "value"), ("time", "text", "number"))
GRID = Frame(("x", "y", "value"), ("time", "text", "number"))
NOW = 1_000_000_000


def rows(picture: PanelView, now: int = NOW) -> list[list[Any]]:
    """What is seen."""
    return [list(row) for row in picture.view(now).rows]


def test_the_newest_value_of_each_label_counts() -> None:
    top = TopView(LABELLED)
    top.take([("a", 3, None, None), ("b", 2, None, None)], 2, "update")
    top.take([("b", 9, None, None), ("c", 1, None, None), ("d", 1, None, None)], 3, "update")
    assert rows(top) == [["b", 9], ["a", 3], ["c", 1]]
    assert top.view(NOW).cut == 1


def test_complete_mode_replaces_all() -> None:
    top = TopView(LABELLED)
    top.take([("a", 3, None, None)], 1, "complete")
    top.take([("b", 2, None, None)], 1, "complete")
    assert rows(top) == [["b", 2]]


@pytest.mark.parametrize(("mode", "window"), [("update", (10, 70)), ("append", (60, 120))])
def test_of_sliding_windows_the_one_that_is_going_on_and_ends_first(mode: str, window: tuple[int, int]) -> None:
    top = TopView(LABELLED)
    top.take([("a", start, start, start + 60) for start in (0, 10, 20, 30, 40, 50, 60)], 7, mode)
    assert top.view(NOW).window == window


def test_old_windows_are_forgotten_and_one_from_the_future_does_not_stay() -> None:
    top = TopView(LABELLED)
    top.take([("a", 1, 0, 60), ("odd", 1, 10**9, 10**9 + 60)], 2, "update")
    assert top.view(NOW).window == (10**9, 10**9 + 60)
    for batch in range(1, 12):
        top.take([("a", batch, 60, 120)], 1, "update")
    assert (top.view(NOW).window, rows(top)) == ((60, 120), [["a", 11]])
    top.take([("late", 1, 0, 60)], 1, "update")
    assert rows(top) == [["a", 11]]


def test_ten_thousand_labels_do_not_grow_without_bound() -> None:
    top = TopView(LABELLED)
    for first in range(0, 10_000, 1000):
        top.take([(f"label {n}", n, None, None) for n in range(first, first + 1000)], 1000, "update")
    assert rows(top)[0] == ["label 9999", 9999]
    assert top.view(NOW).cut <= MAX_LABELS


def test_a_number_is_that_of_the_window_going_on() -> None:
    number = NumberView(Frame(("value",), ("number",)))
    number.take([(5, None, None)], 1, "update")
    assert rows(number) == [[5]]
    number.take([(7, 0, 60), (2, 30, 90)], 2, "update")
    assert rows(number) == [[7]]


def test_new_rows_stand_above_old_ones() -> None:
    table = TableView(Frame(("a",), ("number",), limit=3))
    table.take([(2,), (1,)], 2, "append")
    table.take([(4,), (3,)], 10, "append")
    assert rows(table) == [[4], [3], [2]]
    assert table.view(NOW).cut == 9


def test_with_a_key_there_is_one_row_each_in_the_order_asked_for() -> None:
    table = TableView(Frame(("name", "n"), ("text", "number"), limit=2, key=(0,), order=1, falling=True))
    table.take([("a", 1), ("b", 5), ("c", None)], 3, "update")
    table.take([("a", 9)], 1, "update")
    assert rows(table) == [["a", 9], ["b", 5]]
    assert table.view(NOW).cut == 1
    for n in range(10_000):
        table.take([(f"key {n}", n)], 1, "update")
    assert table.view(NOW).cut <= MAX_LABELS


def test_cells_are_replaced_and_bounded() -> None:
    heat = HeatView(GRID)
    heat.take([(10, "a", 1), (20, "a", 2)], 2, "update")
    heat.take([(20, "a", 3)], 1, "update")
    assert rows(heat) == [[10, "a", 1], [20, "a", 3]]
    heat.take([(x, "a", 1) for x in range(1000)], 1000, "update")
    assert len(rows(heat)) == 120
    plain = HeatView(Frame(("x", "y", "value"), ("text", "text", "number")))
    plain.take([(f"{n}", "y", n) for n in reversed(range(MAX_CELLS + 7))], MAX_CELLS + 7, "update")
    assert {row[0] for row in rows(plain)} == {f"{n}" for n in range(MAX_CELLS + 7 - MAX_NAMES, MAX_CELLS + 7)}
    assert plain.view(NOW).cut == MAX_CELLS + 7 - MAX_NAMES


def test_a_point_is_replaced_when_its_window_changes() -> None:
    series = SeriesView(TIMED)
    series.take([(60_000, 120_000, "a", 1), (0, 60_000, "a", 4)], 2, "update")
    series.take([(60_000, 120_000, "a", 2)], 1, "update")
    assert rows(series) == [[0, "a", 4], [60_000, "a", 2]]


def test_a_short_window_is_drawn_when_the_next_one_has_begun_or_when_nothing_comes() -> None:
    series = SeriesView(TIMED)
    series.take([(1000, 2000, "a", 1), (0, 1000, "a", 4)], 2, "update")
    assert rows(series, now=1500) == [[0, "a", 4]]
    assert not series.due(2500)
    assert series.due(8000)
    assert rows(series, now=8000) == [[0, "a", 4], [1000, "a", 1]]
    assert not series.due(9000)
    series.take([(2000, 3000, "a", 1)], 1, "update")
    assert rows(series, now=2500) == [[0, "a", 4], [1000, "a", 1]]


def test_lines_and_points_are_bounded_and_the_largest_lines_stay() -> None:
    series = SeriesView(TIMED)
    series.take([(0, None, f"key {n}", n) for n in range(10_000)], 10_000, "append")
    assert len(rows(series)) == MAX_LINES
    assert ["key 9999", 9999] in [row[1:] for row in rows(series)]
    assert series.view(NOW).cut == 10_000 - MAX_LINES
    one = SeriesView(TIMED)
    one.take([(n, None, None, n) for n in reversed(range(2000))], 2000, "append")
    assert [row[0] for row in rows(one)] == list(range(2000 - MAX_POINTS, 2000))


def test_a_point_of_the_far_future_does_not_squeeze_the_others() -> None:
    series = SeriesView(TIMED)
    series.take([(NOW * 100, None, "a", 1), (NOW, None, "a", 2)], 2, "append")
    assert rows(series) == [[NOW, "a", 2]]
    alone = SeriesView(TIMED)
    alone.take([(NOW * 100, None, "a", 1)], 1, "append")
    assert rows(alone) == [[NOW * 100, "a", 1]]


def test_of_several_rows_the_newest_is_the_number() -> None:
    number = NumberView(Frame(("value",), ("number",), limit=1))
    number.take([(9, None, None), (1, None, None)], 2, "append")  # Spark gives the newest first
    assert rows(number) == [[9]]
