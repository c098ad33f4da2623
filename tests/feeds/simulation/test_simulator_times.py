import random
from datetime import UTC, datetime
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import InvalidOption
from millrace.feeds.simulation.simulator import CHUNK, event_times, iso

START = 1_780_000_000_000


def first_times(count: int, pace: float, disorder: float, seed: int = 1) -> list[int]:
    chunks = event_times(random.Random(seed), START, pace, disorder)
    return [time for chunk in islice(chunks, count // CHUNK) for time in chunk]


def lateness(pace: float, disorder: float, count: int = 20_000) -> list[float]:
    """Milliseconds between when an event arrives and when it happened."""
    return [START + i * 1000 / pace - time for i, time in enumerate(first_times(count, pace, disorder))]


def test_the_first_event_is_at_the_start_and_none_is_before_it():
    times = first_times(5000, pace=100, disorder=20)
    assert times[0] == START
    assert min(times) == START


def test_without_disorder_events_are_in_order_at_the_pace():
    times = first_times(2000, pace=200, disorder=0)
    assert times == [START + 5 * i for i in range(2000)]


def test_no_event_is_later_than_the_disorder():
    late = lateness(pace=1000, disorder=2)
    assert min(late) >= 0
    assert 1900 < max(late) <= 2001


def test_most_events_are_hardly_late_and_a_few_are_much_later():
    late = lateness(pace=1000, disorder=2)[5000:]
    share_late = sum(ms > 200 + 1 for ms in late) / len(late)
    share_very_late = sum(ms > 1000 for ms in late) / len(late)
    assert 0.02 < share_late < 0.04
    assert 0 < share_very_late < share_late / 2


@pytest.mark.parametrize("pace", [0.5, 10_000_000])
def test_any_pace_will_do(pace):
    assert max(first_times(1000, pace, 2)) <= START + 1000 * 1000 / pace


def test_times_that_no_calendar_has_are_refused():
    with pytest.raises(InvalidOption):
        next(event_times(random.Random(1), 253_402_000_000_000, 1000, 2))
    with pytest.raises(InvalidOption):
        next(event_times(random.Random(1), -63_000_000_000_000, 1000, 2))


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC)))
def test_a_time_is_written_as_it_is(moment):
    milliseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution * 1000)
    text = iso(milliseconds)
    assert text == moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
