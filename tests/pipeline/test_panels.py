"""The options of panels: what check refuses, which queries look for them, and what Python offers."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

import millrace as mr
from millrace.errors import InvalidDefinition, Problem
from millrace.pipeline.model import PANELS, Panel, PipelineDef, SinkDef, SourceDef, TableDef, Trigger, connection
from millrace.pipeline.panels import KINDS, columns_named, parse_order, shown
from millrace.pipeline.plan import make_plan

HEAD = "name: p\nsources: {a: {kafka: a}}\nsinks: [{from: a, console: }]\npanels:\n  - from: a\n"
SOURCES = (SourceDef("posts", connection("kafka", "posts")),)
TABLES = (
    TableDef("tags", ("posts",), "SELECT tag FROM posts"),
    TableDef("counts", ("posts",), "SELECT tag, count(*) AS n FROM posts GROUP BY tag"),
)


def test_every_kind_is_described() -> None:
    assert tuple(KINDS) == PANELS
    assert all(option.help for kind in KINDS.values() for option in kind.options)


@pytest.mark.parametrize(
    ("panel", "expected"),
    [
        ("    top: {label: a, value: b, limit: 5, title: T}\n", []),
        ("    table:\n", []),
        ("    table: {columns: [a, b], order: a desc, key: a}\n", []),
        ("    number: {value: n, unit: °C}\n", []),
        ("    heat:\n      x: a\n      y: b\n      value: c\n      z: d\n", ["panel.option:10"]),
        ("    top: {label: a}\n", ["panel.missing:6"]),
        ("    series: {}\n", ["panel.missing:6", "panel.missing:6"]),
        ("    top:\n      label: a\n      value: b\n      limit: 0\n", ["panel.value:9"]),
        ("    top: {label: a, value: b, limit: many}\n", ["panel.value:6"]),
        ("    table: {columns: []}\n", ["panel.value:6"]),
        ("    number: {value: [a]}\n", ["panel.value:6"]),
        ("    number: {value: n, title: [a]}\n", ["panel.value:6"]),
        ("    top: {label: a, value: }\n", ["panel.missing:6"]),
        ("    top: [a, b]\n", ["value.type:6"]),
        ("    table: {order: celsius downward}\n", ["panel.value:6"]),
        ("    table: {order: degrees celsius desc}\n", []),
    ],
)
def test_options(told: Callable[..., list[str]], panel: str, expected: list[str]) -> None:
    assert told(HEAD + panel) == expected


def test_a_misspelt_option_gets_a_hint(problems: Callable[..., list[Problem]]) -> None:
    (found,) = problems(HEAD + "    top: {lable: a, label: b, value: c}\n")
    assert "label" in (found.hint or "")


KNOWN = (
    "name: p\nsources:\n  a: {kafka: a, schema: 'room string, celsius double, at timestamp'}\n"
    "tables:\n  b: SELECT room, upper(room) AS loud, window(at, '1 minute') FROM a\n  c: SELECT *, upper(room) FROM a\n"
    "sinks: [{from: b, console: }, {from: c, console: }]\npanels:\n"
)


@pytest.mark.parametrize(
    ("panel", "expected"),
    [
        ("{from: a, series: {time: AT, value: Celsius, key: room}}", []),
        ("{from: a, number: {value: celsuis}}", ["panel.column:9"]),
        ("{from: a, number: {value: room}}", ["panel.type:9"]),
        ("{from: a, series: {time: room, value: celsius}}", ["panel.type:9"]),
        ("{from: a, table: {columns: [room, heat], order: when desc}}", ["panel.column:9", "panel.column:9"]),
        ("{from: b, top: {label: loud, value: window}}", ["panel.type:9"]),
        ("{from: b, series: {time: window, value: loud}}", []),  # what its value is, only Spark knows
        ("{from: b, heat: {x: window, y: room, value: count}}", ["panel.column:9"]),
        ("{from: c, top: {label: anything, value: else}}", []),
    ],
)
def test_columns_that_are_known_without_spark(told: Callable[..., list[str]], panel: str, expected: list[str]) -> None:
    assert told(f"{KNOWN}  - {panel}\n") == expected


@pytest.mark.parametrize(
    ("panel", "condition", "hint"),
    [
        ("    table: room\n", "value.type", "write table: {columns: [room]}"),
        ("    number: room\n", "value.type", "write number: {value: room}"),
        ("    top: [room]\n", "value.type", "write top: {label: …, value: …}"),
        ("    title: T\n    number: {value: n}\n", "key.unknown", "put it into number: number: {title: …}"),
        (
            "    table:\n    number: {value: n}\n",
            "key.unknown",
            "a panel is of one kind: begin another with - from: …, and number: below it",
        ),
        ("    form: x\n    table:\n", "key.unknown", "did you mean 'from'?"),
    ],
)
def test_a_wrong_form_gets_a_hint(
    problems: Callable[..., list[Problem]], panel: str, condition: str, hint: str
) -> None:
    (found,) = problems(HEAD + panel)
    assert (found.condition, found.hint) == (condition, hint)


def test_without_batches_and_without_a_stream(told: Callable[..., list[str]]) -> None:
    text = (
        "name: p\nsources: {a: {kafka: a}, s: {files: s, static: true}}\n"
        "sinks: [{from: a, kafka: b, mode: update, trigger: realtime}]\n"
        "panels:\n  - {from: a, table: }\n  - {from: s, table: }\n"
    )
    assert told(text) == ["panel.query?:5", "panel.static:6"]


def test_python_offers_the_options() -> None:
    assert list(inspect.signature(mr.top).parameters) == ["label", "value", "limit", "title"]
    assert "How many" in (mr.top.__doc__ or "")
    assert mr.top(label="a", value="b", title=None) == ("top", {"label": "a", "value": "b"})
    with pytest.raises(InvalidDefinition):
        mr.Pipeline("p").panel("t", "top")


def test_ids_titles_and_columns() -> None:
    first, second = shown((Panel("my_tags", "table"), Panel("my_tags", "table", (("title", "T"),))))
    assert [(one.id, one.title) for one in (first, second)] == [("my_tags-table", "my tags"), ("my_tags-table-2", "T")]
    panel = Panel("t", "table", (("columns", ("a", "b c")), ("order", "b c desc"), ("limit", 3)))
    assert [name for _, name in columns_named(panel)] == ["a", "b c", "b c"]
    assert [parse_order(text) for text in ("n", "n desc", "n ASC", "desc")] == [
        ("n", False),
        ("n", True),
        ("n", False),
        ("desc", False),
    ]


def planned(*panels: Panel, once: bool = False, trigger: Trigger | None = None, **sinks: str) -> dict[str, list[str]]:
    """The queries of a plan, and the panels that look at each."""
    made = tuple(SinkDef(table, connection("console"), mode, trigger) for table, mode in sinks.items())
    plan = make_plan(PipelineDef("p", SOURCES, TABLES, made, panels), once=once, panels=True)
    return {query.name: [one.id for one in query.panels] for query in plan.queries}


def test_a_panel_looks_at_its_tables_query() -> None:
    assert planned(Panel("tags", "table"), Panel("TAGS", "table"), tags="append") == {
        "tags": ["tags-table", "TAGS-table"]
    }


def test_without_a_page_nothing_looks() -> None:
    model = PipelineDef("p", SOURCES, TABLES, (SinkDef("tags", connection("console")),), (Panel("counts", "table"),))
    assert [(query.name, query.panels) for query in make_plan(model).queries] == [("tags", ())]


def test_of_several_queries_the_one_with_changes_is_looked_at() -> None:
    sinks = tuple(SinkDef("counts", connection("console"), mode) for mode in ("append", "complete", "update"))
    plan = make_plan(PipelineDef("p", SOURCES, TABLES, sinks, (Panel("counts", "table"),)), panels=True)
    assert [query.name for query in plan.queries if query.panels] == ["counts-update"]


def test_a_table_without_a_sink_gets_a_query_that_buries_nothing_twice() -> None:
    model = PipelineDef("p", SOURCES, TABLES, (SinkDef("tags", connection("console")),), (Panel("counts", "table"),))
    plan = make_plan(model, panels=True)
    own = plan.queries[-1]
    assert (own.name, own.mode, own.sinks, own.buries) == ("panels.counts", "update", (), ())
    assert own.trigger == Trigger("every", 1.0)
    assert plan.queries[0].buries == ("posts",)


def test_a_run_that_ends_by_itself_has_no_query_for_a_panel_alone() -> None:
    assert planned(Panel("counts", "table"), Panel("tags", "table"), tags="append", once=True) == {
        "tags": ["tags-table"]
    }


def test_without_batches_the_panel_has_its_own_query() -> None:
    found = planned(Panel("tags", "table"), tags="update", trigger=Trigger("realtime"))
    assert found == {"tags-update-realtime-console-None": [], "panels.tags": ["tags-table"]}


def test_when_none_is_declared_one_query_of_each_table_infers() -> None:
    sinks = tuple(SinkDef("counts", connection("console"), mode) for mode in ("complete", "update"))
    plan = make_plan(PipelineDef("p", SOURCES, TABLES, sinks), panels=True)
    assert [(query.name, query.infers) for query in plan.queries] == [
        ("counts-complete", False),
        ("counts-update", True),
    ]
