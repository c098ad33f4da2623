"""Each rule finds its problem, at its place, and leaves what is right alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import millrace as mr
from millrace.connectors.base.registry import CONNECTORS as REAL
from millrace.errors import Problem, SourceLocation
from millrace.pipeline.checks import check
from millrace.pipeline.loading.python import Pipeline as Written
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef, TableDef, connection

from ..conftest import CONNECTORS

Told = Callable[..., list[str]]

HEAD = """\
name: p
sources:
  a: {kafka: a, schema: "id int, tag string, at timestamp"}
  b: {kafka: b, watermark: [at, 10 seconds]}
  c: {kafka: c, watermark: [at, 10 seconds]}
  s: {files: s, static: true}
x-all: &all
  - {from: a, console: }
  - {from: b, console: }
  - {from: c, console: }
  - {from: s_used, console: }
tables:
  s_used: SELECT a.* FROM a JOIN s USING (id)
  t: |
"""


def table(told: Told, sql: str, sink: str = "console: ") -> list[str]:
    """What is told of a query, that is written to a sink; only lines of the query (from 1) and of the sink (0)."""
    lines = HEAD.count("\n")
    body = "".join(f"    {line}\n" for line in sql.splitlines())
    tail = (
        f"sinks:\n  - {{from: t, {sink}}}\npanels: [{{from: a, table: }}, {{from: b, table: }}, {{from: c, table: }}]\n"
    )
    found = [one.rsplit(":", 1) for one in told(HEAD + body + tail)]
    last = lines + len(sql.splitlines())
    return [
        f"{condition}:{0 if int(line) > last else int(line) - lines}"
        for condition, line in found
        if int(line) > lines or condition.startswith(("realtime", "continuous"))
    ]


def test_a_sound_pipeline_has_no_problems(told: Told) -> None:
    assert table(told, "SELECT window(at, '1 minute') AS w, count(*) AS n\nFROM b GROUP BY 1") == []


@pytest.mark.parametrize(
    ("sql", "sink", "expected"),
    [
        ("SELECT *\nFROM nothing", "console: ", ["name.unknown:2"]),
        ("SELECT *\nFROM a\nWHERE (", "console: ", ["sql.invalid:3"]),
        ("SELECT tag, count(*) AS n\nFROM a\nGROUP BY tag", "console: ", ["mode.append:0"]),
        ("SELECT tag, count(*) AS n\nFROM b\nGROUP BY tag", "console: ", ["mode.append:0"]),
        ("SELECT tag, count(*) AS n\nFROM a\nGROUP BY tag", "console: , mode: update", ["state.aggregation?:3"]),
        ("SELECT tag, count(*) AS n\nFROM a\nGROUP BY tag", "console: , mode: complete", ["state.aggregation?:3"]),
        ("SELECT * FROM a", "console: , mode: complete", ["mode.complete:0"]),
        ("SELECT * FROM a", "console: , mode: apend", ["mode.unknown:0"]),
        ("SELECT * FROM a", "files: out, mode: update", ["mode.sink:0"]),
        (
            "SELECT session_window(at, '5 minutes') AS w, tag, count(*) AS n FROM b GROUP BY 1, 2",
            "console: , mode: update",
            ["mode.session:0"],
        ),
        (
            "SELECT session_window(at, '5 minutes') AS w, count(*) AS n FROM b\nGROUP BY 1",
            "console: ",
            ["stream.session-key:2"],
        ),
        ("SELECT b.* FROM b\nFULL JOIN c ON b.id = c.id AND c.at >= b.at", "console: ", ["join.unbounded:2"]),
        ("SELECT b.* FROM b\nFULL JOIN c ON b.id = c.id AND c.at BETWEEN b.at AND b.at", "console: ", []),
        ("SELECT b.* FROM b\nLEFT JOIN a ON b.at = a.at", "console: ", ["join.unbounded:2"]),
        ("SELECT b.* FROM b\nLEFT SEMI JOIN c ON b.at = c.at", "console: ", []),
        ("SELECT b.* FROM b\nLEFT SEMI JOIN (SELECT DISTINCT at FROM c) d ON b.at = d.at", "console: ", []),
        (
            "SELECT d.* FROM (SELECT DISTINCT at FROM b) d\nLEFT SEMI JOIN (SELECT DISTINCT at FROM c) e USING (at)",
            "console: ",
            ["join.semi:2"],
        ),
        (
            "WITH e AS (SELECT c.at FROM c LEFT JOIN b USING (at)) SELECT e.* FROM e\nLEFT SEMI JOIN e f USING (at)",
            "console: ",
            ["join.semi:2"],
        ),
        ("SELECT b.* FROM b\nJOIN a ON b.at = a.at", "console: ", ["join.one-sided?:2"]),
        ("SELECT b.* FROM b\nJOIN c ON b.at = c.at", "console: ", []),
        ("SELECT b.* FROM b\nJOIN c ON b.id = c.id AND c.at >= b.at", "console: ", ["state.join?:2"]),
        (
            "SELECT c.at, count(*) AS n FROM b JOIN c\nON b.id = c.id AND c.at BETWEEN b.at AND b.at GROUP BY c.at",
            "console: ",
            [],
        ),
        (
            "SELECT c.at, count(*) AS n FROM b\nJOIN c ON b.id = c.id AND c.at >= b.at GROUP BY c.at",
            "console: ",
            ["state.join?:2"],
        ),
        (
            "SELECT b.at, count(*) AS n FROM b\nJOIN c ON b.id = c.id AND c.at >= b.at GROUP BY b.at",
            "console: ",
            ["state.join?:2", "mode.append:0"],
        ),
        ("SELECT *\nFROM a\nORDER BY id", "console: ", ["stream.sort:3"]),
        ("SELECT *\nFROM a\nLIMIT 3", "console: ", ["stream.limit-ends?:3"]),
        ("SELECT *\nFROM a\nLIMIT 3", "console: , mode: update", ["stream.limit:3"]),
        ("SELECT *\nFROM a\nLIMIT 3 OFFSET 2", "console: ", ["stream.offset:3", "stream.limit-ends?:3"]),
        ("SELECT id,\nrow_number() OVER (ORDER BY id) AS r\nFROM a", "console: ", ["stream.over:2"]),
        (
            "SELECT\ncount(DISTINCT tag) AS n FROM b GROUP BY at",
            "console: , mode: update",
            ["stream.distinct-aggregate:2"],
        ),
        ("SELECT tag FROM a\nINTERSECT\nSELECT tag FROM b", "console: ", ["stream.intersect:3"]),
        ("SELECT tag FROM a\nEXCEPT\nSELECT tag FROM b", "console: ", ["stream.except:3"]),
        ("SELECT id,\n(SELECT max(id) FROM b) AS m FROM a", "console: ", ["stream.subquery:2"]),
        ("SELECT * FROM a\nTABLESAMPLE (10 PERCENT)", "console: ", ["stream.sample:1"]),
        ("SELECT id FROM a\nUNION ALL\nSELECT id FROM s", "console: ", ["stream.union:3"]),
        ("SELECT a.id FROM a\nRIGHT JOIN s ON a.id = s.id", "console: ", ["stream.outer-join:2"]),
        ("SELECT monotonically_increasing_id() AS i\nFROM a", "console: ", ["stream.row-number:1"]),
        ("SELECT * FROM a PIVOT (count(id) FOR tag IN ('x'))", "console: ", ["stream.pivot:1"]),
        ("SELECT a.id FROM a\nJOIN b ON a.id = b.id", "console: ", ["state.join?:2"]),
        ("SELECT b.id FROM b\nLEFT JOIN c ON b.id = c.id", "console: ", ["join.unbounded:2"]),
        ("SELECT b.id FROM b\nLEFT JOIN c ON b.at = c.at", "console: , mode: update", ["mode.join:0"]),
        ("SELECT b.id FROM b\nLEFT ANTI JOIN c ON b.at = c.at", "console: ", ["stream.anti-join:2"]),
        (
            "SELECT n, count(*) AS m FROM (\nSELECT at, count(*) AS n FROM b GROUP BY at)\nGROUP BY n",
            "console: , mode: update",
            ["mode.chained:3", "state.aggregation?:3"],
        ),
        ("SELECT * FROM s", "console: ", ["sink.static:0"]),
        ("SELECT\nDISTINCT tag FROM a", "console: , mode: update", ["state.aggregation?:2"]),
        ("WITH x AS (SELECT * FROM a)\nSELECT * FROM x\nORDER BY id", "console: ", ["stream.sort:3"]),
    ],
)
def test_a_query_and_its_sink(told: Told, sql: str, sink: str, expected: list[str]) -> None:
    assert table(told, sql, sink) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: p\nsources: {a: {kafka: a}}\n", ["sink.none:1", "source.unused?:2"]),
        ("name: p/q\nsources: {a: {kafka: a}}\nsinks: [{from: a, console: }]", ["name.invalid:1"]),
        ("name: p\nsources: {a-b: {kafka: a}}\nsinks: [{from: a-b, console: }]", ["name.invalid:2"]),
        ("name: p\nsources: {stream: {kafka: a}}\nsinks: [{from: stream, console: }]", ["name.invalid:2"]),
        (
            "name: p\nsources: {a: {kafka: a}}\ntables:\n  A: SELECT * FROM a\nsinks: [{from: a, console: }]",
            ["name.duplicate:4", "table.cycle:4"],
        ),
        (
            "name: p\nsources: {a: {kafka: a}}\ntables:\n  t: SELECT 1 AS x FROM a\nsinks: [{from: a, console: }]",
            ["table.unused?:4"],
        ),
        (
            (
                "name: p\ntables:\n  t: SELECT * FROM u\n  u: SELECT * FROM v\n  v: SELECT * FROM t\n"
                "sinks: [{from: t, console: }]"
            ),
            ["table.cycle:3"],
        ),
        (
            "name: p\ntables:\n  t: SELECT * FROM t\nsinks: [{from: t, console: }]",
            ["table.cycle:3"],
        ),
        ("name: p\nsources: {a: {kafka: a}}\nsinks: [{from: A, console: }]", []),
        ("name: p\nsources: {a: {kafka: a}}\nsinks: [{from: aa, console: }]", ["source.unused?:2", "name.unknown:3"]),
        ("name: p\nsources: {a: {kakfa: a}}\nsinks: [{from: a, console: }]", ["connector.unknown:2"]),
        (
            "name: p\nsources:\n  a:\n    kafka: a\n    odd: 1\nsinks: [{from: a, console: }]",
            ["option.unknown:5"],
        ),
        (
            (
                "name: p\nsources:\n  a:\n    kafka: a\n    schema: at timestamp\n    watermark: [att, 1s]\n"
                "sinks: [{from: a, console: }]"
            ),
            ["watermark.column:6"],
        ),
        (
            (
                "name: p\nsources:\n  a:\n    kafka: a\n    schema: at string\n    watermark: [at, 1s]\n"
                "sinks: [{from: a, console: }]"
            ),
            ["watermark.type:6"],
        ),
        (
            (
                "name: p\nsources: {a: {kafka: a}}\ntables:\n  t: {sql: SELECT x AS y FROM a, watermark: [x, 1s]}\n"
                "sinks: [{from: t, console: }]"
            ),
            ["watermark.column:4"],
        ),
        (
            (
                "name: p\nsources: {a: {kafka: a}}\ntables:\n  t: {sql: 'SELECT *, 1 y FROM a', watermark: [x, 1s]}\n"
                "sinks: [{from: t, console: }]"
            ),
            [],
        ),
        (
            (
                "name: p\nsources: {a: {kafka: a}}\nsinks: [{from: a, console: }]\n"
                "panels:\n  - {from: a, tpo: {}}\n  - {from: b, top: {label: x, value: y}}"
            ),
            ["panel.unknown:5", "name.unknown:6"],
        ),
    ],
)
def test_a_pipeline(told: Told, text: str, expected: list[str]) -> None:
    assert told(text) == expected


def test_realtime_names_what_prevents_it(told: Told) -> None:
    text = """\
