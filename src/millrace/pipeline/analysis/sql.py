"""The plan of a table that is written in SQL.

- `sql_plan` follows a query through its subqueries, joins, aggregations and set operations.
- The kind of each join, and whether its condition bounds its state.
- The keys and the values of each state as normalized SQL, for the comparison of two versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from millrace.errors import InvalidSql, SourceLocation
from millrace.pipeline.analysis.operators import (
    JOIN_KINDS,
    STATIC,
    UNKNOWN,
    JoinOperator,
    Operator,
    StreamPlan,
    WatermarkColumns,
    has_join_watermarks,
    join_operator,
    merged_plan,
)
from millrace.pipeline.model import TableDef
from millrace.pipeline.sql import defined_by, parsed

_RANGES = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)


@dataclass(frozen=True)
class JoinSides:
    """What a join joins."""

    left: StreamPlan
    right: StreamPlan
    left_names: dict[str, StreamPlan]
    name: str
    """The right side's."""


def join_kind(join: exp.Join) -> str:
    """The kind of a join in SQL."""
    side, kind = (join.side or "").lower(), (join.kind or "").lower()
    return JOIN_KINDS.get(kind if kind in ("semi", "anti", "cross") else side, "inner")


def join_step(kind: str, sides: JoinSides, join: exp.Join, where: Any) -> JoinOperator | None:
    """What a join in SQL is, when it matters to a stream."""
    return join_operator(kind, sides.left, sides.right, _bounded(kind, sides, join, where), f"{kind.upper()} JOIN")


def _bounded(kind: str, sides: JoinSides, join: exp.Join, where: Any) -> bool | None:
    """Whether a watermark ends the state: by an equal event time, or by a range between the event times."""
    if sides.left.watermark_columns is None or sides.right.watermark_columns is None:
        return None
    conditions = [one for part in (join.args.get("on"), where) if part is not None for one in _conjuncts(part)]
    for name in join.args.get("using") or ():
        if name.name.lower() in sides.left.watermark_columns | sides.right.watermark_columns:
            return True
    if any(isinstance(one, exp.EQ) and (_of_left(one, sides) or _of_right(one, sides)) for one in conditions):
        return True
    ranged = any(isinstance(one, _RANGES) and _spans(one, sides) for one in conditions)
    return ranged and has_join_watermarks(kind, sides.left, sides.right)


def _conjuncts(node: Any) -> list[Any]:
    node = node.this if isinstance(node, exp.Where) else node
    return list(node.flatten()) if isinstance(node, exp.And) else [node]


def _spans(node: Any, sides: JoinSides) -> bool:
    """Whether a comparison is between an event time and a column of the other side."""
    columns = list(node.find_all(exp.Column))
    right = [column for column in columns if column.table.lower() == sides.name]
    left = [column for column in columns if column.table.lower() in sides.left_names]
    unnamed = [column for column in columns if not column.table]
    return bool(left and right) or len(unnamed) > 1 or bool(unnamed and (left or right))


def _of_left(node: Any, sides: JoinSides) -> bool:
    return any(
        column.name.lower() in (sides.left_names.get(column.table.lower(), sides.left).watermark_columns or ())
        for column in node.find_all(exp.Column)
        if column.table.lower() != sides.name and isinstance(column.parent, exp.EQ)
    )


def _of_right(node: Any, sides: JoinSides) -> bool:
    return any(
        column.name.lower() in (sides.right.watermark_columns or ())
        for column in node.find_all(exp.Column)
        if column.table.lower() in (sides.name, "") and isinstance(column.parent, exp.EQ)
    )


_AGGREGATES = frozenset(
    ("count_min_sketch", "every", "histogram_numeric", "product", "some", "std", "try_avg", "try_sum", "hll_sketch_agg")
)
"""Those that the parser does not know as aggregates."""


def own_expressions(node: exp.Select) -> Iterator[Any]:
    """The parts of a SELECT's own expressions, without those of the queries inside it."""
    for clause in _clauses(node):
        yield from clause.walk(prune=lambda one: isinstance(one, exp.Query))


def inner_queries(node: exp.Select) -> Iterator[Any]:
    """The queries inside a SELECT's own expressions."""
    for one in own_expressions(node):
        if isinstance(one, exp.Query):
            yield one


def _clauses(node: exp.Select) -> Iterator[Any]:
    yield from node.expressions
    for key in ("where", "having", "qualify", "group", "order"):
        if node.args.get(key):
            yield node.args[key]
    for join in node.args.get("joins") or ():
        if join.args.get("on"):
            yield join.args["on"]


