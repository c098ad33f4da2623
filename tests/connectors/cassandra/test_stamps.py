"""Timestamps of rows: never equal for two tasks, and all of a batch below those of the next. No Cassandra is needed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.clients.cassandra import Cassandra
from millrace.connectors.cassandra import sink
from millrace.connectors.cassandra.sink import Insertion, WriteTimestamps

Parts = list[int]
"""How many rows each part of a task's rows has."""


class Stamped:
    """Takes the place of what sends rows, and keeps their timestamps."""

    found: list[int]

    def __init__(self, _: Insertion) -> None:
        self.outflow = self

    def add(self, batch: pa.RecordBatch, timestamp: int, step: int = 1) -> None:
        self.found += [timestamp + number * step for number in range(batch.num_rows)]

    def finish(self) -> None:
        """Nothing is on its way."""


def stamps(monkeypatch: pytest.MonkeyPatch, begin: int, tasks: list[Parts], lanes: tuple[int, ...]) -> list[list[int]]:
    """The timestamps of each task's rows, in their order."""
    monkeypatch.setattr(sink, "_Work", Stamped)
    work: Any = Insertion(Cassandra("nowhere"), None, {}, begin)  # type: ignore[arg-type]
    found = []
    for task, parts in enumerate(tasks):
        Stamped.found = []
        rows = [pa.RecordBatch.from_pydict({"k": pa.array(range(many), pa.int64())}) for many in parts]
        assert work.insert(rows, lanes[task], len(lanes)) == sum(parts)
        found.append(Stamped.found)
    return found


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6), st.randoms())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_two_rows_of_a_batch_have_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, tasks: list[Parts], rng: Any
) -> None:
    lanes = list(range(len(tasks)))
    rng.shuffle(lanes)
    times = WriteTimestamps(tmp_path_factory.mktemp("times") / "t.json", "q")
    found = stamps(monkeypatch, times.of(0), tasks, tuple(lanes))
    every = [one for task in found for one in task]
    assert len(set(every)) == len(every)
    assert all(task == sorted(task) for task in found), "of two rows of a task the later one has more"
    times.used(0, max(map(sum, tasks)) * len(tasks))  # as the sink notes it
    assert all(one < times.of(1) for one in every)


def test_a_batch_that_comes_again_in_another_order_has_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    first = stamps(monkeypatch, 1000, [[3], [2], [1]], (0, 1, 2))
    again = stamps(monkeypatch, 1000, [[1], [3], [2]], (2, 0, 1))
    assert (first[0], first[1], first[2]) == (again[1], again[2], again[0])