name: p
trigger: realtime
sources:
  a: {kafka: a, watermark: [at, 1s]}
  f: {files: f}
  b: {kafka: b}
tables:
  j: |
    SELECT b.* FROM b
    JOIN f ON b.id = f.id AND b.at = f.at
  top:
    sql: SELECT * FROM a ORDER BY id LIMIT 3
sinks:
  - {from: j, files: out}
  - {from: b, kafka: c, mode: update}
  - {from: b, kafka: d, mode: update}
  - {from: b, kafka: e, trigger: 1s}
  - {from: top, console: , mode: update}
"""
    assert told(text) == [
        "realtime.watermark:4",
        "realtime.source:5",
        "realtime.operator:10",
        "state.join?:10",
        "realtime.operator:12",
        "realtime.operator:12",
        "stream.limit:12",
        "stream.sort:12",
        "realtime.mode:14",
        "realtime.sink:14",
        "realtime.sinks?:15",
        "realtime.sinks?:16",
    ]


def test_continuous_names_what_prevents_it(told: Told) -> None:
    text = """\
name: p
trigger: continuous 1s
sources:
  a: {kafka: a, watermark: [at, 1s]}
  f: {files: f}
tables:
  t: SELECT explode(xs) AS x FROM a
  u: SELECT id + 1 AS id FROM f WHERE id > 3
