"""What to write on a stream instead of SQL that needs all rows, with the user's own names.

- `over_form`: for a function OVER (…), as ROW_NUMBER, SUM or LAG.
- `distinct_form`: for an aggregate of distinct values.
- `top_form`: for ORDER BY and LIMIT.

The first rows of an order are a table of the form `latest` or `top`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sqlglot import exp

from millrace.pipeline.analysis.operators import StreamPlan
from millrace.pipeline.analysis.types import call_name
from millrace.pipeline.sql import defined_by

_RANKS = ("row_number", "rank", "dense_rank")
_NEIGHBOURS = ("lag", "lead")
_FIRST, _LAST = ("first_value", "first"), ("last_value", "last")
_WINDOWS = ("window", "session_window")
_WINDOW_LENGTH = "'1 minute'"
_CLAUSES = ("joins", "laterals", "where", "group", "having", "distinct", "with_")
"""What a SELECT has if the rows that it ranks are not those of a table."""


def over_form(window: exp.Window, select: exp.Select, rows: StreamPlan) -> str:
    """Return what to write instead of a function OVER (…); `rows` is the plan of what FROM reads."""
    name = call_name(_without_nulls(window.this))
    over = _named_window(window, select)
    partition, order = over.args.get("partition_by") or [], over.args.get("order")
    ordered = order.expressions if order else []
    if name in _RANKS:
        return _ranked(window, select, partition, ordered, rows)
    keys = [_text(key) for key in partition]
    at = _event_time(rows)
    table = _source(select) or "…"
    falls = {bool(part.args.get("desc")) for part in ordered}
    if name in _NEIGHBOURS or (name in (*_FIRST, *_LAST) and len(falls) == 2):
        columns = [*(part.this for part in ordered), *window.this.find_all(exp.Column)]
        gaps = ", ".join([*keys, f"session_window({at}, '10 minutes')"])
        listed = f"sort_array(collect_list({_struct(map(_text, columns))}){', false' if True in falls else ''})"
        in_window = ", ".join([*keys, f"window({at}, {_WINDOW_LENGTH})"])
        listing = f": SELECT {listed} AS rows FROM {table} GROUP BY {in_window}" if len(falls) < 2 else ""  # noqa: S608
        return (
            f"collect the rows of a window in order{listing}; for gaps between rows GROUP BY {gaps}; "
            "or keep the row before in a Python table (transformWithState)"
        )
    length = f"'10 minutes', {_WINDOW_LENGTH}" if over.args.get("spec") else _WINDOW_LENGTH
    in_window = ", ".join([*keys, f"window({at}, {length})"])
    alias = f" AS {window.parent.alias}" if isinstance(window.parent, exp.Alias) else ""
    value = _end_of_order(window.this, ordered) if ordered and name in (*_FIRST, *_LAST) else _text(window.this)
    selected = ", ".join([*keys, f"{value}{alias}"])
    return f"write SELECT {selected} FROM {table} GROUP BY {in_window}, and join the rows with it if they are needed"  # noqa: S608


def _end_of_order(call: Any, ordered: list[Any]) -> str:
    """Return the aggregate for FIRST_VALUE or LAST_VALUE in an order of one direction."""
    function = _without_nulls(call)
    value, keys = _text(function.this), [_text(part.this) for part in ordered]
    by = "max_by" if (call_name(function) in _LAST) != bool(ordered[0].args.get("desc")) else "min_by"
    only = f" FILTER (WHERE {value} IS NOT NULL)" if isinstance(call, exp.IgnoreNulls) else ""
    return f"{by}({value}, {keys[0] if len(keys) == 1 else _struct(keys)}){only}"


def _without_nulls(call: Any) -> Any:
    """Return a function without what is said about nulls."""
    return call.this if isinstance(call, exp.IgnoreNulls | exp.RespectNulls) else call


def distinct_form(aggregate: Any, distinct: exp.Distinct) -> str:
    """Return what to write instead of an aggregate of distinct values."""
    values = [_text(value) for value in distinct.expressions]
    value = values[0] if len(values) == 1 else _struct(values)
    parent = aggregate.parent
    filtered = isinstance(parent, exp.Filter) and parent.this is aggregate
    conditions = [_text(parent.expression.this)] if filtered else []
    if len(values) > 1:  # of which count(DISTINCT a, b) leaves out those with a null
        conditions = [*(f"({each})" for each in conditions), *(f"{value} IS NOT NULL" for value in values)]
    only = f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""
    collected = f"collect_set({value}){only}"
    if isinstance(aggregate, exp.Count):
        return f"write size({collected}); or approx_count_distinct({value}){only}, whose state is smaller"
    if isinstance(aggregate, exp.ArrayAgg):
        return f"write {collected}"
    return f"write it over {collected}, as aggregate({collected}, 0D, (total, value) -> total + value)"


def top_form(select: Any, plan: StreamPlan, rows: StreamPlan) -> str:
    """Return what to write instead of ORDER BY … LIMIT n; empty where there is no such form.

    `plan` is that of the SELECT, `rows` that of what FROM reads.
    """
    order, limit = select.args.get("order"), select.args.get("limit")
    if order is None or limit is None or not isinstance(select, exp.Select):
        return ""
    number = limit.expression.name if isinstance(limit.expression, exp.Literal) else "N"
    source = _source(select)
    keys = ", ".join(_order(part, select, rows) for part in order.expressions)
    windows = (part for part in select.expressions if call_name(part.unalias()) in _WINDOWS)
    window = next((part.alias or call_name(part) for part in windows), "")
    if source and not window:
        window = next(iter(rows.watermark_columns or ()), "")
    by = f"by: {window or 'w'}, " if plan.aggregated else ""
    top = f"write top: {{from: {source or '…'}, n: {number}, {by}order: {_yaml(keys)}}}"
    first = "group by a window as w, " if plan.aggregated and not window else ""
    over = f"over {source}" if source else "leave ORDER BY and LIMIT out, and over that table"
    return top if source and not first else f"{first}{over} {top}"


def _ranked(window: exp.Window, select: exp.Select, partition: list[Any], ordered: list[Any], rows: StreamPlan) -> str:
    """Return the table of the form `latest` or `top` that has the rows with the lowest numbers."""
    source, kept = _source(select), _kept_rows(window, select)
    keys = [_yaml(_named(part, select)) for part in partition]
    by = f"by: {keys[0] if len(keys) == 1 else '[' + ', '.join(keys) + ']'}, " if keys else ""
    order = ", ".join(_order(part, select, rows) for part in ordered)
    name = window.parent.alias if isinstance(window.parent, exp.Alias) else ""
    if kept == (1, True) and keys and [bool(part.args.get("desc")) for part in ordered] == [True]:
        form = f"latest: {{from: {source or '…'}, {by}order: {_yaml(_order(ordered[0], select, rows, desc=''))}}}"
    else:
        number, first = kept or ("N", True)
        rank = f", rank: {name or 'place'}" if kept != (1, True) else ""
        form = f"top: {{from: {source or '…'}, n: {number}, {by}order: {_yaml(order)}{rank}}}"
        form += "" if first else f", and of that table the rows WHERE {name or 'place'} = {number}"
    write = f"write {form}" if source else f"make a table of the rows that are numbered, and over it write {form}"
    write = write if kept else f"for the first N rows of each group {write}"
    write += "" if call_name(window.this) == "row_number" else "; of rows with equal order each has a place of its own"
    at = _event_time(rows)
    if not source or at == "…" or at in keys or any(call_name(part) in _WINDOWS for part in partition):
        return write
    return f'{write}; with "window({at}, {_WINDOW_LENGTH})" in by its state ends'


def _source(select: exp.Select) -> str:
    """Return the source or table whose rows are those that a SELECT reads; empty if there is no single one."""
    start = select.args.get("from_")
    table = start.this if start else None
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier) or table.db:
        return ""
    changed = any(map(select.args.get, _CLAUSES)) or any(map(table.args.get, ("joins", "pivots", "sample")))
    return "" if changed or table.alias_column_names or defined_by(table) is not None else str(table.name)


def _named(node: Any, select: exp.Select) -> str:
    """Return an expression as it is written over the rows that are read; without such a table over the result."""
    position = position_of(node)
    if position is not None and 0 < position <= len(select.expressions):
        node = select.expressions[position - 1].unalias()
    aliases = {part.alias: part.this for part in select.expressions if isinstance(part, exp.Alias)}
    if not _source(select):
        node = next((exp.column(alias) for alias, part in aliases.items() if part == node), node)
    elif isinstance(node, exp.Column) and not node.table:
        node = aliases.get(node.name, node)
    read = [
        part.this.alias_or_name.lower()
        for part in (select.args.get("from_"), *(select.args.get("joins") or ()))
        if part
    ]
    return _text(node.transform(lambda part: exp.column(part.this) if _is_of(part, read) else part))


def position_of(node: Any) -> int | None:
    """Return the position in the SELECT list that a key of GROUP BY or ORDER BY may be; None if it is no number."""
    is_number = isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal()
    return int(node.name) if is_number else None


def _is_of(node: Any, read: list[str]) -> bool:
    return isinstance(node, exp.Column) and node.table.lower() in read


def _order(part: Any, select: exp.Select, rows: StreamPlan, desc: str = " DESC") -> str:
    """Return a key of an order; where SQL has nulls first and `latest` and `top` have them last, it says so."""
    name = _named(part.this, select)
    nulls = part.args.get("nulls_first") and name.lower() not in (rows.watermark_columns or ())
    return f"{name}{desc if part.args.get('desc') else ''}{' NULLS FIRST' if nulls else ''}"


def _named_window(window: exp.Window, select: exp.Select) -> exp.Window:
    """Return a window with the definition that WINDOW gives its name."""
    name = window.alias.lower()
    for defined in select.args.get("windows") or () if name else ():
        if isinstance(defined, exp.Window) and defined.this.name.lower() == name:
            return defined
    return window


def _kept_rows(window: exp.Window, select: exp.Select) -> tuple[int, bool] | None:
    """Return up to which number rows are kept, and whether from the first; None if that is not clear."""
    alias = window.parent.alias.lower() if isinstance(window.parent, exp.Alias) else None
    places: list[Any] = [
        column for column in select.root().find_all(exp.Column) if alias and column.name.lower() == alias
    ]
    places = [place for place in places if _filters(place.find_ancestor(exp.Where, exp.Qualify), select)] or [window]
    comparison = places[0].parent
    if len(places) > 1 or not isinstance(comparison, exp.EQ | exp.LTE | exp.LT) or comparison.this is not places[0]:
        return None
    over = comparison.parent
    while isinstance(over, exp.And | exp.Paren):
        over = over.parent
    number = comparison.expression.name if isinstance(comparison.expression, exp.Literal) else ""
    kept = int(number) - isinstance(comparison, exp.LT) if number.isdecimal() else 0
    return (
        (kept, kept == 1 or not isinstance(comparison, exp.EQ))
        if kept and not isinstance(over, exp.Or | exp.Not)
        else None
    )


def _filters(clause: Any, select: exp.Select) -> bool:
    """Return whether a clause may filter what a SELECT gives: not its own WHERE."""
    return clause is not None and (isinstance(clause, exp.Qualify) or clause.parent is not select)


def _event_time(rows: StreamPlan) -> str:
    """Return the column of event time, that is one with a watermark."""
    return next(iter(sorted(rows.watermark_columns or ())), "…")


def _yaml(text: str) -> str:
    """Return a text as it is written in a mapping of YAML."""
    if re.fullmatch(r"[A-Za-z_]\w*", text):
        return text
    return '"' + text.replace("\\", r"\\").replace('"', r"\"") + '"'


def _struct(texts: Iterable[str]) -> str:
    return f"struct({', '.join(dict.fromkeys(texts))})"


def _text(node: Any) -> str:
    return str(node.sql(dialect="spark", normalize_functions="lower", comments=False))
