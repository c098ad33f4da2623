"""Functions, expansions and intervals that Spark does not have."""

from __future__ import annotations

import re
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
        ("TUMBLE(at, INTERVAL '10' SECOND)", "write GROUP BY window(at, '10 seconds')"),
        ("TUMBLE(at, INTERVAL '1' MONTH)", "write GROUP BY window(at, '1 minute')"),
        ("HOP(`at`, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)", "write window(at, '2 minutes', '1 minute'): "),
        (
            "HOP_START(at, INTERVAL '30' SECOND, INTERVAL '1' MINUTE)",
            "write window(at, '1 minute', '30 seconds').start",
        ),
        ("HOP_START(at)", "write window(at, '10 minutes', '1 minute').start"),
        ("TUMBLE_END(PROCTIME(), INTERVAL '1' DAY)", "write window(at, '1 day').end"),
        ("TOPK(id, 3)", "write max_by(id, id, 3), the 3 largest"),
        ("TOPKDISTINCT(id + 1, 2)", "write slice(sort_array(collect_set(id + 1), false), 1, 2)"),
        ("argmax(tag, id)", "write max_by(tag, id)"),
        ("PROCTIME()", "write current_timestamp()"),
        ("ROWTIME()", "write the column that the watermark is on"),
        ("SAFE_DIVIDE(id, 2)", "write try_divide(a, b)"),
        ("latest_by_offset(tag)", "write max_by(tag, at), the newest tag"),
        ("strpos(tag, 'x')", "write instr(text, part)"),
        ("safe_cast(tag AS int)", "write try_cast(x AS int)"),
        ("group_concat(tag, ';')", "write array_join(collect_list(tag), ';')"),
        ("latest_by_offset(tag, 3)", "write max_by(tag, at, 3), the 3 newest tag"),
        ("DATE_BIN(INTERVAL '10' MINUTE, at)", "write window(at, '10 minutes').start"),
        ("TUMBLE_START(at + INTERVAL 1 HOUR, INTERVAL '1' DAY)", "write window(at + INTERVAL '1' HOUR, '1 day').start"),
        ("my_function(tag)", "Spark's documentation"),
    ],
)
def test_an_unknown_function(expression: str, hint: str) -> None:
    problem, *_ = found(f"{expression} AS x FROM a GROUP BY window(at, '1 minute')")
    assert (problem.condition, problem.severity) == ("function.unknown", "error")
    assert (problem.hint or "").startswith(hint)


@pytest.mark.parametrize(
    "select",
    [
        "TUMBLE(at, INTERVAL '10' SECOND) AS w FROM a GROUP BY 1",
        "HOP(at, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE) AS w FROM a GROUP BY 1",
        "TOPK(id, 3) AS x FROM a GROUP BY window(at, '1 minute')",
        "LATEST_BY_OFFSET(tag) AS x FROM a GROUP BY window(at, '1 minute')",
        "EARLIEST_BY_OFFSET(tag) AS x FROM a GROUP BY window(at, '1 minute')",
    ],
)
def test_what_a_hint_says_is_accepted(select: str) -> None:
    (problem,) = found(select)
    write = (problem.hint or "").removeprefix("write ").removeprefix("GROUP BY ")
    write = re.split(r", of which|, the |: ", write)[0]
    assert found(re.sub(r"^\w+\(.*?\)(?= AS)", write, select)) == []


@pytest.mark.parametrize(
    ("call", "window"),
    [
        ("TABLE(TUMBLE(TABLE a, DESCRIPTOR(`at`), INTERVAL '10' SECOND))", "window(at, '10 seconds')"),
        ("TABLE(HOP(TABLE a, DESCRIPTOR(at), INTERVAL '1' MINUTE, INTERVAL '2' HOUR))",
         "window(at, '2 hours', '1 minute')"),
        ("TABLE(TUMBLE(TABLE a, DESCRIPTOR(at), INTERVAL '1' MONTH))", "window(at, '1 minute')"),
    ],
)  # fmt: skip
def test_a_window_of_flink_keeps_its_durations(call: str, window: str) -> None:
    (problem,) = found(f"window_start, count(*) AS n FROM {call} GROUP BY window_start")
    write = re.search(r"write SELECT (.*?), …;", problem.hint or "")
    assert write
    assert write[1].startswith(f"{window} AS w")
    assert found(write[1].replace("…", "count(*) AS n")) == []


@pytest.mark.parametrize(
    ("select", "conditions"),
    [
        ("window(at, '1 minute') AS w FROM a WHERE count(*) > 3 GROUP BY 1", ["sql.invalid"]),
        ("id FROM a WHERE max(id) > 3", ["sql.invalid"]),
        ("window(at, '1 minute') AS w FROM a GROUP BY 1 HAVING count(*) > 3", []),
        ("max(id) FILTER (WHERE id > 1) AS x FROM a GROUP BY window(at, '1 minute')", []),
        ("row_number() AS n FROM a", ["sql.invalid"]),
        ("tag, lag(id) AS n FROM a", ["sql.invalid"]),
        ("tag, ntile(4) AS n FROM a", ["sql.invalid"]),
        ("lag(id) IGNORE NULLS OVER (ORDER BY at) AS n FROM a", ["stream.over"]),
    ],
)
def test_where_has_no_aggregate_and_an_order_has_over(select: str, conditions: list[str]) -> None:
    assert [problem.condition for problem in found(select)] == conditions


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
    assert "window(at, '10 minutes')" in (problem.hint or "")