sinks:
  - {from: t, console: }
  - {from: u, files: out}
"""
    assert told(text) == [
        "continuous.watermark:4",
        "continuous.source:5",
        "continuous.operator:7",
        "continuous.sink:11",
    ]


def test_messages_tell_why_and_what_to_do(problems: Callable[..., list[Problem]]) -> None:
    text = (
        "name: p\nsources: {a: {kafka: a}}\ntables:\n"
        "  t: {sql: 'SELECT window(at, ''1 minute'') AS w, count(*) AS n FROM a GROUP BY 1', watermark: [w, 1s]}\n"
        "sinks: [{from: t, console: }]"
    )
    (one,) = problems(text)
    assert one.condition == "mode.append"
    assert one.hint is not None
    assert "holds for its result" in one.hint
    assert (
        problems(text.replace(", watermark: [w, 1s]", "").replace("{kafka: a}", "{kafka: a, watermark: [x, 1s]}"))[
            0
        ].hint
        == "group by x or by window(x, '1 minute'), or use mode: update"
    )


def test_names_are_guessed(problems: Callable[..., list[Problem]]) -> None:
    text = "name: p\nsources: {posts: {kafka: a}}\ntables: {t: SELECT * FROM pots}\nsinks: [{from: t, console: }]"
    assert [one.hint for one in problems(text) if one.condition == "name.unknown"] == ["did you mean 'posts'?"]


def test_a_cycle_is_shown(problems: Callable[..., list[Problem]]) -> None:
    text = "name: p\ntables: {t: SELECT * FROM u, u: SELECT * FROM T}\nsinks: [{from: t, console: }]"
    assert "t <- u <- t" in problems(text)[0].message


def pipeline(*functions: Callable[..., Any], mode: str = "append") -> PipelineDef:
    """Tables in Python over the sources posts (with a watermark on at), plain and rooms (static)."""
    written = Written("p")
    written.source("posts", mr.kafka("posts"), watermark=("at", "10 seconds"))
    written.source("plain", mr.kafka("plain"))
    written.source("rooms", mr.files("rooms"), static=True)
    for function in functions:
        written.table(function)
    written.sink(functions[-1].__name__, mr.console(), mode=mode)
    return written.model()


def line_of(function: Callable[..., Any], offset: int) -> int:
    return function.__code__.co_firstlineno + offset


def lines(model: PipelineDef) -> list[tuple[str, int | None]]:
    found = [one for one in check(model, CONNECTORS) if "unused" not in one.condition]
    return [(one.condition, one.place.line if one.place else None) for one in found]


def test_operations_in_python_have_their_own_lines() -> None:
    def top(plain: Any) -> Any:
        words = plain.select("word")
        counts = (
            words.groupBy("word")  # which may be many
            .count()
            .orderBy("count")
        )
        return counts.limit(10)

    assert lines(pipeline(top, mode="complete")) == [("state.aggregation", line_of(top, 4))]
    assert lines(pipeline(top, mode="update")) == [
        ("state.aggregation", line_of(top, 4)),
        ("stream.sort", line_of(top, 5)),
        ("stream.limit", line_of(top, 7)),
    ]


def test_what_is_not_certain_in_python_is_no_error() -> None:
    def helped(plain: Any) -> Any:
        return clean(plain)

    def branched(plain: Any) -> Any:
        if len(plain.columns) > 3:
            plain = plain.orderBy("id")
        return plain

    def looped(plain: Any) -> Any:
        for name in plain.columns:
            plain = plain.groupBy(name).count()
        return plain

    def computed(posts: Any) -> Any:
        column = "at"
        return posts.groupBy(column).count()

    def transformed(plain: Any) -> Any:
        return plain.transform(lambda rows: rows.orderBy("id"))

    for function in (helped, branched, looped, computed, transformed):
        for mode in ("append", "update", "complete"):
            assert lines(pipeline(function, mode=mode)) == [], (function.__name__, mode)


def clean(rows: Any) -> Any:
    return rows


def test_shapes_go_from_table_to_table_and_between_python_and_sql(tmp_path: Path) -> None:
    written = Written("p")
    written.source("posts", mr.kafka("posts"), watermark=("at", "10 seconds"))

    @written.table
    def tags(posts: Any) -> Any:
        return posts.select("at", "tag")

    written.sql("counts", "SELECT window(at, '1 minute') AS w, tag, count(*) AS n FROM tags GROUP BY 1, 2")
    written.sql("wrong", "SELECT tag, count(*) AS n FROM tags GROUP BY tag")
    written.sink("counts", mr.console())
    written.sink("wrong", mr.console())
    assert [condition for condition, _ in lines(written.model())] == ["mode.append"]


def test_an_action_on_a_stream_is_told() -> None:
    def counted(plain: Any) -> Any:
        total = plain.count()
        return plain.withColumn("total", total)

    assert lines(pipeline(counted)) == [("stream.action", line_of(counted, 1))]


def test_python_code_prevents_realtime() -> None:
    def mapped(plain: Any) -> Any:
        return plain.mapInPandas(clean, "a int")

    written = Written("p", trigger="realtime")
    written.source("plain", mr.kafka("plain"))
    written.table(mapped)
    written.sink("mapped", mr.kafka("out"), mode="update")
    assert lines(written.model()) == [("realtime.operator", line_of(mapped, 1))]


def test_parameters_must_be_what_the_sql_reads() -> None:
    written = Written("p")
    written.source("posts", mr.kafka("posts"))

    @written.table
    def tags(post: Any) -> str:
        return "SELECT * FROM posts"

    written.sink("tags", mr.console())
    (one,) = check(written.model(), CONNECTORS)
    assert (one.condition, one.hint) == ("sql.parameters", "write def tags(posts):")


def test_a_secret_in_a_call_is_told_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "hunter3")
    import os

    written = Written("p")
    written.source("a", mr.kafka("a", password="hunter2"))
    written.source("b", mr.kafka("b", password=os.environ["PW"]))
    written.source(
        "c",
        mr.kafka("c", config={"sasl.password": "hunter2", "client.id": "me"}),
    )
    written.source("d", mr.kafka("d", url="jdbc:postgresql://host/db?user=me&password=hunter2"))
    for name in "abcd":
        written.sink(name, mr.console())
    model = written.model()
    told = check(model, CONNECTORS)
    assert [one.message.split()[0] for one in told] == ["password", "sasl.password", "url"]
    assert "hunter" not in repr(model)
    assert "hunter" not in repr(told)


def test_the_same_problem_is_told_once_and_in_the_order_of_the_file() -> None:
    late = SourceDef("late", connection("kafka", "x"), place=SourceLocation("p.py", 9))
    wrong = TableDef("wrong", ("nothing",), "SELECT * FROM nothing ORDER BY x", place=SourceLocation("p.py", 3))
    sinks = tuple(SinkDef("wrong", connection("console"), place=SourceLocation("p.py", 5)) for _ in range(2))
    told = check(PipelineDef("p", (late,), (wrong,), sinks, place=SourceLocation("p.py", 1)), CONNECTORS)
    assert [(one.condition, one.place and one.place.line) for one in told] == [
        ("name.unknown", 3),
        ("source.unused", 9),
    ]


def test_a_long_chain_of_tables_is_no_problem() -> None:
    names = [f"t{number}" for number in range(1000)]
    tables = tuple(TableDef(name, (before,), f"SELECT * FROM {before}") for before, name in pairwise(names))  # noqa: S608
    source, sink = SourceDef("t0", connection("kafka", "x")), SinkDef("t999", connection("console"), "complete")
    assert [one.condition for one in check(PipelineDef("p", (source,), tables, (sink,)), CONNECTORS)] == [
        "mode.complete"
    ]


def test_sinks_that_disturb_each_other_and_rows_that_come_back(tmp_path: Path) -> None:
    written = Written("p")
    written.source("a", mr.kafka("a", format="text"))
    written.source("b", mr.kafka("b", format="text"))
    written.sink("a", mr.memory("rows"))
    written.sink("b", mr.memory("Rows"))
    written.sink("a", mr.memory())
    written.sink("a", mr.files(str(tmp_path / "out")))
    written.sink("b", mr.files(f"{tmp_path}/./out"))
    written.sink("b", mr.files(str(tmp_path / "other")))
    written.sink("a", mr.kafka("b"))
    written.sink("b", mr.kafka("b"))
    told = check(written.model(), REAL)
    assert [one.condition for one in told] == ["sink.shared", "sink.shared", "sink.loop"]
    assert "rows" in told[0].message
    assert told[2].severity == "warning"
