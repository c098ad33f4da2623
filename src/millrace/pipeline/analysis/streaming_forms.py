"""What to write on a stream instead of SQL that needs all rows, with the user's own names.

- `over_form`: for a function OVER (…), as ROW_NUMBER, SUM or LAG.
- `distinct_form`: for an aggregate of distinct values.
- `top_form`: for ORDER BY and LIMIT.

The first rows of an order are a table of the form `latest` or `top`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from sqlglot import exp

from millrace.pipeline.analysis.operators import StreamPlan
from millrace.pipeline.analysis.types import call_name
from millrace.pipeline.sql import defined_by

_RANKS = ("row_number", "rank", "dense_rank")
_NEIGHBOURS = ("lag", "lead")
_FIRST, _LAST = ("first_value", "first"), ("last_value", "last")
WINDOWS = ("window", "session_window")
_WINDOW_LENGTH = "'1 minute'"
_AROUND = (exp.IgnoreNulls, exp.RespectNulls, exp.Filter, exp.WithinGroup)
_CLAUSES = ("joins", "laterals", "where", "group", "having", "distinct", "with_")
"""What a SELECT has if the rows that it ranks are not those of a table."""


def over_form(window: exp.Window, select: exp.Select, rows: StreamPlan) -> str:
    """Return what to write instead of a function OVER (…); `rows` is the plan of what FROM reads."""
    call = _call(window.this)
    name = call_name(call)
    over = _named_window(window, select)
    partition, order = over.args.get("partition_by") or [], over.args.get("order")
    ordered = order.expressions if order else []
    if name in _RANKS:
        return _ranked(window, select, partition, ordered, rows)
    if name not in _NEIGHBOURS and any(part is not call for part in call.find_all(exp.AggFunc)):
        return "make a table of the groups, and aggregate its rows in another one, by the same window"
    table = _source(select) or "…"
    text = _unqualified_text(select) if _source(select) else _text
    keys = [text(key) for key in partition]
    at = _event_time(rows)
    falls = {bool(part.args.get("desc")) for part in ordered}
    if name in _NEIGHBOURS or (name in (*_FIRST, *_LAST) and len(falls) == 2):
        columns = [*(part.this for part in ordered), *window.this.find_all(exp.Column)]
        gaps = ", ".join([*keys, f"session_window({at}, '10 minutes')"])
        listed = f"sort_array(collect_list({_struct(map(text, columns))}){', false' if True in falls else ''})"
        in_window = ", ".join([*keys, f"window({at}, {_WINDOW_LENGTH})"])
        listing = f": SELECT {listed} AS rows FROM {table} GROUP BY {in_window}" if len(falls) < 2 else ""  # noqa: S608
        return (
            f"collect the rows of a window in order{listing}; for gaps between rows GROUP BY {gaps}; "
            "or keep the row before in a Python table (transformWithState)"
        )
    length = f"'10 minutes', {_WINDOW_LENGTH}" if over.args.get("spec") else _WINDOW_LENGTH
    in_window = ", ".join([*keys, f"window({at}, {length})"])
    alias = f" AS {window.parent.alias}" if isinstance(window.parent, exp.Alias) else ""
    value = text(window.this)
    if ordered and name in (*_FIRST, *_LAST):
        value = _end_of_order(window.this, ordered, text)
    elif f"{name}(" not in value.lower():  # the parser has made it another function
        return f"write it with GROUP BY {in_window} instead of OVER, and join the rows with it if they are needed"
    selected = ", ".join([*keys, f"{value}{alias}"])
    return f"write SELECT {selected} FROM {table} GROUP BY {in_window}, and join the rows with it if they are needed"  # noqa: S608


def _end_of_order(call: Any, ordered: list[Any], text: Callable[[Any], str]) -> str:
    """Return the aggregate for FIRST_VALUE or LAST_VALUE in an order of one direction."""
    function = _call(call)
    value, keys = text(function.this), [text(part.this) for part in ordered]
    by = "max_by" if (call_name(function) in _LAST) != bool(ordered[0].args.get("desc")) else "min_by"
    only = f" FILTER (WHERE {value} IS NOT NULL)" if isinstance(call, exp.IgnoreNulls) else ""
    return f"{by}({value}, {keys[0] if len(keys) == 1 else _struct(keys)}){only}"


def _call(node: Any) -> Any:
    """Return a function without what is said about nulls, about its rows and about their order."""
    while isinstance(node, _AROUND):
        node = node.this
    return node


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
    if isinstance(aggregate, exp.Max | exp.Min):
        return f"write {call_name(aggregate)}({value}){only}: of equal values it takes one anyhow"
    total = f"aggregate({collected}, 0D, (total, value) -> total + value)"
    if isinstance(aggregate, exp.Avg):
        return f"write try_divide({total}, size({collected}))"
    return f"write it over {collected}{f', as {total}' if isinstance(aggregate, exp.Sum) else ''}"


def top_form(select: Any, plan: StreamPlan, rows: StreamPlan) -> str:
    """Return what to write instead of ORDER BY … LIMIT n; empty where there is no such form.

    `plan` is that of the SELECT, `rows` that of what FROM reads.
    """
    order, limit = select.args.get("order"), select.args.get("limit")
    if order is None or limit is None or not isinstance(select, exp.Select):
        return ""
    number = limit.expression.name if isinstance(limit.expression, exp.Literal) else "N"
    source = _source(select)
    names = _Names(select, rows)
    keys = ", ".join(map(names.order, order.expressions))
    windows = (part for part in select.expressions if call_name(part.unalias()) in WINDOWS)
    window = next((part.alias or call_name(part) for part in windows), "")
    if not window:
        window = next(iter(sorted((rows if source else plan).watermark_columns or ())), "")
    by = f"by: {window or 'w'}, " if plan.aggregated else ""
    top = f"write top: {{from: {source or '…'}, n: {number}, {by}order: {_yaml(keys)}}}"
    first = "group by a window as w, " if plan.aggregated and not window else ""
    over = f"over {source}" if source else f"leave ORDER BY and LIMIT out, {names.given}and over that table"
    return top if source and not first else f"{first}{over} {top}"


def _ranked(window: exp.Window, select: exp.Select, partition: list[Any], ordered: list[Any], rows: StreamPlan) -> str:
    """Return the table of the form `latest` or `top` that has the rows with the lowest numbers."""
    source, kept = _source(select), _kept_rows(window, select)
    names = _Names(select, rows, over=True)
    keys = [_yaml(names.text(part)) for part in partition if not isinstance(part, exp.Literal)]
    by = f"by: {keys[0] if len(keys) == 1 else '[' + ', '.join(keys) + ']'}, " if keys else ""
    at = _event_time(rows)
    ordered = [part for part in ordered if not isinstance(part.this, exp.Literal)]
    order = ", ".join(map(names.order, ordered)) or at
    name = window.parent.alias if isinstance(window.parent, exp.Alias) else ""
    if kept == (1, True) and keys and [bool(part.args.get("desc")) for part in ordered] == [True]:
        form = f"latest: {{from: {source or '…'}, {by}order: {_yaml(names.order(ordered[0], desc=''))}}}"
    else:
        number, first = kept or ("N", True)
        rank = f", rank: {name or 'place'}" if kept != (1, True) else ""
        form = f"top: {{from: {source or '…'}, n: {number}, {by}order: {_yaml(order)}{rank}}}"
        form += "" if first else f", and of that table the rows WHERE {name or 'place'} = {number}"
    over = f"make a table of the rows that are numbered, {names.given}and over it "
    write = f"{'' if source else over}write {form}"
    write = write if kept else f"for the first N rows of each group {write}"
    write += "" if call_name(window.this) == "row_number" else "; of rows with equal order each has a place of its own"
    if not source or at == "…" or at in keys or any(call_name(part) in WINDOWS for part in partition):
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


@dataclass
class _Names:
    """How keys are written over the rows that are read; without such a table over those of the result."""

    select: exp.Select
    rows: StreamPlan
    over: bool = False
    """Whether they stand in OVER, where a name is a column that is read, and a number is no position."""
    new: dict[str, str] = field(default_factory=dict)
    """Names for aggregates that have none in the result, by their text."""

    @property
    def given(self) -> str:
        """What to do so that the result has the new names."""
        return "".join(f"name {text} AS {name}, " for text, name in self.new.items())

    def order(self, part: Any, desc: str = " DESC") -> str:
        """Return a key of an order; where SQL has nulls first and `latest` and `top` have them last, it says so."""
        name = self.text(part.this)
        nulls = part.args.get("nulls_first") and name.lower() not in (self.rows.watermark_columns or ())
        return f"{name}{desc if part.args.get('desc') else ''}{' NULLS FIRST' if nulls else ''}"

    def text(self, node: Any) -> str:
        """Return an expression with the names of these rows."""
        position = None if self.over else position_of(node)
        if position is not None and 0 < position <= len(self.select.expressions):
            node = self.select.expressions[position - 1].unalias()
        aliases = {part.alias: part.this for part in self.select.expressions if isinstance(part, exp.Alias)}
        if not _source(self.select):
            node = node.transform(lambda part: self._of_result(part, aliases))
        elif isinstance(node, exp.Column) and not node.table and not self.over:
            node = aliases.get(node.name, node)
        return _unqualified_text(self.select)(node)

    def _of_result(self, node: Any, aliases: dict[str, Any]) -> Any:
        """Return the column of the result that an expression or an aggregate is; other expressions as they are."""
        if isinstance(node, exp.Column) and not self.over and not node.table and node.name in aliases:
            return node
        alias = next((alias for alias, part in aliases.items() if part == node), "")
        if not alias and isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup):
            taken = {part.alias_or_name.lower() for part in self.select.expressions} | set(self.new.values())
            free = (name for number in count(1) if (name := f"n{number if number > 1 else ''}") not in taken)
            alias = self.new.setdefault(_text(node), next(free))
        return exp.column(alias) if alias else node


def position_of(node: Any) -> int | None:
    """Return the position in the SELECT list that a key of GROUP BY or ORDER BY may be; None if it is no number."""
    is_number = isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal()
    return int(node.name) if is_number else None


def _unqualified_text(select: exp.Select) -> Callable[[Any], str]:
    """Return how an expression is written over rows that are no longer those of FROM: without the names of tables."""
    tables = (select.args.get("from_"), *(select.args.get("joins") or ()))
    read = [part.this.alias_or_name.lower() for part in tables if part]
    return lambda node: _text(node.transform(lambda part: exp.column(part.this) if _is_of(part, read) else part))


def _is_of(node: Any, read: list[str]) -> bool:
    return isinstance(node, exp.Column) and node.table.lower() in read


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