def is_grouped(node: exp.Select) -> bool:
    """Whether a SELECT aggregates."""
    return bool(node.args.get("group") or node.args.get("having")) or any(map(is_aggregate, own_expressions(node)))


def is_aggregate(node: Any) -> bool:
    """Whether a function is an aggregate of its SELECT, not one over a window of rows."""
    named = isinstance(node, exp.Anonymous) and node.name.lower() in _AGGREGATES
    if not (named or isinstance(node, exp.AggFunc)):
        return False
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        parent = parent.parent
    return not (isinstance(parent, exp.Window) and any(one is node for one in parent.this.walk()))


def grouping_keys(node: exp.Select) -> Iterator[Any]:
    """What a SELECT groups by: expressions, positions in the list, or ALL that is no aggregate."""
    group = node.args.get("group")
    if group is None:
        return
    if group.args.get("all"):
        yield from (one for one in node.expressions if not any(map(is_aggregate, one.walk())))
    nested = [one for key in ("rollup", "cube", "grouping_sets") for one in group.args.get(key) or ()]
    for one in group.expressions:
        if isinstance(one, exp.Literal) and not one.is_string and one.name.isdigit():
            yield from node.expressions[int(one.name) - 1 : int(one.name)]
        elif isinstance(one, exp.GroupingSets | exp.Rollup | exp.Cube):
            nested.append(one)
        else:
            yield one
    for one in nested:
        yield from one.find_all(exp.Column, exp.Anonymous)


def unknown_function(node: Any) -> str | None:
    """The name of a function that the parser does not know, in small letters."""
    return node.name.lower() if isinstance(node, exp.Anonymous) else None


def expression_text(node: Any) -> str:
    """An expression without its alias, in small letters where capitals do not matter."""
    bare = node.unalias() if isinstance(node, exp.Alias) else node
    written: str = bare.transform(_normalized).sql(dialect="spark", normalize=True, comments=False, identify=False)
    return written


def grouped_by(node: exp.Select) -> tuple[str, ...] | None:
    """What a SELECT groups by; None when a name may be a column or another expression's alias."""
    found = []
    for key in grouping_keys(node):
        named = _named(node, key)
        if named is not None and expression_text(named) != expression_text(key):
            return None
        found.append(expression_text(key))
    return tuple(dict.fromkeys(found))


def selected_aggregates(node: exp.Select) -> tuple[str, ...]:
    """The aggregates of a SELECT in the order in which they are written, which is that of its state."""
    parts = [*node.expressions, *filter(None, (node.args.get("having"), node.args.get("order")))]
    found = [
        expression_text(_whole(one))
        for part in parts
        for one in part.find_all(exp.Func, bfs=False)
        if is_aggregate(one)
    ]
    return tuple(dict.fromkeys(found))


def distinct_columns(node: exp.Select) -> tuple[str, ...] | None:
    """The columns of a SELECT DISTINCT; None for those of a star."""
    return None if node.is_star else tuple(expression_text(one) for one in node.expressions)


def join_condition(join: exp.Join) -> tuple[str, ...]:
    """What a join joins by, without regard to order."""
    on = join.args.get("on")
    parts = list(on.flatten()) if isinstance(on, exp.And) else [on] if on is not None else []
    using = [one.name.lower() for one in join.args.get("using") or ()]
    return tuple(sorted([*(expression_text(part) for part in parts), *using]))


def _named(node: exp.Select, key: Any) -> Any:
    """The expression whose alias a key is written as."""
    if not isinstance(key, exp.Column) or key.table:
        return None
    found = (one for one in node.expressions if isinstance(one, exp.Alias) and one.alias.lower() == key.name.lower())
    return next(found, None)


