"""Rules about what SQL calls: functions that Spark does not have, and intervals that it cannot read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from millrace.errors import InputError, InvalidOption, InvalidSql, Problem
from millrace.pipeline.checks.context import CheckContext
from millrace.pipeline.model import TableDef
from millrace.pipeline.python_source import called_with_texts
from millrace.pipeline.spark_functions import function_hint, spark_functions
from millrace.pipeline.spark_intervals import duration_text, interval_us, unit_of, window_mistake
from millrace.pipeline.sql import Call, call_of, interval_position, interval_text, parsed

_WINDOWS = ("window", "session_window")
_ORDER_HINT = "on a stream collect the rows of a window in order: sort_array(collect_list(struct(at, …)))"
_NEIGHBOUR_HINT = f"{_ORDER_HINT}; or keep the row before in a Python table (transformWithState)"
_NUMBER_HINT = "an interval has a literal number; for a column write make_interval(mins => x)"


def _nodes(context: CheckContext) -> Iterator[tuple[TableDef, Any]]:
    """Yield each part of the SQL of each table."""
    for table in context.pipeline.tables:
        try:
            tree = parsed(table.sql) if table.sql is not None else None
        except InvalidSql:
            continue
        for node in tree.walk() if tree is not None else ():
            yield table, node


def unknown_functions(context: CheckContext) -> Iterator[Problem]:
    """Every function of the SQL is one of Spark's."""
    from sqlglot import exp

    from millrace.pipeline.analysis.sql import location

    known = spark_functions() | {function.name.lower() for function in context.pipeline.functions}
    python = any(table.function is not None and table.sql is None for table in context.pipeline.tables)
    for table, node in _nodes(context):
        call = call_of(node) or (Call("UNNEST", 1, 1) if isinstance(node, exp.Unnest) else None)
        qualified = isinstance(node.parent, exp.Dot) and node.parent.expression is node
        if call is None or call.name.lower() in known or qualified or node.find_ancestor(exp.Hint):
            continue
        message = f"table {table.name!r}: Spark has no function {call.name}()"
        why = "unless the function of another table registers it" if python else None
        place = location(table, node) if isinstance(node, exp.Unnest) else table.sql_line(call.line, call.column)
        severity = "warning" if python else "error"
        hint = _hint(context, table, node, call)
        yield Problem("function.unknown", message, place, hint, why, severity, call.name)


def _hint(context: CheckContext, table: TableDef, node: Any, call: Call) -> str:
    """Return what to write instead of a call, with its arguments and the event time of what the table reads."""
    from sqlglot import exp

    parts = [] if isinstance(node, exp.Unnest) else [part for part in node.iter_expressions() if part is not None]
    intervals = [part for part in parts if isinstance(part, exp.Interval)]
    durations = [duration for part in intervals if (duration := _duration(part))]
    written = (
        part.sql(dialect="spark", normalize_functions="lower") for part in parts if not isinstance(part, exp.Interval)
    )
    arguments = [text.strip("`") if text.strip("`").isidentifier() else text for text in written]
    times = {column for read in table.reads for column in context.plan(read).watermark_columns or ()}
    return function_hint(call.name, arguments, durations, times.pop() if len(times) == 1 else "at")


def _duration(node: Any) -> str | None:
    """Return an INTERVAL as a text for a window; None if it is no such text."""
    unit, number = node.args.get("unit"), node.this
    text = f"{number.name} {unit.name}" if unit is not None else number.name if number is not None else ""
    return duration_text(text)


def misplaced_calls(context: CheckContext) -> Iterator[Problem]:
    """WHERE filters rows before they are aggregated, and a function of an order has OVER."""
    from millrace.pipeline.analysis.sql import OVER_AN_ORDER, is_aggregate, location

    for table, node in _nodes(context):
        name = (call.name if (call := call_of(node)) else "").lower()
        if name in OVER_AN_ORDER and not _is_over(node):
            hint = _NEIGHBOUR_HINT if name in ("lag", "lead") else _ORDER_HINT
            if name in ("row_number", "rank", "dense_rank"):
                hint = "the first rows of each group are a table of the form top: {from: …, n: 1, by: …, order: …}"
            message = f"table {table.name!r}: {name}() has no OVER"
            yield Problem("sql.invalid", message, location(table, node), hint)
        elif is_aggregate(node) and _is_in_where(node):
            written = node.sql(dialect="spark", normalize_functions="lower")
            message = f"table {table.name!r}: {written} cannot be in WHERE"
            why = "WHERE filters the rows before they are aggregated"
            hint = "filter the groups with HAVING, after GROUP BY"
            place = table.sql_line(call.line, call.column) if call else location(table, node)
            yield Problem("sql.invalid", message, place, hint, why)


