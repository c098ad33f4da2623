"""The shape of a table: is it a stream, what holds its event time, and every operation on the way.

What a join does to streams, and which watermarks end what it keeps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from millrace.errors import SourceLocation

Events = frozenset[str] | None
"""The columns (in small letters) that carry a watermark; None when that cannot be told."""


@dataclass(frozen=True)
class Operator:
    """One operation on a stream. `kind` is one of

    - `aggregate` (GROUP BY, SELECT DISTINCT, UNION), `deduplicate`, `within` (a watermark), `join`, `state` (by Python)
    - `sort`, `limit`, `offset`, `over`, `distinct` (an aggregate of distinct values), `pivot`, `intersect`, `except`,
      `subquery`, `sample`, `mixed` (a union with a static table), `outer` (a join that keeps static rows), `number`
    - `python` (code of the user in Spark's workers), `explode`, `union`, `with`, `clock`, `action`
    """

    kind: str
    what: str
    """As the user wrote it: GROUP BY, orderBy."""
    place: SourceLocation
    table: str
    bounded: bool | None = None
    """Whether a watermark ends its state; None when that cannot be told."""
    session: bool = False
    join: str = ""
    """inner, cross, left, right, full, semi or anti."""
    after_aggregate: bool = False
    sure: bool = True
    keys: tuple[str, ...] | None = None
    """What its state is kept by, as SQL in one form; None when that cannot be told."""
    values: tuple[str, ...] | None = None
    """What its state holds for each key: the aggregates in their order."""


@dataclass(frozen=True)
class StreamPlan:
    """What is known of the rows of a source or a table."""

    streaming: bool | None
    events: Events = frozenset()
    steps: tuple[Operator, ...] = ()
    opaque: bool = False
    """Whether more may happen to it than the steps say."""

    @property
    def aggregated(self) -> bool:
        """Whether an aggregation is among the steps."""
        return any(step.kind == "aggregate" for step in self.steps)

    def then(self, step: Operator) -> StreamPlan:
        """The same rows after one more operation; one on static rows does not count."""
        if self.streaming is False:
            return self
        certain = step.sure and self.streaming is True
        done = replace(step, after_aggregate=self.aggregated, sure=certain)
        return replace(self, steps=(*self.steps, done))

    def carrying(self, events: Events) -> StreamPlan:
        """The same rows with other columns of event time."""
        return replace(self, events=events)

    def watermarked(self, column: str) -> StreamPlan:
        """The same rows with a watermark; an unnamed column is one that could not be read."""
        if self.events is None or not column:
            return replace(self, events=None)
        return replace(self, events=self.events | {column.lower()})


STATIC = StreamPlan(False)
UNKNOWN = StreamPlan(None, None, opaque=True)


def together(shapes: Iterable[StreamPlan]) -> StreamPlan:
    """Rows made from several: a stream when one of them is, with the steps of all."""
    found = list(shapes)
    streaming = True if any(one.streaming for one in found) else None
    if streaming is None and all(one.streaming is False for one in found):
        streaming = False
    steps = dict.fromkeys(step for one in found for step in one.steps)
    known = [one.events for one in found if one.events is not None]
    events = frozenset[str]().union(*known) if len(known) == len(found) else None
    return StreamPlan(streaming, events, tuple(steps), any(one.opaque for one in found))


JOIN_KINDS = {
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
class JoinOperator:
    """The step that a join is: `join` of two streams, or `outer` when static rows would have to be kept."""

    kind: str
    what: str
    bounded: bool | None = None


def named_kind(text: str) -> str | None:
    """The kind of a join as PySpark's `how` names it."""
    return JOIN_KINDS.get(text.lower().replace("_", "").replace(" ", ""))


def joined(kind: str, left: StreamPlan, right: StreamPlan, bounded: bool | None, what: str) -> JoinOperator | None:
    """The step that joining two shapes is; None when it is nothing special or cannot be told."""
    if left.streaming is None or right.streaming is None:
        return None
    if left.streaming and right.streaming:
        return JoinOperator("join", what, bounded)
    keeps_left, keeps_right = kind in ("left", "full", "semi", "anti"), kind in ("right", "full")
    if (right.streaming and keeps_left) or (left.streaming and keeps_right):
        return JoinOperator("outer", what)
    return None


def join_ends(kind: str, left: StreamPlan, right: StreamPlan) -> bool:
    """Whether the watermarks that a kind of join needs are there."""
    if kind in ("left", "semi"):
        return bool(right.events)
    if kind == "right":
        return bool(left.events)
    if kind == "full":
        return bool(left.events or right.events)
    return bool(left.events and right.events)
