"""The private parts of Spark that show what each task of a batch reads; written for Spark 4.3.

The number of a task says nothing: a batch that is run again may list the partitions of its topics in another order. An
exactly-once sink has to know which task wrote what, and Spark has no public call for it. So `task_inputs` walks the
lineage of the batch's RDD in the JVM, down to its sources, and reads:

- `queryExecution().toRdd()`, `dependencies()` and `getParents()`: which tasks get rows of which;
- the class names of the dependencies, in their text: a shuffle deals rows out by what is in them;
- `DataSourceRDDPartition.inputPartition()` and the text of `KafkaBatchInputPartition`: offsets of Kafka;
- `pickedPartition()` of a Python source's input partition, and `FilePartition.files()`.

No other module reaches for them. `tests/connectors/base/test_rdd_lineage.py` fails if Spark changes them.
"""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPARK_VERSION = "4.3"
_CLASS_NAME = re.compile(r"(\w+)@")
_KAFKA_PARTITION = re.compile(r"KafkaBatchInputPartition\(KafkaOffsetRange\(([\w.-]+)-(\d+),(-?\d+),(-?\d+),")
_PYTHON_PARTITION = re.compile(r"\bPython\w*InputPartition\(")


@runtime_checkable
class StableInputPartition(Protocol):
    """A partition of one of our Python sources that describes itself."""

    @property
    def task_input(self) -> str:
        """What the task reads; the same text whenever the batch comes again."""


def task_inputs(frame: DataFrame) -> tuple[str, ...]:
    """Return what each task of a frame reads: partitions and offsets of topics, parts of files, parts of a shuffle."""
    return tuple(_inputs_of(frame._jdf.queryExecution().toRdd()))


def _inputs_of(rdd: Any) -> list[str]:
    # Few calls: each is a trip to the JVM, and a batch waits for all of them.
    dependencies = rdd.dependencies()
    kinds = _CLASS_NAME.findall(dependencies.toString())
    if kinds == ["OneToOneDependency"] and dependencies.size() == 1:
        return _inputs_of(dependencies.head().rdd())
    if dependencies.size() != len(kinds):
        raise RuntimeError(
            f"Spark has {dependencies.size()} parents, and names {len(kinds)}: {dependencies.toString()}"
        )
    if not kinds:
        return _source_inputs(rdd.partitions())
    inputs = [""] * rdd.getNumPartitions()
    for number, kind in enumerate(kinds):
        for task, text in enumerate(_parent_inputs(kind, dependencies.apply(number), len(inputs))):
            inputs[task] += text
    return inputs


def _parent_inputs(kind: str, dependency: Any, tasks: int) -> list[str]:
    """Return what each task gets from one of its parents."""
    if kind == "ShuffleDependency":  # rows are dealt out by what is in them
        return [f"[part {task}]" for task in range(tasks)]
    inputs = _inputs_of(dependency.rdd())
    if kind == "OneToOneDependency":
        return inputs
    return ["".join(inputs[parent] for parent in _integers(dependency.getParents(task))) for task in range(tasks)]


def _integers(sequence: Any) -> list[int]:
    return [int(sequence.apply(index)) for index in range(sequence.size())]


def _source_inputs(partitions: Any) -> list[str]:
    """Describe the partitions of a source, which are all of one class."""
    count = len(partitions)
    kind = partitions[0].getClass().getSimpleName() if count else ""
    return [_partition_input(kind, partitions[number], number) for number in range(count)]


def _partition_input(kind: str, partition: Any, number: int) -> str:
    if kind == "DataSourceRDDPartition":
        given = partition.inputPartition()
        text = given.toString()
        return f"[{_python_input(given.get()) if _PYTHON_PARTITION.search(text) else _text_input(text)}]"
    if kind == "FilePartition":
        return "".join(f"[{file.toString()}]" for file in partition.files())
    return f"[{number}]"


def _text_input(text: str) -> str:
    """Of Kafka keep only the offsets: client properties and the executor that would read differ each time."""
    offsets = _KAFKA_PARTITION.search(text)
    if offsets:
        return "{}/{} {}-{}".format(*offsets.groups())
    return text.removeprefix("Some(").removesuffix(")") if text != "None" else ""


def _python_input(given: Any) -> str:
    """Ask the partition itself: Spark has only its bytes."""
    partition = pickle.loads(given.pickedPartition())  # noqa: S301 - of this run's own source
    return partition.task_input if isinstance(partition, StableInputPartition) else str(given.index())
