"""Which column of a source is the event time of the tables that have the watermark."""

from __future__ import annotations

import pytest

import millrace as mr
from millrace.pipeline.analysis.pipeline import SourceWatermark, source_watermark

SCHEMA = "id string, posted timestamp, at timestamp, sender struct<at: timestamp>"


def declared(sql: str, column: str = "at") -> SourceWatermark | None:
    pipeline = mr.Pipeline("p")
    pipeline.source("posts", mr.kafka("posts", schema=SCHEMA))
    pipeline.sql("words", sql, watermark=(column, "4 seconds"))
    pipeline.sql("counted", "SELECT window(at, '1 minute'), count(*) FROM words GROUP BY 1")
    return _of(pipeline)


def _of(pipeline: mr.Pipeline) -> SourceWatermark | None:
    definition = pipeline.model()
    source = definition.source("posts")
    assert source
    return source_watermark(definition, "counted", source, ("posted", "at"))


@pytest.mark.parametrize(
    ("sql", "column", "source_column"),
    [
        ("SELECT at, explode(split(id, ' ')) AS word FROM posts", "at", "at"),
        ("SELECT posted AS at, at AS other FROM posts", "at", "posted"),
        ("WITH own AS (SELECT * FROM posts) SELECT AT FROM own", "At", "at"),
        ("SELECT at + INTERVAL 1 HOUR AS at FROM posts", "at", ""),
        ("SELECT sender.at AS at FROM posts", "at", ""),
    ],
)
def test_a_column_is_followed_through_sql(sql: str, column: str, source_column: str) -> None:
    assert declared(sql, column) == SourceWatermark(4.0, source_column)


def test_a_column_is_followed_through_python() -> None:
    pipeline = mr.Pipeline("p")
    pipeline.source("posts", mr.kafka("posts", schema=SCHEMA))

    @pipeline.table(watermark=("at", "4 seconds"))
    def words(posts):  # type: ignore[no-untyped-def]
        return posts.select("at", "id")

    @pipeline.table
    def counted(words):  # type: ignore[no-untyped-def]
        return words.groupBy("at").count()

    assert _of(pipeline) == SourceWatermark(4.0, "at")


def test_what_python_code_does_is_taken_to_keep_the_name() -> None:
    pipeline = mr.Pipeline("p")
    pipeline.source("posts", mr.kafka("posts", schema=SCHEMA))

    @pipeline.table(watermark=("at", "4 seconds"))
    def words(posts):  # type: ignore[no-untyped-def]
        return _with_words(posts)

    @pipeline.table
    def counted(words):  # type: ignore[no-untyped-def]
        return words.groupBy("at").count()

    assert _of(pipeline) == SourceWatermark(4.0, "at")


def _with_words(posts):  # type: ignore[no-untyped-def]
    return posts


def test_the_shortest_watermark_counts_and_that_of_the_source_first() -> None:
    pipeline = mr.Pipeline("p")
    pipeline.source("posts", mr.kafka("posts", schema=SCHEMA))
    pipeline.sql("long", "SELECT at, id FROM posts", watermark=("at", "1 hour"))
    pipeline.sql(
        "counted", "SELECT posted, id FROM posts UNION ALL SELECT at, id FROM long", watermark=("posted", "2 seconds")
    )
    assert _of(pipeline) == SourceWatermark(2.0, "posted")
