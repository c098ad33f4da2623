"""The size of batches follows how long they take."""

from __future__ import annotations

from millrace.connectors.kafka.bulk_source import AdaptiveBatchSize


def after(took: float, interval: float = 0.0, end: str = "a", start: str = "a") -> float:
    """How many times as many records the next batch may have."""
    pace = AdaptiveBatchSize(interval)
    before = pace.most
    pace.cut(end, 100.0)
    pace.begins(start, 100.0 + took)
    return pace.most / before


def test_a_quick_batch_makes_the_next_one_larger() -> None:
    assert after(3) == 2


def test_a_slow_batch_makes_the_next_one_smaller_in_proportion() -> None:
    assert after(40) == 0.25
    assert after(12) == 1  # as long as it should be, about


def test_a_trigger_with_more_time_lets_batches_take_it() -> None:
    assert after(60.02, interval=60) == 2
    assert AdaptiveBatchSize(3600).most == 360 * AdaptiveBatchSize().most
    assert after(240, interval=60) == 0.25


def test_what_was_not_cut_off_says_nothing() -> None:
    assert after(100, end="a", start="b") == 1
    pace = AdaptiveBatchSize()
    before = pace.most
    pace.begins("a", 1.0)
    assert pace.most == before


def test_a_batch_is_never_tiny() -> None:
    pace = AdaptiveBatchSize()
    for number in range(10):
        pace.cut(number, 0.0)
        pace.begins(number, 1000.0)
    assert pace.most == 10_000
