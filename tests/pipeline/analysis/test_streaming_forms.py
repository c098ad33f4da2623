"""What a hint says to write instead names the user's own columns."""

from __future__ import annotations

import pytest

from millrace.errors import SourceLocation
from millrace.pipeline.analysis.operators import Operator, StreamPlan
from millrace.pipeline.analysis.sql import sql_plan
from millrace.pipeline.model import TableDef

_GROUPED = Operator("aggregate", "GROUP BY", SourceLocation("counts.yaml"), "counts")
PLANS = {
    "a": StreamPlan(True, frozenset(("at",))),
    "counts": StreamPlan(True, frozenset(("window",))).then(_GROUPED),
    "no_time": StreamPlan(True),
    "unknown": StreamPlan(True, None),
}
_RANKED = "SELECT * FROM (SELECT {}, row_number() OVER (PARTITION BY tag ORDER BY {}) AS n FROM a) WHERE {}"


def hints(query: str, *kinds: str) -> list[str]:
    plan = sql_plan(TableDef("t", ("a",), query), PLANS)
    return [operator.hint for operator in plan.operators if operator.kind in kinds]


@pytest.mark.parametrize(
    ("query", "form"),
    [
        (_RANKED.format("*", "at DESC", "n = 1"), "write latest: {from: a, by: tag, order: at}"),
        (_RANKED.format("*", "at", "n = 1"), "write top: {from: a, n: 1, by: tag, order: at}"),
        (_RANKED.format("*", "price", "n = 1"), 'write top: {from: a, n: 1, by: tag, order: "price NULLS FIRST"}'),
        (_RANKED.format("id, tag", "price DESC", "n <= 3"),
         'write top: {from: a, n: 3, by: tag, order: "price DESC", rank: n}'),
        (_RANKED.format("*", "price DESC, at", "n < 3"), '{from: a, n: 2, by: tag, order: "price DESC, at", rank: n}'),
        (_RANKED.format("*", "price DESC", "n = 2"),
         'n: 2, by: tag, order: "price DESC", rank: n}, and of that table the rows WHERE n = 2'),
        (_RANKED.format("*", "price DESC", "n = 1 OR id = 3"), "for the first N rows of each group write top: "),
        (_RANKED.format("*", "price DESC", "n > 1 AND n <= 3"), "for the first N rows of each group write top: "),
        ("SELECT * FROM a QUALIFY row_number() OVER (PARTITION BY tag ORDER BY at DESC) = 1",
         "write latest: {from: a, by: tag, order: at}; with \"window(at, '1 minute')\" in by its state ends"),
        ("SELECT rank() OVER (ORDER BY price DESC) AS n, id FROM a",
         "of each group write top: {from: a, n: N, order: \"price DESC\", rank: n}; of rows with equal order"),
        ("SELECT *, row_number() OVER (PARTITION BY x.tag, window(x.at, '1 day') ORDER BY x.p DESC) AS n FROM a x",
         """by: [tag, "window(at, '1 day')"], order: "p DESC", rank: n}"""),
        ("SELECT *, row_number() OVER (PARTITION BY tag ORDER BY at DESC) AS n FROM a WHERE price > 3 QUALIFY n = 1",
         "make a table of the rows that are numbered, and over it write latest: {from: …, by: tag, order: at}"),
        ("SELECT *, row_number() OVER (PARTITION BY tag ORDER BY at DESC) AS n FROM a WHERE n = 1",
         "for the first N rows"),
        (_RANKED.format("*", "at DESC", "n = '²'"), "for the first N rows"),
        (_RANKED.format("-price AS price", "price DESC", "n = 1"), "write latest: {from: a, by: tag, order: price}"),
        (_RANKED.format("date_trunc('hour', at) AS at", "at DESC", "n = 1"), "latest: {from: a, by: tag, order: at}"),
        ("SELECT id, row_number() OVER (PARTITION BY 1 ORDER BY price DESC, '²') AS n FROM a QUALIFY n <= 3",
         'write top: {from: a, n: 3, order: "price DESC", rank: n}'),
        ("SELECT tag, rank() OVER (ORDER BY count(*) DESC) AS r FROM a GROUP BY tag",
         'numbered, name count(*) AS n, and over it write top: {from: …, n: N, order: "n DESC", rank: r}'),
        ("SELECT x.tag, sum(x.price) OVER (PARTITION BY x.tag) AS s FROM a x",
         "write SELECT tag, sum(price) AS s FROM a GROUP BY tag, window"),
        ("SELECT x.tag, first(x.price) OVER (PARTITION BY x.tag ORDER BY x.at) AS s FROM a x",
         "write SELECT tag, min_by(price, at) AS s FROM a GROUP BY tag, window"),
        ("SELECT lag(x.price) OVER (PARTITION BY x.tag ORDER BY x.at) AS s FROM a x",
         "SELECT sort_array(collect_list(struct(at, price))) AS rows FROM a GROUP BY tag, window"),
        ("SELECT sum(count(*)) OVER () AS s FROM a GROUP BY tag", "make a table of the groups, and aggregate its rows"),
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY price) OVER (PARTITION BY tag) AS p FROM a",
         "write it with GROUP BY tag, window(at, '1 minute') instead of OVER"),
        ("SELECT tag, sum(price) OVER (PARTITION BY tag ORDER BY at) AS s FROM a",
         "SELECT tag, sum(price) AS s FROM a GROUP BY tag, window(at, '1 minute')"),
        ("SELECT last_value(price) OVER (PARTITION BY tag ORDER BY at) AS p FROM a",
         "write SELECT tag, max_by(price, at) AS p FROM a GROUP BY tag, window(at, '1 minute'), "),
        ("SELECT first_value(price) OVER (PARTITION BY tag ORDER BY at) AS p FROM a", "tag, min_by(price, at) AS p"),
        ("SELECT first(price) OVER (ORDER BY at DESC, id DESC) AS p FROM a", "max_by(price, struct(at, id)) AS p"),
        ("SELECT last_value(price) IGNORE NULLS OVER (ORDER BY at DESC) AS p FROM a",
         "min_by(price, at) FILTER (WHERE price IS NOT NULL) AS p"),
        ("SELECT last_value(price) OVER (ORDER BY at, id DESC) AS p FROM a", "collect the rows of a window in order; "),
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
        (
            "count(DISTINCT id, tag)",
            "write size(collect_set(struct(id, tag)) FILTER (WHERE id IS NOT NULL AND tag IS NOT NULL)); ",
        ),
        (
            "count(DISTINCT id, tag) FILTER (WHERE a OR b)",
            "approx_count_distinct(struct(id, tag)) FILTER (WHERE (a OR b) AND id IS NOT NULL AND tag IS NOT NULL), ",
        ),
        ("count(DISTINCT id) FILTER (WHERE id > 1)", "write size(collect_set(id) FILTER (WHERE id > 1)); "),
        ("sum(DISTINCT price)", "as aggregate(collect_set(price), 0D, (total, value) -> total + value)"),
        ("avg(DISTINCT price)", "(total, value) -> total + value), size(collect_set(price)))"),
        ("max(DISTINCT price) FILTER (WHERE b)", "write max(price) FILTER (WHERE b)"),
    ],
)
def test_distinct(aggregate: str, form: str) -> None:
    (hint,) = hints(f"SELECT {aggregate} AS x FROM a", "distinct")  # noqa: S608
    assert form in hint


