"""Functions for SQL: their types from hints and marks, and what is wrong with a file of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import pytest

import millrace as mr
from millrace.connectors.base.registry import CONNECTORS
from millrace.errors import InvalidDefinition, SourceLocation
from millrace.pipeline.checks import check, in_order
from millrace.pipeline.functions import ARROW, PYSPARK, ROWS
from millrace.pipeline.loading import read_file
from millrace.pipeline.loading.functions import function_def, functions_of_file
from millrace.pipeline.loading.python import Pipeline as Written

AT = SourceLocation("p.yaml", 2)
UDF = """
import re
import pyarrow as pa
import pyarrow.compute as pc
from os.path import basename
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType
import millrace as mr

def words(text: str, least: int = 0) -> list[str]:
    return _words(text)

@mr.arrow_udf("array<int>")
def lengths(text: pa.Array) -> pa.Array:
    return text

marked = udf(lambda text: len(text), LongType())
CONSTANT = 3

def _words(text):
    return re.findall("x", text)
"""
NO_TYPE = """import millrace as mr
import pyarrow as pa
@mr.arrow_udf("itn")
def f(a: pa.Array) -> pa.Array: ...
"""
OF_GROUPS = """import pandas as pd
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import LongType
@pandas_udf(LongType())
def f(a: pd.Series) -> int:
    return 1
"""
GENERATOR_UDF = """from pyspark.sql.functions import udf
from pyspark.sql.types import LongType
@udf(LongType())
def f(a):
    yield a
