"""How Spark cuts a batch into tasks: what each of them reads, told the same way whenever the batch comes again.

The number of a task says nothing: a batch that is run again may list the partitions of its topics in another order.

Rows that reach a worker whole or not at all.

A task that fails closes the stream of rows to its Python worker, and so does a JVM that is killed. Arrow takes a stream
that breaks off between two batches for one that ends: a worker would go on as if it had seen every row.
"""

from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol, runtime_checkable

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
_TOLD = "millrace.batch"
"""The property of a job that tells its tasks what all of them have to know of the batch."""
_KINDS = re.compile(r"(\w+)@")
_PART_OF_A_TOPIC = re.compile(r"KafkaBatchInputPartition\(KafkaOffsetRange\(([\w.-]+)-(\d+),(-?\d+),(-?\d+),")
_OURS = re.compile(r"\bPython\w*InputPartition\(")
_BY_TURNS = re.compile(
    r"^\W*(?:Repartition \d|RepartitionByExpression (?:\[\]|\d|\[.* (?:ASC|DESC) NULLS )|RebalancePartitions"
    r"|Sort \[.*\], true)",
    re.MULTILINE,
)
"""Operators that put a row into a task by its place or by a sample, not by what is in it."""
_USED = re.compile(r"\bCTERelationRef (\d+)")
"""A WITH where it is used."""


@runtime_checkable
class StableInputPartition(Protocol):
    """What one task reads of a source of ours, told the same way whenever the batch comes again."""

    @property
    def piece(self) -> str:
        """In words."""


def with_deterministic_tasks(frame: DataFrame) -> DataFrame:
    """The frame, whose rows are in the same tasks whenever it is computed again: by what is in them, where need be."""
    from pyspark.sql.types import MapType, VariantType

    if frame.sparkSession.conf.get(_ADAPTIVE, "false") == "true":
        raise InvalidOption(
            f"with {_ADAPTIVE} a kafka sink cannot write each row once",
            why="a batch that is repeated may be cut into other tasks than the first time",
            hint="leave that setting out, or choose guarantee: at-least-once",
        )
    if not _deals_by_turns(frame._jdf.queryExecution().analyzed().toString()):
        return frame
    unlike = (MapType, VariantType)  # which Spark cannot compare
    return frame.repartition(*(f"`{one.name}`" for one in frame.schema.fields if not isinstance(one.dataType, unlike)))


def _deals_by_turns(plan: str) -> bool:
    """Whether rows may be in other tasks next time; so may those of a WITH that is used twice, if Spark likes."""
    used = Counter(_USED.findall(plan))
    return _BY_TURNS.search(plan) is not None or max(used.values(), default=0) > 1


@dataclass(frozen=True)
class TaskPlan:
    """A batch that a function is given task by task. It is planned once: to see what its tasks read, and to run."""

    frame: DataFrame
    """What comes out of the function."""
    read: tuple[str, ...]
    """What each task reads."""

    @classmethod
    def of(cls, frame: DataFrame, read: tuple[str, ...] = ()) -> TaskPlan:
        """`read` is given where it is known."""
        return cls(frame, read or task_inputs(frame))

    def run(self) -> list[Row]:
        """What comes out, while each task knows its number."""
        with self._telling({}):
            rows: list[Row] = self.frame.collect()
        return rows

    def finish(self, told: Mapping[str, Any]) -> None:
        """The same without what comes out, which saves Spark a plan and a query; tasks are told so much beside it."""
        with self._telling(told):
            self.frame._jdf.queryExecution().toRdd().count()

    @contextmanager
    def _telling(self, told: Mapping[str, Any]) -> Iterator[None]:
        """A time in which jobs of this thread are this one: another job must not take itself for it."""
        context = self.frame.sparkSession.sparkContext
        context.setLocalProperty(_NUMBERS, ",".join(map(str, task_numbers(self.read))))
        context.setLocalProperty(_TOLD, json.dumps(told))
        try:
            yield
        finally:
            for name in (_NUMBERS, _TOLD):
                context.setLocalProperty(name, None)


def task_number(task: TaskContext) -> tuple[int, int]:
    """The number of a task of a `TaskPlan`, and how many there are."""
    numbers = (task.getLocalProperty(_NUMBERS) or "").split(",")
    return int(numbers[task.partitionId()]), len(numbers)


