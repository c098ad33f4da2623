"""Stateful plans that Spark takes and that fail or give other rows than in a batch, found in its analysed plan.

- A full join writes a row without a partner when a watermark has passed all partners that it may have. Spark asks for a
  time bound in one direction only, which shows that for one of its sides; the other side's rows would never be written.
- A semi join keeps no row that a watermark has passed. From aggregations and outer joins it gets only such rows.
- A full join finds partners by the bytes of their keys, where NULL equals NULL. Others leave such rows out before.
- Session windows without another key fail in the first batch, not when the query starts.
- Rows that are grouped by the session windows of another aggregation are merged where those overlap.
- An inner join keeps rows of a side for ever whose event time has no upper bound. They may be late for an aggregation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millrace.errors import InvalidDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FULL = "FULL OUTER"
_OUTER = ("LEFT OUTER", "RIGHT OUTER", _FULL)
_DELAY = "spark.watermarkDelayMs"
"""Of columns that have a watermark (EventTimeWatermark.delayKey)."""
_SESSION_MARKER = "spark.sessionWindow"
"""Of columns that are session windows (SessionWindow.marker)."""
_UNSUPPORTED_CHECK = "spark.sql.streaming.unsupportedOperationCheck"
_SOME_TIME_MS = 10**12
"""Any watermark: only whether Spark can compute one for the state is asked."""


def require_supported(frame: DataFrame, mode: str) -> None:
    """Raise Spark's exception if a stream cannot do what a table wants of it, unless a setting allows it.

    Raise ours where rows would be lost.
    """
    jvm: Any = frame.sparkSession._jvm
    spark, plan = jvm.org.apache.spark.sql, frame._jdf.queryExecution().analyzed()
    _require_exact(plan, jvm)
    if mode == "append":
        _require_rows_in_time(plan, jvm)
    if str(frame.sparkSession.conf.get(_UNSUPPORTED_CHECK)).lower() == "false":
        return
    output_mode = getattr(spark.streaming.OutputMode, mode.capitalize())()
    spark.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, output_mode)


def _require_exact(plan: Any, jvm: Any) -> None:
    """Raise InvalidDefinition if a stream would fail or lose rows."""
    catalyst = jvm.org.apache.spark.sql.catalyst
    patterns = catalyst.trees.TreePattern
    if plan.containsPattern(patterns.AGGREGATE()):
        for node in _nodes(plan):
            _require_own_sessions(node)
    if not plan.containsPattern(patterns.JOIN()):
        return
    for join in _joins(plan, "LEFT SEMI"):
        if _is_final(join.left()) and _is_final(join.right()):
            raise InvalidDefinition(
                "a semi join would lose rows: both sides come from aggregations or outer joins",
                why="they give a row when the watermark has passed it, and Spark's semi join keeps such a row for no "
                "partner",
                hint="join with the distinct keys of the right side instead, with an inner join",
            )
    for join in _joins(plan, _FULL):
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


def _require_rows_in_time(plan: Any, jvm: Any) -> None:
    """Raise InvalidDefinition if a stream is grouped by the event time of rows that a join keeps for ever."""
    if next(_joins(plan, "INNER"), None) is None:
        return
    helper = jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    for node in _nodes(plan):
        if node.nodeName() not in ("Aggregate", "Distinct") or not node.isStreaming():
            continue
        keys = node.groupingExpressions() if node.nodeName() == "Aggregate" else node.output()
        for join, kept, other in (found for key in _each(keys) for found in _join_sides(key, node.child())):
            some_time = jvm.scala.Option.apply(_SOME_TIME_MS)
            sets = (kept.outputSet(), other.outputSet())
            if helper.isWatermarkInJoinKeys(join):
                continue
            if helper.getStateValueWatermark(*sets, join.condition(), some_time).isEmpty():
                raise InvalidDefinition(
                    "a stream is grouped by the event time of a join whose rows may be late",
                    why="the join has no time bound in that direction: rows of that side are kept for ever, and come "
                    "out when the watermark has passed them",
                    hint="bound the join as in AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE",
                )


def _join_sides(expression: Any, plan: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the inner joins that the event time of an expression comes through, each with its side and the other."""
    for column in _each(expression.references().toSeq()):
        if column.metadata().contains(_DELAY):
            yield from _column_sides(column, plan)


