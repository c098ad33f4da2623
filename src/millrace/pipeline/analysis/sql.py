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
    Operator,
    StreamPlan,
    WatermarkColumns,
    any_true,
    has_join_watermarks,
    join_operator_kind,
    merged_plan,
)
from millrace.pipeline.analysis.streaming_forms import WINDOWS, distinct_form, over_form, position_of, top_form
from millrace.pipeline.analysis.types import call_name
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


def _bounded(kind: str, sides: JoinSides, join: exp.Join, where: Any) -> bool | None:
    """Whether a watermark ends the state: by an equal event time, or by a range between the event times."""
    if sides.left.watermark_columns is None or sides.right.watermark_columns is None:
        return None
    equal = _equal_event_times(sides, join, where)
    if equal == {"left", "right"} or (equal and kind in ("inner", "cross")):
        return True
    needed = {"left": {"left"}, "semi": {"left"}, "right": {"right"}}.get(kind, {"left", "right"})
    ends = not equal and needed <= _lower_bounds(sides, join, where)
    return ends and has_join_watermarks(kind, sides.left, sides.right)


def _equal_event_times(sides: JoinSides, join: exp.Join, where: Any) -> set[str]:
    """Return the sides whose event time is in an equation of the join: none, one, or both in the best of them."""
    left, right = sides.left.watermark_columns or frozenset(), sides.right.watermark_columns or frozenset()
    names = [column.name.lower() for column in join.args.get("using") or ()]
    found = [{side for side, columns in (("left", left), ("right", right)) if name in columns} for name in names]
    conditions = (*_conjuncts(join.args.get("on")), *_conjuncts(where))
    equations = (condition for condition in conditions if isinstance(condition, exp.EQ))
    found += [_of(equation.this, sides) | _of(equation.expression, sides) for equation in equations]
    return max(found, key=len, default=set())


def _of(operand: Any, sides: JoinSides) -> set[str]:
    """Return the side of which an operand is the event time; both sides if its name does not say which."""
    if not isinstance(operand, exp.Column):
        return set()
    table = operand.table.lower()
    left = STATIC if table == sides.name else sides.left_names.get(table, sides.left)
    right = sides.right if table in (sides.name, "") else STATIC
    both = (("left", left.watermark_columns or ()), ("right", right.watermark_columns or ()))
    return {side for side, columns in both if operand.name.lower() in columns}


def _in_order(kind: str, sides: JoinSides, join: exp.Join, where: Any) -> set[str]:
    """Return the sides whose event time is still in order after a join: none of its rows is behind the watermark."""
    if kind == "semi" or _equal_event_times(sides, join, where):
        return {"left", "right"}
    return _lower_bounds(sides, join, where)


def _lower_bounds(sides: JoinSides, join: exp.Join, where: Any) -> set[str]:
    """Return the sides whose event time has a lower bound by the other side's.

    A row of such a side waits until the other side's event time has passed it: its state ends, and what has no partner
    is known. Rows of a side without one are kept for ever, and join with rows that are much newer.
    """
    conditions = [*_conjuncts(join.args.get("on")), *_conjuncts(where)]
    ranges = [condition for condition in conditions if isinstance(condition, _RANGES) and _spans(condition, sides)]
    return {side for condition in ranges for side in _sides_with_lower_bound(condition, sides)}


def _sides_with_lower_bound(condition: Any, sides: JoinSides) -> set[str]:
    """Return the sides whose event time is at least one of the other side, as far as names show; else both."""
    if isinstance(condition, exp.Between):
        pairs = [(condition.args["low"], condition.this), (condition.this, condition.args["high"])]
    elif isinstance(condition, exp.LT | exp.LTE):
        pairs = [(condition.this, condition.expression)]
    else:
        pairs = [(condition.expression, condition.this)]
    found = [(_side(lower, sides), _side(higher, sides)) for lower, higher in pairs]
    if any(None in pair for pair in found):
        return {"left", "right"}
    return {higher for lower, higher in found if higher and lower != higher}


def _side(node: Any, sides: JoinSides) -> str | None:
    """Return the side that the columns of an expression come from; None if it is not one of them, or not known."""
    names = {column.table.lower() for column in node.find_all(exp.Column)}
    if names == {sides.name}:
        return "right"
    return "left" if names and names <= sides.left_names.keys() else None


def _conjuncts(node: Any) -> list[Any]:
    node = node.this if isinstance(node, exp.Where) else node
    return list(node.flatten()) if isinstance(node, exp.And) else [node] if node is not None else []