def task_arguments(task: TaskContext) -> dict[str, Any]:
    """What the tasks of a `TaskPlan` are told beside their numbers."""
    told: dict[str, Any] = json.loads(task.getLocalProperty(_TOLD) or "{}")
    return told


def task_inputs(frame: DataFrame) -> tuple[str, ...]:
    """For each task of a frame what it reads: partitions and offsets of topics, parts of files, parts of a shuffle."""
    return tuple(_pieces(frame._jdf.queryExecution().toRdd()))


def task_numbers(read: tuple[str, ...]) -> tuple[int, ...]:
    """A number for each task that depends only on what all of them read: its place among them in order."""
    places = {task: place for place, task in enumerate(sorted(range(len(read)), key=lambda task: (read[task], task)))}
    return tuple(places[task] for task in range(len(read)))


def _pieces(rdd: Any) -> list[str]:
    """Asked with few words: each is a trip to the JVM, and a batch waits for all of them."""
    parents = rdd.dependencies()
    kinds = _KINDS.findall(parents.toString())
    if kinds == ["OneToOneDependency"] and parents.size() == 1:
        return _pieces(parents.head().rdd())
    if parents.size() != len(kinds):
        raise RuntimeError(f"Spark tells of {parents.size()} parents, and names {len(kinds)}: {parents.toString()}")
    if not kinds:
        return _of_source(rdd.partitions())
    found = [""] * rdd.getNumPartitions()
    for number, kind in enumerate(kinds):
        for task, read in enumerate(_handed_on(kind, parents.apply(number), len(found))):
            found[task] += read
    return found


def _handed_on(kind: str, parent: Any, tasks: int) -> list[str]:
    """What each task has from one of its parents."""
    if kind == "ShuffleDependency":  # rows are dealt out by what is in them
        return [f"[part {task}]" for task in range(tasks)]
    read = _pieces(parent.rdd())
    if kind == "OneToOneDependency":
        return read
    return ["".join(read[one] for one in _numbers(parent.getParents(task))) for task in range(tasks)]


def _numbers(listed: Any) -> list[int]:
    return [int(listed.apply(place)) for place in range(listed.size())]


def _of_source(parts: Any) -> list[str]:
    """What each part of a source is; all of them are of one kind."""
    count = len(parts)
    kind = parts[0].getClass().getSimpleName() if count else ""
    return [_piece(kind, parts[number], number) for number in range(count)]


def _piece(kind: str, part: Any, number: int) -> str:
    """What one part of a source is."""
    if kind == "DataSourceRDDPartition":
        given = part.inputPartition()
        text = given.toString()
        return f"[{_of_ours(given.get()) if _OURS.search(text) else _input(text)}]"
    if kind == "FilePartition":
        return "".join(f"[{file.toString()}]" for file in part.files())
    return f"[{number}]"


def _input(text: str) -> str:
    """Of Kafka only the offsets: the rest are properties of the client, others each time, and who would read it."""
    topic = _PART_OF_A_TOPIC.search(text)
    if topic:
        return "{}/{} {}-{}".format(*topic.groups())
    return text.removeprefix("Some(").removesuffix(")") if text != "None" else ""


def _of_ours(given: Any) -> str:
    """What a task reads of a source in Python: Spark itself knows only bytes of it."""
    part = pickle.loads(given.pickedPartition())  # noqa: S301 - of this run's own source
    return part.piece if isinstance(part, StableInputPartition) else str(given.index())


class _TruncationCheckingStream:
    """A stream that knows whether it was read beyond its end: one that is whole says where it ends."""

    closed = False

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.broken = False

    def read(self, size: int = -1) -> bytes:
        """What was asked for, or less at the end."""
        found = self._stream.read(size)
        self.broken = self.broken or len(found) < size
        return found


def fail_on_truncated_input() -> None:
    """From now on, in this process, a stream of batches that breaks off raises where Spark's worker reads it."""
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    if ArrowStreamSerializer.load_stream is not _load_stream:
        ArrowStreamSerializer.load_stream = _load_stream


def _load_stream(serializer: Any, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """In the place of the serializer's own."""
    import pyarrow as pa

    del serializer
    watched = _TruncationCheckingStream(stream)
    yield from pa.ipc.open_stream(watched)
    if watched.broken:
        raise EOFError("the rows of the task broke off")
