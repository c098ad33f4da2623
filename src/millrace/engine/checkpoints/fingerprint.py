"""Compute the fingerprint of a query from Spark's plan: its sources in order, and its stateful operators.

- Spark itself compares only the types of a state's columns: `max(a)` would resume with the state of `min(b)`. So the
  fingerprint describes the operators by their meaning, from the analysed plan.
- Which aggregates are stored, and in which order, is in the optimised plan: Spark drops columns that nothing reads.
- Columns are followed through renames to the source or the expression that they come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from millrace.pipeline.compatibility.state_schema import Part, StateOperator, StateSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def scala_elements(collection: Any) -> list[Any]:
    elements, iterator = [], collection.iterator()
    while iterator.hasNext():
        elements.append(iterator.next())
    return elements


def kind_of(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def plan_nodes(plan: Any, without_inputs_of: str = "") -> Iterator[Any]:
    """Yield a plan's nodes, each before its inputs, from left to right: as Spark numbers sources and operators."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        if not without_inputs_of or kind_of(node) != without_inputs_of:
            waiting += reversed(scala_elements(node.children()))


class Lineage:
    """An analysed plan whose columns can be followed to the source, or to the expression, that they come from."""

    def __init__(self, frame: DataFrame, sources: Mapping[str, DataFrame]) -> None:
        self._jvm: Any = frame.sparkSession._jvm
        self.plan = self._inlined(frame._jdf.queryExecution().analyzed())
        self._leaves = [
            (name, leaf.canonicalized())
            for name, source in sources.items()
            for leaf in scala_elements(source._jdf.queryExecution().analyzed().collectLeaves())
        ]

    def streams(self) -> list[str]:
        """Return the names of the streams that are read, in order."""
        return [self._named(leaf) for leaf in scala_elements(self.plan.collectLeaves()) if leaf.isStreaming()]

    def origin(self, attribute: Any, node: Any) -> str:
        """Return a column that a node reads as SOURCE.name; a computed column has the name that it got there."""
        attribute, maker = self._maker(attribute, node)
        name = str(attribute.name()).lower()
        leaves = scala_elements(maker.collectLeaves()) if maker is not None else []
        return f"{self._named(leaves[0])}.{name}" if leaves else name

    def made_by(self, attribute: Any, node: Any) -> list[Any]:
        """Return the expressions that compute a column: several where rows are multiplied, as by sliding windows."""
        attribute, maker = self._maker(attribute, node)
        kind = "" if maker is None else kind_of(maker)
        if kind == "Expand":
            index = [_same(column, attribute) for column in scala_elements(maker.output())].index(True)
            return [scala_elements(projection)[index] for projection in scala_elements(maker.projections())]
        expressions = scala_elements(maker.projectList()) if kind == "Project" else []
        return [expression for expression in expressions if _same(expression, attribute)]

    def _maker(self, attribute: Any, node: Any) -> tuple[Any, Any]:
        """Return the column as the node names it that computes it, and that node."""
        giver = _giver(node, attribute)
        while giver is not None:
            before = _giver(giver, attribute)
            if before is None:
                renamed = _renamed(giver, attribute)
                if renamed is None:
                    return attribute, giver
                attribute, before = renamed, _giver(giver, renamed)
            giver = before
        return attribute, None

    def _named(self, leaf: Any) -> str:
        same = leaf.canonicalized()
        return next((name for name, other in self._leaves if other.equals(same)), kind_of(leaf))

    def _inlined(self, plan: Any) -> Any:
        """Return the plan with each WITH clause where it is used, as Spark runs it."""
        if not any(kind_of(node) == "WithCTE" for node in plan_nodes(plan)):
            return plan
        return self._jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, False, False).apply(plan)


def _giver(node: Any, attribute: Any) -> Any:
    """Return the child of a node that provides a column."""
    return next((child for child in scala_elements(node.children()) if child.outputSet().contains(attribute)), None)


def _renamed(node: Any, attribute: Any) -> Any:
    """Return the column that a node only renames."""
    for column in scala_elements(node.projectList()) if kind_of(node) == "Project" else []:
        if _same(column, attribute) and kind_of(column) == "Alias" and kind_of(column.child()) == "AttributeReference":
            return column.child()
    return None


def _same(column: Any, other: Any) -> bool:
    return bool(column.exprId().equals(other.exprId()))


_WINDOW = ("spark.timeWindow", "spark.sessionWindow")
_MICROSECONDS = re.compile(r"\b\d{4,}\b")
_WHOLE = "millrace.whole"


def fingerprint(
    table: DataFrame, written: DataFrame, sources: Mapping[str, DataFrame], *, whole: bool = False
) -> StateSchema:
    """Return the fingerprint of a table as it is written; `sources` are the streams that it reads, by name."""
    reader = _OperatorReader(written, sources)
    columns = tuple((field.name, field.dataType.simpleString()) for field in table.schema.fields)
    return StateSchema(tuple(reader.streams()), tuple(reader.operators()), columns, whole)


def keeps_state(table: DataFrame) -> bool:
    """Return whether anything in a table's plan keeps state."""
    return any(node.isStateful() for node in plan_nodes(table._jdf.queryExecution().analyzed()))


def with_all_columns_read(table: DataFrame) -> DataFrame:
    """Return the table with an observation that reads all its columns, so that sinks and panels do not shape its state.

    Spark drops columns from the state that nothing reads: a run with another panel, or without the dashboard, would not
    find its state again. The observed value needs a row, and reveals nothing of it.
    """
    from pyspark.sql import functions as F

    columns = [F.col(f"`{name.replace('`', '``')}`") for name in table.columns]
    return table.observe(_WHOLE, F.first(F.struct(*columns)).isNotNull().alias("any"))