def _spans(node: Any, sides: JoinSides) -> bool:
    """Whether a comparison is between an event time and a column of the other side."""
    columns = list(node.find_all(exp.Column))
    right = [column for column in columns if column.table.lower() == sides.name]
    left = [column for column in columns if column.table.lower() in sides.left_names]
    unnamed = [column for column in columns if not column.table]
    return bool(left and right) or len(unnamed) > 1 or bool(unnamed and (left or right))


_AGGREGATES = frozenset(
    ("count_min_sketch", "every", "histogram_numeric", "product", "some", "std", "try_avg", "try_sum", "hll_sketch_agg")
)
"""Those that the parser does not know as aggregates."""
OVER_AN_ORDER = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "nth_value")
"""Functions of a window of rows that are nothing else, of which the parser takes most for aggregates."""


def own_expressions(node: exp.Select) -> Iterator[Any]:
    """The parts of a SELECT's own expressions, without those of the queries inside it."""
    clauses = [node.args.get(key) for key in ("where", "having", "qualify", "group", "order")]
    conditions = [join.args.get("on") for join in node.args.get("joins") or ()]
    for clause in filter(None, (*node.expressions, *clauses, *conditions)):
        yield from clause.walk(prune=lambda part: isinstance(part, exp.Query))


def is_grouped(node: exp.Select) -> bool:
    """Whether a SELECT aggregates; an aggregate in WHERE is a mistake."""
    aggregates = filter(is_aggregate, own_expressions(node))
    grouped = any(not isinstance(part.find_ancestor(exp.Where, exp.Query), exp.Where) for part in aggregates)
    return grouped or bool(node.args.get("group") or node.args.get("having"))


def is_aggregate(node: Any) -> bool:
    """Whether a function is an aggregate of its SELECT, not one over a window of rows."""
    named = isinstance(node, exp.Anonymous) and node.name.lower() in _AGGREGATES
    if not (named or isinstance(node, exp.AggFunc)) or call_name(node) in OVER_AN_ORDER:
        return False
    parent = _whole(node).parent
    return not (isinstance(parent, exp.Window) and any(part is node for part in parent.this.walk()))


def grouping_keys(node: exp.Select) -> Iterator[Any]:
    """What a SELECT groups by: expressions, positions in the list, or ALL that is no aggregate."""
    group = node.args.get("group")
    if group is None:
        return
    if group.args.get("all"):
        yield from (expression for expression in node.expressions if not any(map(is_aggregate, expression.walk())))
    nested = [key_part for key in ("rollup", "cube", "grouping_sets") for key_part in group.args.get(key) or ()]
    for key_part in group.expressions:
        if (position := position_of(key_part)) is not None:
            yield from node.expressions[position - 1 : position]
        elif isinstance(key_part, exp.GroupingSets | exp.Rollup | exp.Cube):
            nested.append(key_part)
        else:
            yield key_part
    for key_part in nested:
        yield from key_part.find_all(exp.Column, exp.Anonymous)


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
    texts = []
    for key in grouping_keys(node):
        named = _named(node, key)
        if named is not None and expression_text(named) != expression_text(key):
            return None
        texts.append(expression_text(key))
    return tuple(dict.fromkeys(texts))


def selected_aggregates(node: exp.Select) -> tuple[str, ...]:
    """The aggregates of a SELECT in the order in which they are written, which is that of its state."""
    parts = [*node.expressions, *filter(None, (node.args.get("having"), node.args.get("order")))]
    aggregates = (call for part in parts for call in part.find_all(exp.Func, bfs=False) if is_aggregate(call))
    return tuple(dict.fromkeys(expression_text(_whole(aggregate)) for aggregate in aggregates))


def join_condition(join: exp.Join) -> tuple[str, ...]:
    """What a join joins by, without regard to order."""
    using = [column.name.lower() for column in join.args.get("using") or ()]
    return tuple(sorted([*map(expression_text, _conjuncts(join.args.get("on"))), *using]))


def _named(node: exp.Select, key: Any) -> Any:
    """The expression whose alias a key is written as."""
    if not isinstance(key, exp.Column) or key.table:
        return None
    aliases = (expression for expression in node.expressions if isinstance(expression, exp.Alias))
    return next((alias for alias in aliases if alias.alias.lower() == key.name.lower()), None)


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


_WINDOWS = ("window", "session_window", "window_time", "tumble", "hop")
"""With those that Spark does not have: a query that is wrong only by them is not said to lack a watermark as well."""
_EXPLODES = ("inline_outer", "posexplode_outer", "stack")
_CLOCKS = (exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp)


