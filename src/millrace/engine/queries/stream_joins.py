"""Joins of streams that Spark takes and that lose rows, found in its analysed plan.

A full join writes a row without a partner when a watermark has passed all partners that it may have. Spark asks for a
time bound in one direction only, which shows that for one of its sides; the other side's rows would never be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millrace.errors import InvalidDefinition

_SOME_TIME_MS = 10**12
"""Any watermark: only whether Spark can compute one for the state is asked."""


def require_both_bounds(plan: Any, jvm: Any) -> None:
    """Raise InvalidDefinition if a full join of two streams has a time bound in one direction only."""
    catalyst = jvm.org.apache.spark.sql.catalyst
    if not plan.containsPattern(catalyst.trees.TreePattern.OUTER_JOIN()):
        return
    for join in _full_joins(plan):
        sides = [join.left().outputSet(), join.right().outputSet()]
        if catalyst.analysis.StreamingJoinHelper.isWatermarkInJoinKeys(join):
            continue
        for kept, other in (sides, sides[::-1]):
            ends = catalyst.analysis.StreamingJoinHelper.getStateValueWatermark(
                kept, other, join.condition(), jvm.scala.Option.apply(_SOME_TIME_MS)
            )
            if ends.isEmpty():
                raise InvalidDefinition(
                    "a full join of two streams needs a time bound in both directions",
                    why="that a row has no partner is only known when the other side's event time has passed it",
                    hint="bound the join as in AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE",
                )


def _full_joins(plan: Any) -> Iterator[Any]:
    """Yield the full joins of two streams in a plan."""
    pending = [plan]
    while pending:
        node = pending.pop()
        children = node.children()
        pending += [children.apply(number) for number in range(children.size())]
        full = node.nodeName() == "Join" and node.joinType().sql() == "FULL OUTER"
        if full and node.left().isStreaming() and node.right().isStreaming():
            yield node
