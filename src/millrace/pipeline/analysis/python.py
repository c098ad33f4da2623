"""The shape of a table that is a Python function: read from its syntax tree, never by calling it.

Only what is certain counts. What a helper function does, what stands in a branch, a column under a name that is
computed: all of that makes the shape opaque, and `check --deep` finds the rest.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millrace.errors import Place
from millrace.pipeline.literals import function_tree
from millrace.pipeline.model import Table
from millrace.pipeline.shapes import frames
from millrace.pipeline.shapes.joins import joined, named_kind
from millrace.pipeline.shapes.shape import UNKNOWN, Events, Shape, Step, together

_BRANCHES = (ast.If, ast.For, ast.While, ast.Try, ast.With, ast.Match)


@dataclass(frozen=True)
class Grouped:
    """What `groupBy` gives: rows in groups that are not yet aggregated."""

    shape: Shape
    bounded: bool | None
    events: Events
    session: bool = False
    pivoted: bool = False


def python_shape(table: Table, inputs: Mapping[str, Shape]) -> Shape:
    """What a table's function does to what it reads; `inputs` are by name, in small letters."""
    if table.function is None:
        return UNKNOWN
    given = {name: inputs.get(name.lower(), UNKNOWN) for name in table.reads}
    tree = function_tree(table.function)
    if tree is None:
        return replace(together(given.values()), events=None, opaque=True)
    names = [argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args)]
    reading = _Reading(table, dict(zip(names, given.values(), strict=False)))
    reading.run(tree.body)
    rows = [one for one in reading.returned if isinstance(one, Shape)]
    if not rows or len(rows) < len(reading.returned):
        return replace(together([*given.values(), *rows, *reading.actions]), events=None, opaque=True)
    made = together(rows)
    return replace(made, steps=together([made, *reading.actions]).steps)


