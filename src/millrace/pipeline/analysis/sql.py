"""The shape of a table that is written in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from millrace.errors import InvalidSql, Place
from millrace.pipeline.model import Table
from millrace.pipeline.shapes.shape import STATIC, UNKNOWN, Events, Shape, Step, together
from millrace.pipeline.shapes.sql_joins import Sides, join_kind, join_step
from millrace.pipeline.shapes.sql_parts import function, inner_queries, is_grouped, keys, own
from millrace.pipeline.shapes.sql_state import aggregates, condition, grouped_by, selected
from millrace.pipeline.sql import defined_by, parsed

_WINDOWS = ("window", "session_window", "window_time")
_EXPLODES = ("inline_outer", "posexplode_outer", "stack")
_CLOCKS = (exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp)


def sql_shape(table: Table, inputs: Mapping[str, Shape]) -> Shape:
    """What a table's SQL does to what it reads; `inputs` are by name, in small letters."""
    try:
        return _Reading(table, inputs).query(parsed(table.sql or ""))
    except (InvalidSql, RecursionError):
        return UNKNOWN


@dataclass
class _From:
    """What a SELECT reads, by the names that its columns may be written with."""

    shape: Shape = STATIC
    named: dict[str, Shape] = field(default_factory=dict)


class _Reading:
    def __init__(self, table: Table, inputs: Mapping[str, Shape]) -> None:
        self.table, self.inputs = table, inputs
        self._parts: dict[int, Shape] = {}

    def query(self, node: Any) -> Shape:
        if isinstance(node, exp.Subquery):
            return self._end(node, self.query(node.this))
        if isinstance(node, exp.SetOperation):
            return self._end(node, self._combined(node))
        if isinstance(node, exp.Select):
            return self._select(node)
        return STATIC

    def place(self, node: Any) -> Place:
        """The line of the user's file where a part of the SQL stands."""
        for one in node.walk():
            if "line" in one.meta:
                length = one.meta.get("end", 0) - one.meta.get("start", 0)
                return self.table.sql_line(one.meta["line"], max(one.meta.get("col", 1) - length, 1))
        return self.table.sql_line(1)

    def step(self, kind: str, what: str, node: Any, **more: Any) -> Step:
        return Step(kind, what, self.place(node), self.table.name, **more)

    def _select(self, node: exp.Select) -> Shape:
        origin = self._from(node)
        shape = self._subqueries(node, origin.shape)
        aggregated = is_grouped(node)
        for one in own(node):
            shape = self._operation(one, shape)
        if aggregated:
            bounded, session = self._grouping(node, origin)
            at = node.args.get("group") or node.expressions[0]
            what = "GROUP BY" if node.args.get("group") else "the aggregation"
            kept = {"keys": grouped_by(node), "values": aggregates(node)}
            shape = shape.then(self.step("aggregate", what, at, bounded=bounded, session=session, **kept))
        for one in node.find_all(exp.Window):
            if one.find_ancestor(exp.Select) is node:
                shape = shape.then(self.step("over", "OVER", one))
        shape = shape.carrying(self._carried(node, origin))
        if node.args.get("distinct"):
            bounded = None if shape.events is None else bool(shape.events)
            kept = {"keys": selected(node), "values": ()}
            shape = shape.then(self.step("aggregate", "SELECT DISTINCT", node.expressions[0], bounded=bounded, **kept))
        return self._end(node, shape)

    def _operation(self, node: Any, shape: Shape) -> Shape:
        """Operations that are functions: an aggregate of distinct values, a row's number, the clock."""
        if isinstance(node, exp.Distinct) and isinstance(node.parent, exp.AggFunc):
            return shape.then(self.step("distinct", f"{node.parent.sql_name()}(DISTINCT …)", node.parent))
        if function(node) == "monotonically_increasing_id":
            return shape.then(self.step("number", "monotonically_increasing_id()", node))
        if isinstance(node, exp.Explode | exp.Posexplode | exp.Inline) or function(node) in _EXPLODES:
            return shape.then(self.step("explode", "explode", node))
        if isinstance(node, _CLOCKS) or function(node) == "now":
            return shape.then(self.step("clock", "the current time", node))
        return shape

    def _end(self, node: Any, shape: Shape) -> Shape:
        """ORDER BY, LIMIT and OFFSET, which come last."""
        for key, what in (("order", "ORDER BY"), ("sort", "SORT BY"), ("cluster", "CLUSTER BY")):
            if node.args.get(key):
                shape = shape.then(self.step("sort", what, node.args[key]))
        for key in ("limit", "offset"):
            if node.args.get(key):
                shape = shape.then(self.step(key, key.upper(), node.args[key]))
        return shape

    def _from(self, node: exp.Select) -> _From:
        start = node.args.get("from_")
        if start is None:
            return _From()
        found = _From(self._relation(start.this))
        found.named[start.this.alias_or_name.lower()] = found.shape
        for join in node.args.get("joins") or ():
            self._join(found, join, node)
        for lateral in node.args.get("laterals") or ():
            found.shape = found.shape.then(self.step("explode", "LATERAL VIEW", lateral))
        return found

    def _join(self, found: _From, join: exp.Join, node: exp.Select) -> None:
        if isinstance(join.this, exp.Lateral | exp.Unnest) or not join.this.alias_or_name:
            inner = join.this.find(exp.Query)
            if inner is not None and self.query(inner).streaming:
                found.shape = found.shape.then(self.step("subquery", "LATERAL", join.this))
            found.shape = found.shape.then(self.step("explode", "LATERAL", join.this))
            return
        right = self._relation(join.this)
        sides = Sides(found.shape, right, dict(found.named), join.this.alias_or_name.lower())
        kind = join_kind(join)
        where = node.args.get("where") if kind in ("inner", "cross") else None
        made = together((found.shape, right))
        added = join_step(kind, sides, join, where)
        if added:
            step = self.step(added.kind, added.what, join, bounded=added.bounded, join=kind, keys=condition(join))
            made = made.then(step)
        found.shape = made
        found.named[sides.name] = right

    def _relation(self, node: Any) -> Shape:
        shape = self._rows(node)
        if node.args.get("sample"):
            shape = shape.then(self.step("sample", "TABLESAMPLE", node))
        for pivot in node.args.get("pivots") or ():
            shape = shape.then(self.step("pivot", "PIVOT", pivot)).carrying(None)
        return shape

    def _rows(self, node: Any) -> Shape:
        if isinstance(node, exp.Subquery):
            return self.query(node)
        if not isinstance(node, exp.Table) or not node.name or node.db:
            return STATIC
        part = defined_by(node)
        if part is None:
            return self.inputs.get(node.name.lower(), UNKNOWN)
        if id(part) not in self._parts:
            self._parts[id(part)] = UNKNOWN  # for one that reads itself
            self._parts[id(part)] = self.query(part.this).then(self.step("with", "WITH", part))
        return self._parts[id(part)]

    def _combined(self, node: exp.SetOperation) -> Shape:
        left, right = self.query(node.this), self.query(node.expression)
        both = together((left, right))
        both = both.carrying(left.events)  # the columns are the left side's, and so is what they carry
        at = node.expression
        if isinstance(node, exp.Union):
            if {left.streaming, right.streaming} == {True, False}:
                both = both.then(self.step("mixed", "UNION", at))
            both = both.then(self.step("union", "UNION", at))
            if node.args.get("distinct"):
                bounded = None if both.events is None else bool(both.events)
                both = both.then(self.step("aggregate", "UNION", at, bounded=bounded))
        elif isinstance(node, exp.Intersect):
            both = both.then(self.step("intersect", "INTERSECT", at))
        elif right.streaming is not False:
            both = both.then(self.step("except", "EXCEPT", at, sure=right.streaming is True))
        return both

    def _subqueries(self, node: exp.Select, shape: Shape) -> Shape:
        for one in inner_queries(node):
            inner = self.query(one)
            if inner.streaming:
                shape = replace(shape, streaming=True).then(self.step("subquery", "a subquery", one))
        return shape

    def _grouping(self, node: exp.Select, origin: _From) -> tuple[bool | None, bool]:
        """Whether the groups end by a watermark, and whether they are sessions."""
        grouped = list(keys(node))
        found = [self._event(key, origin, node) for key in grouped]
        session = any(function(one) == "session_window" for key in grouped for one in key.walk())
        bounded = True if True in found else None if None in found else False
        return bounded, session

    def _carried(self, node: exp.Select, origin: _From) -> Events:
        """The event-time columns of what a SELECT gives."""
        names: set[str] = set()
        for one in node.expressions:
            if one.is_star:
                of = getattr(one, "table", "")
                shape = origin.named.get(of.lower(), UNKNOWN) if of else origin.shape
                if shape.events is None:
                    return None
                names |= shape.events
                continue
            carries = self._event(one, origin)
            if carries is None:
                return None
            if carries:
                names.add((one.alias_or_name or function(one) or "").lower())
        return frozenset(names)

    def _event(self, node: Any, origin: _From, select: exp.Select | None = None) -> bool | None:
        """Whether an expression carries the watermark: a column that does, as it is or in a window."""
        node = node.unalias() if isinstance(node, exp.Alias) else node
        if isinstance(node, exp.Paren):
            return self._event(node.this, origin, select)
        if isinstance(node, exp.Column):
            return self._event_column(node, origin, select)
        if function(node) in _WINDOWS and node.expressions:
            return self._event(node.expressions[0], origin, select)
        return False

    def _event_column(self, node: exp.Column, origin: _From, select: exp.Select | None) -> bool | None:
        if node.table:
            shape = origin.named.get(node.table.lower())
            if shape is None:
                return False  # a field of a struct: window.end is no event time any more
        else:
            shape = origin.shape
        if shape.events is None:
            return None
        if node.name.lower() in shape.events:
            return True
        for one in select.expressions if select and not node.table else ():
            if isinstance(one, exp.Alias) and one.alias.lower() == node.name.lower():
                return self._event(one.this, origin)
        return False