"""
OF_ITERATORS = """from typing import Iterator
import pandas as pd
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import LongType
@pandas_udf(LongType())
def f(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    yield from batches
"""
PIPELINE = """\
name: p
functions: {functions}
sources:
  lines: {{kafka: lines, schema: "text string"}}
tables:
  t: |
    SELECT {select}
    FROM lines
sinks:
  - {{from: t, {sink}}}
"""


class Span(NamedTuple):
    first: str | None
    parts: dict[str, list[int]]


class Pair(TypedDict):
    a: int
    b: Decimal


def typed(hint: Any) -> str:
    """The Spark type of a hint."""

    def function(value: hint) -> hint:
        return value

    function.__annotations__ = {"value": hint, "return": hint}
    found = function_def(function)
    assert found.parameters == (found.returns,)
    return found.returns


@pytest.mark.parametrize(
    ("hint", "kind"),
    [
        (str, "string"),
        (bool, "boolean"),
        (int, "bigint"),
        (float, "double"),
        (bytes, "binary"),
        (Decimal, "decimal(38,18)"),
        (datetime, "timestamp"),
        (date, "date"),
        (int | None, "bigint"),
        (list[str | None], "array<string>"),
        (Mapping[str, float], "map<string,double>"),
        (Span, "struct<first: string, parts: map<string,array<bigint>>>"),
        (Pair, "struct<a: bigint, b: decimal(38,18)>"),
    ],
)
def test_a_hint_is_a_spark_type(hint: Any, kind: str) -> None:
    assert typed(hint) == kind


@pytest.mark.parametrize("hint", [object, Any, list, dict, int | str, list[object], None, "Nowhere", tuple[int, str]])
def test_a_hint_without_a_spark_type_is_refused_where_it_stands(hint: Any) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        typed(hint)
    assert refused.value.place is not None
    assert refused.value.place.file == __file__
    assert refused.value.hint


def test_a_file_has_its_own_public_functions(tmp_path: Path) -> None:
    file = tmp_path / "udf.py"
    file.write_text(UDF)
    functions, problems = functions_of_file(file, AT)
    assert problems == []
    found = [(one.name, one.kind, one.parameters, one.returns, one.optional, one.place.line) for one in functions]
    assert found == [
        ("words", ROWS, ("string", "bigint"), "array<string>", 1, 10),
        ("lengths", ARROW, ("",), "array<int>", 0, 13),
        ("marked", PYSPARK, ("",), "", 0, 17),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "function.file:p.yaml:2"),
        ("", "function.file:p.yaml:2"),
        ("import re\n", "function.file:p.yaml:2"),
        ("def f(:\n", "function.file:udf.py:1"),
        ("\nraise KeyError('x')\n", "function.file:udf.py:2"),
        ("\ndef f(a) -> int:\n    return 1\n", "function.types:udf.py:2"),
        ("\ndef f(a: int):\n    return 1\n", "function.types:udf.py:2"),
        ("\ndef f(a: int) -> None:\n    return 1\n", "function.types:udf.py:2"),
        ("def f(*a: int) -> int:\n    return 1\n", "function.types:udf.py:1"),
        (
            "import millrace as mr\n@mr.arrow_udf('int')\ndef f(a: int) -> int:\n    return 1\n",
            "function.types:udf.py:2",
        ),
        (NO_TYPE, "function.types:udf.py:3"),
        (OF_GROUPS, "function.types:udf.py:4"),
        ("async def f(a: int) -> int:\n    return 1\n", "function.types:udf.py:1"),
        ("async def f(a: int) -> list[int]:\n    yield 1\n", "function.types:udf.py:1"),
        ("def f(a: int) -> list[int]:\n    yield 1\n", "function.types:udf.py:1"),
        (GENERATOR_UDF, "function.types:udf.py:3"),
    ],
)
def test_what_is_wrong_with_a_file_has_its_line(text: str | None, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "udf.py"
    if text is not None:
        file.write_text(text)
    _, problems = functions_of_file(file, AT)
    assert [f"{one.condition}:{one.place}".replace(f"{tmp_path}/", "") for one in problems] == [problem]
    assert problems[0].hint or "parse" in problems[0].message


def test_a_udf_of_iterators_is_a_generator(tmp_path: Path) -> None:
    file = tmp_path / "udf.py"
    file.write_text(OF_ITERATORS)
    assert functions_of_file(file, AT)[1] == []


def found(folder: Path, select: str, sink: str = "console: ", functions: str = "./udf.py") -> list[str]:
    """The problems of a pipeline in YAML with the functions of `UDF`."""
    (folder / "udf.py").write_text(UDF)
    file = folder / "p.yaml"
    file.write_text(PIPELINE.format(functions=functions, select=select, sink=sink))
    model, problems = read_file(str(file))
    assert model is not None
    listed = [*problems, *check(model, CONNECTORS)]
    return [f"{one.condition}:{one.place}".replace(f"{folder}/", "") for one in listed]


@pytest.mark.parametrize(
    ("select", "problems"),
    [
        ("words(text), WORDS(text, 2), lengths(text), marked(text)", []),
        ("words() AS w,\n      lengths(text, 1) AS n", ["function.arguments:p.yaml:7", "function.arguments:p.yaml:8"]),
        ("words(text, 1, 2) AS w", ["function.arguments:p.yaml:7"]),
    ],
)
def test_calls_have_an_argument_for_each_parameter(select: str, problems: list[str], tmp_path: Path) -> None:
    assert found(tmp_path, select) == problems


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("def words(:\n", ["function.file", "function.unknown"]),
        ("def words(a) -> int:\n    return 1\n", ["function.types", "function.unknown", "function.unknown"]),
    ],
)
def test_a_function_that_cannot_be_read_explains_only_its_calls(
    text: str, conditions: list[str], tmp_path: Path
) -> None:
    (tmp_path / "more.py").write_text(text)
    file = tmp_path / "p.yaml"
    select = "WORDS(text), latest_by_offset(text), worts(text)"
    file.write_text(PIPELINE.format(functions="more.py", select=select, sink="console: "))
    model, problems = read_file(str(file))
    assert model is not None
    listed = in_order([*problems, *check(model, CONNECTORS)])
    assert sorted(problem.condition for problem in listed) == conditions


def test_names_are_neither_those_of_spark_nor_used_twice(tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text(
        "def upper(a: str) -> str:\n    return a\ndef Words(a: str) -> str:\n    return a\n"
    )
    files = "[./udf.py, more.py]"
    assert found(tmp_path, "text", functions=files) == ["function.name:more.py:1", "function.name:more.py:3"]


@pytest.mark.parametrize("name", ["select", "interval", "limit"])
def test_names_are_those_that_sql_can_call(name: str, tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text(f"def {name}(a: str) -> str:\n    return a\n")
    assert found(tmp_path, "text", functions="more.py") == ["function.name:more.py:1"]


@pytest.mark.parametrize("name", ["predict", "search", "match", "convert", "argmax", "quantile", "date_bin", "merge"])
def test_names_of_functions_that_only_other_engines_have_are_free(name: str, tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text(f"def {name}(a: str, b: str) -> str:\n    return a\n")
    select = f"text, {name}(text, 'x') AS found, length({name}(text, 'y')) AS n"
    assert found(tmp_path, select, functions="more.py") == []
    filtered = f"/*+ BROADCAST(lines) */ text FROM lines WHERE {name}(text, 'x') > 'a' UNION ALL SELECT text"
    assert found(tmp_path, filtered, functions="more.py") == []


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "again.py").symlink_to("udf.py")
    assert found(tmp_path, "words(text) AS w", functions="[./udf.py, udf.py, again.py]") == []


@pytest.mark.parametrize("file", ['"a\\0b.py"', f"{'x' * 300}.py", '""'])
def test_a_path_that_no_file_can_have(file: str, tmp_path: Path) -> None:
    condition = "value.type" if file == '""' else "function.file"
    assert found(tmp_path, "text", functions=file) == [f"{condition}:p.yaml:2"]


def test_real_time_mode_has_no_python(tmp_path: Path) -> None:
    problems = found(tmp_path, "words(text) AS w", "kafka: out, mode: update, trigger: realtime")
    assert "realtime.operator:p.yaml:7" in problems


def test_a_pipeline_in_python_has_them_too() -> None:
    written = Written("p")

    @written.function
    def words(text: str) -> int:
        return len(text)

    written.function(name="letters")(words)
    with pytest.raises(InvalidDefinition) as refused:
        written.function(lambda text: text)
    assert refused.value.place is not None
    assert refused.value.place.file == __file__
    assert [(one.name, one.returns) for one in written.model().functions] == [
        ("words", "bigint"),
        ("letters", "bigint"),
    ]
    assert words("abc") == 3
    assert mr.arrow_udf("int")(words) is words
