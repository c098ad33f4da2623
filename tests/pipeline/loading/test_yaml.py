"""A YAML file becomes a model or a list of clear problems, never anything else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import millrace as mr
from millrace.errors import InvalidDefinition, Problem, SourceLocation
from millrace.pipeline.loading.python import Pipeline as Written
from millrace.pipeline.loading.yaml import load_yaml
from millrace.pipeline.model import Trigger, Watermark

from ..conftest import Read

TRENDING = r"""
name: trending
sources:
  posts: {kafka: posts, schema: "id string, author string, text string, at timestamp"}
tables:
  hashtags:
    watermark: [at, 10 seconds]
    sql: SELECT at, explode(regexp_extract_all(text, '#(\\w+)')) AS tag FROM posts
  popular: |
    SELECT window(at, '1 minute', '10 seconds') AS window, tag, count(*) AS count
    FROM hashtags GROUP BY 1, 2
sinks:
  - {from: popular, kafka: popular, key: tag, mode: update}
panels:
  - {from: popular, top: {label: tag, value: count}}
"""


def trending() -> Written:
    """The same in Python."""
    pipeline = Written("trending")
    pipeline.source("posts", mr.kafka("posts", schema="id string, author string, text string, at timestamp"))

    @pipeline.table(watermark=("at", "10 seconds"))
    def hashtags(posts: Any) -> Any:
        return r"SELECT at, explode(regexp_extract_all(text, '#(\\w+)')) AS tag FROM posts"

    @pipeline.table
    def popular(hashtags: Any) -> Any:
        return """
            SELECT window(at, '1 minute', '10 seconds') AS window, tag, count(*) AS count
            FROM hashtags GROUP BY 1, 2
        """

    pipeline.sink("popular", mr.kafka("popular", key="tag"), mode="update")
    pipeline.panel("popular", mr.top(label="tag", value="count"))
    return pipeline


def found(problems: list[Problem]) -> list[tuple[str, int | None]]:
    return [(one.condition, one.place.line if one.place else None) for one in problems]


def test_the_same_pipeline_in_python_and_yaml_is_the_same_model(read: Read) -> None:
    model, problems = read(TRENDING)
    assert problems == []
    assert model == trending().model()


def test_everything_that_can_be_said_is_the_same_in_both_forms(read: Read) -> None:
    model, problems = read(
        """
        name: everything
        trigger: 5s
        sources:
          posts:
            kafka: [posts, more]
            schema: at timestamp
            watermark: [at, 1 minute 30 seconds]
            start: {posts: {0: 23, 1: 4}}
            config: {fetch.min.bytes: 1000}
          rooms: {files: rooms, format: csv, header: true, static: true}
        tables:
          quiet: {sql: SELECT * FROM Posts}
        sinks:
          - {from: quiet, files: out, trigger: 1m}
          - {from: POSTS, console: , rows: 20, truncate: 1.5}
        panels:
          - {from: quiet, table: }
        """
    )
    same = Written("everything", trigger="5s")
    same.source(
        "posts",
        mr.kafka(
            ["posts", "more"], schema="at timestamp", start={"posts": {0: 23, 1: 4}}, config={"fetch.min.bytes": 1000}
        ),
        watermark=("at", "90s"),
    )
    same.source("rooms", mr.files("rooms", format="csv", header=True), static=True)
    same.sql("quiet", "SELECT * FROM Posts")
    same.sink("quiet", mr.files("out"), trigger="1m")
    same.sink("posts", mr.console(rows=20, truncate=1.5))
    same.panel("quiet", mr.table())
    assert problems == []
    assert model == same.model()
    assert model is not None
    assert model.trigger == Trigger("every", 5.0)
    assert model.sources[0].watermark == Watermark("at", 90.0)


def test_every_element_and_option_knows_its_line(read: Read) -> None:
    model, _ = read(
        "name: places\n"
        "sources:\n"
        "  posts:\n"
        "    schema: a int\n"
        "    kafka: posts\n"
        "    start: latest\n"
        "tables:\n"
        "  tags:\n"
        "    watermark: [at, 1s]\n"
        "    sql: |\n"
        "\n"
        "      SELECT *\n"
        "      FROM posts\n"
        "sinks:\n"
        "  - from: tags\n"
        "    mode: update\n"
        "    console:\n"
    )
    assert model is not None
    posts, tags, sink = model.sources[0], model.tables[0], model.sinks[0]
    assert (model.place.line, posts.place.line, tags.place.line, sink.place.line) == (1, 3, 8, 15)
    assert posts.connection.connector == "kafka"
    assert (posts.connection.place.line, posts.connection.option_place("start").line) == (5, 6)
    assert sink.connection.option_place("mode").line == 16
    assert (tags.sql_place, tags.sql_line(2).line) == (SourceLocation(posts.place.file, 12), 13)


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("|\n    SELECT a\n    FROM b WHERE x = = 1", 5),
        ("|\n\n    SELECT a\n    FROM b WHERE x = = 1", 6),
        ("|-\n    SELECT a\n\n    FROM b WHERE x = = 1", 6),
        (">\n    SELECT a\n    FROM b WHERE x = = 1", 5),
        (">\n    SELECT a\n\n    FROM b\n    WHERE x = = 1", 7),
        ("SELECT a FROM b WHERE x = = 1", 3),
        ("SELECT a\n    FROM b\n    WHERE x = = 1", 5),
        ("\n    SELECT a\n    FROM b\n    WHERE x = = 1", 6),
        ("'SELECT ''a''\n    FROM b\n    WHERE x = = 1'", 5),
        ('"SELECT \\"a\\"\n    FROM b\n    WHERE x = = 1"', 5),
        ('"SELECT a\\nFROM b WHERE x = = 1"', 3),
        ("{sql: SELECT a\n    FROM b\n    WHERE x = = 1}", 5),
    ],
)
def test_a_mistake_in_sql_is_told_with_its_line_of_the_file(
    told: Callable[..., list[str]], sql: str, line: int
) -> None:
    text = f"name: p\ntables:\n  t: {sql}\nsources: {{b: {{kafka: b}}}}\nsinks: [{{from: t, console: }}]\n"
    assert told(text) == [f"sql.invalid:{line}"]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", [("file.empty", None)]),
        ("# nothing\n", [("file.empty", None)]),
        ("just words", [("value.type", 1)]),
        ("- a\n- b", [("value.type", 1)]),
        ("null", [("value.type", 1)]),
        ("name: a\nname: b\nsources: {}\n", [("key.duplicate", 2)]),
        ("name: a\nsources:\n  x: {kafka: a, kafka: b}", [("key.duplicate", 3)]),
        ("name: a\nsuorces: {}", [("key.unknown", 2)]),
        ("sources: {}", [("key.missing", 1)]),
        ("name: {}", [("value.type", 1)]),
        ("name:", [("value.type", 1)]),
        ("name: a\nsources: [x]", [("value.type", 2)]),
        ("name: a\nsources: {x: kafka}", [("value.type", 2)]),
        ("name: a\nsources: {x: {}}", []),
        ("name: a\nsources: {x: {static: true}}", [("connector.missing", 2)]),
        ("name: a\nsources: {x: {kafka: a, static: perhaps}}", [("value.type", 2)]),
        ("name: a\nsources: {x: {kafka: a, watermark: at}}", [("value.type", 2)]),
        ("name: a\nsources: {x: {kafka: a, watermark: [at]}}", [("value.type", 2)]),
        ("name: a\nsources: {x: {kafka: a, watermark: [[], 1s]}}", [("value.type", 2)]),
        ("name: a\nsources: {x: {kafka: a, watermark: [at, soon]}}", [("watermark.invalid", 2)]),
        ("name: a\ntables: {t: [1]}", [("value.type", 2)]),
        ("name: a\ntables: {t: }", [("value.type", 2)]),
        ("name: a\ntables: {t: {watermark: [at, 1s]}}", [("key.missing", 2)]),
        ("name: a\ntables: {t: {sql: SELECT 1, sqll: x}}", [("key.unknown", 2)]),
        ("name: a\nsinks: {from: t}", [("value.type", 2)]),
        ('name: a\ntables:\n  t: {latest: {from: "", by: id, order: at}}', [("key.missing", 3)]),
        ('name: a\ntables:\n  t:\n    top:\n      n: 1\n      from: ""\n      order: at', [("key.missing", 6)]),
        ('name: a\nsinks:\n  - {from: "", console: }', [("key.missing", 3)]),
        ('name: a\npanels:\n  - {from: "", number: {value: n}}', [("key.missing", 3)]),
        ("name: a\nsinks: [t]", [("value.type", 2), ("connector.missing", 2), ("key.missing", 2)]),
        ("name: a\nsinks: [{from: t}]", [("connector.missing", 2)]),
        ("name: a\nsinks: [{console: }]", [("key.missing", 2)]),
        ("name: a\nsinks: [{from: t, console: , mode: []}]", [("value.type", 2)]),
        ("name: a\nsinks: [{from: t, console: , trigger: soon}]", [("trigger.invalid", 2)]),
        ("name: a\ntrigger: [5s]", [("value.type", 2)]),
        ("name: a\npanels: [{from: t}]", [("key.missing", 2)]),
        ("name: a\npanels: [{from: t, top: 3}]", [("value.type", 2)]),
        ("name: a\npanels: [{from: t, top: {}, else: 1}]", [("key.unknown", 2)]),
        ("name: a\n\tsources: {}", [("file.syntax", 2)]),
        ("name: a\nsources: {x: {kafka: a}\n", [("file.syntax", 3)]),
        ("name: a\nsources: *nothing", [("file.syntax", 2)]),
        ("name: a\nsources: &s {x: *s}", [("file.syntax", 2)]),
        ("name: a\n---\nname: b", [("file.syntax", 2)]),
        ("name: a\n? [x]\n: y", [("file.syntax", 2)]),
        ("name: !!python/object:os.system a", [("value.type", 1)]),
        ("name: !mine a", [("value.type", 1)]),
        ("name: a\nsources: {<<: 3}", [("value.type", 2)]),
        ("name: a\x00b", [("file.syntax", None)]),
        ("name: ${NOT_SET}", [("env.missing", 1)]),
        ("name: a\nsources: {x: {kafka: '${1}'}}", [("env.syntax", 2)]),
        ("name: a\nsources: {x: {kafka: '${A:-${B}}'}}", [("env.syntax", 2)]),
    ],
)
def test_what_is_wrong_is_told_with_its_line(read: Read, text: str, problems: list[tuple[str, int | None]]) -> None:
    assert found(read(text)[1]) == problems


def test_all_that_is_wrong_is_told_at_once(told: Callable[..., list[str]]) -> None:
    text = (
        "name: many\n"
        "trigger: soon\n"
        "sources:\n"
        "  posts: {kafka: posts, odd: 1, schema: '${NOT_SET}'}\n"
        "tables:\n"
        "  tags: SELECT * FROM psots\n"
        "  broken: SELEC\n"
        "sinks:\n"
        "  - {from: tags, consle: }\n"
        "  - {from: tgas, console: , mode: apend}\n"
        "colour: red\n"
    )
    assert told(text) == [
        "trigger.invalid:2",
        "env.missing:4",
        "name.unknown:6",
        "sql.invalid:7",
        "connector.unknown:9",
        "mode.unknown:10",
        "name.unknown:10",
        "key.unknown:11",
    ]


def test_a_hint_says_how_a_variable_is_written_between_braces(read: Read) -> None:
    assert read("name: a\nsources: {x: {kafka: ${T}}}")[1][0].hint == 'inside { } put it in quotes: "${NAME}"'


def test_a_file_of_tests_is_told_to_be_one(read: Read) -> None:
    (problem,) = read("# of trending\ntests:\n  one: {given: {posts: []}, expect: {tags: []}}\n")[1]
    assert (problem.condition, problem.place.line if problem.place else None) == ("key.unknown", 2)
    assert "millrace test" in (problem.hint or "")


def test_a_guess_is_made_at_what_was_meant(read: Read) -> None:
    assert read("name: a\nsuorces: {}")[1][0].hint == "did you mean 'sources'?"


def test_one_error_tells_them_all(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("colour: red\nsinks: 3\n")
    with pytest.raises(InvalidDefinition) as raised:
        load_yaml(path)
    assert [one.condition for one in raised.value.problems] == ["key.unknown", "key.missing", "value.type"]
    assert f"{path}:1: error[key.unknown]: a pipeline has no 'colour'" in raised.value.lines()


@pytest.mark.parametrize(
    ("keys", "connector"),
    [
        ("schema: a int, kafka: t", "kafka"),
        ("watermark: [at, 1s], static: true, mystery: t, other: 1", "mystery"),
        ("rate: 5, kafka: t", "rate"),
        ("./mine.py: t, schema: a int", "./mine.py"),
    ],
)
def test_the_connector_is_a_known_name_or_the_first_that_is_no_general_word(
    read: Read, keys: str, connector: str
) -> None:
    model, _ = read(f"name: a\nsources: {{x: {{{keys}}}}}")
    assert model is not None
    assert model.sources[0].connection.connector == connector


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="cannot read"):
        load_yaml(tmp_path)


@pytest.mark.parametrize(
    "tables",
    ["tables:\n  t: {sql: SELECT id, f(id, 1) FROM a}", "tables: {t: SELECT id, f(id, 1) FROM a, u: SELECT 1 FROM a}"],
)
def test_sql_whose_commas_yaml_takes_is_one_error(told: Callable[..., list[str]], tables: str) -> None:
    found = told(f"name: p\nsources: {{a: {{kafka: a}}}}\n{tables}\nsinks: [{{from: t, console: }}]")
    assert [one.split(":")[0] for one in found if not one.startswith("table.unused")] == ["sql.comma"]
