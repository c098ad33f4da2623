"""Columns that SQL and sinks name, with the real connectors and their schemas."""

from __future__ import annotations

import pytest

from millrace.connectors.base.registry import CONNECTORS
from millrace.errors import Problem
from millrace.pipeline.checks import check
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef, TableDef, Watermark, connection
from millrace.pipeline.ranking import LATEST, TOP, Ranking, ranking
from millrace.pipeline.sql import tables_read

_SCHEMA = "kind string, bid struct<auction bigint, price bigint>, tag string, at timestamp"
EVENTS = SourceDef("events", connection("kafka", "events", {"schema": _SCHEMA}), Watermark("at", 10.0))
COUNTS = "SELECT tag, count(*) AS n FROM events GROUP BY tag"


def found(*tables: str, sink: SinkDef | None = None) -> list[Problem]:
    """What is said of tables t0, t1, … of which the last is written to a sink."""
    defs = tuple(TableDef(f"t{number}", tables_read(query), query) for number, query in enumerate(tables))
    sink = sink or SinkDef(defs[-1].name, connection("console"))
    return check(PipelineDef("p", (EVENTS,), defs, (sink,)), CONNECTORS)


def conditions(*tables: str, sink: SinkDef | None = None) -> list[str]:
    return sorted(problem.condition for problem in found(*tables, sink=sink))


def test_what_stands_behind_a_struct_expansion_is_seen() -> None:
    bids = "SELECT bid.*, tag, at FROM events"
    assert conditions(bids, "SELECT auction, prise FROM t0") == ["column.unknown"]
    late = "SELECT b.* FROM (SELECT bid.*, at AS x FROM events) b JOIN t0 ON b.auction = t0.auction"
    assert conditions(bids, late) == ["state.join"]
    assert conditions(bids, "SELECT auction, count(*) AS n FROM t0 GROUP BY auction") == ["mode.append"]
    grouped = "SELECT auction, count(*) AS n FROM (SELECT bid.* FROM events) GROUP BY auction"
    assert conditions(grouped, sink=SinkDef("t0", connection("console"), "update")) == ["state.aggregation"]


def test_the_column_window_has_the_watermark_of_its_time() -> None:
    windowed = "SELECT window, tag, count(*) AS n FROM events GROUP BY window(at, '1 minute'), tag"
    assert conditions(windowed, "SELECT window, max(n) AS n FROM t0 GROUP BY window") == []
    assert conditions(windowed.replace("SELECT window", "SELECT tag AS window"),
                      "SELECT window, max(n) AS n FROM t0 GROUP BY window") == ["mode.append"]  # fmt: skip


def test_a_watermark_of_a_table_is_on_one_of_its_columns() -> None:
    table = TableDef("t", ("events",), "SELECT bid.* FROM events", watermark=Watermark("time", 1.0))
    sinks = (SinkDef("t", connection("console")),)
    (problem,) = check(PipelineDef("p", (EVENTS,), (table,), sinks), CONNECTORS)
    assert (problem.condition, problem.hint) == ("watermark.column", "there are: auction, price")


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("SELECT tag, kind FROM events GROUP BY tag", True),
        ("SELECT tag, count(*) AS n FROM events", True),
        ("SELECT e.tag AS t, e.kind, count(*) AS n FROM events e GROUP BY t", True),
        ("SELECT e.tag, e.kind AS k FROM events e GROUP BY e.tag", True),
        ("SELECT kind, count(*) AS n FROM events GROUP BY substr(tag, 1, 2)", True),
        ("SELECT tag, kind FROM events GROUP BY CUBE (1, 2)", False),
        ("SELECT tag, kind FROM events GROUP BY (1), GROUPING SETS ((2), (1, 2))", False),
        ("SELECT tag, any_value(kind) AS kind FROM events GROUP BY tag", False),
        ("SELECT tag AS t, t AS u, kind FROM events GROUP BY 1, 3", False),
        ("SELECT tag, kind, count(*) AS n FROM events GROUP BY ALL", False),
        ("SELECT tag, kind FROM events GROUP BY ROLLUP (tag, kind)", False),
        ("SELECT tag, kind FROM events GROUP BY GROUPING SETS ((tag), (kind))", False),
        (
            "SELECT window, window.start, bid.price, upper(tag) AS t FROM events GROUP BY window(at, '1 day'), bid, t",
            False,
        ),
        ("SELECT tag, (SELECT max(kind) FROM events) AS k FROM events", False),
        ("SELECT tag, max(kind) OVER (ORDER BY at) AS k FROM events", False),
        ("SELECT transform(collect_list(tag), tag -> tag) AS t, current_date FROM events GROUP BY kind", False),
        ("SELECT max(tag) FILTER (WHERE kind = 'a') AS t FROM events", False),
    ],
)
def test_a_column_is_grouped_or_in_an_aggregate(query: str, wrong: bool) -> None:
    assert ("sql.invalid" in conditions(query)) == wrong


