"""Where the columns of Spark's plans come from: nodes, leaves, and columns followed through renames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def each(found: Any) -> list[Any]:
    """The elements of a Scala collection."""
    elements, going = [], found.iterator()
    while going.hasNext():
        elements.append(going.next())
    return elements


def kind_of(node: Any) -> str:
    """The name of a node's class."""
    return str(node.getClass().getSimpleName())


def nodes(plan: Any) -> Iterator[Any]:
    """A plan's nodes, each before what it reads, from left to right: as Spark numbers sources and operators."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(each(node.children()))


class Lineage:
    """An analysed plan whose columns can be followed to the source, or to the expression, that they come from."""

    def __init__(self, frame: DataFrame, sources: Mapping[str, DataFrame]) -> None:
        self._jvm: Any = frame.sparkSession._jvm
        self.plan = self._inlined(frame._jdf.queryExecution().analyzed())
        self._leaves = [
            (name, leaf.canonicalized())
            for name, one in sources.items()
            for leaf in each(one._jdf.queryExecution().analyzed().collectLeaves())
        ]

    def streams(self) -> Iterator[str]:
        """The names of the streams that are read, in order."""
        for leaf in each(self.plan.collectLeaves()):
            if leaf.isStreaming():
                yield self._named(leaf)

    def origin(self, attribute: Any, node: Any) -> str:
        """A column that a node reads, as SOURCE.name; what is computed on the way has the name that it got there."""
        attribute, maker = self._maker(attribute, node)
        name = str(attribute.name()).lower()
        leaves = each(maker.collectLeaves()) if maker is not None else []
        return f"{self._named(leaves[0])}.{name}" if leaves else name

    def made_by(self, attribute: Any, node: Any) -> list[Any]:
        """The expressions that make a column: several where rows are multiplied, as by sliding windows."""
        attribute, maker = self._maker(attribute, node)
        kind = "" if maker is None else kind_of(maker)
        if kind == "Expand":
            place = next(place for place, one in enumerate(each(maker.output())) if _same(one, attribute))
            return [each(projection)[place] for projection in each(maker.projections())]
        made = each(maker.projectList()) if kind == "Project" else []
        return [one for one in made if _same(one, attribute)]

    def _maker(self, attribute: Any, node: Any) -> tuple[Any, Any]:
        """The node that makes a column, and the column's name there."""
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
        """The plan with each WITH where it is used, as Spark runs it."""
        if not any(kind_of(node) == "WithCTE" for node in nodes(plan)):
            return plan
        return self._jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, False, False).apply(plan)


def _giver(node: Any, attribute: Any) -> Any:
    """The child of a node that gives it a column."""
    return next((child for child in each(node.children()) if child.outputSet().contains(attribute)), None)


def _renamed(node: Any, attribute: Any) -> Any:
    """The column that a node only gives another name."""
    for one in each(node.projectList()) if kind_of(node) == "Project" else []:
        if _same(one, attribute) and kind_of(one) == "Alias" and kind_of(one.child()) == "AttributeReference":
            return one.child()
    return None


def _same(one: Any, other: Any) -> bool:
    return bool(one.exprId().equals(other.exprId()))