def _is_over(call: Any) -> bool:
    from sqlglot import exp

    node = call.parent
    while isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
        node = node.parent
    return isinstance(node, exp.Window)


def _is_in_where(aggregate: Any) -> bool:
    """Return whether an aggregate is in WHERE of its own SELECT, and of none that HAVING has."""
    from sqlglot import exp

    around = aggregate.find_ancestor(exp.Where, exp.Query, exp.Filter)
    return isinstance(around, exp.Where) and around.find_ancestor(exp.Having) is None


def expanded_calls(context: CheckContext) -> Iterator[Problem]:
    """Only tables and columns can be expanded by `.*`."""
    from sqlglot import exp

    from millrace.pipeline.analysis.sql import location

    for table, node in _nodes(context):
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Star):
            inner = node.this
            while isinstance(inner, exp.Dot):
                inner = inner.this
            if isinstance(inner, exp.Column):
                continue
            written = node.this.sql(dialect="spark", normalize_functions="lower")
            hint = f"name it first: SELECT s.* FROM (SELECT {written} AS s FROM …)"  # noqa: S608 - it is only shown
            message = f"table {table.name!r}: {written}.* is not possible"
            why = "only what has a name can be expanded by .*"
            yield Problem("sql.invalid", message, location(table, node), hint, why)


def impossible_intervals(context: CheckContext) -> Iterator[Problem]:
    """Intervals and the durations of windows are a number and a unit that Spark knows."""
    from sqlglot import exp

    from millrace.pipeline.analysis.sql import location

    for table, node in _nodes(context):
        mistake: InputError | None = None
        if isinstance(node, exp.Interval):
            mistake = _interval_mistake(node)
        elif (call := call_of(node)) and call.name.lower() in _WINDOWS:
            mistake = _window_mistake(call.name.lower(), node.expressions[1:])
        if mistake:
            message = f"table {table.name!r}: {mistake.message}"
            position = interval_position(node)
            place = table.sql_line(*position) if position else location(table, node)
            yield Problem("interval.invalid", message, place, mistake.hint)
    for table in context.pipeline.tables:
        if table.function is not None and table.sql is None:
            yield from _in_python(table, table.function)


def _window_mistake(name: str, durations: list[Any]) -> InputError | None:
    from sqlglot import exp

    texts = [part.name for part in durations if isinstance(part, exp.Literal) and part.is_string]
    if texts and len(texts) == len(durations):
        return window_mistake(name, texts)
    for part in durations if name == "window" else ():
        if isinstance(part, exp.Interval):
            written = f"{part.this.name} {part.args['unit'].name.lower()}" if part.args.get("unit") else part.this.name
            return InvalidOption("window takes a text, and no INTERVAL", hint=f"write window(…, {written!r})")
    return None


def _in_python(table: TableDef, function: Callable[..., Any]) -> Iterator[Problem]:
    for name, texts, place in called_with_texts(function, (*_WINDOWS, "withWatermark")):
        mistake: InputError | None = None
        if name == "withWatermark":
            try:
                interval_us(texts[0]) if texts else None
            except InvalidOption as error:
                mistake = error
        else:
            mistake = window_mistake(name, texts)
        if mistake:
            yield Problem("interval.invalid", f"table {table.name!r}: {mistake.message}", place, mistake.hint)


def _interval_mistake(node: Any) -> InputError | None:
    """Return what is wrong with an INTERVAL literal."""
    from sqlglot import exp

    value, unit = node.this, node.args.get("unit")
    text = interval_text(node)
    try:
        if text is not None and any(map(str.isalpha, text)):
            interval_us(text)
        elif isinstance(unit, exp.IntervalSpan):
            unit_of(unit.this.name), unit_of(unit.expression.name)
        elif unit is None and text is not None:
            interval_us(text)
        elif unit is not None:
            unit_of(unit.name)
            number = value.this if isinstance(value, exp.Neg) else value
            if isinstance(number, exp.Literal):
                interval_us(f"{number.name} {unit.name}")
            elif isinstance(number, exp.Column):
                written = number.sql(dialect="spark")
                return InvalidOption(f"INTERVAL {written} {unit.name} has no number", hint=_NUMBER_HINT)
    except InputError as error:
        return error
    return None