class _OperatorReader(Lineage):
    """Describes the stateful operators of a plan."""

    def __init__(self, frame: DataFrame, sources: Mapping[str, DataFrame]) -> None:
        super().__init__(frame, sources)
        self._spark: Any = frame.sparkSession
        self._pretty: Any = self._jvm.org.apache.spark.sql.catalyst.util.package.toPrettySQL
        self._texts: dict[int, Part] = {}

    def operators(self) -> Iterator[StateOperator]:
        stateful = [node for node in plan_nodes(self.plan) if node.isStateful()]
        if not stateful:
            return
        optimizer = self._spark._jsparkSession.sessionState().optimizer()
        chosen = [node for node in plan_nodes(optimizer.execute(self.plan)) if node.isStateful()]
        # If the optimiser merged or split operators, there are no pairs; then each is described as it was written.
        paired = [_family(node) for node in stateful] == [_family(node) for node in chosen]
        for node, executed in zip(stateful, chosen if paired else stateful, strict=True):
            yield self._operator(node, executed)

    def _operator(self, node: Any, executed: Any) -> StateOperator:
        kind = kind_of(node)
        if kind == "Aggregate":
            for aggregate in _aggregates(node):
                self._texts[aggregate.resultId().id()] = self._part(aggregate, node)
            kept = (
                self._texts.get(aggregate.resultId().id()) or self._part(aggregate, executed)
                for aggregate in _aggregates(executed)
            )
            keys = dict.fromkeys(self._keys(node.groupingExpressions(), node))
            return StateOperator("aggregate", tuple(keys), tuple(dict.fromkeys(kept)))
        if kind == "Distinct":
            return StateOperator("aggregate", self._keys(node.output(), node))
        if kind.startswith("Deduplicate"):
            detail = "within the watermark" if kind == "DeduplicateWithinWatermark" else ""
            return StateOperator("deduplicate", self._keys(node.keys(), node), (), detail)
        if kind == "Join":
            return self._join(node, executed)
        return self._other(kind, node)

    def _join(self, node: Any, executed: Any) -> StateOperator:
        """Describe a join of two streams, whose state has the rows of both with the columns that are read."""
        condition = node.condition()
        conjuncts = _conjuncts(condition.get()) if condition.isDefined() else []
        keys = sorted(self._part(conjunct, node) for conjunct in conjuncts)
        kept = [
            (f"{side} {column.name().lower()}", _type(column))
            for side, child in (("left", executed.left()), ("right", executed.right()))
            for column in scala_elements(child.output())
        ]
        return StateOperator("join", tuple(keys), tuple(kept), str(node.joinType().sql()).lower())

    def _other(self, kind: str, node: Any) -> StateOperator:
        """Describe state that Python keeps, and unknown operators: Spark compares its schema in the first batch."""
        if kind == "FlatMapGroupsInPandasWithState":
            keys, detail = node.groupingAttributes(), f"{node.stateType().catalogString()} {_named(node.timeout())}"
        elif kind == "TransformWithStateInPySpark":
            keys, detail = node.leftAttributes(), _named(node.timeMode())
        else:
            return StateOperator(kind)
        return StateOperator("state", self._keys(keys, node), (), detail)

    def _keys(self, expressions: Any, node: Any) -> tuple[Part, ...]:
        return tuple(
            self._window(key, node) if _is_window(key) else self._part(key, node) for key in scala_elements(expressions)
        )

    def _window(self, attribute: Any, node: Any) -> Part:
        """Describe a window by its lengths; the expression that computes it is long."""
        expressions = self.made_by(attribute, node)
        texts = [self._pretty(expression, True) for expression in expressions]
        lengths = sorted({int(number) for text in texts for number in _MICROSECONDS.findall(text)})
        read = [column for expression in expressions for column in scala_elements(expression.references())]
        columns = sorted({self.origin(column, node) for column in read})
        several = [f"{len(expressions)} at once"] if len(expressions) > 1 else []
        parts = [*columns, *(f"{length / 1e6:g}s" for length in lengths), *several]
        if attribute.metadata().contains(_WINDOW[1]):
            parts = sorted(set(texts))
        return f"{attribute.name().lower()}({', '.join(parts)})", _type(attribute)

    def _part(self, expression: Any, node: Any) -> Part:
        if kind_of(expression) == "AttributeReference":
            return self.origin(expression, node), _type(expression)
        text = str(self._pretty(expression, True))
        for column in scala_elements(expression.references()):
            origin = self.origin(column, node)
            # A name after a dot has been replaced already, or is a field.
            text = re.sub(rf"(?<![\w.]){re.escape(column.name())}(?!\w)", origin.replace("\\", r"\\"), text)
        return text, _type(expression)


def _is_window(expression: Any) -> bool:
    return kind_of(expression) == "AttributeReference" and any(map(expression.metadata().contains, _WINDOW))


def _family(node: Any) -> str:
    """Return the operator that a node becomes."""
    return kind_of(node).replace("Distinct", "Aggregate")


def _aggregates(node: Any) -> list[Any]:
    """Return the aggregate functions of an operator, in their order."""
    kind = "AggregateExpression"
    roots = scala_elements(node.aggregateExpressions()) if kind_of(node) == "Aggregate" else []
    return [part for root in roots for part in plan_nodes(root, without_inputs_of=kind) if kind_of(part) == kind]


def _conjuncts(condition: Any) -> list[Any]:
    if kind_of(condition) != "And":
        return [condition]
    return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]


def _named(mode: Any) -> str:
    return kind_of(mode).rstrip("$")


def _type(expression: Any) -> str:
    return str(expression.dataType().catalogString())
