"""What a task reads, told the same wherever it runs: a cluster's executors leave no trace in it."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.connectors.base.batch_tasks import _deals_by_turns, _handed_on, _piece, task_numbers

SOURCE = "DataSourceRDDPartition"


class Java:
    """An object of Spark's: a class name, a text, and methods that answer."""

    def __init__(self, kind: str, text: str = "", **answers: Any) -> None:
        self._kind, self._text = kind, text
        for name, answer in answers.items():
            setattr(self, name, lambda *_, answer=answer: answer)

    def getClass(self) -> Java:  # noqa: N802 - Java's name
        return self

    def getSimpleName(self) -> str:  # noqa: N802 - Java's name
        return self._kind

    def toString(self) -> str:  # noqa: N802 - Java's name
        return self._text


def kafka(partition: int, first: int, end: int, host: str | None) -> Java:
    """A part of a topic, as the Kafka source plans it; on a cluster each has an executor that would read it."""
    place = f"Some({host})" if host else "None"
    span = f"KafkaOffsetRange(t-0-{partition},{first},{end},{place})"
    return Java(SOURCE, inputPartition=Java("Some", f"Some(KafkaBatchInputPartition({span},{{…}},512))"))


@pytest.mark.parametrize("host", ["executor_10.0.0.1_1", "executor_10.0.0.2_5", None])
def test_kafka_is_told_without_the_executor(host: str | None) -> None:
    assert _piece(SOURCE, kafka(2, 5, 9, host), 0) == "[t-0/2 5-9]"


@pytest.mark.parametrize(("text", "told"), [("Some(Part(1,2))", "[Part(1,2)]"), ("None", "[]")])
def test_another_source_is_told_as_it_tells_itself(text: str, told: str) -> None:
    assert _piece(SOURCE, Java(SOURCE, inputPartition=Java("", text)), 0) == told


def test_files_are_told_by_path_and_range() -> None:
    part = Java("FilePartition", "FilePartition(0,[…],[host-a, host-b])", files=[Java("", "path: a.json, range: 0-9")])
    assert _piece("FilePartition", part, 3) == "[path: a.json, range: 0-9]"


def test_what_has_no_name_is_told_by_its_number() -> None:
    assert _piece("ParallelCollectionPartition", Java("", "Partition@1f2e3d"), 3) == "[3]"


def test_behind_a_shuffle_rows_are_dealt_out_by_what_is_in_them() -> None:
    assert _handed_on("ShuffleDependency", Java(""), 3) == ["[part 0]", "[part 1]", "[part 2]"]


def test_executors_in_another_order_change_no_number() -> None:
    planned = [_piece(SOURCE, kafka(number, 0, 9, f"executor_a_{number}"), number) for number in range(4)]
    again = [_piece(SOURCE, kafka(number, 0, 9, f"executor_b_{number}"), 3 - number) for number in (3, 1, 0, 2)]
    first, second = task_numbers(tuple(planned)), task_numbers(tuple(again))
    assert dict(zip(planned, first, strict=True)) == dict(zip(again, second, strict=True))


@pytest.mark.parametrize(
    ("plan", "turned"),
    [
        ("Repartition 4, true", True),
        ("RepartitionByExpression [id#0L], 4", False),
        ("RepartitionByExpression [id#0L ASC NULLS FIRST, at#1 DESC NULLS LAST], 4", True),
        ("Project [id#0L]\n+- RepartitionByExpression [id#0L DESC NULLS LAST]", True),
        ("Sort [id#0L ASC NULLS FIRST], true", True),
        ("Sort [id#0L ASC NULLS FIRST], false", False),
        ("Union false, false\n:- CTERelationRef 0, true, [n#4]\n+- CTERelationRef 0, true, [n#9]", True),
        ("Union false, false\n:- CTERelationRef 0, true, [n#4]\n+- CTERelationRef 1, true, [n#9]", False),
    ],
)
def test_rows_that_may_be_in_other_tasks_each_time(plan: str, turned: bool) -> None:
    assert _deals_by_turns(plan) == turned
