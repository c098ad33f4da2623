"""Functions of the user in SQL, as Spark calls them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.engine.deep_check import deep_problems
from millrace.errors import MillraceError
from millrace.pipeline.loading import load
from millrace.testing import PipelineTest

Begin = Callable[..., PipelineTest]

UDF = """
from __future__ import annotations

import re
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

import millrace as mr

WORD = re.compile(r"\\w+")


class Span(NamedTuple):
    first: str
    count: int


def words(text: str | None, least: int = 1) -> Span | None:
    found = _found(text)
    return Span(found[0], len(found)) if len(found) >= least else None


def ratio(a: int, b: int) -> float:
    return a / b


@mr.arrow_udf("string")
def shout(text: pa.Array) -> pa.Array:
    return pc.utf8_upper(text)


chars = udf(lambda text: len(text or ""), LongType())


def _found(text):
    return WORD.findall(text or "")
"""
PIPELINE = """\
name: functions
functions: ./udf.py
sources:
  lines: {{kafka: lines, schema: "text string, n int"}}
tables:
  t: SELECT {select} FROM lines
sinks:
  - {{from: t, console: }}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Callable[[str], str]:
    """Write a pipeline that selects something with the functions."""

    def write(select: str) -> str:
        (tmp_path / "udf.py").write_text(UDF)
        file = tmp_path / "p.yaml"
        file.write_text(PIPELINE.format(select=select))
        return str(file)

    return write


def test_rows_and_arrays_go_through_functions(millrace_test: Begin, pipeline: Callable[[str], str]) -> None:
    select = "words(text) AS w, words(text, 3) AS three, shout(text) AS loud, chars(text) AS chars"
    test = millrace_test(pipeline(select))
    test.give(lines=[{"text": "to be"}, {"text": None}])
    test.expect(
        "t",
        [
            {"w": {"first": "to", "count": 2}, "three": None, "loud": "TO BE", "chars": 5},
            {"w": None, "three": None, "loud": None, "chars": 0},
        ],
    )


def test_a_function_that_raises_is_named(millrace_test: Begin, pipeline: Callable[[str], str]) -> None:
    test = millrace_test(pipeline("ratio(n, 0) AS r"))

    def run() -> None:
        test.give(lines=[{"text": "to be", "n": 1}])
        test.expect("t", [])

    with pytest.raises(MillraceError) as failed:
        run()
    assert "ZeroDivisionError" in f"{failed.value.message} {failed.value.why}"
    assert failed.value.condition == "function.failed"


def test_the_deep_check_knows_their_types(spark: SparkSession, pipeline: Callable[[str], str]) -> None:
    assert deep_problems(load(pipeline("words(text).first AS first")), spark) == []
    (problem,) = deep_problems(load(pipeline("words(text).last AS first")), spark)
    assert problem.place is not None
    assert (problem.place.file.rpartition("/")[2], problem.place.line) == ("p.yaml", 6)
