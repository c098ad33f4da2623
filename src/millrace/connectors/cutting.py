"""How Spark cuts a batch into tasks: what each of them reads, told the same way whenever the batch comes again.

The number of a task says nothing: a batch that is run again may list the partitions of its topics in another order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millrace.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext
    from pyspark.sql import DataFrame, Row

QUERY_ID = "sql.streaming.queryId"
"""The property of a batch's jobs that names their query; it lives as long as the checkpoint."""
_ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
_NUMBERS = "millrace.lanes"
"""The property of a job that tells its tasks their numbers."""
_BY_TURNS = re.compile(
    r"^\W*(?:Repartition \d|RepartitionByExpression (?:\[\]|\d|\[.* (?:ASC|DESC) NULLS )|RebalancePartitions"
    r"|Sort \[.*\], true)",
    re.MULTILINE,
)
"""Operators that put a row into a task by its place or by a sample, not by what is in it."""


def steady(frame: DataFrame) -> DataFrame:
    """The frame, whose rows are in the same tasks whenever it is computed again: by what is in them, where need be."""
    from pyspark.sql.types import MapType, VariantType

    if frame.sparkSession.conf.get(_ADAPTIVE, "false") == "true":
        raise InvalidOption(
            f"with {_ADAPTIVE} a kafka sink cannot write each row once",
            why="a batch that is repeated may be cut into other tasks than the first time",
            hint="leave that setting out, or choose guarantee: at-least-once",
        )
    if not _BY_TURNS.search(frame._jdf.queryExecution().analyzed().toString()):
        return frame
    unlike = (MapType, VariantType)  # which Spark cannot compare
    return frame.repartition(*(f"`{one.name}`" for one in frame.schema.fields if not isinstance(one.dataType, unlike)))


@dataclass(frozen=True)
class Cut:
    """A batch that a function is given task by task. It is planned once: to see what its tasks read, and to run."""

    frame: DataFrame
    read: tuple[str, ...]
    """What each task reads."""

    @classmethod
    def of(
        cls,
        frame: DataFrame,
        function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        result: str,
        read: tuple[str, ...] = (),
    ) -> Cut:
        """`function` is one for mapInArrow, and `result` what comes out of it; `read` is given where it is known."""
        made = frame.mapInArrow(function, result)
        return cls(made, read or pieces(made))

    def run(self) -> list[Row]:
        """What comes out, while each task knows its number."""
        numbers = ",".join(map(str, lanes(self.read)))
        self.frame.sparkSession.sparkContext.setLocalProperty(_NUMBERS, numbers)
        rows: list[Row] = self.frame.collect()
        return rows


def lane_of(task: TaskContext) -> tuple[int, int]:
    """The number of a task of a `Cut`, and how many there are."""
    numbers = (task.getLocalProperty(_NUMBERS) or "").split(",")
    return int(numbers[task.partitionId()]), len(numbers)


def pieces(frame: DataFrame) -> tuple[str, ...]:
    """For each task of a frame what it reads: partitions and offsets of topics, parts of files, parts of a shuffle."""
    return tuple(_pieces(frame._jdf.queryExecution().toRdd()))


def lanes(read: tuple[str, ...]) -> tuple[int, ...]:
    """A number for each task that depends only on what all of them read: its place among them in order."""
    places = {task: place for place, task in enumerate(sorted(range(len(read)), key=lambda task: (read[task], task)))}
    return tuple(places[task] for task in range(len(read)))


def _pieces(rdd: Any) -> list[str]:
    parents = rdd.dependencies()
    if parents.isEmpty():
        return [_piece(part, number) for number, part in enumerate(rdd.partitions())]
    found = [""] * rdd.getNumPartitions()
    for number in range(parents.size()):
        for task, read in enumerate(_handed_on(parents.apply(number), len(found))):
            found[task] += read
    return found


def _handed_on(parent: Any, tasks: int) -> list[str]:
    """What each task has from one of its parents."""
    kind = parent.getClass().getSimpleName()
    if kind == "ShuffleDependency":  # rows are dealt out by what is in them
        return [f"[part {task}]" for task in range(tasks)]
    read = _pieces(parent.rdd())
    if kind == "OneToOneDependency":
        return read
    return ["".join(read[one] for one in _numbers(parent.getParents(task))) for task in range(tasks)]


def _numbers(listed: Any) -> list[int]:
    return [int(listed.apply(place)) for place in range(listed.size())]


def _piece(part: Any, number: int) -> str:
    """What one part of a source is."""
    kind = part.getClass().getSimpleName()
    if kind == "DataSourceRDDPartition":
        read = part.inputPartition()
        return f"[{_input(read.get())}]" if read.isDefined() else "[]"
    if kind == "FilePartition":
        return "".join(f"[{file.toString()}]" for file in part.files())
    return f"[{number}]"


def _input(part: Any) -> str:
    """Of Kafka only the offsets: the rest are properties of the client, which are others each time."""
    if part.getClass().getSimpleName() == "KafkaBatchInputPartition":
        span = part.offsetRange()  # whose own text also says on which machine it would be read
        return f"{span.topic()}/{span.partition()} {span.fromOffset()}-{span.untilOffset()}"
    return str(part.toString())
