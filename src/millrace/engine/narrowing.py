"""What a query uses of the rows that its sources decode, as Spark's optimiser sees it: nothing else leaves Python.

For Spark a function in Python is a wall: all columns of all rows come back from it, and most of them are left out then.
So Spark is asked what it would leave out right behind that wall, and the function does it. Every record is decoded as
before: what is bad stays bad, whether somebody uses it or not. Spark's own filter stays where it is, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from millrace.engine.lineage import each, kind_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Condition: TypeAlias = tuple[Any, ...]
"""An operator and what it is for: conditions, or a column and values."""

_WALL = "MapInArrow"
_COMPARED = {
    "EqualTo": "equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
}
_TURNED = {"greater": "less", "greater_equal": "less_equal", "less": "greater", "less_equal": "greater_equal"}
_JOINED = {"And": "and_kleene", "Or": "or_kleene"}
_PLAIN = {"string", "boolean", "tinyint", "smallint", "int", "bigint"}
"""Types whose values are compared alike by Spark and by Arrow; not floats, whose NaN are not."""


@dataclass(frozen=True)
class Used:
    """What of a source's rows is used."""

    columns: tuple[str, ...]
    where: tuple[Condition, ...] = ()
    """Conditions that all rows meet which are used."""

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those rows of a batch of these columns that are used."""
        import pyarrow.compute as pc

        for one in self.where:
            batch = batch.filter(_holds(one, batch, pc))
        return batch

    def merged(self, other: Used) -> Used:
        """What is used in either place."""
        columns = tuple(dict.fromkeys((*self.columns, *other.columns)))
        return Used(columns, self.where if self.where == other.where else ())


def used(frame: DataFrame, sources: Mapping[str, DataFrame]) -> dict[str, Used]:
    """What a frame uses of its sources; those of which it uses everything, or nobody can tell, are left out."""
    spark: Any = frame.sparkSession
    walls = {name: wall for name, one in sources.items() if (wall := _wall(one))}
    if not walls:
        return {}
    plan = spark._jsparkSession.sessionState().optimizer().execute(frame._jdf.queryExecution().analyzed())
    known = {_id(_outputs(wall)[0]): name for name, wall in walls.items()}
    found: dict[str, Used | None] = {}
    for above in _walls(plan):
        columns = _outputs(above[-1])
        name = known.get(_id(columns[0]))
        if name is None:  # a source that is used in two places has other columns in one of them
            alike = [one for one, wall in walls.items() if _names(_outputs(wall)) == _names(columns)]
            found |= dict.fromkeys(alike)
        elif name in found:
            before, now = found[name], _used(above)
            found[name] = before.merged(now) if before and now else None
        else:
            found[name] = _used(above)
    return {name: one for name, one in found.items() if one and not _is_all(one, walls[name])}


def _wall(frame: DataFrame) -> Any:
    """Where a source decodes, if it does so in Arrow."""
    return next((path[-1] for path in _walls(frame._jdf.queryExecution().analyzed())), None)


def _walls(plan: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Functions in Arrow that read a stream by themselves, each with what is above it."""
    path = (*above, plan)
    below = each(plan.children())
    if kind_of(plan) == _WALL and not any(kind_of(one) == _WALL for one in below):
        yield path
    for one in below:
        yield from _walls(one, path)


def _used(path: Sequence[Any]) -> Used | None:
    columns = {_id(one): str(one.name()) for one in _outputs(path[-1])}
    wanted: set[int] = set()
    where: list[Condition] = []
    marked = False  # by a watermark, which rows that are left out later have moved
    for node in reversed(path[:-1]):
        kind = kind_of(node)
        wanted |= {_id(one) for one in each(node.references())}
        if kind in ("Project", "Aggregate"):
            chosen = tuple(name for number, name in columns.items() if number in wanted)
            return Used(chosen or (next(iter(columns.values())),), tuple(where))
        if kind == "Filter" and not marked:
            where += [made for one in _conjuncts(node.condition()) if (made := _condition(one, columns))]
        elif kind == "EventTimeWatermark":
            marked = True
        elif kind != "Filter":
            break
    return Used(tuple(columns.values()), tuple(where)) if where else None


def _is_all(one: Used, wall: Any) -> bool:
    return not one.where and len(one.columns) == len(_outputs(wall))


def _conjuncts(condition: Any) -> list[Any]:
    if kind_of(condition) != "And":
        return [condition]
    return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]


def _condition(said: Any, columns: Mapping[int, str]) -> Condition | None:
    """A condition of Spark's in our words; None where it has none."""
    kind = kind_of(said)
    if kind in _JOINED:
        both = [_condition(one, columns) for one in (said.left(), said.right())]
        return (_JOINED[kind], *both) if all(both) else None
    if kind == "Not":
        inner = _condition(said.child(), columns)
        return ("invert", inner) if inner else None
    if kind in ("IsNotNull", "IsNull"):
        name = _column(said.child(), columns)
        return ("is_valid" if kind == "IsNotNull" else "is_null", name) if name else None
    if kind == "AttributeReference":
        name = _column(said, columns)
        return ("equal", name, True) if name else None
    if kind in _COMPARED:
        return _comparison(_COMPARED[kind], said.left(), said.right(), columns)
    if kind == "In":
        name, values = _column(said.value(), columns), [_value(one) for one in each(said.list())]
        return ("is_in", name, *values) if name and None not in values else None
    return None


def _comparison(word: str, left: Any, right: Any, columns: Mapping[int, str]) -> Condition | None:
    if kind_of(left) == "Literal":
        word, left, right = _TURNED.get(word, word), right, left
    name, value = _column(left, columns), _value(right)
    return (word, name, value) if name and value is not None else None


def _column(said: Any, columns: Mapping[int, str]) -> str | None:
    if kind_of(said) != "AttributeReference" or said.dataType().catalogString() not in _PLAIN:
        return None
    return columns.get(_id(said))


def _value(said: Any) -> str | int | bool | None:
    if kind_of(said) != "Literal" or said.value() is None or said.dataType().catalogString() not in _PLAIN:
        return None
    value = said.value()
    return value if isinstance(value, bool | int) else str(value.toString())


def _holds(one: Condition, batch: pa.RecordBatch, pc: Any) -> Any:
    """Where a condition holds: true, false, or null as in SQL."""
    import pyarrow as pa

    word, first, *rest = one
    if isinstance(first, tuple):
        return getattr(pc, word)(*(_holds(each_, batch, pc) for each_ in (first, *rest)))
    column = batch.column(first)
    if word == "is_in":  # which is never null, and so could not be turned round
        return pc.if_else(column.is_valid(), pc.is_in(column, pa.array(rest, column.type)), pa.scalar(None, pa.bool_()))
    return getattr(pc, word)(column, *(pa.scalar(value, column.type) for value in rest))


def _outputs(node: Any) -> list[Any]:
    return each(node.output())


def _names(attributes: Sequence[Any]) -> list[str]:
    return [str(one.name()) for one in attributes]


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())
