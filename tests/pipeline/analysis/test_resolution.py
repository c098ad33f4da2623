"""The columns of SQL, from declared schemas through whatever people write."""

from __future__ import annotations

import pytest

from millrace.pipeline.analysis.columns import UNKNOWN_RELATION, relation_of
from millrace.pipeline.analysis.resolution import resolved
from millrace.pipeline.model import TableDef
from millrace.pipeline.schema import parse_schema

INPUTS = {
    "events": relation_of(
        parse_schema(
            "kind string, bid struct<auction bigint, price bigint>, at timestamp, m map<string, struct<x int>>, "
            "tags array<string>, parts array<struct<q int, r string>>"
        )
    ),
    "a": relation_of(parse_schema("id int, tag string, at timestamp")),
    "b": relation_of(parse_schema("id int, name string, at timestamp")),
    "unknown": UNKNOWN_RELATION,
}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM a", "id int, tag string, at timestamp"),
        ("SELECT bid.* FROM events", "auction bigint, price bigint"),
        ("SELECT e.bid.*, e.kind FROM events e", "auction bigint, price bigint, kind string"),
        ("SELECT bid.price AS p, m['k'].x, parts[0].r, m.k, (bid).price FROM events",
         "p bigint, ? int, ? string, k struct<x: int>, price bigint"),
        ("SELECT CAST(id AS string), tag::int, date(at), string(a.id), +id, CAST(CAST(id AS int) AS string) FROM a",
         "id string, tag int, at date, id string, ? int, ? string"),
        ("SELECT CAST(bid.price AS string), bigint(bid.price), CAST(window(at, '1 minute') AS string) FROM events",
         "? string, ? bigint, window string"),
        ("SELECT * EXCEPT (tag) FROM a", "id int, at timestamp"),
        ("SELECT x.* EXCEPT (id), bid.* EXCEPT (price) FROM a x JOIN events",
         "tag string, at timestamp, auction bigint"),
        ("SELECT x.* FROM (SELECT id, tag AS t FROM a) x", "id int, t string"),
        ("WITH c (n) AS (SELECT id FROM a), d AS (SELECT n, n + 1 AS m FROM c) SELECT * FROM d", "n int, m ?"),
        ("SELECT * FROM a JOIN b USING (id)", "id int, tag string, at timestamp, name string, at timestamp"),
        ("SELECT * FROM a LEFT SEMI JOIN b ON a.id = b.id", "id int, tag string, at timestamp"),
        ("SELECT id FROM a UNION ALL SELECT id FROM b", "id int"),
        ("SELECT p.q, y FROM events LATERAL VIEW explode(parts) AS p LATERAL VIEW explode(tags) AS y",
         "q int, y string"),
        ("SELECT posexplode(m) AS (n, k, v) FROM events", "n int, k string, v struct<x: int>"),
        ("SELECT inline(parts) FROM events", "q int, r string"),
        ("SELECT window.start FROM a GROUP BY window(at, '1 minute')", "start timestamp"),
        ("SELECT window(at, '1 minute'), count(*) AS n FROM a GROUP BY 1",
         "window struct<start: timestamp, end: timestamp>, n bigint"),
        ("SELECT l.tag FROM (SELECT max_by(struct(id, tag), at) AS l FROM a GROUP BY id)", "tag string"),
        ("SELECT id, count(*) FROM a GROUP BY id", "id int, ? bigint"),
        ("SELECT t.x FROM (SELECT 1 AS y) AS t (x)", "x int"),
        ("SELECT id FROM range(10)", "id bigint"),
    ],
)  # fmt: skip
def test_columns(query: str, expected: str) -> None:
    relation, problems = resolved(TableDef("t", (), query), INPUTS)
    assert problems == []
    assert not relation.open
    found = (f"{column.name or '?'} {column.type.ddl() if column.type else '?'}" for column in relation.columns)
    assert ", ".join(found) == expected


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM unknown",
        "SELECT a.*, x FROM a JOIN unknown ON a.id = unknown.y",
        "SELECT * FROM a PIVOT (count(id) FOR tag IN ('1', '2'))",
        "SELECT z FROM elsewhere.a",
        "SELECT x FROM (SELECT unknown.* FROM unknown)",
        "SELECT kind, from_json(kind, 'x int').y FROM events",
        "SELECT transform(parts, p -> p.q + size(tags)), aggregate(tags, 0, (acc, x) -> acc + 1) FROM events",
        "SELECT transform(parts, p -> transform(from_json(p.r, 'array<struct<x int>>'), p -> p.x)) FROM events",
        "SELECT aggregate(parts, 0, (p, q) -> p + q.q) FROM events",
        "SELECT x, y, z FROM (SELECT posexplode(m) AS (x, y, z) FROM events)",
        "SELECT extract(hour FROM at), timestampdiff(MINUTE, at, at), dateadd(DAY, 1, at), current_date, user FROM a",
        "SELECT id AS x, x + 1 AS y FROM a",
        "SELECT tag AS t, count(*) AS n FROM a GROUP BY t HAVING n > 1 ORDER BY n, t",
        "SELECT (SELECT max(name) FROM b WHERE b.id = a.id) AS m FROM a WHERE EXISTS (SELECT 1 FROM b WHERE id = tag)",
        "SELECT a.id, s.name FROM a, LATERAL (SELECT name FROM b WHERE b.id = a.id) s",
        "SELECT id, at FROM (SELECT CAST(id AS string), date(at) FROM a)",
        "SELECT id FROM (SELECT IDENTIFIER('id') FROM a)",
        "SELECT `max(tag)` FROM (SELECT IDENTIFIER('max')(tag) FROM a)",
        "SELECT x, y FROM (SELECT TRANSFORM(id, tag) USING 'cat' AS (x, y) FROM a)",
        "SELECT id FROM (SELECT * EXCEPT (s.id) FROM (SELECT id, struct(id) AS s FROM a))",
        "SELECT string(bid) AS bid FROM events ORDER BY bid.price",
        "SELECT `count(1)` FROM (SELECT count(*) FROM a)",
        "SELECT sum(id) OVER w FROM a WINDOW w AS (PARTITION BY tag)",
        "SELECT id FROM a JOIN b USING (id) WHERE b.id > 1 AND a.id > 1",
        "SELECT struct(*) AS s, count(bid.*) AS c FROM events GROUP BY ALL",
        "SELECT id FROM (SELECT id, id FROM a)",
        "SELECT col0 FROM (SELECT stack(1, 1, 2) FROM a)",
        "SELECT struct(id) AS s, s.id AS i FROM a",
        "SELECT s.end, s.kind FROM (SELECT max(struct(window(at, '1 day').end, kind)) AS s FROM events)",
        "SELECT s.r, s.id FROM (SELECT struct(parts[0].r, 1 AS id) AS s FROM events)",
        "SELECT s.price FROM (SELECT struct((bid).price) AS s FROM events)",
        "SELECT s.q FROM (SELECT struct(element_at(parts, 1).q, kind) AS s FROM events)",
        "SELECT s.col1 FROM (SELECT struct(kind AS col1, m) AS s FROM events)",
        "SELECT s.anything FROM (SELECT struct(bid['price'], kind) AS s FROM events)",
        "SELECT transform(parts, Q -> q.r), aggregate(tags, 0, (Acc, x) -> acc + 1) FROM events",
        "SELECT transform(parts, Kind -> kind.r) FROM events",
        "SELECT bigint(), tinyint(), binary() FROM a",
        "SELECT DISTINCT a.tag FROM a ORDER BY a.tag",
        "SELECT DISTINCT x.* FROM a x ORDER BY x.tag, id",
        "SELECT replace(tag, '²', '2') AS t, count(*) AS n FROM a GROUP BY replace(tag, '²', '2')",
        "SELECT date '2026-01-01', interval '1' day, cast(tag AS decimal(10, 2)) FROM a",
    ],
)
def test_no_false_alarm(query: str) -> None:
    assert resolved(TableDef("t", (), query), INPUTS)[1] == []


