"""How often a query reads its sources, without Spark."""

from __future__ import annotations

import pytest

import millrace as mr
from millrace.pipeline.analysis.scans import source_scans


@pytest.mark.parametrize(
    ("sql", "times"),
    [
        ("SELECT * FROM posts", 1),
        ("SELECT * FROM posts p JOIN POSTS q ON p.id = q.id", 2),
        ("SELECT id FROM posts WHERE a UNION ALL SELECT id FROM posts WHERE b UNION ALL SELECT 1", 2),
        ("SELECT /*+ BROADCAST(posts), MERGE(q) */ q.id FROM posts JOIN short q ON q.id = posts.id", 2),
        ("SELECT * FROM posts WHERE id IN (SELECT id FROM posts)", 2),
        ("WITH x AS (SELECT * FROM posts) SELECT * FROM x", 1),
        ("WITH x AS (SELECT * FROM posts) SELECT * FROM x UNION ALL SELECT * FROM x", 2),
        ("WITH x AS (SELECT * FROM posts), y AS (SELECT * FROM x, x z) SELECT * FROM y UNION ALL SELECT * FROM y", 4),
        ("WITH x AS (SELECT *, rand() AS r FROM posts) SELECT * FROM x UNION ALL SELECT * FROM x", 2),
        ("SELECT id FROM short JOIN long USING (id)", 2),
        ("SELECT FROM WHERE", 0),
    ],
)
def test_each_name_is_a_scan(sql: str, times: int) -> None:
    pipeline = mr.Pipeline("p")
    pipeline.source("posts", mr.kafka("posts"))
    pipeline.sql("short", "SELECT id FROM posts WHERE length(text) < 3")
    pipeline.sql("long", "SELECT id FROM posts WHERE length(text) > 3")
    pipeline.sql("made", sql)
    assert source_scans(pipeline.model(), "made").get("posts", 0) == times


def test_a_part_of_with_has_one_source() -> None:
    pipeline = mr.Pipeline("p")
    pipeline.source("posts", mr.kafka("posts"))
    pipeline.sql("made", "WITH x AS (SELECT * FROM posts) SELECT * FROM x UNION ALL SELECT * FROM x, posts")
    assert source_scans(pipeline.model(), "made") == {"posts": 3}
    assert source_scans(pipeline.model(), "made", offsets=True) == {"posts": 2}


def test_tables_in_python_count_their_parameters() -> None:
    pipeline = mr.Pipeline("p")
    pipeline.source("posts", mr.kafka("posts"))
    pipeline.source("users", mr.kafka("users"))

    @pipeline.table
    def known(posts, users):  # type: ignore[no-untyped-def]
        return posts.join(users)

    @pipeline.table
    def both(known, posts):  # type: ignore[no-untyped-def]
        return known.union(posts)

    assert source_scans(pipeline.model(), "both") == {"posts": 2, "users": 1}
    assert source_scans(pipeline.model(), "posts") == {"posts": 1}
