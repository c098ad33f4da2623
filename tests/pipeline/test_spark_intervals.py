"""Intervals are read as Spark reads them; tests/pipeline/checks/test_names_like_spark.py asks Spark itself."""

from __future__ import annotations

import pytest

from millrace.errors import InvalidOption
from millrace.pipeline.spark_intervals import interval_us, window_mistake


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 minutes", (0, 600_000_000)),
        (" interval 1 Day 2 hours ", (0, 93_600_000_000)),
        ("1.5 seconds", (0, 1_500_000)),
        ("- 3 milliseconds", (0, -3_000)),
        ("1 year 2 months 1 week", (14, 604_800_000_000)),
    ],
)
def test_an_interval(text: str, expected: tuple[int, int]) -> None:
    assert interval_us(text) == expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("10 parsecs", "the units are"),
        ("10 minuts", "did you mean 'minutes'?"),
        ("10", "write a number"),
        ("5m", "write a number"),
        ("", "write a number"),
        ("1.5 days", "only seconds"),
    ],
)
def test_no_interval(text: str, hint: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        interval_us(text)
    assert (raised.value.hint or "").startswith(hint)


@pytest.mark.parametrize(
    ("name", "texts", "wrong"),
    [
        ("window", ["10 minutes", "1 minute", "30 seconds"], False),
        ("session_window", ["5 minutes"], False),
        ("window", ["1 month"], True),
        ("window", ["1 minute", "10 minutes"], True),
        ("window", ["0 seconds"], True),
        ("session_window", ["5 parsecs"], True),
        ("session_window", ["1 month"], False),
        ("session_window", ["-1 minute"], True),
        ("window", ["1 minute", "1 minute", "2 minutes"], True),
    ],
)
def test_the_durations_of_windows(name: str, texts: list[str], wrong: bool) -> None:
    assert bool(window_mistake(name, texts)) == wrong
