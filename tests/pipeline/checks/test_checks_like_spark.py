"""What check says of a query on a stream is what Spark says of it, in every output mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.pipeline.checks import check
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef, TableDef, Watermark, connection
from millrace.pipeline.sql import tables_read

from ..conftest import CONNECTORS
from ..streaming import FUNCTIONS, MODES, SQL, ask_spark

Says = dict[str, dict[str, bool]]

_RATE = connection("rate")
_AT = Watermark("at", 10.0)
_SOURCES = (
    SourceDef("a", _RATE),
    SourceDef("b", _RATE),
    SourceDef("a_w", _RATE, _AT),
    SourceDef("b_w", _RATE, _AT),
    SourceDef("s", _RATE, static=True),
)


@pytest.fixture(scope="module")
def spark_says(spark: SparkSession) -> Says:
    """Spark's verdicts."""
    return ask_spark(spark)


def errors(table: TableDef, mode: str) -> list[str]:
    pipeline = PipelineDef("p", _SOURCES, (table,), (SinkDef(table.name, connection("console"), mode),))
    return [one.condition for one in check(pipeline, CONNECTORS) if one.severity == "error"]


@pytest.mark.parametrize("query", SQL)
def test_sql(query: str, spark_says: Says) -> None:
    table = TableDef("t", tables_read(query), query)
    taken = {mode: not errors(table, mode) for mode in MODES}
    assert taken == spark_says[query], {mode: errors(table, mode) for mode in MODES}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda one: one.__name__)
def test_python(function: Callable[..., Any], spark_says: Says) -> None:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    table = TableDef(function.__name__, names, function=function)
    taken = {mode: not errors(table, mode) for mode in MODES}
    assert taken == spark_says[function.__name__], {mode: errors(table, mode) for mode in MODES}
