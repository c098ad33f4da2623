"""The plan of a table that is a Python function, from its syntax tree; the function is never called.

- `python_plan` follows the DataFrames of the function from its parameters to its result.
- The tables of PySpark's methods and functions say which operator each of them is.

Helper functions, branches and computed column names make the plan opaque; `check --deep` finds the rest.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millrace.errors import SourceLocation
from millrace.pipeline.analysis.operators import (
    JOIN_KINDS,
    UNKNOWN,
    Operator,
    StreamPlan,
    WatermarkColumns,
    any_true,
    join_operator_kind,
    merged_plan,
)
from millrace.pipeline.model import TableDef
from millrace.pipeline.python_source import called_name, function_tree

GROUPS = frozenset({"groupBy", "groupby", "rollup", "cube"})
AGGREGATES = frozenset({"agg", "count", "sum", "avg", "mean", "max", "min"})
STATES = frozenset({"applyInPandasWithState", "transformWithState", "transformWithStateInPandas"})
DEDUPLICATES = frozenset({"distinct", "dropDuplicates", "drop_duplicates"})
ACTIONS = frozenset({"count", "collect", "show", "toPandas", "first", "head", "take", "tail", "foreach", "isEmpty"})
_SAME = frozenset(
    {"filter", "where", "alias", "hint", "repartition", "coalesce", "cache", "persist", "observe", "fillna", "fill"}
)


def _kind_by_name(**names: str) -> dict[str, str]:
    """Return the kind of operator of each method or function."""
    return {name: kind.rstrip("_") for kind, listed in names.items() for name in listed.split()}


STEPS = _kind_by_name(
    sort="orderBy sort sortWithinPartitions", limit="limit", offset="offset", sample="sample sampleBy randomSplit"
)
SETS = _kind_by_name(
    union="union unionAll unionByName", intersect="intersect intersectAll", except_="subtract exceptAll"
)
COLUMNS = _kind_by_name(
    distinct="countDistinct count_distinct sumDistinct sum_distinct",
    over="over",
    number="monotonically_increasing_id",
    explode="explode explode_outer posexplode posexplode_outer inline",
    clock="current_timestamp current_date now",
)


def after_method(plan: StreamPlan, name: str, node: ast.Call) -> StreamPlan:
    """The rows that another method gives: what it does to the columns of event time."""
    words = [_text(argument) for argument in node.args]
    if name == "withWatermark":
        return plan.watermarked((words[0] if words else None) or "")
    if name in _SAME:
        return plan
    known = name in ("select", "selectExpr", "withColumn", "withColumnRenamed", "drop", "dropna", "toDF", "withColumns")
    if not plan.watermark_columns:
        return plan if known else replace(plan, opaque=True)
    kept = _kept(plan.watermark_columns, name, node, words)
    return replace(plan, watermark_columns=kept, opaque=plan.opaque or not known)


def _kept(watermark_columns: frozenset[str], name: str, node: ast.Call, words: list[str | None]) -> WatermarkColumns:
    named = [word.lower() if word else None for word in words]
    if name == "withColumn" and named and named[0]:
        return watermark_columns if named[0] not in watermark_columns else None
    if name == "withColumnRenamed" and len(named) == 2 and named[0] and named[1]:
        return frozenset(named[1] if column == named[0] else column for column in watermark_columns)
    if name == "drop" and None not in named:
        return watermark_columns - set(named)
    if name == "select":
        columns = [(event_of(argument, watermark_columns), name_of(argument)) for argument in node.args]
        if "*" in words:
            return watermark_columns
        if all(carries is not None for carries, _ in columns):
            return frozenset(column for carries, column in columns if carries and column)
    return None


def event_of(node: ast.expr, watermark_columns: frozenset[str]) -> bool | None:
    """Whether a column carries the watermark: "at", F.col("at"), posts.at, F.window("at", …); None if unclear."""
    text = _text(node)
    if text is not None:
        return text.lower() in watermark_columns
    if isinstance(node, ast.Attribute):
        return node.attr.lower() in watermark_columns
    if isinstance(node, ast.Subscript):
        return event_of(node.slice, watermark_columns)
    if not isinstance(node, ast.Call):
        return None
    name = called_name(node)
    if name == "alias" and isinstance(node.func, ast.Attribute):
        return event_of(node.func.value, watermark_columns)
    if name in ("col", "column", "window", "session_window", "window_time") and node.args:
        return event_of(node.args[0], watermark_columns)
    if name in ("expr", "") or not isinstance(node.func, ast.Attribute | ast.Name):
        return None
    # Any other function makes a new column, which has no watermark; a helper of the user's may return anything.
    return False if isinstance(node.func, ast.Attribute) else None


def name_of(node: ast.expr) -> str | None:
    """Return the name of a column in lower case; None if it is not known."""
    text = _text(node)
    if text is not None:
        return text.lower()
    if isinstance(node, ast.Attribute):
        return node.attr.lower()
    if isinstance(node, ast.Subscript):
        return name_of(node.slice)
    if isinstance(node, ast.Call):
        name = called_name(node)
        if name in ("alias", "col", "column") and node.args:
            return (_text(node.args[0]) or "").lower() or None
        return name if name in ("window", "session_window", "window_time") else None
    return None


def ends_duplicates(plan: StreamPlan, node: ast.Call) -> bool | None:
    """Whether a watermark ends what a deduplication remembers: event time must be among its columns."""
    if not plan.watermark_columns:
        return plan.watermarks_end_state
    subset = _argument(node, 0, "subset")
    if subset is None:
        return True
    return _name_one_of(plan.watermark_columns, subset.elts) if isinstance(subset, ast.List | ast.Tuple) else None


def ends_join(left: StreamPlan, right: StreamPlan, node: ast.Call) -> bool | None:
    """Return whether watermarks remove the state of a join; None if its condition is an expression."""
    if left.watermark_columns is None or right.watermark_columns is None:
        return None
    watermark_columns = left.watermark_columns | right.watermark_columns
    if not watermark_columns:
        return False
    on = _argument(node, 1, "on")
    keys = on.elts if isinstance(on, ast.List | ast.Tuple) else [on] if on is not None else []
    return _name_one_of(watermark_columns, keys)


def _name_one_of(columns: frozenset[str], nodes: list[ast.expr]) -> bool | None:
    """Return whether one of the nodes is the name of one of the columns; None if a node is an expression."""
    names = map(_text, nodes)
    return any_true(None if name is None else name.lower() in columns for name in names)


def _argument(node: ast.Call, position: int, name: str) -> ast.expr | None:
    """Return an argument of a call that is given by its position or by its name."""
    if len(node.args) > position:
        return node.args[position]
    return next((keyword.value for keyword in node.keywords if keyword.arg == name), None)


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


_BRANCHES = (ast.If, ast.For, ast.While, ast.Try, ast.With, ast.Match)


@dataclass(frozen=True)
class Grouped:
    """What `groupBy` gives: rows in groups that are not yet aggregated."""

    plan: StreamPlan
    bounded: bool | None
    watermark_columns: WatermarkColumns
    session: bool = False
    pivoted: bool = False


def python_plan(table: TableDef, inputs: Mapping[str, StreamPlan]) -> StreamPlan:
    """What a table's function does to what it reads; `inputs` are by name, in small letters."""
    if table.function is None:
        return UNKNOWN
    given = {name: inputs.get(name.lower(), UNKNOWN) for name in table.reads}
    tree = function_tree(table.function)
    if tree is None:
        return replace(merged_plan(given.values()), watermark_columns=None, opaque=True)
    names = [argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args)]
    analysis = _Analysis(table, dict(zip(names, given.values(), strict=False)))
    analysis.run(tree.body)
    rows = [plan for plan in analysis.returned if isinstance(plan, StreamPlan)]
    if not rows or len(rows) < len(analysis.returned):
        return replace(merged_plan([*given.values(), *rows, *analysis.actions]), watermark_columns=None, opaque=True)
    plan = merged_plan(rows)
    return replace(plan, operators=merged_plan([plan, *analysis.actions]).operators)


