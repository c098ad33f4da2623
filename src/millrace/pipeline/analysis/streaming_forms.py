"""What to write on a stream instead of SQL that needs all rows, with the user's own names.

- `over_form`: for a function OVER (…), as ROW_NUMBER, SUM or LAG.
- `distinct_form`: for an aggregate of distinct values.
- `top_form`: for ORDER BY and LIMIT.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from millrace.pipeline.analysis.operators import StreamPlan
from millrace.pipeline.sql import call_of

_RANKS = ("row_number", "rank", "dense_rank")
_NEIGHBOURS = ("lag", "lead")
_WINDOW_LENGTH = "'1 minute'"


def over_form(window: exp.Window, select: exp.Select, plan: StreamPlan) -> str:
    """Return what to write instead of a function OVER (…)."""
    call = call_of(window.this)
    name = call.name.lower() if call else ""
    over = _named_window(window, select)
    keys = [_text(key) for key in over.args.get("partition_by") or ()]
    order = over.args.get("order")
    ordered = [part.this for part in order.expressions] if order else []
    falls = bool(order and order.expressions[0].args.get("desc"))
    rows, at = _read(select), _event_time(plan, ordered)
    others = [part for part in map(_text, ordered) if part not in keys]
    columns = _columns(select, [*keys, *others])
    if name in _RANKS:
        number = _kept_rows(window, select)
        newest = f"{'max' if falls else 'min'}_by({_struct(columns)}, {', '.join(others[:1]) or at})"
        listed = f"sort_array(collect_list({_struct([*others, *columns])}), {str(not falls).lower()})"
        first = number or "n"
        one = f"SELECT {', '.join([*keys, f'{newest} AS row'])} FROM {rows}{_group(keys)}"  # noqa: S608
        many = f"SELECT {', '.join([*keys, f'slice({listed}, 1, {first}) AS rows'])} FROM {rows}{_group(keys)}"  # noqa: S608
        end = f"; with window({at}, {_WINDOW_LENGTH}) among the keys its state ends"
        if number == 1:
            return f"write {one}{end}"
        return f"write {many}{end}" if number else f"for the first row of each write {one}; for the first n {many}{end}"
    in_window = ", ".join([*keys, f"window({at}, {_WINDOW_LENGTH})"])
    if name in _NEIGHBOURS:
        listed = f"sort_array(collect_list({_struct(_unique([at, *map(_text, window.this.find_all(exp.Column))]))}))"
        gaps = ", ".join([*keys, f"session_window({at}, '10 minutes')"])
        listing = f"SELECT {listed} AS rows FROM {rows} GROUP BY {in_window}"  # noqa: S608
        return (
            f"collect the rows of a window in order: {listing}; for gaps between rows GROUP BY {gaps}; "
            "or keep the row before in a Python table (transformWithState)"
        )
    if over.args.get("spec"):
        in_window = ", ".join([*keys, f"window({at}, '10 minutes', {_WINDOW_LENGTH})"])
    name = f" AS {window.parent.alias}" if isinstance(window.parent, exp.Alias) else ""
    selected = ", ".join([*keys, f"{_text(window.this)}{name}"])
    return f"write SELECT {selected} FROM {rows} GROUP BY {in_window}, and join the rows with it if they are needed"  # noqa: S608


def distinct_form(aggregate: Any, distinct: exp.Distinct) -> str:
    """Return what to write instead of an aggregate of distinct values."""
    values = [_text(value) for value in distinct.expressions]
    value = values[0] if len(values) == 1 else _struct(values)
    parent = aggregate.parent
    filtered = isinstance(parent, exp.Filter) and parent.this is aggregate
    only = f" FILTER ({_text(parent.expression).strip()})" if filtered else ""
    collected = f"collect_set({value}){only}"
    if isinstance(aggregate, exp.Count):
        return f"write size({collected}); or approx_count_distinct({value}){only}, whose state is smaller"
    if isinstance(aggregate, exp.ArrayAgg):
        return f"write {collected}"
    return f"write it over {collected}, as aggregate({collected}, 0D, (total, value) -> total + value)"


def top_form(node: Any, plan: StreamPlan) -> str:
    """Return what to write instead of ORDER BY … LIMIT n; empty where there is no such form."""
    order, limit = node.args.get("order"), node.args.get("limit")
    if order is None or limit is None or not isinstance(node, exp.Select):
        return ""
    ordered = [part.this for part in order.expressions]
    falls, number = bool(order.expressions[0].args.get("desc")), _text(limit.expression)
    at = _event_time(plan, [])
    names = [_name(part) for part in node.expressions if not part.is_star]
    by = [_text(part) for part in ordered]
    columns = _struct(_unique([*by, *(name for name in names if name)]) if names else [*by, "*"])
    top = f"slice(sort_array(collect_list({columns}), {str(not falls).lower()}), 1, {number}) AS top"
    if not plan.aggregated:
        return f"write SELECT window({at}, {_WINDOW_LENGTH}) AS w, {top} FROM {_read(node)} GROUP BY 1"  # noqa: S608
    return f"group by a window as w, and write SELECT w, {top} FROM (that query, without ORDER BY and LIMIT) GROUP BY w"  # noqa: S608


def _named_window(window: exp.Window, select: exp.Select) -> exp.Window:
    """Return a window with the definition that WINDOW gives its name."""
    name = window.alias.lower()
    for defined in select.args.get("windows") or () if name else ():
        if isinstance(defined, exp.Window) and defined.this.name.lower() == name:
            return defined
    return window


def _kept_rows(window: exp.Window, select: exp.Select) -> int | None:
    """Return how many rows of each key are kept by a filter on their number; None if that is not clear."""
    alias = window.parent.alias.lower() if isinstance(window.parent, exp.Alias) else None
    for comparison in select.root().find_all(exp.EQ, exp.LTE, exp.LT):
        left, right = comparison.this, comparison.expression
        named = isinstance(left, exp.Column) and left.name.lower() == alias
        if (named or left is window) and isinstance(right, exp.Literal) and right.name.isdigit():
            return int(right.name) - isinstance(comparison, exp.LT)
    return None


def _columns(select: exp.Select, without: list[str]) -> list[str]:
    """Return the columns that a SELECT gives besides the function OVER (…) and some others."""
    if any(part.is_star for part in select.expressions):
        return ["*"]
    bare = [part.unalias() if isinstance(part, exp.Alias) else part for part in select.expressions]
    texts = [_text(part) for part in bare if not any(part.find_all(exp.Window))]
    return [text for text in texts if text not in without] or without or ["*"]


def _event_time(plan: StreamPlan, ordered: list[Any]) -> str:
    """Return the column of event time: one with a watermark, else what the rows are ordered by."""
    marked = sorted(plan.watermark_columns or ())
    names = [part.name for part in ordered if isinstance(part, exp.Column)]
    return next((name for name in names if name.lower() in marked), "") or next(iter([*marked, *names]), "at")


def _read(select: exp.Select) -> str:
    start = select.args.get("from_")
    return start.this.name if start and isinstance(start.this, exp.Table) and not select.args.get("joins") else "…"


def _group(keys: list[str]) -> str:
    return f" GROUP BY {', '.join(keys)}" if keys else ""


def _struct(columns: list[str]) -> str:
    return f"struct({', '.join(['*'] if '*' in columns else _unique(columns))})" if columns else "struct(*)"


def _unique(texts: list[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _name(part: Any) -> str:
    return str(part.alias_or_name)


def _text(node: Any) -> str:
    return str(node.sql(dialect="spark", normalize_functions="lower", comments=False))
