"""Batches that are cut by event time have no late records, however partitions are filled and whatever their size."""

from __future__ import annotations

import pickle
from collections import defaultdict
from itertools import accumulate
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.connectors.base.batch_alignment import NO_TIME, EventTime, Times, WaitingPartitions, earliest
from millrace.formats.csv import Csv
from millrace.formats.json import Json
from millrace.pipeline.schema import parse_schema

S = 1_000_000


@st.composite
def partitions(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    """Event times of partitions in their order, each with a disorder up to the delay, which is returned too."""
    delay = draw(st.integers(0, 20))
    own = st.lists(st.tuples(st.integers(0, 15), st.integers(0, delay)), max_size=40)
    drawn = draw(st.lists(own, min_size=1, max_size=5))
    return [
        [newest - late for newest, (_, late) in zip(accumulate(step for step, _ in steps), steps, strict=True)]
        for steps in drawn
    ], delay


@given(partitions(), st.integers(1, 60))
def test_no_record_is_late_and_each_is_read_once(given_times: tuple[list[list[int]], int], most: int) -> None:
    times, delay = given_times
    left = {number: np.array(own, np.int64) for number, own in enumerate(times)}
    watermark, newest, read = NO_TIME, NO_TIME, 0
    while any(map(len, left.values())):
        counts, reached = earliest(left, most)
        taken = [int(one) for number, own in left.items() for one in own[: counts[number]]]
        assert 0 < len(taken) <= most
        assert reached is not None
        assert reached >= max(taken)
        assert all(one >= watermark for one in taken)
        newest = max(newest, *taken)
        watermark, read = newest - delay, read + len(taken)
        left = {number: own[counts[number] :] for number, own in left.items()}
    assert read == sum(map(len, times))


@pytest.mark.parametrize("most", [1, 2, 3, 90, 100, 299])
def test_records_of_one_time_are_shared_out_over_the_partitions(most: int) -> None:
    """Many may have arrived within a millisecond."""
    counts, _ = earliest({number: np.zeros(100, np.int64) for number in range(3)}, most)
    assert sum(counts.values()) == most
    assert max(counts.values()) - min(counts.values()) <= 1


def test_records_without_a_time_keep_nobody_waiting() -> None:
    counts, reached = earliest({"a": np.array([NO_TIME, NO_TIME, 5]), "b": np.array([7, 8])}, 3)
    assert (counts, reached) == ({"a": 3, "b": 0}, 5)
    assert earliest({"a": np.array([], np.int64)}, 3) == ({"a": 0}, None)
    for most in (3, 9):
        assert earliest({"a": np.full(5, NO_TIME)}, most) == ({"a": min(most, 5)}, None)


def times_of(event_time: EventTime, *values: bytes | None) -> list[int | None]:
    copy: EventTime = pickle.loads(pickle.dumps(event_time))  # noqa: S301
    given_times: Times = np.arange(len(values), dtype=np.int64)
    return [None if one == NO_TIME else one for one in copy.of(pa.array(values, pa.binary()), given_times).tolist()]


def test_the_event_time_is_that_of_a_column_or_of_the_system() -> None:
    at = EventTime("at", 0, 1.0, Json(), parse_schema("at timestamp"), "at")
    good, bad, null = b'{"at": "1970-01-01T00:00:02Z", "n": 1}', b"{", b'{"at": null}'
    assert times_of(at, good, bad, good, null, None) == [2 * S, None, 2 * S, None, None]
    line = EventTime("at", 0, 1.0, Csv(), parse_schema("n int, at timestamp"), "at")
    assert times_of(line, b"1,1970-01-01T00:00:02Z", b"x,1970-01-01T00:00:02Z") == [2 * S, None]
    assert times_of(EventTime("Kafka's times", 0, 1.0), good, bad) == [0, 1]


def rounds(
    waiting: WaitingPartitions, *rounds: tuple[float, dict[str, int], dict[str, int], int | None]
) -> list[dict[str, int]]:
    """What is released at times of the clock, if partition "a" is behind in event time.

    By round: the clock, where the partitions are, how many records have arrived, and the seconds of event time up to
    which "a" has been read.
    """
    released = []
    with patch("millrace.connectors.base.batch_alignment.time") as clock:
        for now, at, arrived, seconds in rounds:
            clock.monotonic.return_value = now
            reached_us = None if seconds is None else seconds * S
            released.append(waiting.released(at, defaultdict(int, arrived), ["a"], reached_us))
    return released


def test_what_had_arrived_is_waited_for_however_slow_processing_is() -> None:
    arrived = {"a": 100, "b": 100}
    assert not any(rounds(WaitingPartitions(10.0), *((n * 300.0, {"a": n, "b": 0}, arrived, 5) for n in range(100))))


@pytest.mark.parametrize(
    ("seconds", "released"),
    [
        ((None, None, None, None), True),
        ((0, 0, 0, 0), True),
        ((0, 5, 9, 12), True),
        ((0, 5, 20, 20), False),
    ],
    ids=["no event time", "stands still", "slower than the clock", "as fast as the clock"],
)
def test_what_arrives_later_is_waited_for_while_event_time_keeps_up(
    seconds: tuple[int | None, ...], released: bool
) -> None:
    waiting = WaitingPartitions(10.0)
    found = rounds(
        waiting,
        (0.0, {"a": 0, "b": 0}, {"a": 10, "b": 10}, seconds[0]),
        (5.0, {"a": 5, "b": 0}, {"a": 15, "b": 15}, seconds[0]),
        (11.0, {"a": 10, "b": 0}, {"a": 20, "b": 20}, seconds[1]),
        (15.0, {"a": 15, "b": 0}, {"a": 30, "b": 30}, seconds[2]),
        (20.0, {"a": 20, "b": 0}, {"a": 40, "b": 40}, seconds[3]),
    )
    assert found == [{}, {}, {}, {}, {"b": 10} if released else {}]
    # What is released is read, also if "a" moves meanwhile, and no more than that.
    rest = rounds(
        waiting,
        (21.0, {"a": 20, "b": 4}, {"a": 50, "b": 50}, 90),
        (22.0, {"a": 20, "b": 10}, {"a": 50, "b": 50}, 90),
    )
    assert rest == [{"b": 10} if released else {}, {}]


def test_nothing_is_released_after_a_batch_of_all_that_is_there() -> None:
    waiting = WaitingPartitions(10.0)
    places = ((0.0, 0), (5.0, 5), (11.0, 10), (12.0, 20))
    begun = [(now, {"a": place, "b": 0}, {"a": place + 10, "b": 10}, 0) for now, place in places]
    assert any(rounds(waiting, *begun))
    waiting.reset()
    assert not any(rounds(waiting, (13.0, {"a": 40, "b": 5}, {"a": 60, "b": 20}, 0)))