def _whole(node: Any) -> Any:
    """An aggregate with its FILTER."""
    while isinstance(node.parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        node = node.parent
    return node


def _normalized(node: Any) -> Any:
    if isinstance(node, exp.Identifier):
        return exp.to_identifier(node.name.lower())
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return exp.Count(this=exp.Literal.number(1))
    return node


_WINDOWS = ("window", "session_window", "window_time")
_EXPLODES = ("inline_outer", "posexplode_outer", "stack")
_CLOCKS = (exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp)


def sql_plan(table: TableDef, inputs: Mapping[str, StreamPlan]) -> StreamPlan:
    """What a table's SQL does to what it reads; `inputs` are by name, in small letters."""
    try:
        return _Analysis(table, inputs).query(parsed(table.sql or ""))
    except (InvalidSql, RecursionError):
        return UNKNOWN


@dataclass
class _From:
    """What a SELECT reads, by the names that its columns may be written with."""

    plan: StreamPlan = STATIC
    named: dict[str, StreamPlan] = field(default_factory=dict)


class _Analysis:
    def __init__(self, table: TableDef, inputs: Mapping[str, StreamPlan]) -> None:
        self.table, self.inputs = table, inputs
        self._parts: dict[int, StreamPlan] = {}

    def query(self, node: Any) -> StreamPlan:
        if isinstance(node, exp.Subquery):
            return self._end(node, self.query(node.this))
        if isinstance(node, exp.SetOperation):
            return self._end(node, self._combined(node))
        if isinstance(node, exp.Select):
            return self._select(node)
        return STATIC

    def place(self, node: Any) -> SourceLocation:
        """The line of the user's file where a part of the SQL stands."""
        for one in node.walk():
            if "line" in one.meta:
                length = one.meta.get("end", 0) - one.meta.get("start", 0)
                return self.table.sql_line(one.meta["line"], max(one.meta.get("col", 1) - length, 1))
        return self.table.sql_line(1)

    def operator(self, kind: str, what: str, node: Any, **more: Any) -> Operator:
        return Operator(kind, what, self.place(node), self.table.name, **more)

    def _select(self, node: exp.Select) -> StreamPlan:
        origin = self._from(node)
        plan = self._subqueries(node, origin.plan)
        aggregated = is_grouped(node)
        for one in own_expressions(node):
            plan = self._operation(one, plan)
        if aggregated:
            bounded, session = self._grouping(node, origin)
            at = node.args.get("group") or node.expressions[0]
            what = "GROUP BY" if node.args.get("group") else "the aggregation"
            kept = {"keys": grouped_by(node), "values": selected_aggregates(node)}
            plan = plan.then(self.operator("aggregate", what, at, bounded=bounded, session=session, **kept))
        for one in node.find_all(exp.Window):
            if one.find_ancestor(exp.Select) is node:
                plan = plan.then(self.operator("over", "OVER", one))
        plan = plan.with_watermark_columns(self._carried(node, origin))
        if node.args.get("distinct"):
            bounded = None if plan.watermark_columns is None else bool(plan.watermark_columns)
            kept = {"keys": distinct_columns(node), "values": ()}
            plan = plan.then(
                self.operator("aggregate", "SELECT DISTINCT", node.expressions[0], bounded=bounded, **kept)
            )
        return self._end(node, plan)

    def _operation(self, node: Any, plan: StreamPlan) -> StreamPlan:
        """Operations that are functions: an aggregate of distinct values, a row's number, the clock."""
        if isinstance(node, exp.Distinct) and isinstance(node.parent, exp.AggFunc):
            return plan.then(self.operator("distinct", f"{node.parent.sql_name()}(DISTINCT …)", node.parent))
        if unknown_function(node) == "monotonically_increasing_id":
            return plan.then(self.operator("number", "monotonically_increasing_id()", node))
        if isinstance(node, exp.Explode | exp.Posexplode | exp.Inline) or unknown_function(node) in _EXPLODES:
            return plan.then(self.operator("explode", "explode", node))
        if isinstance(node, _CLOCKS) or unknown_function(node) == "now":
            return plan.then(self.operator("clock", "the current time", node))
        return plan

    def _end(self, node: Any, plan: StreamPlan) -> StreamPlan:
        """ORDER BY, LIMIT and OFFSET, which come last."""
        for key, what in (("order", "ORDER BY"), ("sort", "SORT BY"), ("cluster", "CLUSTER BY")):
            if node.args.get(key):
                plan = plan.then(self.operator("sort", what, node.args[key]))
        for key in ("limit", "offset"):
            if node.args.get(key):
                plan = plan.then(self.operator(key, key.upper(), node.args[key]))
        return plan

    def _from(self, node: exp.Select) -> _From:
        start = node.args.get("from_")
        if start is None:
            return _From()
        found = _From(self._relation(start.this))
        found.named[start.this.alias_or_name.lower()] = found.plan
        for join in node.args.get("joins") or ():
            self._join(found, join, node)
        for lateral in node.args.get("laterals") or ():
            found.plan = found.plan.then(self.operator("explode", "LATERAL VIEW", lateral))
        return found

    def _join(self, found: _From, join: exp.Join, node: exp.Select) -> None:
        if isinstance(join.this, exp.Lateral | exp.Unnest) or not join.this.alias_or_name:
            inner = join.this.find(exp.Query)
            if inner is not None and self.query(inner).streaming:
                found.plan = found.plan.then(self.operator("subquery", "LATERAL", join.this))
            found.plan = found.plan.then(self.operator("explode", "LATERAL", join.this))
            return
        right = self._relation(join.this)
        sides = JoinSides(found.plan, right, dict(found.named), join.this.alias_or_name.lower())
        kind = join_kind(join)
        where = node.args.get("where") if kind in ("inner", "cross") else None
        made = merged_plan((found.plan, right))
        added = join_step(kind, sides, join, where)
        if added:
            operator = self.operator(
                added.kind, added.what, join, bounded=added.bounded, join=kind, keys=join_condition(join)
            )
            made = made.then(operator)
        found.plan = made
        found.named[sides.name] = right

    def _relation(self, node: Any) -> StreamPlan:
        plan = self._rows(node)
        if node.args.get("sample"):
            plan = plan.then(self.operator("sample", "TABLESAMPLE", node))
        for pivot in node.args.get("pivots") or ():
            plan = plan.then(self.operator("pivot", "PIVOT", pivot)).with_watermark_columns(None)
        return plan

    def _rows(self, node: Any) -> StreamPlan:
        if isinstance(node, exp.Subquery):
            return self.query(node)
        if not isinstance(node, exp.Table) or not node.name or node.db:
            return STATIC
        part = defined_by(node)
        if part is None:
            return self.inputs.get(node.name.lower(), UNKNOWN)
        if id(part) not in self._parts:
            self._parts[id(part)] = UNKNOWN  # for one that reads itself
            self._parts[id(part)] = self.query(part.this).then(self.operator("with", "WITH", part))
        return self._parts[id(part)]

    def _combined(self, node: exp.SetOperation) -> StreamPlan:
        left, right = self.query(node.this), self.query(node.expression)
        both = merged_plan((left, right))
        both = both.with_watermark_columns(
            left.watermark_columns
        )  # the columns are the left side's, and so is what they carry
        at = node.expression
        if isinstance(node, exp.Union):
            if {left.streaming, right.streaming} == {True, False}:
                both = both.then(self.operator("mixed", "UNION", at))
            both = both.then(self.operator("union", "UNION", at))
            if node.args.get("distinct"):
                bounded = None if both.watermark_columns is None else bool(both.watermark_columns)
                both = both.then(self.operator("aggregate", "UNION", at, bounded=bounded))
        elif isinstance(node, exp.Intersect):
            both = both.then(self.operator("intersect", "INTERSECT", at))
        elif right.streaming is not False:
            both = both.then(self.operator("except", "EXCEPT", at, certain=right.streaming is True))
        return both

    def _subqueries(self, node: exp.Select, plan: StreamPlan) -> StreamPlan:
        for one in inner_queries(node):
            inner = self.query(one)
            if inner.streaming:
                plan = replace(plan, streaming=True).then(self.operator("subquery", "a subquery", one))
        return plan

    def _grouping(self, node: exp.Select, origin: _From) -> tuple[bool | None, bool]:
        """Whether the groups end by a watermark, and whether they are sessions."""
        grouped = list(grouping_keys(node))
        found = [self._event(key, origin, node) for key in grouped]
        session = any(unknown_function(one) == "session_window" for key in grouped for one in key.walk())
        bounded = True if True in found else None if None in found else False
        return bounded, session

    def _carried(self, node: exp.Select, origin: _From) -> WatermarkColumns:
        """The event-time columns of what a SELECT gives."""
        names: set[str] = set()
        for one in node.expressions:
            if one.is_star:
                of = getattr(one, "table", "")
                plan = origin.named.get(of.lower(), UNKNOWN) if of else origin.plan
                if plan.watermark_columns is None:
                    return None
                names |= plan.watermark_columns
                continue
            carries = self._event(one, origin)
            if carries is None:
                return None
            if carries:
                names.add((one.alias_or_name or unknown_function(one) or "").lower())
        return frozenset(names)

    def _event(self, node: Any, origin: _From, select: exp.Select | None = None) -> bool | None:
        """Whether an expression carries the watermark: a column that does, as it is or in a window."""
        node = node.unalias() if isinstance(node, exp.Alias) else node
        if isinstance(node, exp.Paren):
            return self._event(node.this, origin, select)
        if isinstance(node, exp.Column):
            return self._event_column(node, origin, select)
        if unknown_function(node) in _WINDOWS and node.expressions:
            return self._event(node.expressions[0], origin, select)
        return False

    def _event_column(self, node: exp.Column, origin: _From, select: exp.Select | None) -> bool | None:
        if node.table:
            plan = origin.named.get(node.table.lower())
            if plan is None:
                return False  # a field of a struct: window.end is no event time any more
        else:
            plan = origin.plan
        if plan.watermark_columns is None:
            return None
        if node.name.lower() in plan.watermark_columns:
            return True
        for one in select.expressions if select and not node.table else ():
            if isinstance(one, exp.Alias) and one.alias.lower() == node.name.lower():
                return self._event(one.this, origin)
        return False