@pytest.mark.parametrize(
    ("query", "condition", "hint"),
    [
        ("SELECT tagg FROM a", "column.unknown", "did you mean 'tag'?"),
        ("SELECT a.tagg FROM a", "column.unknown", "did you mean 'tag'?"),
        ("SELECT x.tag FROM a", "column.unknown", "there are: a, at, id, tag"),
        ("SELECT bid.prise FROM events", "column.unknown", "did you mean 'price'?"),
        ("SELECT prise FROM (SELECT bid.* FROM events)", "column.unknown", "did you mean 'price'?"),
        ("WITH c AS (SELECT bid.* FROM events) SELECT c.prise FROM c", "column.unknown", "did you mean 'price'?"),
        ("WITH c AS (SELECT idd FROM a) SELECT 1 AS x FROM a", "column.unknown", "did you mean 'id'?"),
        ("SELECT kind.* FROM events", "column.unknown", "only a struct has fields; for an array use explode or inline"),
        ("SELECT tag.x FROM a", "column.unknown", "only a struct has fields, and a map has keys"),
        ("SELECT window.stop FROM a GROUP BY window(at, '1 minute')", "column.unknown", "there are: end, start"),
        ("SELECT id AS x FROM a WHERE x > 1", "column.unknown", "an alias of the SELECT list is not known in WHERE"),
        ("SELECT id FROM a JOIN b ON a.id = b.id", "column.ambiguous", "write a.id or b.id"),
        ("SELECT * FROM a JOIN b USING (tag)", "column.unknown", None),
        ("SELECT name FROM a LEFT SEMI JOIN b ON a.id = b.id", "column.unknown", "there are: at, id, tag"),
        ("SELECT tag FROM a GROUP BY tagg", "column.unknown", "did you mean 'tag'?"),
        ("SELECT tag FROM a ORDER BY tagg", "column.unknown", "did you mean 'tag'?"),
        ("SELECT id FROM a UNION ALL SELECT idd FROM b", "column.unknown", "did you mean 'id'?"),
        ("SELECT transform(parts, p -> p.q + idd) FROM events", "column.unknown", None),
        ("SELECT struct(id, tag) AS s, count(*) AS n FROM a GROUP BY s.id", "column.unknown", None),
        ("SELECT DISTINCT tag FROM a ORDER BY id", "column.unknown", "there are: tag"),
        ("SELECT a.id FROM a JOIN a ON true", "column.ambiguous", None),
        ("SELECT array(1, 2)[0].x FROM a", "column.unknown", None),
        ("SELECT transform(parts, p -> p.qq) FROM events", "column.unknown", "did you mean 'q'?"),
        ("SELECT filter(parts, (p, i) -> exists(tags, q -> q = p.s)) FROM events", "column.unknown", "there are: q, r"),
        ("SELECT explode(tags) AS (x, y) FROM events", "sql.invalid", None),
        ("SELECT s.prise FROM (SELECT struct((bid).price) AS s FROM events)", "column.unknown", None),
        ("SELECT transform(parts, P -> p.qq) FROM events", "column.unknown", "did you mean 'q'?"),
        ("SELECT DISTINCT a.tag FROM a ORDER BY a.id", "column.unknown", "there are: tag"),
    ],
)
def test_names_that_stand_for_nothing(query: str, condition: str, hint: str | None) -> None:
    (problem,) = resolved(TableDef("t", (), query), INPUTS)[1]
    assert problem.condition == condition
    assert hint is None or (problem.hint or "").startswith(hint)
