"""What a hint says to write instead names the user's own columns."""

from __future__ import annotations

import pytest

from millrace.pipeline.analysis.operators import StreamPlan
from millrace.pipeline.analysis.sql import sql_plan
from millrace.pipeline.model import TableDef

A = StreamPlan(True, frozenset(("at",)))
_RANKED = "SELECT * FROM (SELECT {}, row_number() OVER (PARTITION BY tag ORDER BY {}) AS n FROM a) WHERE {}"


def hints(query: str, *kinds: str) -> list[str]:
    plan = sql_plan(TableDef("t", ("a",), query), {"a": A})
    return [operator.hint for operator in plan.operators if operator.kind in kinds]


@pytest.mark.parametrize(
    ("query", "form"),
    [
        (_RANKED.format("*", "at DESC", "n = 1"), "SELECT tag, max_by(struct(*), at) AS row FROM a GROUP BY tag"),
        (_RANKED.format("*", "at", "n = 1"), "SELECT tag, min_by(struct(*), at) AS row FROM a GROUP BY tag"),
        (_RANKED.format("id, tag", "price DESC", "n <= 3"),
         "SELECT tag, slice(sort_array(collect_list(struct(price, id)), false), 1, 3) AS rows FROM a GROUP BY tag"),
        (_RANKED.format("id, tag", "price", "n < 3"),
         "SELECT tag, slice(sort_array(collect_list(struct(price, id)), true), 1, 2) AS rows FROM a GROUP BY tag"),
        ("SELECT * FROM a QUALIFY row_number() OVER (PARTITION BY tag ORDER BY at DESC) = 1",
         "SELECT tag, max_by(struct(*), at) AS row FROM a GROUP BY tag"),
        ("SELECT rank() OVER (ORDER BY price DESC) AS n, id FROM a", "for the first row of each write"),
        ("SELECT tag, sum(price) OVER (PARTITION BY tag ORDER BY at) AS s FROM a",
         "SELECT tag, sum(price) AS s FROM a GROUP BY tag, window(at, '1 minute')"),
        ("SELECT sum(price) OVER w AS s FROM a WINDOW w AS (PARTITION BY tag ORDER BY at ROWS 3 PRECEDING)",
         "SELECT tag, sum(price) AS s FROM a GROUP BY tag, window(at, '10 minutes', '1 minute')"),
        ("SELECT at - lag(at) OVER (PARTITION BY tag ORDER BY at) AS gap FROM a", "session_window(at, '10 minutes')"),
    ],
)  # fmt: skip
def test_over(query: str, form: str) -> None:
    (hint,) = hints(query, "over")
    assert form in hint


@pytest.mark.parametrize(
    ("aggregate", "form"),
    [
        ("count(DISTINCT id)", "write size(collect_set(id)); or approx_count_distinct(id), "),
        ("count(DISTINCT id, tag)", "write size(collect_set(struct(id, tag))); "),
        ("count(DISTINCT id) FILTER (WHERE id > 1)", "write size(collect_set(id) FILTER (WHERE id > 1)); "),
        ("sum(DISTINCT price)", "aggregate(collect_set(price), 0D, (total, value) -> total + value)"),
    ],
)
def test_distinct(aggregate: str, form: str) -> None:
    (hint,) = hints(f"SELECT {aggregate} AS x FROM a", "distinct")  # noqa: S608
    assert form in hint


def test_the_first_rows() -> None:
    top = "slice(sort_array(collect_list(struct(price, id)), false), 1, 3) AS top"
    found = hints("SELECT id, price FROM a ORDER BY price DESC LIMIT 3", "sort", "limit")
    assert found == [f"write SELECT window(at, '1 minute') AS w, {top} FROM a GROUP BY 1"] * 2  # noqa: S608
    (hint, _) = hints("SELECT tag, count(*) AS c FROM a GROUP BY tag ORDER BY c LIMIT 5", "sort", "limit")
    assert "slice(sort_array(collect_list(struct(c, tag)), true), 1, 5) AS top" in hint
