"""The parts of a SELECT that make its shape: its own expressions, its aggregates, what it groups by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

_AGGREGATES = frozenset(
    ("count_min_sketch", "every", "histogram_numeric", "product", "some", "std", "try_avg", "try_sum", "hll_sketch_agg")
)
"""Those that the parser does not know as aggregates."""


def own(node: exp.Select) -> Iterator[Any]:
    """The parts of a SELECT's own expressions, without those of the queries inside it."""
    for clause in _clauses(node):
        yield from clause.walk(prune=lambda one: isinstance(one, exp.Query))


def inner_queries(node: exp.Select) -> Iterator[Any]:
    """The queries inside a SELECT's own expressions."""
    for one in own(node):
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
    return bool(node.args.get("group") or node.args.get("having")) or any(map(is_aggregate, own(node)))


def is_aggregate(node: Any) -> bool:
    """Whether a function is an aggregate of its SELECT, not one over a window of rows."""
    named = isinstance(node, exp.Anonymous) and node.name.lower() in _AGGREGATES
    if not (named or isinstance(node, exp.AggFunc)):
        return False
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        parent = parent.parent
    return not (isinstance(parent, exp.Window) and any(one is node for one in parent.this.walk()))


def keys(node: exp.Select) -> Iterator[Any]:
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


def function(node: Any) -> str | None:
    """The name of a function that the parser does not know, in small letters."""
    return node.name.lower() if isinstance(node, exp.Anonymous) else None
