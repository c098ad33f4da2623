"""Functions, expansions and intervals that Spark does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millrace as mr
from millrace.connectors.base.registry import CONNECTORS
from millrace.errors import Problem, SourceLocation
from millrace.pipeline.checks import check
from millrace.pipeline.loading.python import Pipeline
from millrace.pipeline.loading.yaml import load_yaml

_SCHEMA = "id int, tag string, at timestamp, tags array<string>"
_WITH_INTERVAL = "name: p\nsources: {a: {rate: }}\ntables:\n  t: |\n    SELECT value FROM a\n    WHERE value > "


def found(select: str, table: Any = None) -> list[Problem]:
    """What is said of `SELECT … FROM a`, in a pipeline that may have a function for a table."""
    pipeline = Pipeline("p")
    pipeline.source("a", mr.kafka("a", schema=_SCHEMA), watermark=("at", "10 seconds"))
    pipeline.sql("t", f"SELECT {select}")
    pipeline.sink("t", mr.console())
    if table:
        pipeline.table(table)
        pipeline.sink(table.__name__, mr.console())
    return check(pipeline.model(), CONNECTORS)


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("uper(tag)", "did you mean 'upper'?"),
        ("TUMBLE(at, INTERVAL '1' MINUTE)", "write GROUP BY window(at, '1 minute')"),
        ("HOP_START(at, INTERVAL '1' MINUTE)", "write window(at, '10 minutes', '1 minute').start"),
        ("PROCTIME()", "write current_timestamp()"),
        ("ROWTIME()", "write the column that the watermark is on"),
        ("SAFE_DIVIDE(id, 2)", "write try_divide(a, b)"),
        ("latest_by_offset(tag)", "write max_by(x, at)"),
        ("strpos(tag, 'x')", "write instr(text, part)"),
        ("my_function(tag)", "Spark's documentation"),
    ],
)
def test_an_unknown_function(expression: str, hint: str) -> None:
    (problem,) = found(f"{expression} AS x FROM a")
    assert (problem.condition, problem.severity) == ("function.unknown", "error")
    assert (problem.hint or "").startswith(hint)


@pytest.mark.parametrize(
    "select",
    [
        "CAST(id AS decimal(10, 2)) AS x FROM a WHERE tag IN ('x') AND tag LIKE ANY ('a%', 'b%')",
        "/*+ REPARTITION(3) */ extract(year FROM at) AS y, nvl(tag, ''), TRY_CAST(tag AS int) AS i FROM a",
        "IF(id > 1, 'a', 'b') AS x, struct(id), array(1), map(1, 2), int(tag), date '2026-01-01' FROM a",
        "trim(BOTH ' ' FROM tag) AS x, substring(tag FROM 2), position('a' IN tag) FROM a",
        "id FROM a LATERAL VIEW explode(tags) x AS y",
    ],
)  # fmt: skip
def test_functions_that_spark_has(select: str) -> None:
    assert [problem.condition for problem in found(select)] == []


def test_a_function_that_python_may_register_is_a_warning() -> None:
    def registers(a: Any) -> Any:
        a.sparkSession.udf.register("mine", str)
        return a

    (problem,) = found("mine(tag) AS x FROM a", registers)
    assert (problem.condition, problem.severity) == ("function.unknown", "warning")


def test_unnest_and_the_expansion_of_a_call() -> None:
    (problem,) = found("id, x FROM a, UNNEST(tags) AS t (x)")
    assert (problem.condition, problem.hint) == ("function.unknown", "write LATERAL VIEW explode(xs) t AS x")
    problems = found("max_by(struct(id, tag), at).* FROM a GROUP BY window(at, '1 minute')")
    assert [problem.condition for problem in problems] == ["sql.invalid"]
    assert "SELECT s.* FROM (SELECT max_by(" in (problems[0].hint or "")


@pytest.mark.parametrize(
    "expression",
    [
        "at + INTERVAL '10 parsecs'",
        "at + INTERVAL 5 minuts",
        "at + INTERVAL id DAY",
        "INTERVAL '1.5' DAY",
        "INTERVAL '1 day 2'",
        "window(at, '10 parsecs').end",
        "window(at, '1 month').end",
        "window(at, INTERVAL '1' MINUTE).end",
        "INTERVAL '10'",
    ],
)
def test_an_impossible_interval(expression: str) -> None:
    assert [problem.condition for problem in found(f"{expression} AS x FROM a")] == ["interval.invalid"]


@pytest.mark.parametrize("interval", ["INTERVAL 5 parsecs", "INTERVAL '5 parsecs'"])
def test_an_impossible_interval_has_its_line(interval: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(_WITH_INTERVAL + interval)
    problems = check(load_yaml(file), CONNECTORS)
    places = [problem.place for problem in problems if problem.condition == "interval.invalid"]
    assert places == [SourceLocation(str(file), 6)]


@pytest.mark.parametrize(
    "expression",
    ["INTERVAL '1-2' YEAR TO MONTH", "INTERVAL 1 DAY 2 HOURS", "INTERVAL '1 day -2 hours'", "INTERVAL -3 WEEKS"],
)
def test_an_interval(expression: str) -> None:
    assert found(f"{expression} AS x FROM a") == []


def test_intervals_in_python() -> None:
    from pyspark.sql import functions as F

    def windows(a: Any) -> Any:
        late = a.withWatermark("at", "10 parsecs")
        return late.groupBy(
            F.window("at", "10 minuts", startTime="1 minute"), F.session_window("at", "5 minutes")
        ).count()

    problems = found("id FROM a", windows)
    assert [problem.condition for problem in problems if problem.condition != "mode.append"] == ["interval.invalid"] * 2


def test_what_other_engines_have_instead_of_windows() -> None:
    (problem, *_) = found("* FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(at), INTERVAL '10' MINUTES))")
    assert problem.condition == "sql.invalid"
    assert "window(at, '1 minute')" in (problem.hint or "")