@pytest.mark.parametrize(
    ("query", "options", "expected"),
    [
        ("SELECT a.tag, b.tag FROM events a JOIN t0 b ON a.at = b.at", {}, ["column.ambiguous"]),
        ("SELECT a.tag, b.TAG FROM events a JOIN t0 b ON a.at = b.at", {}, ["column.ambiguous"]),
        ("SELECT a.*, b.* FROM events a JOIN t0 b ON a.at = b.at", {}, ["column.ambiguous"] * 2),
        ("SELECT a.tag, b.tag AS tag2 FROM events a JOIN t0 b ON a.at = b.at", {}, []),
        ("SELECT tag, at FROM events JOIN t0 USING (tag, at)", {}, []),
        ("SELECT * FROM events JOIN t0 USING (tag, at)", {}, []),
        ("SELECT a.tag, b.tag, kind FROM events a JOIN t0 b ON a.at = b.at", {"value": "kind"}, []),
        ("SELECT a.tag, b.tag, kind FROM events a JOIN t0 b ON a.at = b.at", {"value": "kind", "key": "tag"},
         ["column.ambiguous"]),
        ("SELECT kind FROM (SELECT a.tag, b.tag, kind FROM events a JOIN t0 b ON a.at = b.at)", {}, []),
    ],
)  # fmt: skip
def test_a_topic_has_each_column_once(query: str, options: dict[str, str], expected: list[str]) -> None:
    sink = SinkDef("t1", connection("kafka", "out", options))
    assert conditions("SELECT tag, at FROM events", query, sink=sink) == expected
    assert conditions("SELECT tag, at FROM events", query, sink=SinkDef("t1", connection("console"))) == []


@pytest.mark.parametrize(
    ("connector", "option", "columns"),
    [
        ("kafka", "key", "tagg"),
        ("kafka", "value", ("tag", "m")),
        ("kafka", "topic_column", "topic"),
        ("files", "partition_by", ("day",)),
        ("memory", "key", "tagg"),
    ],
)
def test_a_sink_names_a_column_that_its_table_lacks(connector: str, option: str, columns: object) -> None:
    sink = SinkDef("t0", connection(connector, "out", {option: columns}))
    assert conditions("SELECT tag, bid.price AS n FROM events", sink=sink) == ["sink.column"]


@pytest.mark.parametrize("key", ["bid.zz", "tag.x", "bid.price.x", "bids.price"])
def test_a_sink_names_a_field_that_no_column_has(key: str) -> None:
    assert conditions("SELECT * FROM events", sink=SinkDef("t0", connection("kafka", "out", {"key": key}))) == [
        "sink.column"
    ]


@pytest.mark.parametrize("key", ["TAG", "bid.auction", "BID.Price", "`bid`.`price`", ("tag", "kind")])
def test_a_sink_names_a_column_of_its_table(key: object) -> None:
    assert conditions("SELECT * FROM events", sink=SinkDef("t0", connection("kafka", "out", {"key": key}))) == []


