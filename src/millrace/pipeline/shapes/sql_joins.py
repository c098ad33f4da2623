"""Joins that are written in SQL: their kind, and whether their condition bounds their state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from millrace.pipeline.shapes.joins import KINDS, Joined, ends, joined
from millrace.pipeline.shapes.shape import Shape

_RANGES = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)


@dataclass(frozen=True)
class Sides:
    """What a join joins."""

    left: Shape
    right: Shape
    left_names: dict[str, Shape]
    name: str
    """The right side's."""


def join_kind(join: exp.Join) -> str:
    """The kind of a join in SQL."""
    side, kind = (join.side or "").lower(), (join.kind or "").lower()
    return KINDS.get(kind if kind in ("semi", "anti", "cross") else side, "inner")


def join_step(kind: str, sides: Sides, join: exp.Join, where: Any) -> Joined | None:
    """What a join in SQL is, when it matters to a stream."""
    return joined(kind, sides.left, sides.right, _bounded(kind, sides, join, where), f"{kind.upper()} JOIN")


def _bounded(kind: str, sides: Sides, join: exp.Join, where: Any) -> bool | None:
    """Whether a watermark ends the state: by an equal event time, or by a range between the event times."""
    if sides.left.events is None or sides.right.events is None:
        return None
    conditions = [one for part in (join.args.get("on"), where) if part is not None for one in _conjuncts(part)]
    for name in join.args.get("using") or ():
        if name.name.lower() in sides.left.events | sides.right.events:
            return True
    if any(isinstance(one, exp.EQ) and (_of_left(one, sides) or _of_right(one, sides)) for one in conditions):
        return True
    ranged = any(isinstance(one, _RANGES) and _spans(one, sides) for one in conditions)
    return ranged and ends(kind, sides.left, sides.right)


def _conjuncts(node: Any) -> list[Any]:
    node = node.this if isinstance(node, exp.Where) else node
    return list(node.flatten()) if isinstance(node, exp.And) else [node]


def _spans(node: Any, sides: Sides) -> bool:
    """Whether a comparison is between an event time and a column of the other side."""
    columns = list(node.find_all(exp.Column))
    right = [column for column in columns if column.table.lower() == sides.name]
    left = [column for column in columns if column.table.lower() in sides.left_names]
    unnamed = [column for column in columns if not column.table]
    return bool(left and right) or len(unnamed) > 1 or bool(unnamed and (left or right))


def _of_left(node: Any, sides: Sides) -> bool:
    return any(
        column.name.lower() in (sides.left_names.get(column.table.lower(), sides.left).events or ())
        for column in node.find_all(exp.Column)
        if column.table.lower() != sides.name and isinstance(column.parent, exp.EQ)
    )


def _of_right(node: Any, sides: Sides) -> bool:
    return any(
        column.name.lower() in (sides.right.events or ())
        for column in node.find_all(exp.Column)
        if column.table.lower() in (sides.name, "") and isinstance(column.parent, exp.EQ)
    )
