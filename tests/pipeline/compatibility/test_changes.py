"""What a changed file means for a query that ran before, as far as it can be told without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millrace.connectors.base.registry import CONNECTORS
from millrace.errors import SourceLocation
from millrace.pipeline.compatibility.changes import changes
from millrace.pipeline.compatibility.query_snapshot import snapshot_query
from millrace.pipeline.loading.functions import functions_of_file
from millrace.pipeline.model import (
    PipelineDef,
    SinkDef,
    SourceDef,
    TableDef,
    Trigger,
    Watermark,
    connection,
    ranking_table,
)
from millrace.pipeline.plan import make_plan
from millrace.pipeline.ranking import ranking

LINES = SourceDef("lines", connection("kafka", "lines", {"format": "text"}))
COUNTS = "SELECT value AS word, count(*) AS n FROM lines WHERE value <> '' GROUP BY value"
OUT = connection("kafka", "counts")


def pipeline(sql: str = COUNTS, *, source: SourceDef = LINES, sink: Any = OUT, **more: Any) -> PipelineDef:
    """One table of words, counted."""
    sinks = tuple(SinkDef("counts", one, "update") for one in (sink if isinstance(sink, list) else [sink]))
    return PipelineDef("p", (source,), (TableDef("counts", ("lines",), sql),), sinks, **more)


def compared(before: PipelineDef, now: PipelineDef) -> list[tuple[str, str]]:
    """Effect and part of each difference."""
    said = [snapshot_query(one, make_plan(one).queries[0], CONNECTORS) for one in (before, now)]
    return [(one.effect, one.part) for one in changes(*said)]


def test_the_same_file_says_nothing() -> None:
    assert compared(pipeline(), pipeline()) == []
    assert compared(pipeline(), pipeline(COUNTS.replace(" FROM", "\n  from"))) == []


def test_a_filter_before_the_state_may_change() -> None:
    assert compared(pipeline(), pipeline(COUNTS.replace("<> ''", "<> 'x'"))) == [("new", "table")]
    assert compared(pipeline(), pipeline(COUNTS.replace(" WHERE value <> ''", ""))) == [("new", "table")]


def test_how_often_a_source_is_read_must_stay() -> None:
    one = "SELECT value FROM lines WHERE value > 'a' OR value < 'A'"
    two = "SELECT value FROM lines WHERE value > 'a' UNION ALL SELECT value FROM lines WHERE value < 'A'"
    assert ("breaks", "source") in compared(pipeline(two), pipeline(one))
    assert ("breaks", "source") in compared(pipeline(one), pipeline(two))
    part = "WITH x AS (SELECT value FROM lines) SELECT value FROM x UNION ALL SELECT value FROM x"
    assert ("breaks", "source") not in compared(pipeline(one), pipeline(part)), "one source, which is read twice"
    before = snapshot_query(pipeline(two), make_plan(pipeline(two)).queries[0], CONNECTORS)
    del before["offsets"]
    now = snapshot_query(pipeline(one), make_plan(pipeline(one)).queries[0], CONNECTORS)
    assert "breaks" not in [change.effect for change in changes(before, now)], "an older version did not save it"


@pytest.mark.parametrize(
    ("sql", "effect"),
    [
        (COUNTS.replace("GROUP BY value", "GROUP BY value, topic"), "breaks"),
        (COUNTS.replace("GROUP BY value", "GROUP BY lower(value)"), "mixes"),
        (COUNTS.replace("count(*)", "max(offset)"), "mixes"),
        (COUNTS.replace("count(*) AS n", "count(*) AS n, max(offset) AS m"), "breaks"),
        ("SELECT value AS word, 1 AS n FROM lines", "breaks"),
        ("SELECT DISTINCT value AS word, 1 AS n FROM lines", "breaks"),
    ],
)
def test_what_the_state_holds_must_stay(sql: str, effect: str) -> None:
    assert (effect, "state") in compared(pipeline(), pipeline(sql))


def test_the_order_of_aggregates_is_that_of_the_state() -> None:
    two = "SELECT value, sum(offset) AS s, count(*) AS n FROM lines GROUP BY value"
    swapped = "SELECT value, count(*) AS n, sum(offset) AS s FROM lines GROUP BY value"
    assert ("mixes", "state") in compared(pipeline(two), pipeline(swapped))


def test_spelling_is_not_meaning() -> None:
    spelled = "SELECT l.value AS word, COUNT(1) AS n FROM lines l WHERE l.value <> '' GROUP BY 1"
    assert compared(pipeline(), pipeline(spelled)) == [("asks", "table")]


def test_another_name_may_be_the_same_column() -> None:
    assert compared(pipeline(), pipeline(COUNTS.replace("BY value", "BY topic"))) == [("asks", "table")]
    longer = "SELECT window(timestamp, '5 minutes') AS w, count(*) AS n FROM lines GROUP BY 1"
    assert compared(pipeline(longer), pipeline(longer.replace("5", "9"))) == [("asks", "table")]


def test_a_name_that_may_be_an_alias_is_for_spark_to_tell() -> None:
    before = "SELECT lower(value) AS value, count(*) AS n FROM lines GROUP BY value"
    now = "SELECT upper(value) AS value, count(*) AS n FROM lines GROUP BY value"
    assert compared(pipeline(before), pipeline(now)) == [("asks", "table")]


def test_state_that_appears() -> None:
    stateless = pipeline("SELECT value AS word, 1 AS n FROM lines")
    assert compared(stateless, pipeline()) == [("breaks", "state"), ("asks", "table")]


def test_a_stateless_query_may_change_as_it_likes() -> None:
    before, now = pipeline("SELECT value FROM lines"), pipeline("SELECT value, topic FROM lines WHERE value > 'a'")
    assert compared(before, now) == [("new", "table")]


def test_a_filter_after_the_state_is_for_spark_to_tell() -> None:
    def twice(sql: str) -> PipelineDef:
        tables = (TableDef("raw", ("lines",), COUNTS), TableDef("counts", ("raw",), sql))
        return replace(pipeline(), tables=tables)

    assert compared(twice("SELECT word FROM raw"), twice("SELECT word FROM raw WHERE n > 1")) == [("asks", "table")]


def test_a_filter_beside_a_join_comes_after_it() -> None:
    def joined(sql: str) -> PipelineDef:
        clicks = SourceDef("clicks", connection("kafka", "clicks", {"format": "text"}))
        tables = (TableDef("counts", ("lines", "clicks"), sql),)
        return PipelineDef("p", (LINES, clicks), tables, (SinkDef("counts", OUT),))

    sql = "SELECT l.value FROM lines l JOIN clicks c ON l.value = c.value"
    assert compared(joined(sql), joined(f"{sql} WHERE c.offset > 3")) == [("asks", "table")]


def test_watermark_trigger_and_options_may_change() -> None:
    later = replace(LINES, watermark=Watermark("timestamp", 5.0))
    assert compared(pipeline(), pipeline(source=later)) == [("new", "source")]
    assert compared(pipeline(), pipeline(trigger=Trigger("every", 5.0))) == [("new", "trigger")]
    limited = replace(LINES, connection=connection("kafka", "lines", {"format": "text", "max_per_batch": 5}))
    assert compared(pipeline(), pipeline(source=limited)) == [("new", "source")]
    keyed = connection("kafka", "counts", {"key": "word"})
    assert compared(pipeline(), pipeline(sink=keyed)) == [("new", "sink")]


def test_other_columns_of_a_source_are_for_spark_to_judge() -> None:
    one, other = (
        replace(LINES, connection=connection("kafka", "lines", {"schema": f"value {kind}"}))
        for kind in ("int", "string")
    )
    assert compared(pipeline(source=one), pipeline(source=other)) == [("asks", "source")]
    stateless = "SELECT value FROM lines"
    assert compared(pipeline(stateless, source=one), pipeline(stateless, source=other)) == [("new", "source")]


def test_another_sink() -> None:
    console, other = connection("console"), connection("kafka", "other")
    assert compared(pipeline(), pipeline(sink=other)) == [("mixes", "sink")]
    assert compared(pipeline(), pipeline(sink=[OUT, console])) == [("new", "sink")]
    assert compared(pipeline(sink=[OUT, console]), pipeline()) == [("new", "sink")]
    assert compared(pipeline(sink=connection("memory")), pipeline()) == [("new", "sink"), ("new", "sink")]


def test_files_cannot_begin_in_the_middle() -> None:
    files = connection("files", "out")
    assert compared(pipeline(), pipeline(sink=[OUT, files])) == [("breaks", "sink")]
    assert compared(pipeline(), pipeline(sink=files)) == [("breaks", "sink")]
    assert compared(pipeline(sink=files), pipeline()) == [("mixes", "sink")]


def test_the_same_words_for_another_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    folder = SourceDef("lines", connection("files", "in", {"format": "text"}))
    table = connection("spark", "delta", {"path": "a"})
    query = make_plan(pipeline(source=folder)).queries[0]
    before = snapshot_query(pipeline(source=folder), query, CONNECTORS)
    monkeypatch.chdir(tmp_path)
    assert [one.effect for one in changes(before, snapshot_query(pipeline(source=folder), query, CONNECTORS))] == [
        "breaks"
    ]
    elsewhere = connection("spark", "delta", {"path": "b"})
    assert compared(pipeline(sink=table), pipeline(sink=elsewhere)) == [("breaks", "sink")]


def test_no_secret_is_remembered() -> None:
    hidden = connection("kafka", "counts", {"config": {"sasl.password": "hunter2"}})
    said = snapshot_query(pipeline(sink=hidden), make_plan(pipeline(sink=hidden)).queries[0], CONNECTORS)
    assert "hunter2" not in str(said)
    assert "***" in str(said)


def counted(lines: Any) -> Any:
    """Words."""
    return lines.groupBy("value").count()


def test_a_function_that_changed_is_for_spark_to_tell() -> None:
    def written(function: Any) -> PipelineDef:
        return replace(pipeline(), tables=(TableDef("counts", ("lines",), function=function),))

    def also(lines: Any) -> Any:
        return lines.groupBy("value").count()

    def other(lines: Any) -> Any:
        return lines.groupBy("value", "topic").count()

    assert compared(written(counted), written(also)) == []
    assert compared(written(counted), written(other)) == [("asks", "table")]


@pytest.mark.parametrize(
    ("now", "effects"),
    [
        ({"n": 5}, ["new"]),
        ({"n": 20}, ["mixes"]),
        ({"order": "id DESC"}, ["asks", "mixes"]),
        ({"by": "id"}, ["asks", "mixes"]),
        ({"order": "size"}, ["asks", "mixes", "mixes"]),  # other rows, by another function
    ],
)
def test_a_state_has_the_rows_that_were_first_before(now: dict[str, Any], effects: list[str]) -> None:
    def best(by: str = "tag", order: str = "size DESC", n: int = 10) -> PipelineDef:
        place = SourceLocation("p.yaml", 1)
        table = ranking_table("best", "lines", ranking("top", by, order, n), None, place, place)
        return PipelineDef("p", (LINES,), (table,), (SinkDef("best", OUT, "update"),))

    assert compared(best(), best()) == []
    assert sorted(effect for effect, _ in compared(best(), best(**now))) == effects


def test_a_function_of_sql_that_changed_is_a_change_of_the_table(tmp_path: Any) -> None:
    def pipeline_with(udf: str) -> PipelineDef:
        file = tmp_path / f"udf{len(list(tmp_path.iterdir()))}.py"  # as each was when its query ran
        file.write_text(udf)
        functions, _ = functions_of_file(file, SourceLocation("p.yaml", 2))
        stateless = pipeline("SELECT tidy(value) AS word FROM lines", functions=tuple(functions))
        counted = replace(stateless.tables[0], sql="SELECT tidy(value) AS word, count(*) AS n FROM lines GROUP BY 1")
        return replace(stateless, tables=(counted,))

    before = "def tidy(text: str) -> str:\n    return help(text)\ndef help(text: str) -> str:\n    return text\n"
    same = "# a comment\n" + before
    assert compared(pipeline_with(before), pipeline_with(same)) == []
    assert compared(pipeline_with(before), pipeline_with(before.replace("help(text)\n", "text\n"))) == [
        ("asks", "table")
    ]
    assert compared(pipeline_with(before), pipeline_with(before.replace("return text", "return 'x'"))) == [
        ("asks", "table")
    ]
    assert compared(pipeline_with(before), pipeline_with(before.replace("-> str", "-> bytes"))) == [("asks", "table")]
