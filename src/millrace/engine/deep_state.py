"""The state that a query keeps, read from Spark's analysed plans: also that of Python tables.

- `spark_operators` are the aggregations, deduplications and joins of streams, with the table that has each of them.
- An operator is bounded if a watermark removes its state, by the rules of Spark's own state stores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from millrace.engine.queries.builder import QueryTables
from millrace.pipeline.analysis.operators import Operator
from millrace.pipeline.model import PipelineDef, TableDef

_WATERMARK = "spark.watermarkDelayMs"
"""The key by which Spark marks an attribute with a watermark in its metadata."""
_ANY_WATERMARK_MS = 10**12
"""Stands for the watermark of a running query: whether it bounds a join does not depend on its value.

It is so large that Py4J makes a Long of it, as Spark wants; of an Integer Spark silently makes no bound.
"""
_JOINS = {"Inner": "inner", "Cross": "cross", "LeftOuter": "left", "RightOuter": "right", "FullOuter": "full"} | {
    "LeftSemi": "semi",
    "LeftAnti": "anti",
}


def spark_operators(tables: QueryTables, pipeline: PipelineDef, name: str) -> list[Operator]:
    """Return the operators with state of a table and of those that it needs, each with the table that has it."""
    found: dict[str, dict[str, Operator]] = {}
    for upstream in pipeline.upstream(name):
        table = pipeline.table(upstream)
        if table is None:
            continue
        own = dict(_operators(tables.frame(upstream), table))
        for read in table.reads:
            for text in found.get(read.lower(), {}):
                own[text] = found[read.lower()][text]
        found[upstream.lower()] = own
    return list(found.get(name.lower(), {}).values())


def _operators(frame: DataFrame, table: TableDef) -> Iterator[tuple[str, Operator]]:
    """Yield the operators of a plan, each with a text that is the same in every plan that has it."""
    plan = frame._jdf.queryExecution().analyzed()
    operators = list(_operators_of_plan(frame, plan, table))
    if any(operator.kind == "join" and not operator.bounded for _, operator in operators):
        # A condition in WHERE bounds a join when the optimizer has moved it there.
        session: Any = frame.sparkSession._jsparkSession
        optimized = session.sessionState().optimizer().execute(plan)
        joins = [operator for _, operator in _operators_of_plan(frame, optimized, table) if operator.kind == "join"]
        if joins and all(operator.bounded for operator in joins):
            operators = [(text, joins.pop(0) if each.kind == "join" else each) for text, each in operators]
    yield from operators


def _operators_of_plan(frame: DataFrame, plan: Any, table: TableDef) -> Iterator[tuple[str, Operator]]:
    for node in _nodes(plan):
        operator = _operator(frame, node, table) if node.isStreaming() else None
        if operator:
            yield re.sub(r"#\d+L?", "", f"{operator.kind} {operator.join} {operator.keys}"), operator


def _operator(frame: DataFrame, node: Any, table: TableDef) -> Operator | None:
    kind = node.getClass().getSimpleName()
    if kind == "Aggregate":
        keys = _listed(node.groupingExpressions())
        return _kept("aggregate", "the aggregation", table, keys, any(map(_is_watermarked, keys)))
    if kind in ("Distinct", "Deduplicate", "DeduplicateWithinWatermark"):
        keys = _listed(node.output() if kind == "Distinct" else node.keys())
        bounded = kind == "DeduplicateWithinWatermark" or any(map(_is_watermarked, keys))
        if kind == "Distinct":
            return _kept("aggregate", "the aggregation", table, keys, bounded)
        return _kept("deduplicate" if kind == "Deduplicate" else "within", "the deduplication", table, keys, bounded)
    if kind == "Join" and node.left().isStreaming() and node.right().isStreaming():
        join = _JOINS.get(node.joinType().toString(), "inner")
        condition = _listed(node.condition().toList())
        return _kept("join", f"{join.upper()} JOIN", table, condition, _is_bounded_join(frame, node), join)
    return None


def _kept(kind: str, what: str, table: TableDef, keys: list[Any], bounded: bool, join: str = "") -> Operator:
    texts = tuple(re.sub(r"#\d+L?", "", key.toString()) for key in keys)
    return Operator(kind, what, table.place, table.name, bounded=bounded, join=join, keys=texts)


def _is_bounded_join(frame: DataFrame, node: Any) -> bool:
    """Return whether event time is among the keys of a join, or a condition bounds both sides by it."""
    jvm: Any = frame.sparkSession._jvm
    helper = jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    if helper.isWatermarkInJoinKeys(node):
        return True
    left, right = node.left().outputSet(), node.right().outputSet()
    watermark = jvm.scala.Some(_ANY_WATERMARK_MS)
    of_left = helper.getStateValueWatermark(left, right, node.condition(), watermark).isDefined()
    of_right = helper.getStateValueWatermark(right, left, node.condition(), watermark).isDefined()
    return bool(of_left and of_right)


def _is_watermarked(expression: Any) -> bool:
    named = expression.getClass().getSimpleName() in ("AttributeReference", "Alias")
    return bool(named and expression.metadata().contains(_WATERMARK))


def _nodes(plan: Any) -> Iterator[Any]:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += _listed(node.children())


def _listed(values: Any) -> list[Any]:
    return [values.apply(number) for number in range(values.size())]
