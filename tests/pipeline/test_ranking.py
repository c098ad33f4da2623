"""`latest` and `top` as the SQL that Spark accepts on streams, and what they refuse."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.engine.queries.builder import columns_without_order
from millrace.errors import InvalidDefinition, SourceLocation
from millrace.pipeline.ranking import LATEST, TOP, OrderKey, ranking
from millrace.pipeline.sql import parsed, tables_read

ROWS = """
    SELECT * FROM VALUES ('a', 1, 2.0), ('a', 2, 1.0), ('a', 2, 3.0), ('a', null, 9.0), ('b', null, 1.0),
        (null, 5, null), ('b', null, 4.0) AS t(key, v, w)
"""
MAPS = """
    SELECT * FROM VALUES ('a', 1, map('x', 1), array(map('y', 2))), ('a', 2, map('x', 2), null)
        AS t(key, v, m, `odd ``name`)
"""


def rows_of(spark: SparkSession, *form: Any, **more: Any) -> list[tuple[Any, ...]]:
    """The rows of a ranking of `ROWS`: key, v and w, in their order."""
    spark.sql(ROWS).createOrReplaceTempView("ranked")
    return [tuple(row) for row in spark.sql(ranking(*form, **more).sql("ranked")).collect()]


def test_the_newest_row_of_each_key_has_all_its_columns(spark: SparkSession) -> None:
    rows = rows_of(spark, LATEST, "key", "v")
    # Null is a key; a row without a time counts where no other does; of equal times the greater row is taken.
    assert sorted(rows, key=str) == [("a", 2, 3.0), ("b", None, 4.0), (None, 5, None)]


@pytest.mark.parametrize(
    ("order", "of_a"),
    [
        ("v DESC", [(2, 3.0), (2, 1.0), (1, 2.0)]),
        ("v", [(1, 2.0), (2, 1.0), (2, 3.0)]),
        ("v DESC NULLS FIRST", [(None, 9.0), (2, 3.0), (2, 1.0)]),
        ("v asc nulls first", [(None, 9.0), (1, 2.0), (2, 1.0)]),
        ("v DESC, w ASC", [(2, 1.0), (2, 3.0), (1, 2.0)]),
        ("v NULLS FIRST, w DESC", [(None, 9.0), (1, 2.0), (2, 3.0)]),
        ("-v, w", [(2, 1.0), (2, 3.0), (1, 2.0)]),
        (["coalesce(v, 0) DESC", "w DESC"], [(2, 3.0), (2, 1.0), (1, 2.0)]),
        ("NOT v > 1, w", [(2, 1.0), (2, 3.0), (1, 2.0)]),
    ],
)
def test_the_first_rows_of_each_group_come_in_their_order(spark: SparkSession, order: Any, of_a: list[Any]) -> None:
    rows = rows_of(spark, TOP, ["key"], order, 3)
    assert [row[1:] for row in rows if row[0] == "a"] == of_a
    assert len([row for row in rows if row[0] == "b"]) == 2


def test_a_rank_is_one_more_column_and_a_top_needs_no_group(spark: SparkSession) -> None:
    assert rows_of(spark, TOP, (), "w DESC", 2, "place") == [("a", None, 9.0, 1), ("b", None, 4.0, 2)]


@pytest.mark.parametrize(("form", "n"), [(LATEST, 1), (TOP, 2)])
def test_columns_without_an_order_are_carried_along(spark: SparkSession, form: str, n: int) -> None:
    frame = spark.sql(MAPS)
    frame.createOrReplaceTempView("ranked")
    without = columns_without_order(frame.schema)
    assert without == ["m", "odd `name"]
    order = "v" if form == LATEST else "v DESC"
    rows = spark.sql(ranking(form, "key", order, n).sql("ranked", without)).collect()
    assert [row["m"] for row in rows] == [{"x": 2}, {"x": 1}][:n]


def test_state_has_no_more_than_the_rows_that_are_asked_for() -> None:
    assert ranking(TOP, "key", "v DESC, w DESC", 5).bounded
    assert not ranking(TOP, "key", "v DESC, w", 5).bounded
    assert "collect_list" not in ranking(TOP, "key", "v, w", 5).sql("t")


def test_the_words_are_read_as_sql_reads_them() -> None:
    given = ranking(TOP, "window(at, '1 minute', '10 seconds'), user.id", "`a, b` DESC, last", 3)
    assert given.by == ("window(at, '1 minute', '10 seconds')", "user.id")
    assert given.order == (OrderKey("`a, b`", True), OrderKey("last"))
    quoted = ranking(TOP, "a = ',', b = '('", "c = ')' DESC, d", 3)
    assert (quoted.by, quoted.order) == (("a = ','", "b = '('"), (OrderKey("c = ')'", True), OrderKey("d")))
    for order in ("NOT ok", "a BETWEEN 1 AND 2", "a OR b", "a AND b", "NOT ok, b DESC"):
        assert parsed(ranking(TOP, "k", order, 3).sql("t"))
    assert tables_read(given.sql("a`c")) == ("a`c",)
    assert tables_read(given.sql("some_rows")) == ("some_rows",)
    assert parsed(ranking(TOP, "k", "a DESC, b", 3, "place").sql("t"))


@pytest.mark.parametrize(
    ("form", "what"),
    [
        ((LATEST, "key", "at DESC"), "order"),
        ((LATEST, "key", "max(at)"), "order"),
        ((LATEST, "key", "at AS newest"), "order"),
        ((LATEST, "key", "'at'"), "order"),
        ((LATEST, "key", "at) FROM x --"), "order"),
        ((LATEST, "key", "at -- the time"), "order"),
        ((LATEST, "key", "'at"), "order"),
        ((LATEST, "key", "row_number() OVER (ORDER BY at)"), "order"),
        ((LATEST, "key", []), "order"),
        ((LATEST, "key", "at,"), "order"),
        ((LATEST, "key", 3), "order"),
        ((LATEST, "1", "at"), "by"),
        ((LATEST, "*", "at"), "by"),
        ((LATEST, "(SELECT max(key) FROM t)", "at"), "by"),
        ((LATEST, {"key": 1}, "at"), "by"),
        ((TOP, "key", "at", 0), "n"),
        ((TOP, "key", "at", True), "n"),
        ((TOP, "key", "at", 100_001), "n"),
        ((TOP, "key", "at", "10"), "n"),
        ((TOP, "key", "at", 1, "a b"), "rank"),
    ],
)
def test_what_is_no_ranking_is_refused_where_it_stands(form: tuple[Any, ...], what: str) -> None:
    places = {name: SourceLocation("p.yaml", line) for line, name in enumerate(("by", "order", "n", "rank"), 1)}
    with pytest.raises(InvalidDefinition) as refused:
        ranking(*form, places=places)
    assert refused.value.place == places[what]
    assert refused.value.hint
    assert re.match(rf"{what}\b|latest", refused.value.message)
