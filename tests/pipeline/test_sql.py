"""What a query reads, and where it does not parse."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import InvalidSql
from millrace.pipeline.sql import parsed, tables_read, tidy


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT * FROM a JOIN b USING (id), c", ("a", "b", "c")),
        ("SELECT * FROM A, a", ("A",)),
        ("SELECT (SELECT max(x) FROM b) FROM a WHERE y IN (SELECT y FROM c)", ("b", "a", "c")),
        ("WITH x AS (SELECT * FROM a), y AS (SELECT * FROM x) SELECT * FROM y JOIN b", ("a", "b")),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", ("a",)),
        ("SELECT * FROM (WITH x AS (SELECT * FROM a) SELECT * FROM x) JOIN x", ("a", "x")),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT * FROM r", ()),
        ("SELECT * FROM range(10)", ()),
        ("TABLE a", ("a",)),
        ("SELECT * FROM (TABLE a) WHERE x IN (TABLE b)", ("a", "b")),
        ("(TABLE a) UNION ALL TABLE b EXCEPT TABLE c", ("a", "b", "c")),
        ("WITH x AS (TABLE a) TABLE x", ("a",)),
        (
            "SELECT DISTINCT table, (table), count(DISTINCT table) FROM (SELECT * FROM a) table WHERE (table > 1)",
            ("a",),
        ),
        ("SELECT x >>> 1, CAST(y AS array<array<array<int>>>), z > 1 FROM a", ("a",)),
        ("SELECT x >>> y, CAST(y AS array<map<int, array<int>>>) AS z, x >>> (1), y >> 1 FROM a", ("a",)),
        ("SELECT * FROM VALUES (1), (2) AS v(x)", ()),
        ("SELECT * FROM parquet.`some/where`", ()),
        ("SELECT t FROM a LATERAL VIEW explode(xs) e AS t", ("a",)),
        ("SELECT * FROM `my table`", ("my table",)),
        ("SELECT window(at, '1 minute') AS w FROM a GROUP BY window(at, '1 minute'), tag", ("a",)),
        ("SELECT window, window.start FROM a GROUP BY window", ("a",)),
        ("SELECT sum(x) OVER w FROM a WINDOW w AS (PARTITION BY b)", ("a",)),
        ("SELECT /*+ BROADCAST(p), MERGE(q, a) */ p.x FROM a JOIN b p ON a.id = p.id", ("a", "b")),
        ("SELECT r'\\d', 'it''s', `from` FROM a -- and so on\n/* more */", ("a",)),
    ],
)
def test_tables_read(query: str, names: tuple[str, ...]) -> None:
    assert tables_read(query) == names


@pytest.mark.parametrize(
    ("query", "line", "column"),
    [
        ("SELECT *\nFROM a\nWHERE x = = 1", 3, 11),
        ("SELECT *\nFORM a", 2, 6),
        ("SELECT a,\n  FROM b", 1, 9),
        ("SELECT a,, b FROM c", 1, 9),
        ("SELECT (a FROM b", 1, 11),
        ("SELECT a\nFROM 'b", 2, 6),
        ("", 1, 1),
        ("SELEC a", 1, 1),
        ("SELECT FROM a", 1, 1),
        ("SELECT x FROM (SELECT DISTINCT FROM a)", 1, 1),
        ("SELECT b.x FROM a LATERAL .xs", 1, 1),
        ("FROM a |> UNION ALL SELECT * FROM b", 1, 1),
        ("DROP TABLE a", 1, 1),
        ("SELECT 1; SELECT 2", 1, 1),
        ("(" * 5000, 1, 1),
    ],
)
def test_what_does_not_parse_is_told_with_its_position(query: str, line: int, column: int) -> None:
    with pytest.raises(InvalidSql) as raised:
        parsed(query)
    assert (raised.value.line, raised.value.column) == (line, column)
    assert "sqlglot" not in " ".join(raised.value.lines())
    assert "Token" not in " ".join(raised.value.lines())


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("  SELECT 1  ", "SELECT 1"),
        ("\n\n    SELECT a\n      FROM b\n    ", "SELECT a\nFROM b"),
        ("SELECT a\n    FROM b\n      WHERE c\n", "SELECT a\nFROM b\n  WHERE c"),
        ("SELECT '\t'\n\n  FROM b", "SELECT '\t'\n\nFROM b"),
        ("", ""),
    ],
)
def test_sql_is_kept_without_the_indentation_of_its_file(written: str, kept: str) -> None:
    assert tidy(written) == kept
    assert tidy(kept) == kept


WORDS = ("SELECT", "*", "FROM", "a", ",", "(", ")", "WHERE", "=", "'x", "1", ";", "GROUP BY", "window(", "JOIN", "--")


@settings(max_examples=200)
@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS)).map(" ".join))
def test_any_text_is_a_query_or_a_mistake(text: str) -> None:
    with suppress(InvalidSql):
        tables_read(text)
