"""The timestamp of a batch: the same when it is repeated, more than that of any batch before."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.connectors.cassandra.sink import _KEPT, WriteTimestamps
from millrace.errors import StateMismatch


def test_a_repeated_batch_has_the_timestamp_of_the_first_time(tmp_path: Path) -> None:
    first = WriteTimestamps(tmp_path / "t.json", "q").of(0)
    assert WriteTimestamps(tmp_path / "t.json", "q").of(0) == first
    assert first <= time.time_ns() // 1000


def test_a_later_batch_has_more_than_all_that_an_earlier_one_used(tmp_path: Path) -> None:
    times = WriteTimestamps(tmp_path / "t.json", "q")
    first = times.of(0)
    times.used(0, 10**9)  # as if it had taken no time at all
    assert times.of(1) > first + 10**9
    assert times.of(0) == first


def test_a_query_that_begins_anew_has_more_than_the_one_before(tmp_path: Path) -> None:
    old = WriteTimestamps(tmp_path / "t.json", "old")
    old.of(0)
    last = old.of(41)
    old.used(41, 10**9)
    anew = WriteTimestamps(tmp_path / "t.json", "new")
    assert anew.of(0) > last + 10**9
    assert anew.of(1) > anew.of(0)


def test_a_batch_that_is_forgotten_has_less_than_those_that_are_not(tmp_path: Path) -> None:
    times = WriteTimestamps(tmp_path / "t.json", "q")
    for batch in range(_KEPT + 10):
        times.of(batch)
    forgotten = [times.of(batch) for batch in range(10)]
    assert forgotten == sorted(set(forgotten))
    assert forgotten[-1] + 10**7 < times.of(10), "and so has each of its rows"


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("{")
    with pytest.raises(StateMismatch):
        WriteTimestamps(tmp_path / "t.json", "q").of(0)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10**7)), max_size=30))
def test_of_two_batches_the_later_number_always_has_more(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[int, int]]
) -> None:
    times = WriteTimestamps(tmp_path_factory.mktemp("times") / "t.json", "q")
    for batch, width in sorted(written):
        begin = times.of(batch)
        times.used(batch, width)
        assert times.of(batch) == begin
    known = {batch: times.of(batch) for batch, _ in written}
    assert [known[batch] for batch in sorted(known)] == sorted(known.values())
