"""Rows a second, as a person would count them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from millrace.telemetry.progress import Rates, rates

from .runs import NOW, batch


def test_before_the_first_batch() -> None:
    assert rates([], NOW) is None


def test_many_short_batches() -> None:
    made = [batch(number, ago=10 - number / 2, input_rows=10, input_rate=9999.0, sink_rows=1) for number in range(20)]
    found = rates(made, NOW)
    assert found
    assert found.read == pytest.approx(20, rel=0.1)
    assert found.written == pytest.approx(2, rel=0.1)


def test_a_burst_after_a_long_silence() -> None:
    assert rates([batch(0, ago=500), batch(1, ago=1)], NOW) == Rates(10.0, 1.0)


def test_silence() -> None:
    assert rates([batch(0, ago=500)], NOW) == Rates(0.0, 0.0)


def test_batches_that_are_long_or_far_apart_are_not_silence() -> None:
    long = [batch(number, ago=20 + 30 * (1 - number), input_rows=300, milliseconds=30_000) for number in range(2)]
    long = [one for one in long if one.at < NOW]
    found = rates(long, NOW)
    assert found
    assert found.read > 0
    beat = [batch(number, ago=30 + 60 * (2 - number), input_rows=600) for number in range(3)]
    found = rates(beat, NOW, every=60)
    assert found
    assert found.read == pytest.approx(10, rel=0.5)
    assert rates(beat, NOW) == Rates(0.0, 0.0)


def test_a_sink_that_does_not_count_and_a_clock_that_jumps() -> None:
    found = rates([batch(0, ago=2), batch(1, ago=1, sink_rows=None)], NOW)
    assert found
    assert found.written is None
    assert rates([batch(0)], NOW - timedelta(hours=1)) is not None
