import threading

import pytest

from millrace.feeds.base.pump import RateLimiter


@pytest.fixture
def stop():
    return threading.Event()


def send(pace: RateLimiter, clock, count: int) -> list[tuple[float, int]]:
    """When each slice went, and how large it was."""
    slices = []
    while count:
        pace.wait()
        size = pace.slice(count)
        slices.append((clock.time, size))
        pace.sent(size)
        count -= size
    return slices


@pytest.mark.parametrize("rate", [0.5, 7, 60, 75, 1000, 60_000, 1_000_000])
def test_a_rate_is_kept_exactly(clock, stop, rate):
    count = max(10, int(rate * 10))
    slices = send(RateLimiter(rate, clock, stop), clock, count)
    took = slices[-1][0] - slices[0][0]
    assert took == pytest.approx((count - slices[-1][1]) / rate)


@pytest.mark.parametrize("rate", [100, 1000, 60_000])
def test_slices_are_small(clock, stop, rate):
    slices = send(RateLimiter(rate, clock, stop), clock, rate)
    assert len(slices) >= 20


def test_no_rate_is_no_wait(clock, stop):
    assert send(RateLimiter(None, clock, stop), clock, 100_000) == [(1000.0, 100_000)]
    assert clock.waits == []


def test_the_first_records_go_at_once_however_long_they_took_to_come(clock, stop):
    pace = RateLimiter(10.0, clock, stop)
    clock.time += 100
    assert [when for when, _ in send(pace, clock, 3)] == pytest.approx([1100.0, 1100.1, 1100.2])


def test_a_stall_is_made_up_for_at_twice_the_rate(clock, stop):
    pace = RateLimiter(1000.0, clock, stop)
    send(pace, clock, 1000)
    clock.time += 5
    after = send(pace, clock, 20_000)
    resumed = after[0][0]
    in_next_second = sum(size for when, size in after if when < resumed + 1)
    assert 1900 <= in_next_second <= 2040
    assert after[-1][0] == pytest.approx(1000.0 + 21_000 / 1000, abs=0.05)


def test_a_large_batch_is_waited_for_afterwards(clock, stop):
    pace = RateLimiter(100.0, clock, stop)
    pace.wait()
    pace.sent(1000)
    pace.wait()
    assert clock.time == pytest.approx(1010.0)
