"""The result of the static analysis of a table.

- `StreamPlan` says whether a table is a stream, which columns carry a watermark, and which operators made it.
- `Operator` is one operation on a stream, with its state and its location.
- `join_operator_kind` and `has_join_watermarks` are the rules for joins of streams.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from millrace.errors import SourceLocation

WatermarkColumns = frozenset[str] | None
"""The columns (in lower case) that carry a watermark; None if that is not known."""


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
    """Whether a watermark removes its state; None if that is not known."""
    session: bool = False
    join: str = ""
    """inner, cross, left, right, full, semi or anti."""
    one_sided: bool = False
    """Whether it is a join by an event time of which only one side has a watermark."""
    after_aggregate: bool = False
    sides_final: bool = False
    """Whether both sides of a join give rows only when a watermark has passed them."""
    certain: bool = True
    keys: tuple[str, ...] | None = None
    """The keys of its state as normalized SQL; None if they are not known."""
    values: tuple[str, ...] | None = None
    """The values of its state for each key: the aggregates in their order."""
    hint: str = ""
    """What to write instead, with the user's own names."""


@dataclass(frozen=True)
class StreamPlan:
    """The analysis of the rows of a source or a table."""

    streaming: bool | None
    watermark_columns: WatermarkColumns = frozenset()
    operators: tuple[Operator, ...] = ()
    opaque: bool = False
    """Whether there may be more operators than those that were found."""

    @property
    def watermarks_end_state(self) -> bool | None:
        """Return whether there is a watermark that can remove state; None if that is not known."""
        return None if self.watermark_columns is None else bool(self.watermark_columns)

    @property
    def aggregated(self) -> bool:
        """Return whether an aggregation is among the operators."""
        return any(operator.kind == "aggregate" for operator in self.operators)

    @property
    def final(self) -> bool:
        """Return whether an aggregation or an outer join gives rows only when a watermark has passed them."""
        return self.aggregated or any(
            operator.kind == "join" and operator.join in ("left", "right", "full") for operator in self.operators
        )

    def then(self, operator: Operator) -> StreamPlan:
        """Return the plan with one more operator; operators on static rows are ignored."""
        if self.streaming is False:
            return self
        certain = operator.certain and self.streaming is True
        done = replace(operator, after_aggregate=self.aggregated, certain=certain)
        return replace(self, operators=(*self.operators, done))

    def with_watermark_columns(self, watermark_columns: WatermarkColumns) -> StreamPlan:
        """Return the plan with other watermark columns."""
        return replace(self, watermark_columns=watermark_columns)

    def without_watermark(self) -> StreamPlan:
        """Return the plan of rows whose event time is not in order; what is not known stays so."""
        return self if self.watermark_columns is None else replace(self, watermark_columns=frozenset())

    def watermarked(self, column: str) -> StreamPlan:
        """Return the plan with a watermark; an empty name is a column that could not be read."""
        if self.watermark_columns is None or not column:
            return replace(self, watermark_columns=None)
        return replace(self, watermark_columns=self.watermark_columns | {column.lower()})


STATIC = StreamPlan(False)
UNKNOWN = StreamPlan(None, None, opaque=True)


def merged_plan(plans: Iterable[StreamPlan]) -> StreamPlan:
    """Return the plan of rows made from several: a stream if one of them is, with the operators of all."""
    parts = list(plans)
    streaming = any_true(part.streaming for part in parts)
    operators = dict.fromkeys(operator for part in parts for operator in part.operators)
    columns = [part.watermark_columns for part in parts if part.watermark_columns is not None]
    watermark_columns = frozenset[str]().union(*columns) if len(columns) == len(parts) else None
    return StreamPlan(streaming, watermark_columns, tuple(operators), any(part.opaque for part in parts))


def any_true(values: Iterable[bool | None]) -> bool | None:
    """Return whether one of the values is true; None if that is not known, because one of them is None."""
    distinct = set(values)
    return True if True in distinct else None if None in distinct else False


JOIN_KINDS = {kind: kind for kind in ("inner", "cross", "left", "right", "full", "semi", "anti")} | {
    "": "inner",
    "leftouter": "left",
    "rightouter": "right",
    "outer": "full",
    "fullouter": "full",
    "leftsemi": "semi",
    "leftanti": "anti",
}


def join_operator_kind(kind: str, left: StreamPlan, right: StreamPlan) -> str | None:
    """Return `join` for two streams, `outer` if static rows would have to be kept; None for others, or if unknown."""
    if left.streaming is None or right.streaming is None:
        return None
    if left.streaming and right.streaming:
        return "join"
    keeps_left, keeps_right = kind in ("left", "full", "semi", "anti"), kind in ("right", "full")
    return "outer" if (right.streaming and keeps_left) or (left.streaming and keeps_right) else None


def has_join_watermarks(kind: str, left: StreamPlan, right: StreamPlan) -> bool:
    """Return whether both sides have the watermarks that a kind of join needs."""
    has_left, has_right = bool(left.watermark_columns), bool(right.watermark_columns)
    outer_joins = {"left": has_right, "semi": has_right, "right": has_left, "full": has_left or has_right}
    return outer_joins.get(kind, has_left and has_right)