class _Reading:
    def __init__(self, table: Table, given: dict[str, Any]) -> None:
        self.table = table
        self.known: dict[str, Any] = given
        self.returned: list[Any] = []
        self.actions: list[Shape] = []
        self.sure = True

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
        """Whether any of this happens cannot be told."""
        self.sure = False
        for block in ("body", "orelse", "finalbody"):
            self.run(getattr(statement, block, []))
        for handler in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            self.run(handler.body)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, below in zip(target.elts, value.elts, strict=True):
                self._assign(one, below)
        elif isinstance(target, ast.Name):
            self.known[target.id] = self._uncertain(self.frame(value))

    def _uncertain(self, found: Any) -> Any:
        if self.sure or not isinstance(found, Shape):
            return found
        return replace(found, opaque=True, events=None if found.events else found.events)

    def frame(self, node: ast.expr) -> Shape | Grouped | None:
        """The rows that an expression stands for, or None when it is something else."""
        if isinstance(node, ast.Name):
            found: Shape | Grouped | None = self.known.get(node.id)
            return found
        if isinstance(node, ast.Attribute) and node.attr == "na":
            return self.frame(node.value)
        if isinstance(node, ast.IfExp):
            both = [one for one in map(self.frame, (node.body, node.orelse)) if isinstance(one, Shape)]
            return replace(together(both), opaque=True, events=None) if both else None
        if not isinstance(node, ast.Call):
            return None
        if isinstance(node.func, ast.Attribute):
            on = self.frame(node.func.value)
            if isinstance(on, Shape):
                return self._method(self._expressions(on, node), node.func.attr, node)
            if isinstance(on, Grouped):
                return self._grouped(replace(on, shape=self._expressions(on.shape, node)), node.func.attr, node)
        return self._helper(node)

    def _helper(self, node: ast.Call) -> Shape | None:
        """A function of the user's that is given rows: what comes out may be anything."""
        given = [one for one in map(self.frame, node.args) if isinstance(one, Shape)]
        return replace(together(given), events=None, opaque=True) if given else None

    def step(self, kind: str, node: ast.Call | ast.Attribute, what: str, **more: Any) -> Step:
        at = node.func if isinstance(node, ast.Call) else node
        file = self.table.function.__code__.co_filename if self.table.function else self.table.place.file
        return Step(kind, what, Place(file, at.end_lineno), self.table.name, sure=self.sure, **more)

    def _method(self, shape: Shape, name: str, node: ast.Call) -> Shape | Grouped | None:
        what = f".{name}()"
        if name in frames.ACTIONS:
            self.actions.append(shape.then(self.step("action", node, what)))
            return None
        if name in frames.STEPS:
            return shape.then(self.step(frames.STEPS[name], node, what))
        if name in frames.GROUPS:
            return self._group(shape, node, plain=name.lower() == "groupby")
        if name in ("join", "crossJoin"):
            return self._join(shape, name, node, what)
        if name in frames.SETS:
            return self._set(shape, frames.SETS[name], node, what)
        if name in frames.DEDUPLICATES:
            return shape.then(self.step("deduplicate", node, what, bounded=frames.ends_duplicates(shape, node)))
        if name == "dropDuplicatesWithinWatermark":
            bounded = None if shape.events is None else bool(shape.events)
            return shape.then(self.step("within", node, what, bounded=bounded))
        if name == "agg":
            return shape.then(self.step("aggregate", node, what, bounded=False)).carrying(frozenset())
        if name in ("mapInPandas", "mapInArrow"):
            return shape.then(self.step("python", node, what)).carrying(frozenset())
        return frames.after(shape, name, node)

    def _expressions(self, shape: Shape, node: ast.Call) -> Shape:
        """The same rows after what the columns in a call do."""
        for called, name in _calls(node):
            if name in frames.COLUMNS:
                shape = shape.then(self.step(frames.COLUMNS[name], called, f"{name}()"))
            elif self._is_udf(called.func):
                shape = shape.then(self.step("python", called, f"{name}()"))
        return shape

    def _is_udf(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Name) or self.table.function is None:
            return False
        return hasattr(self.table.function.__globals__.get(node.id), "evalType")

    def _group(self, shape: Shape, node: ast.Call, *, plain: bool) -> Grouped:
        keys = [one for given in node.args for one in (given.elts if isinstance(given, ast.List) else [given])]
        session = any(name == "session_window" for _, name in _calls(node))
        if not shape.events:
            return Grouped(shape, None if shape.events is None else False, shape.events, session)
        found = [(frames.event_of(key, shape.events), frames.name_of(key)) for key in keys]
        bounded = True if any(one for one, _ in found) else None if any(one is None for one, _ in found) else False
        sure = plain and all(one is not None for one, _ in found)
        events = frozenset(name for one, name in found if one and name) if sure else None
        return Grouped(shape, bounded, events, session)

    def _grouped(self, on: Grouped, name: str, node: ast.Call) -> Shape | Grouped | None:
        what = f".{name}()"
        if name == "pivot":
            return replace(on, shape=on.shape.then(self.step("pivot", node, what)), pivoted=True)
        if name in frames.AGGREGATES:
            done = on.shape.then(self.step("aggregate", node, what, bounded=on.bounded, session=on.session))
            return done.carrying(on.events)
        if name in frames.STATES:
            bounded = None if on.shape.events is None else bool(on.shape.events)
            stateful = on.shape.then(self.step("state", node, what, bounded=bounded))
            return stateful.then(self.step("python", node, what)).carrying(None)
        if name in ("applyInPandas", "applyInArrow", "apply"):
            return on.shape.then(self.step("python", node, what)).carrying(frozenset())
        return replace(on.shape, events=None, opaque=True)

    def _join(self, shape: Shape, name: str, node: ast.Call, what: str) -> Shape:
        other = self.frame(node.args[0]) if node.args else None
        right = other if isinstance(other, Shape) else UNKNOWN
        kind = "cross" if name == "crossJoin" else _join_kind(node)
        both = together((shape, right))
        if kind is None:
            return replace(both, opaque=True)
        added = joined(kind, shape, right, frames.ends_join(shape, right, node), what)
        return both.then(self.step(added.kind, node, what, bounded=added.bounded, join=kind)) if added else both

    def _set(self, shape: Shape, kind: str, node: ast.Call, what: str) -> Shape:
        other = self.frame(node.args[0]) if node.args else None
        right = other if isinstance(other, Shape) else UNKNOWN
        both = together((shape, right)).carrying(shape.events)
        if kind == "union" and {shape.streaming, right.streaming} == {True, False}:
            both = both.then(self.step("mixed", node, what))
        if kind == "except":
            return both.then(self.step(kind, node, what)) if right.streaming else both
        return both.then(self.step(kind, node, what))


def _join_kind(node: ast.Call) -> str | None:
    how = node.args[2] if len(node.args) > 2 else next((one.value for one in node.keywords if one.arg == "how"), None)
    if how is None:
        return "inner"
    return named_kind(how.value) if isinstance(how, ast.Constant) and isinstance(how.value, str) else None


def _calls(node: ast.Call) -> Iterator[tuple[ast.Call, str]]:
    """The calls inside the arguments of a call, with the last part of their names."""
    for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
        for one in ast.walk(argument):
            if isinstance(one, ast.Call):
                yield one, one.func.attr if isinstance(one.func, ast.Attribute) else getattr(one.func, "id", "")
