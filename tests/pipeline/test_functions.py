"""What a query calls, and which functions of the user a table needs."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.pipeline.functions import ROWS, FunctionDef, called_functions, calls
from millrace.pipeline.model import TableDef


def score(text: str) -> float:
    return float(len(text))


SCORE = FunctionDef("score", ROWS, score, ("string",), "double")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT score(text), upper(text) FROM t", [("score", 1, 1, 8), ("upper", 1, 1, 21)]),
        ("SELECT now()", [("now", 0, 1, 8)]),
        ("SELECT\n  f(a, g(b, c), [1, 2], 'x,(')\nFROM t", [("f", 4, 2, 3), ("g", 2, 2, 8)]),
        ("SELECT `my f` (1), 'f(1)' -- f(2)\nFROM t", []),
        ("SELECT s.f(1), f (1) FROM t", [("f", 1, 1, 16)]),
        ("SELECT 'f(1)", []),
    ],
)
def test_calls_are_found_with_their_arguments_and_places(query: str, found: list[tuple[Any, ...]]) -> None:
    assert [(call.name, call.arguments, call.line, call.column) for call in calls(query)] == found


def test_a_table_needs_what_it_calls() -> None:
    def frames(posts: Any) -> Any:
        return posts.selectExpr("SCORE(text) AS s")

    def others(posts: Any) -> Any:
        return posts.selectExpr("score AS s")

    def by_name(posts: Any) -> Any:
        return call_function("score", posts.text)  # type: ignore[name-defined]  # noqa: F821

    tables = {
        "sql": TableDef("t", ("posts",), "SELECT Score(text) FROM posts"),
        "column": TableDef("t", ("posts",), "SELECT score FROM posts"),
        "frames": TableDef("t", ("posts",), function=frames),
        "others": TableDef("t", ("posts",), function=others),
        "by_name": TableDef("t", ("posts",), function=by_name),
    }
    needed = [name for name, table in tables.items() if list(called_functions([SCORE], table))]
    assert needed == ["sql", "frames", "by_name"]