def test_the_first_rows() -> None:
    found = hints("SELECT id, price FROM a ORDER BY price DESC LIMIT 3", "sort", "limit")
    assert found == ['write top: {from: a, n: 3, order: "price DESC"}'] * 2
    (hint, _) = hints("SELECT tag, count(*) AS c FROM a GROUP BY tag ORDER BY count(*) DESC LIMIT 5", "sort", "limit")
    assert hint.startswith("group by a window as w, leave ORDER BY and LIMIT out, and over that table write top: ")
    assert hint.endswith('{from: …, n: 5, by: w, order: "c DESC"}')
    windowed = "SELECT window, tag, count(*) AS c FROM a GROUP BY window(at, '1 day'), tag"
    for query in (windowed, f"SELECT * FROM ({windowed})"):  # noqa: S608
        (hint, _) = hints(f"{query} ORDER BY c LIMIT 5", "sort", "limit")
        assert hint.endswith('over that table write top: {from: …, n: 5, by: window, order: "c NULLS FIRST"}')
    for order in ("count(*) DESC", "2 DESC"):
        (hint, _) = hints(f"SELECT tag, count(*) FROM a GROUP BY tag ORDER BY {order} LIMIT 5", "sort", "limit")  # noqa: S608
        assert "name count(*) AS n, and over that table" in hint
        assert hint.endswith('by: w, order: "n DESC"}')
    (hint, _) = hints("SELECT * FROM counts ORDER BY n DESC LIMIT 3", "sort", "limit")
    assert hint == 'write top: {from: counts, n: 3, by: window, order: "n DESC"}'


@pytest.mark.parametrize("rows", ["no_time", "unknown"])
def test_a_time_that_is_not_known_is_not_invented(rows: str) -> None:
    (hint,) = hints(f"SELECT tag, sum(price) OVER (PARTITION BY tag ORDER BY price) AS s FROM {rows}", "over")  # noqa: S608
    assert "GROUP BY tag, window(…, '1 minute')" in hint
    (hint,) = hints(f"SELECT * FROM {rows} QUALIFY row_number() OVER (PARTITION BY tag ORDER BY k DESC) = 1", "over")  # noqa: S608
    assert hint == f"write latest: {{from: {rows}, by: tag, order: k}}"
