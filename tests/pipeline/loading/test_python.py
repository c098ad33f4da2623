"""Decorators only build data, and every element knows the line that made it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import millrace as mr
from millrace.errors import InvalidDefinition, SourceLocation
from millrace.pipeline.loading.python import Pipeline, collecting
from millrace.pipeline.schema import parse_schema


def here() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_elements_know_their_lines() -> None:
    pipeline, line = Pipeline("p"), here()
    pipeline.source("a", mr.kafka("a"))

    @pipeline.table
    def t(a: Any) -> Any:
        return a

    pipeline.sink("t", mr.console())
    pipeline.panel("t", mr.top(label="x"))
    model = pipeline.model()
    file = __file__
    assert model.place == SourceLocation(file, line)
    assert model.sources[0].place == model.sources[0].connection.place == SourceLocation(file, line + 1)
    assert model.tables[0].place == SourceLocation(file, line + 3)
    assert model.sinks[0].place == SourceLocation(file, line + 7)
    assert model.panels[0].place == SourceLocation(file, line + 8)


def test_a_function_is_a_table_and_is_not_called() -> None:
    pipeline = Pipeline("p")

    @pipeline.table(name="other", watermark=["at", "1m"])
    def t(a: Any, b: Any) -> Any:
        raise AssertionError(a, b)

    (table,) = pipeline.model().tables
    assert (table.name, table.reads, table.sql, table.function) == ("other", ("a", "b"), None, t)
    assert table.watermark is not None
    assert table.watermark.seconds == 60.0


def test_a_function_may_return_sql() -> None:
    pipeline = Pipeline("p")
    width = "1 minute"

    @pipeline.table
    def first(a: Any) -> str:
        return """
            SELECT *
            FROM a
              WHERE (
        """

    @pipeline.table
    def second(a: Any) -> str:
        return f"SELECT window(at, '{width}') AS w FROM a"  # noqa: S608

    @pipeline.table
    def third() -> str:
        return "SELECT 1 AS x"

    @pipeline.table
    def fourth(a: Any, b: Any) -> str:
        return "SELECT a.x " + "FROM a".strip() + " JOIN b"

    one, two, three, four = pipeline.model().tables
    assert one.sql == "SELECT *\nFROM a\n  WHERE ("
    assert one.reads == ("a",)  # it does not parse: its parameters say what it reads
    assert one.sql_line(3) == SourceLocation(__file__, first.__code__.co_firstlineno + 5)
    assert (two.sql, two.reads) == ("SELECT window(at, '1 minute') AS w FROM a", ("a",))
    assert (three.sql, three.reads, three.parameters) == ("SELECT 1 AS x", (), ())
    assert four.reads == ("a", "b")


def test_a_function_without_parameters_that_calls_something_is_left_alone() -> None:
    pipeline = Pipeline("p")

    @pipeline.table
    def t() -> Any:
        return open_spark()

    assert pipeline.model().tables[0].function is t


def open_spark() -> None:
    raise AssertionError("not now")


def test_paths_and_sparks_own_schemas_are_taken(tmp_path: Path) -> None:
    from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

    inner = StructType([StructField("x", IntegerType())])
    schema = StructType([StructField("my id", StringType(), False), StructField("of", ArrayType(inner))])
    read = mr.files(tmp_path, schema=schema)
    assert read.argument == str(tmp_path)
    assert parse_schema(dict(read.options)["schema"]) == parse_schema(
        "`my id` string NOT NULL, of array<struct<x: int>>"
    )
    assert mr.files([tmp_path / "a"]).argument == (str(tmp_path / "a"),)


def test_sql_by_its_text() -> None:
    pipeline = Pipeline("p")
    pipeline.sql("one", "SELECT * FROM A JOIN a")
    pipeline.sql(
        "two",
        """
        SELECT *
        FROM b
        """,
        watermark=("at", "5s"),
    )
    line = here()
    one, two = pipeline.model().tables
    assert (one.reads, one.sql_line(1).line) == (("A",), line - 9)
    assert (two.sql, two.sql_line(2).line) == ("SELECT *\nFROM b", line - 4)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: p.source("a", "kafka"),
        lambda p: p.sink("a", None),
        lambda p: p.sink("", mr.console()),
        lambda p: p.panel("", mr.table()),
        lambda p: p.latest("t", "", by="id", order="at"),
        lambda p: p.source("a", mr.kafka("a"), watermark="at"),
        lambda p: p.source("a", mr.kafka("a"), watermark=("at", "soon")),
        lambda p: p.source("a", mr.kafka("a"), watermark=("at",)),
        lambda p: p.sink("a", mr.console(), trigger="soon"),
        lambda p: p.table(partial(max, 1)),
        lambda p: p.table(lambda *all: all),
        lambda p: p.table(lambda a, *, b: (a, b)),
        lambda p: Pipeline(p.name, trigger="soon"),
    ],
)
def test_what_cannot_be_is_told_with_its_line(make: Callable[[Pipeline], Any]) -> None:
    with pytest.raises(InvalidDefinition) as raised:
        make(Pipeline("p"))
    assert raised.value.place is not None
    assert raised.value.place.file == __file__
    assert raised.value.place.line == make.__code__.co_firstlineno


def test_every_pipeline_that_is_made_meanwhile_is_collected() -> None:
    Pipeline("before")
    with collecting() as made:
        Pipeline("one")
        Pipeline("two")
    assert [one.name for one in made] == ["one", "two"]


def test_a_table_may_be_named_by_its_function_and_other_things_are_refused() -> None:
    written = Pipeline("p")
    written.source("a", mr.rate(1))

    @written.table(name="other")
    def made(a: Any) -> Any:
        return a.limit(1)

    written.sink(made, mr.console())
    written.panel(made, mr.table())
    model = written.model()
    assert (model.sinks[0].table, model.panels[0].table) == ("other", "other")
    for wrong in (
        lambda: Pipeline(5),  # type: ignore[arg-type]
        lambda: written.source(5, mr.rate(1)),  # type: ignore[arg-type]
        lambda: written.sink(None, mr.console()),  # type: ignore[arg-type]
        lambda: written.sink("a", mr.console(), mode=3),  # type: ignore[arg-type]
        lambda: written.panel(3, mr.table()),  # type: ignore[arg-type]
        lambda: written.sql("b", None),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidDefinition):
            wrong()
