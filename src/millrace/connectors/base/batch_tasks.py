"""The tasks of a batch: the same rows in the same task, and the same number for it, whenever the batch comes again.

- `with_deterministic_tasks` makes Spark put rows into tasks by what is in them.
- `TaskPlan` runs a batch whose tasks know their numbers (`task_number`) and arguments (`task_arguments`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millrace.connectors.base.rdd_lineage import task_inputs
from millrace.errors import InvalidOption

if TYPE_CHECKING:
    from pyspark import TaskContext
    from pyspark.sql import DataFrame, Row

QUERY_ID = "sql.streaming.queryId"
"""The property of a batch's jobs that names their query; it lives as long as the checkpoint."""
_ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
NUMBERS_PROPERTY = "millrace.lanes"
"""The property of a job that gives its tasks their numbers."""
ARGUMENTS_PROPERTY = "millrace.batch"
"""The property of a job that gives its tasks what all of them have to know of the batch."""
_BY_POSITION = re.compile(
    r"^\W*(?:Repartition \d|RepartitionByExpression (?:\[\]|\d|\[.* (?:ASC|DESC) NULLS )|RebalancePartitions"
    r"|Sort \[.*\], true)",
    re.MULTILINE,
)
"""Operators that put a row into a task by its position or by a sample, not by what is in it."""
_CTE_USE = re.compile(r"\bCTERelationRef (\d+)")


def with_deterministic_tasks(frame: DataFrame) -> DataFrame:
    """Return the frame with its rows in the same tasks whenever it is computed; repartitioned where need be."""
    from pyspark.sql.types import MapType, VariantType

    if frame.sparkSession.conf.get(_ADAPTIVE, "false") == "true":
        why = "a batch that is repeated may be cut into other tasks than the first time"
        hint = "leave that setting out, or choose guarantee: at-least-once"
        raise InvalidOption(f"with {_ADAPTIVE} a kafka sink cannot write each row once", why=why, hint=hint)
    if not _partitions_by_position(frame._jdf.queryExecution().analyzed().toString()):
        return frame
    incomparable = (MapType, VariantType)  # for Spark
    fields = [field for field in frame.schema.fields if not isinstance(field.dataType, incomparable)]
    return frame.repartition(*(f"`{field.name}`" for field in fields))


def _partitions_by_position(plan: str) -> bool:
    """Return whether rows may be in other tasks next time; Spark may compute a WITH twice that is used twice."""
    uses = Counter(_CTE_USE.findall(plan))
    return _BY_POSITION.search(plan) is not None or max(uses.values(), default=0) > 1


@dataclass(frozen=True)
class TaskPlan:
    """A batch on which a function runs task by task. It is planned once: to see what its tasks read, and to run."""

    frame: DataFrame
    """The results of the function."""
    inputs: tuple[str, ...]
    """What each task reads."""

    @classmethod
    def of(cls, frame: DataFrame, inputs: tuple[str, ...] = ()) -> TaskPlan:
        """Plan a frame; `inputs` are given where they are known."""
        return cls(frame, inputs or task_inputs(frame))

    def run(self) -> list[Row]:
        """Return the results, of tasks that know their numbers."""
        with self._job_properties({}):
            rows: list[Row] = self.frame.collect()
        return rows

    def finish(self, arguments: Mapping[str, Any]) -> None:
        """Run without results, which saves Spark a plan and a query; tasks know their numbers and the arguments."""
        with self._job_properties(arguments):
            self.frame._jdf.queryExecution().toRdd().count()

    @contextmanager
    def _job_properties(self, arguments: Mapping[str, Any]) -> Iterator[None]:
        """Set properties for the jobs of this thread, and remove them: another job must not take them for its own."""
        context = self.frame.sparkSession.sparkContext
        context.setLocalProperty(NUMBERS_PROPERTY, ",".join(map(str, task_numbers(self.inputs))))
        context.setLocalProperty(ARGUMENTS_PROPERTY, json.dumps(arguments))
        try:
            yield
        finally:
            for name in (NUMBERS_PROPERTY, ARGUMENTS_PROPERTY):
                context.setLocalProperty(name, None)


def task_numbers(inputs: tuple[str, ...]) -> tuple[int, ...]:
    """Return a number for each task that depends only on what all of them read: its position in their sorted order."""
    ordered = sorted(range(len(inputs)), key=lambda task: (inputs[task], task))
    numbers = {task: number for number, task in enumerate(ordered)}
    return tuple(numbers[task] for task in range(len(inputs)))


def task_number(task: TaskContext) -> tuple[int, int]:
    """Return the number of a task of a `TaskPlan`, and how many there are."""
    numbers = (task.getLocalProperty(NUMBERS_PROPERTY) or "").split(",")
    return int(numbers[task.partitionId()]), len(numbers)


def task_arguments(task: TaskContext) -> dict[str, Any]:
    """Return the arguments that the tasks of a `TaskPlan` have."""
    arguments: dict[str, Any] = json.loads(task.getLocalProperty(ARGUMENTS_PROPERTY) or "{}")
    return arguments
