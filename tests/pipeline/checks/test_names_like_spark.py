"""The columns, functions and intervals that check refuses without Spark are those that Spark refuses."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from millrace.pipeline.checks import check
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef, TableDef, connection
from millrace.pipeline.sql import tables_read

from ..conftest import CONNECTORS
from ..queries import SCHEMAS, WRITTEN, generated, misspelled

_SOURCES = tuple(SourceDef(name, connection("kafka", name, {"schema": ddl})) for name, ddl in SCHEMAS.items())
_OURS = ("column.", "function.", "interval.", "sql.", "name.unknown")
_NAMES = (
    "UNRESOLVED_COLUMN", "UNRESOLVED_ROUTINE", "UNRESOLVED_FIELD", "UNRESOLVED_USING_COLUMN_FOR_JOIN",
    "FIELD_NOT_FOUND", "AMBIGUOUS_REFERENCE", "INVALID_EXTRACT", "CANNOT_RESOLVE_STAR_EXPAND", "CANNOT_PARSE_INTERVAL",
    "INVALID_INTERVAL_FORMAT", "PARSE_SYNTAX_ERROR",
)  # fmt: skip
"""The classes of Spark's errors that are about names, functions and intervals."""

Compare = Callable[[str], tuple[list[str], str]]


def problems(query: str) -> list[str]:
    """What check says of the names in a query, without Spark."""
    try:
        reads = tables_read(query)
    except Exception:  # the rule for SQL says why
        reads = ()
    pipeline = PipelineDef("p", _SOURCES, (TableDef("t", reads, query),), (SinkDef("t", connection("console")),))
    found = [problem for problem in check(pipeline, CONNECTORS) if problem.severity == "error"]
    return [f"{one.condition}: {one.message}" for one in found if one.condition.startswith(_OURS)]


@pytest.fixture(scope="module")
def compare(spark: SparkSession) -> Compare:
    """What check says of a query, and the class of Spark's error; empty if Spark takes it."""
    session = spark.newSession()
    for name, ddl in SCHEMAS.items():
        session.createDataFrame([], ddl).createOrReplaceTempView(name)

    def compare(query: str) -> tuple[list[str], str]:
        try:
            session.sql(query)
        except AnalysisException as error:
            return problems(query), error.getCondition() or "unknown"
        except PySparkException as error:
            return problems(query), error.getCondition() or "unknown"
        return problems(query), ""

    return compare


def difference(query: str, compare: Compare, *, sound: bool | None = None) -> str | None:
    """How check and Spark differ about a query, in words; None if they do not."""
    said, refused = compare(query)
    if said and not refused:
        return f"false alarm: {said}\n  {query}"
    if refused and not said and refused.startswith(_NAMES):
        return f"missed {refused}:\n  {query}"
    if sound is not None and sound == bool(refused):
        return f"the generator says sound={sound}, Spark says {refused or 'yes'}:\n  {query}"
    return None


def of_seeds(seeds: range, compare: Compare) -> list[str]:
    queries = [generated(seed) for seed in seeds]
    found = (difference(query, compare, sound=mistake is None) for query, mistake in queries)
    return [text for text in found if text]


def of_written(variants: int, compare: Compare) -> list[str]:
    random = Random(25)
    queries = [query for query in WRITTEN for _ in range(variants)]
    found = (difference(misspelled(query, random), compare) for query in queries)
    return [text for text in found if text]


@pytest.mark.parametrize("query", WRITTEN)
def test_what_people_write(query: str, compare: Compare) -> None:
    assert difference(query, compare, sound=True) is None


def test_what_people_write_with_a_mistake(compare: Compare) -> None:
    assert of_written(1, compare) == []


def test_generated_queries(compare: Compare) -> None:
    assert of_seeds(range(40), compare) == []


@pytest.mark.chaos
def test_many_generated_queries(compare: Compare) -> None:
    found = [*of_seeds(range(40, 1040), compare), *of_written(15, compare)]
    assert found == [], "\n".join(found)