def sql_plan(table: TableDef, inputs: Mapping[str, StreamPlan]) -> StreamPlan:
    """What a table's SQL does to what it reads; `inputs` are by name, in small letters."""
    try:
        return _Analysis(table, inputs).query(parsed(table.sql or ""))
    except (InvalidSql, RecursionError):
        return UNKNOWN


def location(table: TableDef, node: Any) -> SourceLocation:
    """The line of the user's file where a part of the SQL stands."""
    for part in node.walk():
        if "line" in part.meta:
            length = part.meta.get("end", 0) - part.meta.get("start", 0)
            return table.sql_line(part.meta["line"], max(part.meta.get("col", 1) - length, 1))
    return table.sql_line(1)


@dataclass
class _From:
    """What a SELECT reads, by the names that its columns may be written with."""

    plan: StreamPlan = STATIC
    named: dict[str, StreamPlan] = field(default_factory=dict)


def _forget_times(in_order: set[str], origin: _From, right: StreamPlan) -> StreamPlan:
    """Take the watermark from the sides of a join whose event time is not in order; return the right side."""
    if "left" not in in_order:
        origin.plan = origin.plan.without_watermark()
        origin.named = {name: plan.without_watermark() for name, plan in origin.named.items()}
    return right if "right" in in_order else right.without_watermark()


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

    def operator(self, kind: str, what: str, node: Any, **more: Any) -> Operator:
        return Operator(kind, what, location(self.table, node), self.table.name, **more)

    def _select(self, node: exp.Select) -> StreamPlan:
        origin = self._from(node)
        plan = origin.plan
        for expression in own_expressions(node):
            if isinstance(expression, exp.Query) and self.query(expression).streaming:
                plan = replace(plan, streaming=True).then(self.operator("subquery", "a subquery", expression))
        for expression in own_expressions(node):
            plan = self._operation(expression, plan)
        if is_grouped(node):
            keys = list(grouping_keys(node))
            bounded = any_true(self._event(key, origin, node) for key in keys)
            session = any(unknown_function(part) == "session_window" for key in keys for part in key.walk())
            state: dict[str, Any] = {"keys": grouped_by(node), "values": selected_aggregates(node)}
            group = node.args.get("group")
            what, at = ("GROUP BY", group) if group else ("the aggregation", node.expressions[0])
            plan = plan.then(self.operator("aggregate", what, at, bounded=bounded, session=session, **state))
        for window in node.find_all(exp.Window):
            if window.find_ancestor(exp.Select) is node and window.arg_key != "windows":
                form = over_form(window, node, origin.plan)
                plan = plan.then(self.operator("over", "OVER", window, hint=form))
        plan = plan.with_watermark_columns(self._carried(node, origin))
        if node.args.get("distinct"):
            columns = None if node.is_star else tuple(map(expression_text, node.expressions))
            state = {"keys": columns, "values": (), "bounded": plan.watermarks_end_state}
            plan = plan.then(self.operator("aggregate", "SELECT DISTINCT", node.expressions[0], **state))
        return self._end(node, plan, origin.plan)

    def _operation(self, node: Any, plan: StreamPlan) -> StreamPlan:
        """Operations that are functions: an aggregate of distinct values, a row's number, the clock."""
        if isinstance(node, exp.Distinct) and isinstance(node.parent, exp.AggFunc):
            what, form = f"{node.parent.sql_name()}(DISTINCT …)", distinct_form(node.parent, node)
            return plan.then(self.operator("distinct", what, node.parent, hint=form))
        if unknown_function(node) == "monotonically_increasing_id":
            return plan.then(self.operator("number", "monotonically_increasing_id()", node))
        if isinstance(node, exp.Explode | exp.Posexplode | exp.Inline) or unknown_function(node) in _EXPLODES:
            return plan.then(self.operator("explode", "explode", node))
        if isinstance(node, _CLOCKS) or unknown_function(node) == "now":
            return plan.then(self.operator("clock", "the current time", node))
        return plan

    def _end(self, node: Any, plan: StreamPlan, rows: StreamPlan = UNKNOWN) -> StreamPlan:
        """ORDER BY, LIMIT and OFFSET, which come last; `rows` is the plan of what FROM reads."""
        sorts = (("order", "sort", "ORDER BY"), ("sort", "sort", "SORT BY"), ("cluster", "sort", "CLUSTER BY"))
        for key, kind, what in (*sorts, ("limit", "limit", "LIMIT"), ("offset", "offset", "OFFSET")):
            if node.args.get(key):
                form = top_form(node, plan, rows) if kind in ("sort", "limit") else ""
                plan = plan.then(self.operator(kind, what, node.args[key], hint=form))
        return plan

    def _from(self, node: exp.Select) -> _From:
        start = node.args.get("from_")
        if start is None:
            return _From()
        origin = _From(self._relation(start.this))
        origin.named[start.this.alias_or_name.lower()] = origin.plan
        for join in node.args.get("joins") or ():
            self._join(origin, join, node)
        for lateral in node.args.get("laterals") or ():
            origin.plan = origin.plan.then(self.operator("explode", "LATERAL VIEW", lateral))
        return origin

    def _join(self, origin: _From, join: exp.Join, node: exp.Select) -> None:
        if isinstance(join.this, exp.Lateral | exp.Unnest) or not join.this.alias_or_name:
            inner = join.this.find(exp.Query)
            if inner is not None and self.query(inner).streaming:
                origin.plan = origin.plan.then(self.operator("subquery", "LATERAL", join.this))
            origin.plan = origin.plan.then(self.operator("explode", "LATERAL", join.this))
            return
        right = self._relation(join.this)
        sides = JoinSides(origin.plan, right, dict(origin.named), join.this.alias_or_name.lower())
        kind = join_kind(join)
        where = node.args.get("where") if kind in ("inner", "cross") else None
        operator_kind = join_operator_kind(kind, origin.plan, right)
        if operator_kind == "join":
            right = _forget_times(_in_order(kind, sides, join, where), origin, right)
        origin.plan = merged_plan((origin.plan, right))
        if operator_kind:
            more: dict[str, Any] = {"join": kind, "keys": join_condition(join)}
            if operator_kind == "join":
                more["sides_final"] = sides.left.final and right.final
                more["bounded"] = _bounded(kind, sides, join, where)
                more["one_sided"] = more["bounded"] and len(_equal_event_times(sides, join, where)) == 1
            origin.plan = origin.plan.then(self.operator(operator_kind, f"{kind.upper()} JOIN", join, **more))
        origin.named[sides.name] = right

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
        # The columns are the left side's, and so is what they carry.
        both = merged_plan((left, right)).with_watermark_columns(left.watermark_columns)
        at = node.expression
        if isinstance(node, exp.Union):
            if {left.streaming, right.streaming} == {True, False}:
                both = both.then(self.operator("mixed", "UNION", at))
            both = both.then(self.operator("union", "UNION", at))
            if node.args.get("distinct"):
                both = both.then(self.operator("aggregate", "UNION", at, bounded=both.watermarks_end_state))
        elif isinstance(node, exp.Intersect):
            both = both.then(self.operator("intersect", "INTERSECT", at))
        elif right.streaming is not False:
            both = both.then(self.operator("except", "EXCEPT", at, certain=right.streaming is True))
        return both

    def _carried(self, node: exp.Select, origin: _From) -> WatermarkColumns:
        """The event-time columns of what a SELECT gives."""
        names: set[str] = set()
        for expression in node.expressions:
            if expression.is_star:
                of = getattr(expression, "table", "")
                # What is no name in FROM is a struct, whose fields carry no watermark.
                plan = origin.named.get(of.lower(), STATIC) if of else origin.plan
                if plan.watermark_columns is None:
                    return None
                star = expression.this if isinstance(expression, exp.Column) else expression
                left_out = {column.name.lower() for column in star.args.get("except_") or ()}
                names |= plan.watermark_columns - left_out
                continue
            carries = self._event(expression, origin)
            if carries is None:
                return None
            if carries or self._is_window_of_group(expression, node, origin):
                names.add((expression.alias_or_name or unknown_function(expression) or "").lower())
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

    def _is_window_of_group(self, expression: Any, node: exp.Select, origin: _From) -> bool:
        """Whether an expression is the column of GROUP BY window(…), whose time carries the watermark."""
        column = expression.unalias()
        name = column.name.lower() if isinstance(column, exp.Column) and not column.table else ""
        keys = (key for key in grouping_keys(node) if name in WINDOWS and unknown_function(key) == name)
        return any(self._event(key, origin) for key in keys)

    def _event_column(self, node: exp.Column, origin: _From, select: exp.Select | None) -> bool | None:
        plan = origin.named.get(node.table.lower()) if node.table else origin.plan
        if plan is None:
            return False  # a field of a struct: window.end is no event time any more
        if plan.watermark_columns is None:
            return None
        if node.name.lower() in plan.watermark_columns:
            return True
        for expression in select.expressions if select and not node.table else ():
            if isinstance(expression, exp.Alias) and expression.alias.lower() == node.name.lower():
                return self._event(expression.this, origin)
        return False
