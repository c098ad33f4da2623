"""What a join does to streams, and which watermarks end what it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.pipeline.shapes.shape import Shape

KINDS = {
    "semi": "semi",
    "leftsemi": "semi",
    "anti": "anti",
    "leftanti": "anti",
    "left": "left",
    "leftouter": "left",
    "right": "right",
    "rightouter": "right",
    "full": "full",
    "outer": "full",
    "fullouter": "full",
    "cross": "cross",
    "inner": "inner",
    "": "inner",
}


@dataclass(frozen=True)
class Joined:
    """The step that a join is: `join` of two streams, or `outer` when static rows would have to be kept."""

    kind: str
    what: str
    bounded: bool | None = None


def named_kind(text: str) -> str | None:
    """The kind of a join as PySpark's `how` names it."""
    return KINDS.get(text.lower().replace("_", "").replace(" ", ""))


def joined(kind: str, left: Shape, right: Shape, bounded: bool | None, what: str) -> Joined | None:
    """The step that joining two shapes is; None when it is nothing special or cannot be told."""
    if left.streaming is None or right.streaming is None:
        return None
    if left.streaming and right.streaming:
        return Joined("join", what, bounded)
    keeps_left, keeps_right = kind in ("left", "full", "semi", "anti"), kind in ("right", "full")
    if (right.streaming and keeps_left) or (left.streaming and keeps_right):
        return Joined("outer", what)
    return None


def ends(kind: str, left: Shape, right: Shape) -> bool:
    """Whether the watermarks that a kind of join needs are there."""
    if kind in ("left", "semi"):
        return bool(right.events)
    if kind == "right":
        return bool(left.events)
    if kind == "full":
        return bool(left.events or right.events)
    return bool(left.events and right.events)