def _column_sides(column: Any, plan: Any) -> Iterator[tuple[Any, Any, Any]]:
    children = [child for child in _each(plan.children()) if child.isStreaming()]
    if plan.nodeName() == "Project":
        for named in _each(plan.projectList()):
            if named.exprId().equals(column.exprId()):
                yield from _join_sides(named, children[0])
    elif plan.nodeName() == "Union":
        position = [each.exprId().equals(column.exprId()) for each in _each(plan.output())].index(True)
        for child in children:
            yield from _column_sides(child.output().apply(position), child)
    elif plan.nodeName() not in ("Aggregate", "Distinct"):  # whose event times the watermark has passed
        for child in children:
            if child.outputSet().contains(column):
                if _is_join(plan, "INNER"):
                    yield plan, child, next(each for each in children if not each.fastEquals(child))
                yield from _column_sides(column, child)


def with_sql_null_keys(frame: DataFrame) -> DataFrame:
    """Return the rows; in full joins of two streams a key that is NULL has no partner, as in SQL."""
    from pyspark.sql import DataFrame

    jvm: Any = frame.sparkSession._jvm
    plan = frame._jdf.queryExecution().analyzed()
    outer = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.OUTER_JOIN()
    if not plan.containsPattern(outer) or next(_joins(plan, _FULL), None) is None:
        return frame
    rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(frame._jdf.sparkSession(), _rewritten(plan, jvm))
    return DataFrame(rows, frame.sparkSession)


def _rewritten(node: Any, jvm: Any) -> Any:
    """Return a plan whose full joins ask for keys that are not NULL."""
    rewritten = [_rewritten(child, jvm) for child in _each(node.children())]
    if rewritten:
        node = node.withNewChildren(jvm.scala.jdk.javaapi.CollectionConverters.asScala(rewritten).toSeq())
    if not _is_join(node, _FULL):
        return node
    catalyst = jvm.org.apache.spark.sql.catalyst
    keys = catalyst.planning.ExtractEquiJoinKeys.unapply(node)
    condition = node.condition().get()
    if keys.isDefined():
        for left, right in zip(_each(keys.get()._2()), _each(keys.get()._3()), strict=True):
            if left.nullable() and right.nullable():
                condition = catalyst.expressions.And(condition, catalyst.expressions.IsNotNull(left))
    return node.copy(node.left(), node.right(), node.joinType(), jvm.scala.Option.apply(condition), node.hint())


def _require_own_sessions(node: Any) -> None:
    """Raise InvalidDefinition if a stream is grouped by sessions only, or by those of another aggregation."""
    if node.nodeName() not in ("Aggregate", "Distinct") or not node.isStreaming():
        return
    keys = list(_each(node.groupingExpressions() if node.nodeName() == "Aggregate" else node.output()))
    sessions = [
        key for key in keys if key.nodeName() == "AttributeReference" and key.metadata().contains(_SESSION_MARKER)
    ]
    if not all(_is_made_below(key, node) for key in sessions):
        raise InvalidDefinition(
            "a stream groups by session windows of another aggregation",
            why="Spark takes them for sessions of this one, and merges those that overlap",
            hint="group by the end of the session instead: window_time(w)",
        )
    if sessions and len(keys) == 1:
        raise InvalidDefinition(
            "a stream groups by a session window only",
            why="Spark keeps the sessions of each key together, and there is no other key",
            hint="group by another column as well",
        )


def _is_made_below(key: Any, node: Any) -> bool:
    """Return whether a session window is computed from times, not taken from another aggregation."""
    for below in _nodes(node):
        for expression in _each(below.projectList()) if below.nodeName() == "Project" else ():
            if expression.nodeName() == "Alias" and expression.exprId().equals(key.exprId()):
                return bool(expression.child().nodeName() != "AttributeReference")
    return False


def _is_final(plan: Any) -> bool:
    """Return whether some rows of a stream come only when a watermark has passed them."""
    grouped = any(node.nodeName() in ("Aggregate", "Distinct") and node.isStreaming() for node in _nodes(plan))
    return grouped or any(_is_join(node, kind) for node in _nodes(plan) for kind in _OUTER)


def _joins(plan: Any, kind: str) -> Iterator[Any]:
    """Yield the joins of two streams of a kind in a plan."""
    return (node for node in _nodes(plan) if _is_join(node, kind))


def _is_join(node: Any, kind: str) -> bool:
    found = node.nodeName() == "Join" and node.joinType().sql() == kind
    return bool(found and node.left().isStreaming() and node.right().isStreaming())


def _nodes(plan: Any) -> Iterator[Any]:
    pending = [plan]
    while pending:
        node = pending.pop()
        pending += _each(node.children())
        yield node


def _each(sequence: Any) -> Iterator[Any]:
    """Yield what a sequence of Scala holds."""
    return (sequence.apply(number) for number in range(sequence.size()))