def test_a_sink_of_a_table_that_only_spark_knows() -> None:
    sink = SinkDef("t0", connection("kafka", "out", {"key": "x"}))
    assert conditions("SELECT * FROM events PIVOT (max(at) FOR tag IN ('x'))", sink=sink) == ["stream.pivot"]


def test_updates_without_a_key() -> None:
    def update(**options: object) -> SinkDef:
        return SinkDef("t0", connection("kafka", "out", options), "update")

    (_, problem) = sorted(found(COUNTS, sink=update()), key=lambda problem: problem.condition == "sink.no-key")
    assert (problem.condition, problem.severity, problem.hint) == ("sink.no-key", "warning", "add key: tag")
    assert conditions(COUNTS, sink=update(key="tag")) == ["state.aggregation"]
    assert conditions("SELECT * FROM events", sink=update()) == []


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("SELECT window(at, '1 day') AS w, tag, count(*) AS n FROM events GROUP BY 1, 2", "add key: [w, tag]"),
        (
            "SELECT tag AS who, upper(kind) AS k, count(*) AS n FROM events GROUP BY upper(KIND), tag",
            "add key: [k, who]",
        ),
        ("SELECT window(at, '1 day'), count(*) AS n FROM events GROUP BY window(at, '1 day')", "add key: window"),
        ("SELECT count(*) AS n FROM events GROUP BY tag", "add key: with the columns that it is grouped by"),
        (
            "SELECT max(at) AS tag, count(*) AS n FROM events GROUP BY tag",
            "add key: with the columns that it is grouped by",
        ),
        ("SELECT DISTINCT tag, kind AS k FROM events", "add key: [tag, k]"),
        ("SELECT upper(tag) AS who, count(*) AS n FROM events GROUP BY who", "add key: who"),
        ("SELECT tag, kind AS k, count(*) AS n FROM events GROUP BY tag, tag, k", "add key: [tag, k]"),
        (
            "SELECT upper(tag) AS tag, count(*) AS n FROM events GROUP BY tag",
            "add key: with the columns that it is grouped by",
        ),
        (
            "SELECT kind AS tag, count(*) AS n FROM events GROUP BY tag, kind",
            "add key: with the columns that it is grouped by",
        ),
        (
            "SELECT upper(x) AS x, count(*) AS n FROM (SELECT tag AS x FROM events) GROUP BY x",
            "add key: with the columns that it is grouped by",
        ),
        ("SELECT * FROM (SELECT tag, kind, count(*) AS n FROM events GROUP BY tag, kind)", "add key: [tag, kind]"),
    ],
)
def test_the_key_of_a_hint_has_every_group(query: str, hint: str) -> None:
    problems = found(query, sink=SinkDef("t0", connection("kafka", "out"), "update"))
    assert [problem.hint for problem in problems if problem.condition == "sink.no-key"] == [hint]


@pytest.mark.parametrize(
    ("form", "hint"),
    [
        (ranking(LATEST, "tag, kind", "at"), "add key: [tag, kind]"),
        (ranking(TOP, "tag", "at DESC", 3, "place"), "add key: [tag, place]"),
        (ranking(TOP, "tag", "at DESC", 3), "add key: with the columns that it is grouped by"),
    ],
)
def test_the_key_of_a_ranking(form: Ranking, hint: str) -> None:
    table = TableDef("t", ("events",), form.sql("events"), ranking=form)
    sinks = (SinkDef("t", connection("kafka", "out"), "update"),)
    problems = check(PipelineDef("p", (EVENTS,), (table,), sinks), CONNECTORS)
    (grows,) = [problem for problem in problems if problem.condition == "state.aggregation"]
    assert grows.message == f"the state of {form.kind} in 't' can grow for ever"
    assert [problem.hint for problem in problems if problem.condition == "sink.no-key"] == [hint]


def test_columns_without_names_are_no_choice() -> None:
    (problem,) = found("SELECT count(*), max(at) FROM events GROUP BY window(at, '1 day')", "SELECT n FROM t0")
    assert (problem.condition, problem.hint) == (
        "column.unknown",
        "its columns have no names: give them some, as count(*) AS n",
    )
