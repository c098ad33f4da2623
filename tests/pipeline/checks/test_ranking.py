"""`latest` and `top` in a file: their problems with lines, and the same model in Python."""

from __future__ import annotations

import pytest

import millrace as mr
from millrace.connectors.base.registry import CONNECTORS
from millrace.errors import InvalidDefinition
from millrace.pipeline.analysis.pipeline import analyse
from millrace.pipeline.checks import check
from millrace.pipeline.loading.python import Pipeline as Written

from ..conftest import Read

HEAD = """\
name: ranks
sources:
  quotes:
    kafka: quotes
    schema: "symbol string, price double, at timestamp"
    watermark: [at, 10 seconds]
tables:
"""


def found(read: Read, tables: str, sinks: str = "  - {from: t, console: , mode: update}\n") -> list[str]:
    """The problems of tables as condition:line (of the tables, from 1); what grows is another matter."""
    model, problems = read(f"{HEAD}{tables}sinks:\n{sinks}")
    assert model is not None
    listed = [*problems, *check(model, CONNECTORS)]
    first = HEAD.count("\n")
    lines = [f"{one.condition}:{(one.place.line or 0) - first if one.place else None}" for one in listed]
    return sorted(line for line in lines if not line.startswith("state."))


def test_both_forms_give_the_same_model(read: Read) -> None:
    model, problems = read(
        f"{HEAD}  newest: {{latest: {{from: quotes, by: symbol, order: at}}, watermark: [at, 1s]}}\n"
        "  best: {top: {from: newest, n: 10, by: [symbol], order: [price DESC, at DESC], rank: place}}\n"
        "sinks: [{from: best, console: , mode: update}]\n"
    )
    written = Written("ranks")
    schema = "symbol string, price double, at timestamp"
    written.source("quotes", mr.kafka("quotes", schema=schema), watermark=("at", "10 seconds"))
    written.latest("newest", "quotes", by="symbol", order="at", watermark=("at", "1s"))
    written.top("best", "newest", n=10, by="symbol", order="price DESC, at DESC", rank="place")
    written.sink("best", mr.console(), mode="update")
    assert problems == []
    assert model == written.model()
    assert model is not None
    assert model.tables[1].reads == ("newest",)
    assert model.tables[0].sql_line(4).line == 8


def test_a_mistake_in_python_has_its_line() -> None:
    written = Written("ranks")
    with pytest.raises(InvalidDefinition) as refused:
        written.top("best", "quotes", n=0, order="price DESC")
    assert refused.value.place is not None
    assert refused.value.place.file == __file__


@pytest.mark.parametrize(
    ("table", "problems"),
    [
        ("latest: {from: quotes, by: symbol, order: at}", []),
        ("latest: {from: quotes, by: quotes.symbol, order: Price * 2}", []),
        ("latest: {from: quotes, by: symbo, order: at}", ["column.unknown:3"]),
        ("top: {from: quotes, n: 1, order: [price DESC, size DESC]}", ["column.unknown:3"]),
        ("top: {from: quotes, n: 1, order: at, rank: Price}", ["ranking.column:3"]),
        ("top: {from: quotes, n: 1, order: 'at, price DESC'}", ["ranking.unbounded:3"]),
        ("top: {from: quotes, n: 0, order: at}", ["ranking.invalid:3"]),
        ("top: {from: quotes, n: ten, order: at}", ["ranking.invalid:3"]),
        ("top: {from: quotes, n: 2}", ["key.missing:3"]),
        ("latest: {by: symbol, order: at}", ["key.missing:3"]),
        ("latest: {from: quotes, order: at}", ["key.missing:3"]),
        ("latest: {from: quotes, by: symbol, order: at, n: 3}", ["key.unknown:3"]),
        ("latest: quotes", ["value.type:3"]),
        ("latest: {from: quote, by: symbol, order: at}", ["name.unknown:3"]),
        ("latest: {from: t, by: symbol, order: at}", ["table.cycle:2"]),
        ("sql: SELECT * FROM quotes\n    latest: {from: quotes, by: symbol, order: at}", ["key.unknown:4"]),
    ],
)
def test_problems_have_their_line(read: Read, table: str, problems: list[str]) -> None:
    body = "\n".join(("  used: SELECT * FROM quotes", "  t:", f"    {table}", ""))
    others = "  - {from: used, console: }\n  - {from: t, console: , mode: update}\n"
    assert found(read, body, others) == problems


def test_columns_of_a_ranking_are_those_of_what_it_reads_and_its_rank(read: Read) -> None:
    tables = (
        "  best: {top: {from: quotes, n: 3, by: symbol, order: at, rank: place}}\n"
        "  t: {latest: {from: best, by: place, order: size}}\n"
    )
    assert found(read, tables) == ["column.unknown:2", "mode.chained:2"]


def test_groups_with_event_time_end_and_carry_it_on(read: Read) -> None:
    tables = (
        "  counts: SELECT window(at, '1 minute') AS window, symbol, count(*) AS n FROM quotes GROUP BY 1, 2\n"
        "  t: {top: {from: counts, n: 3, by: window, order: n DESC}}\n"
    )
    assert found(read, tables, "  - {from: t, console: }\n") == []
    model, _ = read(f"{HEAD}{tables}sinks: [{{from: t, console: }}]\n")
    assert model is not None
    plan = analyse(model)["t"]
    assert plan.watermark_columns == {"window"}
    assert [operator.bounded for operator in plan.operators if operator.kind == "aggregate"] == [True, True]


def test_append_mode_needs_a_group_that_ends(read: Read) -> None:
    body = "  used: SELECT * FROM quotes\n  t:\n    latest: {from: quotes, by: symbol, order: at}\n"
    assert found(read, body, "  - {from: used, console: }\n  - {from: t, console: }\n") == ["mode.append:6"]


def test_a_hint_adds_the_window_of_what_is_ranked_to_by(read: Read) -> None:
    counts = "  counts: SELECT window(at, '1 minute') AS w, symbol, count(*) AS n FROM quotes GROUP BY 1, 2\n"
    top = "  t: {{top: {{from: {}, n: 3, by: [symbol{}], order: {} DESC}}}}\n"
    sinks = "  - {from: t, console: }\n"

    def hint(tables: str) -> str | None:
        model, _ = read(f"{HEAD}{tables}sinks:\n{sinks}")
        assert model is not None
        (problem,) = (one for one in check(model, CONNECTORS) if one.condition == "mode.append")
        return problem.hint

    assert hint(counts + top.format("counts", "", "n")) == "add w to by"
    assert found(read, counts + top.format("counts", ", w", "n"), sinks) == []
    raw = hint(top.format("quotes", "", "price"))
    assert raw == "add \"window(at, '1 minute')\" to by, or use mode: update"
    assert found(read, top.format("quotes", ", \"window(at, '1 minute')\"", "price"), sinks) == []