class _Analysis:
    def __init__(self, table: TableDef, parameters: dict[str, StreamPlan]) -> None:
        self.table = table
        self.variables: dict[str, StreamPlan | Grouped | None] = {**parameters}
        self.returned: list[StreamPlan | Grouped | None] = []
        self.actions: list[StreamPlan] = []
        self.certain = True

    def run(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], statement.value)
            elif isinstance(statement, ast.AnnAssign) and statement.value:
                self._assign(statement.target, statement.value)
            elif isinstance(statement, ast.Return) and statement.value:
                self.returned.append(self._uncertain(self.frame(statement.value)))
            elif isinstance(statement, ast.Expr):
                self.frame(statement.value)
            elif isinstance(statement, _BRANCHES):
                self._branch(statement)

    def _branch(self, statement: ast.stmt) -> None:
        """Analyse statements that may not be executed."""
        self.certain = False
        for block in ("body", "orelse", "finalbody"):
            self.run(getattr(statement, block, []))
        for handler in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            self.run(handler.body)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for inner, below in zip(target.elts, value.elts, strict=True):
                self._assign(inner, below)
        elif isinstance(target, ast.Name):
            self.variables[target.id] = self._uncertain(self.frame(value))

    def _uncertain(self, rows: StreamPlan | Grouped | None) -> StreamPlan | Grouped | None:
        if self.certain or not isinstance(rows, StreamPlan):
            return rows
        return replace(rows, opaque=True, watermark_columns=None if rows.watermark_columns else rows.watermark_columns)

    def frame(self, node: ast.expr) -> StreamPlan | Grouped | None:
        """The rows that an expression stands for, or None when it is something else."""
        if isinstance(node, ast.Name):
            return self.variables.get(node.id)
        if isinstance(node, ast.Attribute) and node.attr == "na":
            return self.frame(node.value)
        if isinstance(node, ast.IfExp):
            both = [plan for plan in map(self.frame, (node.body, node.orelse)) if isinstance(plan, StreamPlan)]
            return replace(merged_plan(both), opaque=True, watermark_columns=None) if both else None
        if not isinstance(node, ast.Call):
            return None
        if isinstance(node.func, ast.Attribute):
            on = self.frame(node.func.value)
            if isinstance(on, StreamPlan):
                return self._method(self._expressions(on, node), node.func.attr, node)
            if isinstance(on, Grouped):
                return self._grouped(replace(on, plan=self._expressions(on.plan, node)), node.func.attr, node)
        # A function of the user's that is given rows: what comes out may be anything.
        given = [plan for plan in map(self.frame, node.args) if isinstance(plan, StreamPlan)]
        return replace(merged_plan(given), watermark_columns=None, opaque=True) if given else None

    def operator(self, kind: str, node: ast.Call | ast.Attribute, what: str, **more: Any) -> Operator:
        at = node.func if isinstance(node, ast.Call) else node
        file = self.table.function.__code__.co_filename if self.table.function else self.table.place.file
        return Operator(kind, what, SourceLocation(file, at.end_lineno), self.table.name, certain=self.certain, **more)

    def _method(self, plan: StreamPlan, name: str, node: ast.Call) -> StreamPlan | Grouped | None:
        what = f".{name}()"
        if name in ACTIONS:
            self.actions.append(plan.then(self.operator("action", node, what)))
            return None
        if name in STEPS:
            return plan.then(self.operator(STEPS[name], node, what))
        if name in GROUPS:
            return self._group(plan, node, flat=name.lower() == "groupby")
        if name in ("join", "crossJoin"):
            return self._join(plan, "cross" if name == "crossJoin" else _join_kind(node), node, what)
        if name in SETS:
            return self._set(plan, SETS[name], node, what)
        if name in DEDUPLICATES:
            return plan.then(self.operator("deduplicate", node, what, bounded=ends_duplicates(plan, node)))
        if name == "dropDuplicatesWithinWatermark":
            return plan.then(self.operator("within", node, what, bounded=plan.watermarks_end_state))
        if name == "agg":
            return plan.then(self.operator("aggregate", node, what, bounded=False)).with_watermark_columns(frozenset())
        if name in ("mapInPandas", "mapInArrow"):
            return plan.then(self.operator("python", node, what)).with_watermark_columns(frozenset())
        return after_method(plan, name, node)

    def _expressions(self, plan: StreamPlan, node: ast.Call) -> StreamPlan:
        """The same rows after what the columns in a call do."""
        for called, name in _calls(node):
            if name in COLUMNS:
                plan = plan.then(self.operator(COLUMNS[name], called, f"{name}()"))
            elif self._is_udf(called.func):
                plan = plan.then(self.operator("python", called, f"{name}()"))
        return plan

    def _is_udf(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Name) or self.table.function is None:
            return False
        return hasattr(self.table.function.__globals__.get(node.id), "evalType")

    def _group(self, plan: StreamPlan, node: ast.Call, *, flat: bool) -> Grouped:
        keys = [key for given in node.args for key in (given.elts if isinstance(given, ast.List) else [given])]
        session = any(name == "session_window" for _, name in _calls(node))
        if not plan.watermark_columns:
            return Grouped(plan, plan.watermarks_end_state, plan.watermark_columns, session)
        carries = [event_of(key, plan.watermark_columns) for key in keys]
        certain = flat and None not in carries
        names = (name_of(key) for key, carried in zip(keys, carries, strict=True) if carried)
        watermark_columns = frozenset(name for name in names if name) if certain else None
        return Grouped(plan, any_true(carries), watermark_columns, session)

    def _grouped(self, on: Grouped, name: str, node: ast.Call) -> StreamPlan | Grouped | None:
        what = f".{name}()"
        if name == "pivot":
            return replace(on, plan=on.plan.then(self.operator("pivot", node, what)), pivoted=True)
        if name in AGGREGATES:
            done = on.plan.then(self.operator("aggregate", node, what, bounded=on.bounded, session=on.session))
            return done.with_watermark_columns(on.watermark_columns)
        if name in STATES:
            stateful = on.plan.then(self.operator("state", node, what, bounded=on.plan.watermarks_end_state))
            return stateful.then(self.operator("python", node, what)).with_watermark_columns(None)
        if name in ("applyInPandas", "applyInArrow", "apply"):
            return on.plan.then(self.operator("python", node, what)).with_watermark_columns(frozenset())
        return replace(on.plan, watermark_columns=None, opaque=True)

    def _other(self, node: ast.Call) -> StreamPlan:
        """Return the plan of the rows that a method gets as its first argument."""
        other = self.frame(node.args[0]) if node.args else None
        return other if isinstance(other, StreamPlan) else UNKNOWN

    def _join(self, plan: StreamPlan, kind: str | None, node: ast.Call, what: str) -> StreamPlan:
        right = self._other(node)
        both = merged_plan((plan, right))
        if kind is None:
            return replace(both, opaque=True)
        operator_kind = join_operator_kind(kind, plan, right)
        if operator_kind is None:
            return both
        bounded = ends_join(plan, right, node) if operator_kind == "join" else None
        return both.then(self.operator(operator_kind, node, what, bounded=bounded, join=kind))

    def _set(self, plan: StreamPlan, kind: str, node: ast.Call, what: str) -> StreamPlan:
        right = self._other(node)
        both = merged_plan((plan, right)).with_watermark_columns(plan.watermark_columns)
        if kind == "union" and {plan.streaming, right.streaming} == {True, False}:
            both = both.then(self.operator("mixed", node, what))
        if kind == "except" and not right.streaming:
            return both
        return both.then(self.operator(kind, node, what))


def _join_kind(node: ast.Call) -> str | None:
    how = _argument(node, 2, "how")
    text = "inner" if how is None else _text(how)
    return None if text is None else JOIN_KINDS.get(text.lower().replace("_", "").replace(" ", ""))


def _calls(node: ast.Call) -> Iterator[tuple[ast.Call, str]]:
    """The calls inside the arguments of a call, with the last part of their names."""
    for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
        for part in ast.walk(argument):
            if isinstance(part, ast.Call):
                yield part, called_name(part)
